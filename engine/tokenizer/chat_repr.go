package tokenizer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// pythonRepr writes v as Python's repr does, and something undefined as nothing.
func pythonRepr(b *strings.Builder, v jinja.Value, depth int) error {
	switch {
	case depth > maxValueDepth:
		return fmt.Errorf("a value is nested more than %d deep", maxValueDepth)
	case v.IsUndefined() || v.IsCallable():
	case v.IsNone():
		b.WriteString("None")
	case v.IsFloat():
		b.WriteString(pythonFloat(v.AsFloat()))
	case v.IsString():
		quotePython(b, v.AsString())
	case v.IsList():
		b.WriteByte('[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := pythonRepr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case v.IsDict():
		b.WriteByte('{')
		for i, key := range v.AsDict().OrderedKeys() {
			if i > 0 {
				b.WriteString(", ")
			}
			quotePython(b, key)
			b.WriteString(": ")
			item, _ := v.AsDict().Get(key)
			if err := pythonRepr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		b.WriteString(v.String()) // integers and booleans
	}
	return nil
}

// quotePython writes s as a Python literal: in single quotes, unless only double ones need no escape.
func quotePython(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		at := strings.IndexRune("\\\n\r\t", r)
		switch {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(`\nrt`[at])
		case r == quote:
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xFF:
			fmt.Fprintf(b, `\x%02x`, r)
		case r <= 0xFFFF:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

// pythonFloat writes f as Python's repr does: the shortest digits that read back as f, with an exponent below
// 1e-4 and from 1e16 on, and with a point otherwise.
func pythonFloat(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
