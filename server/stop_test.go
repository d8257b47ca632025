package server

import (
	"slices"
	"strings"
	"testing"

	"draftlab/engine"
	"pgregory.net/rapid"
)

// reference cuts a text where, reading it byte by byte, a stop string is complete first.
func reference(text string, stops []string) (string, string) {
	for end := range len(text) + 1 {
		matched := ""
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) && len(stop) > len(matched) {
				matched = stop
			}
		}
		if matched != "" {
			return text[:end-len(matched)], matched
		}
	}
	return text, ""
}

// TestStopper checks S3: whatever the pieces, the text is the reference's, and nothing is sent that is taken back.
func TestStopper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]rune("ab☺"))
		text := rapid.StringOfN(letters, 0, 30, -1).Draw(t, "text")
		stops := rapid.SliceOfN(rapid.StringOfN(letters, 1, 5, -1), 0, 4).Draw(t, "stops")
		want, wantStop := reference(text, stops)
		s := stopper{stops: stops}
		var got, matched string
		for rest := text; rest != "" && matched == ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			var send string
			send, matched = s.push(rest[:n])
			got += send
			rest = rest[n:]
			if !strings.HasPrefix(want, got) {
				t.Fatalf("sent %q, of which the end must go: the text is %q", got, want)
			}
		}
		if matched == "" {
			got += s.flush()
		}
		if got != want || matched != wantStop {
			t.Fatalf("%q, %q; want %q, %q", got, matched, want, wantStop)
		}
	})
}

// TestOutput checks that text, tokens and offsets do not depend on how tokens are bundled, with characters of several tokens.
func TestOutput(t *testing.T) {
	tok := newFake(t).tok
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("xyé☺\x00")), 0, 20, -1).Draw(t, "text")
		stops := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("xyé")), 1, 3, -1), 0, 2).Draw(t, "stops")
		var tokens []engine.Token
		for _, b := range []byte(strings.ReplaceAll(text, "\x00", "")) {
			tokens = append(tokens, engine.Token{ID: int32(b)})
		}
		run := func(bundle func(left int) int) (string, []int32, string) {
			o := newOutput(tok, stops, true)
			var text strings.Builder
			var ids []int32
			sent := 0
			for rest := tokens; len(rest) > 0; {
				n := bundle(len(rest))
				p, matched := take(o, rest[:n])
				text.WriteString(p.text)
				ids = append(ids, p.ids()...)
				sent += len(p.text)
				for _, e := range p.tokens {
					if e.offset >= sent {
						t.Fatalf("token %d begins at %d, after the %d bytes sent", e.ID, e.offset, sent)
					}
				}
				if matched != "" {
					return text.String(), ids, matched
				}
				rest = rest[n:]
			}
			text.WriteString(o.finish())
			return text.String(), append(ids, (&piece{tokens: o.release(true)}).ids()...), ""
		}
		wantText, wantIDs, wantStop := run(func(int) int { return 1 })
		gotText, gotIDs, gotStop := run(func(left int) int { return rapid.IntRange(1, left).Draw(t, "bundle") })
		if gotText != wantText || !slices.Equal(gotIDs, wantIDs) || gotStop != wantStop {
			t.Fatalf("%q %v %q; one by one %q %v %q", gotText, gotIDs, gotStop, wantText, wantIDs, wantStop)
		}
		ref, _ := reference(strings.ReplaceAll(text, "\x00", ""), stops)
		if gotText != ref {
			t.Fatalf("%q; want %q", gotText, ref)
		}
	})
}
