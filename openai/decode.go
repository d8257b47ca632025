package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a request's JSON. The deepest that a supported parameter needs is 6.
const maxDepth = 32

// refuser is a type that knows parameters only to refuse them. It maps a name to those values in JSON, beside null, that
// ask for nothing and so are let through.
type refuser interface{ refuses() map[string][]string }

// requirer is a type that lacks meaning without some parameters.
type requirer interface{ requires() []string }

// Decode reads a request, which is one JSON object, into a pointer to a struct. It is strict where encoding/json is
// not: bytes that are no UTF-8, halves of surrogate pairs, deep nesting, unknown names and names in another case are
// errors. A null is the same as no value, a byte order mark in front is no part of the text, and a parameter that is a whole
// number may be written as 3.0 or 3e2, as clients write it that know no other numbers; ids in lists may not. An error is an [*Error] of status 400 that names the parameter.
func Decode(data []byte, v any) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkText(data); err != nil {
		return err
	}
	if !json.Valid(data) {
		var any json.RawMessage
		err := json.Unmarshal(data, &any)
		return &Error{Status: 400, Type: InvalidRequest, Code: "invalid_json", Message: fmt.Sprintf("the body is not valid JSON: %v", err)}
	}
	return decodeObject(data, v)
}

// checkText refuses what encoding/json would replace or descend into without a word.
func checkText(data []byte) error {
	bad := func(format string, a ...any) error {
		return &Error{Status: 400, Type: InvalidRequest, Code: "invalid_json", Message: fmt.Sprintf(format, a...)}
	}
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return bad("the body is not valid UTF-8 (at byte %d)", at)
	}
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			n := escape(data[i:])
			if n == 0 {
				return bad("the body has half of a surrogate pair (at byte %d)", i)
			}
			i += n - 1
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return bad("the body nests deeper than %d levels (at byte %d)", maxDepth, i)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// escape returns the length of the escape sequence that s begins with, 0 if it is half of a surrogate pair. What is
// no escape sequence at all is left to the JSON parser.
func escape(s []byte) int {
	r, ok := unicodeEscape(s)
	if !ok || !utf16.IsSurrogate(r) {
		return 2
	}
	low, ok := unicodeEscape(s[min(6, len(s)):])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0
	}
	return 12
}

// unicodeEscape reads \uXXXX.
func unicodeEscape(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// decodeObject fills the fields of a struct, embedded ones included, from an object.
func decodeObject(data []byte, v any) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil || given == nil {
		return Invalid("", "want an object, got %s", kindOf(data))
	}
	known := map[string]reflect.Value{}
	structFields(reflect.ValueOf(v).Elem(), known)
	refused := map[string][]string{}
	if r, ok := v.(refuser); ok {
		refused = r.refuses()
	}
	for _, name := range slices.Sorted(maps.Keys(given)) { // sorted, so that of two errors the same is reported
		raw := given[name]
		field, ok := known[name]
		harmless, listed := refused[name]
		switch {
		case !ok && !listed:
			return aboutParam(name, unknownParam)
		case string(raw) == "null":
		case ok:
			if err := decodeField(name, raw, field); err != nil {
				return err
			}
		case !slices.Contains(harmless, compact(raw)):
			return aboutParam(name, unsupportedParam)
		}
	}
	if r, ok := v.(requirer); ok {
		for _, name := range r.requires() {
			if raw, ok := given[name]; !ok || string(raw) == "null" {
				return aboutParam(name, missingParam)
			}
		}
	}
	return nil
}

// structFields collects the fields of a struct by their JSON name.
func structFields(v reflect.Value, into map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			structFields(v.Field(i), into)
		case name != "" && name != "-":
			into[name] = v.Field(i)
		}
	}
}

// decodeField reads one value. An error of a nested object gets this field's name in front.
func decodeField(name string, raw json.RawMessage, field reflect.Value) error {
	if wanted(base(field.Type())) == wholeNumber {
		raw = integer(raw)
	}
	err := json.Unmarshal(raw, field.Addr().Interface())
	if err == nil {
		return nil
	}
	var inner *Error
	if errors.As(err, &inner) {
		return inner.within(name)
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return Invalid(name, "%s: want %s, got %s", name, wanted(typ.Type), Clip(typ.Value))
	}
	return Invalid(name, "%s: %v", name, err)
}

// base is the type that a field holds, be it by a pointer.
func base(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// integer returns a whole number that is written with a fraction or an exponent in plain digits, and all else as it is. From 2^53 on
// a number so written is no longer one certain whole number.
func integer(raw json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(raw, ".eE") {
		return raw
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return raw
	}
	return strconv.AppendInt(nil, int64(f), 10)
}

const wholeNumber = "a whole number"

// wanted says in words what a Go type holds.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return wholeNumber
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// kindOf says in words what a JSON value is.
func kindOf(data []byte) string {
	switch data = bytes.TrimSpace(data); {
	case len(data) == 0:
		return "nothing"
	case data[0] == '{':
		return "an object"
	case data[0] == '[':
		return "a list"
	case data[0] == '"':
		return "a string"
	case data[0] == 't' || data[0] == 'f':
		return string(data)
	case data[0] == 'n':
		return "null"
	}
	return "a number"
}

// compact returns JSON without its blanks.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw) // Decode has checked the whole; this is unreachable for its callers
	}
	return b.String()
}

// Clip bounds what an error repeats of its cause.
func Clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// at puts the index of a list's element in front of an error's place.
func at(i int, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e.within(fmt.Sprintf("[%d]", i))
	}
	return err
}
