package tokenizer

import (
	"strings"
	"testing"
)

// BenchmarkEncode reports the speed on prose, on text of one long word, and with a cold cache.
func BenchmarkEncode(b *testing.B) {
	tok := load(b, "smollm")
	var texts []string
	readJSON(b, "strings.json.gz", &texts)
	for _, c := range []struct{ name, text string }{
		{"prose", strings.Repeat(texts[2], 20)},
		{"word", strings.Repeat("a", 100_000)},
		{"spaces", strings.Repeat(" ", 100_000)},
		{"mixed", strings.Join(texts, "")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, err := tok.Encode(c.text, EncodeOptions{ParseSpecial: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
