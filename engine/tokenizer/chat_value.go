package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// chatValue converts v for a template. It goes through JSON, so that a type that JSON cannot hold is an error.
func chatValue(v any) (jinja.Value, error) {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return jinja.Undefined(), err
		}
		raw = b.Bytes()
	}
	return orderedJSON(raw)
}

// orderedJSON parses a JSON document and keeps the order of fields, as Python's json does.
func orderedJSON(raw json.RawMessage) (jinja.Value, error) {
	if !json.Valid(raw) { // also bounds the depth of nesting
		return jinja.Undefined(), fmt.Errorf("not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := orderedValue(d)
	if err != nil && err != io.EOF {
		return jinja.Undefined(), err
	}
	return v, nil
}

func orderedValue(d *json.Decoder) (jinja.Value, error) {
	token, err := d.Token()
	if err != nil {
		return jinja.Undefined(), err
	}
	switch v := token.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(v), nil
	case string:
		return jinja.NewString(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := v.Float64()
		return jinja.NewFloat(f), err
	case json.Delim:
		if v == '[' {
			return orderedList(d)
		}
		return orderedObject(d)
	}
	panic(fmt.Sprintf("tokenizer: JSON token of type %T", token))
}

func orderedList(d *json.Decoder) (jinja.Value, error) {
	items := []jinja.Value{}
	for d.More() {
		v, err := orderedValue(d)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return jinja.NewList(items), err
}

func orderedObject(d *json.Decoder) (jinja.Value, error) {
	dict := jinja.NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return dict, err
		}
		v, err := orderedValue(d)
		if err != nil {
			return v, err
		}
		dict.AsDict().Set(key.(string), v)
	}
	_, err := d.Token()
	return dict, err
}

// strftimeLayouts are the directives of C's strftime that strftime_now knows, as layouts of package time.
var strftimeLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
}

// strftime formats t by a format of C's strftime in the C locale; an unknown directive is an error.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		strip := i < len(format) && format[i] == '-' // GNU: no padding
		if strip {
			i++
		}
		if i < len(format) && format[i] == '%' && !strip {
			b.WriteByte('%')
			continue
		}
		if i == len(format) || strftimeLayouts[format[i]] == "" {
			return "", fmt.Errorf("strftime_now: unknown directive in %q", format)
		}
		s := t.Format(strftimeLayouts[format[i]])
		if strip {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
