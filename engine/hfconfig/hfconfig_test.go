package hfconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestObject: what one read gives, and the error that it leaves.
func TestObject(t *testing.T) {
	const text = `{"n": 7, "f": 0.5, "s": "x", "l": ["a", "b"], "yes": true, "no": false, "null": null, "id": 3, "ids": [4, 5],
		"o": {"in": 1, "other": 2}, "_note": 1, "empty": {}, "big": 3e9}`
	for _, tc := range []struct {
		name string
		read func(*Object) any
		want string // the value, or else the error
	}{
		{"integer", func(o *Object) any { return o.Integer("n", 1) }, "7"},
		{"missing", func(o *Object) any { return o.Integer("m", 1) }, "1"},
		{"null is missing", func(o *Object) any { return o.Integer("null", 1) }, "1"},
		{"fraction", func(o *Object) any { return o.Integer("f", 1) }, "f = 0.5: want a whole number"},
		{"beyond 31 bits", func(o *Object) any { return o.Integer("big", 1) }, "big = 3e9: want a whole number"},
		{"number", func(o *Object) any { return o.Number("f", 1) }, "0.5"},
		{"no number", func(o *Object) any { return o.Number("s", 1) }, `s = "x": want a number`},
		{"size", func(o *Object) any { return o.Size("n", 0, 7) }, "7"},
		{"size above", func(o *Object) any { return o.Size("n", 0, 6) }, "n = 7: want 1 to 6"},
		{"size missing", func(o *Object) any { return o.Size("m", 0, 6) }, "m is missing or 0"},
		{"text", func(o *Object) any { return o.Text("s", "") }, "x"},
		{"texts", func(o *Object) any { return o.Texts("l") }, "[a b]"},
		{"flag", func(o *Object) any { return o.Flag("yes", false) }, "true"},
		{"no flag", func(o *Object) any { return o.Flag("n", false) }, "n = 7: want true or false"},
		{"token", func(o *Object) any { return o.Tokens("id") }, "[3]"},
		{"tokens", func(o *Object) any { return o.Tokens("ids") }, "[4 5]"},
		{"no tokens", func(o *Object) any { return o.Tokens("s") }, `s = "x": want a token id`},
		{"must be", func(o *Object) any { o.MustBe("n", 6); return nil }, "n = 7 is not supported (only 6)"},
		{"must be off", func(o *Object) any { o.MustBeOff("no"); o.MustBeOff("empty"); o.MustBeOff("m"); return nil }, "<nil>"},
		{"is on", func(o *Object) any { o.MustBeOff("yes"); return nil }, "yes = true is not supported"},
		{"must be on", func(o *Object) any { o.MustBeOn("yes"); o.MustBeOn("m"); return nil }, "<nil>"},
		{"is off", func(o *Object) any { o.MustBeOn("no"); return nil }, "no = false is not supported"},
		{"nested", func(o *Object) any { return o.Nested("o").Integer("in", 0) }, "1"},
		{"nothing nested", func(o *Object) any { return o.Nested("m") == nil }, "true"},
		{"no object", func(o *Object) any { return o.Nested("n") == nil }, "n = 7: want an object"},
		{"adopt", func(o *Object) any { in := o.Nested("o"); in.Integer("in", 0); o.Adopt(in); return nil }, "unknown key o.other"},
		{"adopt ignored", func(o *Object) any { o.Adopt(o.Nested("o"), Set("in"), Set("other")); return nil }, "<nil>"},
		{"first error", func(o *Object) any { o.Fail("one"); o.Fail("two"); return nil }, "one"},
	} {
		o, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(tc.read(o))
		if o.Err() != nil {
			got = o.Err().Error()
		}
		if !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestFinish(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"a": 1, "_x": 2, "b": null, "torch_dtype": "float32"}`, "<nil>"},
		{`{"a": 1, "d": 1, "c": 1}`, "unknown key c, d: it may change"},
	} {
		o, err := Parse([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		o.Integer("a", 0)
		if got := fmt.Sprint(o.Finish(Ignored)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.text, got, tc.want)
		}
	}
	for _, text := range []string{"", "[]", "1", `{"a"`, "{} {}"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if _, err := ReadFile(path); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	for size, ok := range map[int]bool{5: true, MaxBytes: true, MaxBytes + 1: false} {
		if err := os.WriteFile(path, make([]byte, size), 0o666); err != nil {
			t.Fatal(err)
		}
		if data, err := ReadFile(path); (err == nil) != ok || ok && len(data) != size {
			t.Errorf("%d bytes: %d read, %v", size, len(data), err)
		}
	}
}
