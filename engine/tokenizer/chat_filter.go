package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// Filters that the library has in other versions than Hugging Face; prepareTemplate puts these in their place.
const (
	tojsonName = "__draftlab_tojson"
	outName    = "__draftlab_out" // Python's str
)

// replacedFilters maps a filter to the one in its place.
var replacedFilters = map[string]string{"tojson": tojsonName, "string": outName}

// installFilters adds the filters to a template's variables.
func installFilters(vars map[string]jinja.Value) {
	vars[tojsonName] = jinja.NewCallable(tojsonName, tojson)
	vars[outName] = jinja.NewCallable(outName, func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		if args[0].IsString() {
			return args[0], nil
		}
		var b strings.Builder
		err := pythonRepr(&b, args[0], 0)
		return jinja.NewString(b.String()), err
	})
}

// tojson is Hugging Face's filter: Python's json.dumps with ensure_ascii off. The library's escapes HTML
// and sorts fields once an indent is given.
func tojson(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	w := jsonWriter{item: ", ", key: ": "}
	for name, v := range kwargs {
		switch {
		case v.IsNone():
		case name == "indent" && v.IsInt() && v.AsInt() >= 0 && v.AsInt() <= 16:
			w.indent, w.pretty = int(v.AsInt()), true
		case name == "sort_keys" && v.IsBool():
			w.sorted = v.AsBool()
		case name == "ensure_ascii" && v.IsBool() && !v.AsBool():
		case name == "separators" && v.IsList() && v.AsList().Len() == 2 && v.AsList().Get(0).IsString() && v.AsList().Get(1).IsString():
			w.item, w.key, w.separated = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString(), true
		default:
			return jinja.None(), fmt.Errorf("tojson: %s=%s is not known", name, v.String())
		}
	}
	if len(args) > 1 { // the filter's first parameter
		return jinja.None(), fmt.Errorf("tojson: give its parameters by name")
	}
	if w.pretty && !w.separated {
		w.item = "," // as Python: the line break follows
	}
	if err := w.value(args[0], 0); err != nil {
		return jinja.None(), err
	}
	return jinja.NewString(w.out.String()), nil
}

// jsonWriter writes JSON as Python's json.dumps does.
type jsonWriter struct {
	out               strings.Builder
	item, key         string // separators
	indent            int
	pretty, separated bool
	sorted            bool
}

// maxValueDepth bounds the recursion into lists and objects: a template can put a list into itself.
const maxValueDepth = 1000

func (w *jsonWriter) value(v jinja.Value, depth int) error {
	switch {
	case depth > maxValueDepth:
		return fmt.Errorf("tojson: nested more than %d deep", maxValueDepth)
	case v.IsNone():
		w.out.WriteString("null")
	case v.IsBool():
		w.out.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		w.out.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		w.out.WriteString(jsonFloat(v.AsFloat()))
	case v.IsString():
		w.string(v.AsString())
	case v.IsList():
		return w.block('[', ']', v.AsList().Len(), depth, func(i int) error { return w.value(v.AsList().Get(i), depth+1) })
	case v.IsDict():
		d := v.AsDict()
		keys := d.OrderedKeys()
		if w.sorted {
			keys = slices.Sorted(slices.Values(keys))
		}
		return w.block('{', '}', len(keys), depth, func(i int) error {
			w.string(keys[i])
			w.out.WriteString(w.key)
			inner, _ := d.Get(keys[i])
			return w.value(inner, depth+1)
		})
	default:
		return fmt.Errorf("tojson: an undefined value or a function cannot be written as JSON")
	}
	return nil
}

// block writes n items between brackets.
func (w *jsonWriter) block(open, end byte, n, depth int, item func(int) error) error {
	w.out.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.item)
		}
		w.newline(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.newline(depth)
	}
	w.out.WriteByte(end)
	return nil
}

func (w *jsonWriter) newline(depth int) {
	if w.pretty {
		w.out.WriteString("\n" + strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) string(s string) {
	w.out.WriteByte('"')
	for _, r := range s {
		at := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case at >= 0:
			w.out.WriteByte('\\')
			w.out.WriteByte("\"\\nrtbf"[at])
		case r < ' ':
			fmt.Fprintf(&w.out, `\u%04x`, r)
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return pythonFloat(f)
}
