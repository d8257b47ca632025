package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// streamed decodes ids through a Stream, each part of which must be valid UTF-8.
func streamed(t testing.TB, tok *Tokenizer, ids []int32, skip bool) string {
	t.Helper()
	var b strings.Builder
	s := tok.NewStream(skip)
	for _, id := range ids {
		part := s.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("Push(%d) = %q, which is not valid UTF-8", id, part)
		}
		b.WriteString(part)
	}
	b.WriteString(s.Flush())
	if again := s.Flush(); again != "" {
		t.Fatalf("the second Flush = %q", again)
	}
	return b.String()
}
