package enginelog

import (
	"strings"
	"testing"
)

// TestStarvedDecoding: more passes over prompts than of decoding are told of, and only where there are.
func TestStarvedDecoding(t *testing.T) {
	const prompt = "[2026-07-27 10:00:01 TP0] Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 0, token usage: 0.10, #running-req: 300, #queue-req: 60\n"
	const alone = "[2026-07-27 10:00:01 TP0] Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 0, token usage: 0.10, #running-req: 0, #queue-req: 60\n"
	for name, c := range map[string]struct {
		prompts, decoding int
		want              bool
	}{"starved": {200, 4, true}, "as many": {160, 4, false}, "a start": {50, 0, false}, "usual": {2607, 300, false}} {
		text := strings.Join(read(t, strings.Repeat(prompt, c.prompts)+lines(c.decoding, 700, 2)).Warnings, "\n")
		if strings.Contains(text, "200 prefill passes while requests ran, against some 160 of decoding") != c.want {
			t.Errorf("%s: %q", name, text)
		}
	}
	if out := read(t, strings.Repeat(alone, 200)).Warnings; len(out) != 0 { // a server of prompts alone, or of answers of one token
		t.Errorf("%q", out)
	}
}
