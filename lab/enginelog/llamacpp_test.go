package enginelog

import (
	"strings"
	"testing"
)

// Lines of llama.cpp's server as its pull requests 12603 (with the line break of its time) and 24536, and its issue 12968, show them.
const (
	llamaOld = `prompt eval time =     393.25 ms /    13 tokens (   30.25 ms per token,    33.06 tokens per second)
       eval time =    9840.04 ms /   200 tokens (   49.20 ms per token,    20.33 tokens per second)
      total time =   10233.29 ms /   213 tokens
slot print_timing: id  0 | task 0 |
draft acceptance rate = 0.23026 (   70 accepted /   304 generated)
slot      release: id  0 | task 0 | stop processing: n_past = 213, truncated = 0
`
	llamaNew = `0.06.895.980 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
0.06.895.999 I slot print_timing: id  1 | task 0 |       total time =    2596.83 ms /   276 tokens
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
0.06.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, #acc drafts =    70, #gen tokens =    259, #acc tokens =   167
0.06.896.125 I slot      release: id  1 | task 0 | stop processing: n_tokens = 275, truncated = 0
`
	llamaPlain = `0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    4000.00 ms /   200 tokens (   20.00 ms per token,    50.00 tokens per second)
0.06.896.125 I slot      release: id  1 | task 0 | stop processing: n_tokens = 275, truncated = 0
`
)

// TestLlamaCPP: cycles and accept lengths of answers, and plain steps of those without drafts, the last one included.
func TestLlamaCPP(t *testing.T) {
	r := read(t, llamaNew+llamaPlain)
	g := r.Decode[0]
	if r.Engine != "llama.cpp" || g.Lines != 2 || r.Lines.Damaged != 0 {
		t.Errorf("%q, %+v, %+v", r.Engine, g, r.Lines)
	}
	is := func(what string, d *Dist, want float64) {
		t.Helper()
		if d == nil || d.N != 1 || d.P50 < want-.01 || d.P50 > want+.01 {
			t.Errorf("%s %+v, want %g", what, d, want)
		}
	}
	is("accept length", g.AcceptLength, 1+167./88)
	is("cycle", g.Cycle, 2296.72/256*(1+167./88))
	is("plain step", g.Plain, 20)
	is("accept length of old lines", read(t, llamaOld).Decode[0].AcceptLength, 1+70./129)
	if out := read(t, strings.Repeat(llamaNew, 3)).Warnings; len(out) != 0 {
		t.Errorf("%q", out)
	}
	if out := read(t, strings.Repeat(strings.Replace(llamaNew, "(0.805", "(0.105", 1), 10)).Warnings; len(out) != 1 || !strings.Contains(out[0], "only 10 % of first drafts") {
		t.Errorf("%q", out)
	}
	// Look-up that drafts in one cycle of forty, and what it drafts is accepted; or hardly anything of much.
	for drafts, want := range map[string]bool{"0.80000 (    4 accepted /     5 generated)": false, "0.00658 (    2 accepted /   304 generated)": true} {
		log := strings.Repeat(strings.Replace(llamaOld, "0.23026 (   70 accepted /   304 generated)", drafts, 1), 10)
		if out := strings.Join(read(t, log).Warnings, "\n"); strings.Contains(out, "hardly ever accepted") != want || strings.Contains(out, "first drafts") {
			t.Errorf("%s: %q", drafts, out)
		}
	}
	if g := read(t, strings.Split(llamaOld, "total")[1]).Decode; len(g) != 0 {
		t.Errorf("drafts without their answer: %+v", g)
	}
}

// TestALoadedDrafterThatDoesNotDraft: llama.cpp's issue 25345, from the log alone.
func TestALoadedDrafterThatDoesNotDraft(t *testing.T) {
	const loaded = "0.00.100.000 I common_speculative_init_result: loading draft model '/m/d.gguf'\n" +
		"0.01.250.741 W common_speculative_init: no implementations specified for speculative decoding\n"
	for log, want := range map[string]bool{loaded + llamaPlain: true, loaded + llamaNew: false, llamaPlain: false, loaded: false} {
		text := strings.Join(read(t, log).Warnings, "\n")
		if strings.Contains(text, "none of 1 answers had drafts: llama.cpp drafts only if --spec-type") != want {
			t.Errorf("%q:\n%s", text, log)
		}
	}
	if r := read(t, loaded); len(r.Notices) != 2 {
		t.Errorf("%+v", r.Notices)
	}
}
