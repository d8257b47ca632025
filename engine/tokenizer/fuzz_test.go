package tokenizer

import (
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// FuzzRoundTrip checks T2 and T3: any bytes come back, and a Stream agrees with Decode.
func FuzzRoundTrip(f *testing.F) {
	var texts []string
	readJSON(f, "strings.json.gz", &texts)
	for i := 0; i < len(texts); i += 50 {
		f.Add(texts[i], true)
	}
	f.Add("\xff\xf0\x9f\x98 \xed\xa0\x80", false)
	toks := map[string]*Tokenizer{}
	for _, name := range vocabularies {
		toks[name] = load(f, name)
	}
	f.Fuzz(func(t *testing.T, text string, special bool) {
		for name, tok := range toks {
			ids, err := tok.Encode(text, EncodeOptions{ParseSpecial: special})
			if err != nil {
				if name != "smollm" || utf8.ValidString(text) { // the one that lacks bytes
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			back := tok.Decode(ids, false)
			if got := streamed(t, tok, ids, false); got != back {
				t.Fatalf("%s: Stream %q; Decode %q", name, got, back)
			}
			if name != "llama3" {
				continue // the others drop bytes, strip white space, add some, or normalise
			}
			if b := tok.Bytes(ids, false); string(b) != text {
				t.Fatalf("%s: %q came back as %q", name, text, b)
			}
		}
	})
}

// FuzzNFC compares nfc with package norm where the two must agree: on text without characters newer than
// Unicode 9 and without long runs of marks.
func FuzzNFC(f *testing.F) {
	f.Add("e\u0301\u0323 \u1112\u1161\u11ab \xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := nfc(text)
		if again := nfc(got); again != got {
			t.Fatalf("nfc(%q) = %q, and again %q", text, got, again)
		}
		marks := 0
		for _, r := range text {
			if marks++; r < 0x300 {
				marks = 0
			}
			newer := norm.NFD.PropertiesString(string(r)).CCC() != 0 && !contains(markRanges, r) || r > 0xFFFF
			if marks > 20 || newer || r == utf8.RuneError {
				return
			}
		}
		if want := norm.NFC.String(text); got != want {
			t.Fatalf("nfc(%q) = %q; package norm says %q", text, got, want)
		}
	})
}

// FuzzFromJSON checks that no file makes the parser panic, and that what it accepts works.
func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},
		"added_tokens":[{"id":3,"content":"<x>","special":true,"lstrip":true,"normalized":true}],"normalizer":{"type":"NFC"}}`), []byte(`{"eos_token":"<x>"}`))
	f.Add([]byte(`{"model":{"vocab":{"a":5000},"merges":[["a","b"]]},"post_processor":{"type":"TemplateProcessing","single":[]}}`), []byte(`{"chat_template":[]}`))
	f.Fuzz(func(t *testing.T, data, config []byte) {
		tok, err := FromJSON(data, config, "")
		if err != nil {
			return
		}
		ids, err := tok.Encode("ab <x> ab", EncodeOptions{ParseSpecial: true, AddSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		tok.Decode(ids, true)
	})
}

// FuzzTemplate checks that no template makes ApplyChat panic, and that text without tags renders as itself.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"a {%- for m in messages -%} {{ m.role | upper }} {% endfor %}\n", "{% raw %}{{ x }}{% endraw %}", "{# c #}{{ '\\x41' }}{% set a = [1, 2][0] %}",
		"{% macro f(a=1) %}{{ a }}{% endmacro %}{{ f() }}{{ messages | tojson(indent=2) }}", "{% if x is defined %}{% elif y %}{% else %}{% endif %}", "{{- -}}", "{%", "{{ '", "{%-%}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 1000 {
			return
		}
		c := newChatTemplate("fuzz", source)
		if c.err != nil {
			return
		}
		tok := &Tokenizer{chat: c}
		text, err := tok.ApplyChat([]Message{{Role: "user", Content: "hi"}}, ChatOptions{})
		if err == nil && nextTag(source) < 0 && len(text) > len(source) {
			t.Fatalf("%q renders as %q", source, text)
		}
	})
}
