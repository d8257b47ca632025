package enginelog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// lines are decode lines of requests that hold a number of tokens each, with two of them running.
func lines(n, each int, accept float64) string {
	line := fmt.Sprintf("[2026-02-26 16:20:37 TP0] Decode batch, #running-req: 2, #token: %d, token usage: 0.25, accept len: %.2f, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0\n", 2*each, accept)
	return strings.Repeat(line, n)
}

// TestAcceptanceByContext: a drafter beyond the length that it was trained for is told from the log alone.
func TestAcceptanceByContext(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want string // of the warnings
		up   string // the contexts reported
	}{
		"falls":          {lines(50, 700, 2.3) + lines(50, 3000, 2.0) + lines(45, 20000, 1.4), "2.30 where requests hold up to 1024 tokens, 1.40 where they hold 16385 to 32768", "1024 4096 32768"},
		"holds":          {lines(50, 700, 2.3) + lines(50, 20000, 2.1), "", "1024 32768"},
		"too few":        {lines(50, 700, 2.3) + lines(25, 20000, 1.4), "", "1024 32768"},
		"kinds of text":  {lines(50, 700, 2.3) + lines(30, 20000, 1.4) + lines(20, 20000, 2.3), "", "1024 32768"},
		"one length":     {lines(30, 1024, 2.3), "", "1024"},
		"one more":       {lines(30, 1025, 2.3), "", "2048"},
		"none runs":      {strings.ReplaceAll(lines(30, 700, 2.3), "#running-req: 2", "#running-req: 0"), "", ""},
		"a hybrid":       {strings.ReplaceAll(lines(30, 700, 2.3), "#token: ", "#full token: "), "", "1024"},
		"a mad log":      {strings.ReplaceAll(lines(3, 700, 2.3), "#token: 1400", "#token: 1e300"), "", ""},
		"without drafts": {strings.ReplaceAll(lines(30, 700, 2.3), "accept len: 2.30, ", ""), "", ""},
	} {
		r := read(t, c.log)
		var up []string
		for _, reach := range r.Decode[0].ByContext {
			up = append(up, fmt.Sprint(reach.UpTo))
		}
		text := ""
		for _, w := range r.Warnings {
			if strings.Contains(w, "context") {
				text += w
			}
		}
		if (text != "") != (c.want != "") || !strings.Contains(text, c.want) || strings.Join(up, " ") != c.up {
			t.Errorf("%s: contexts %v, %q", name, up, text)
		}
	}
}

// TestDecline: drafts that are accepted less and less, and intervals in which none is, are told from what varies.
func TestDecline(t *testing.T) {
	some := func(n int, length float64, drafted int) string {
		return strings.Repeat(fmt.Sprintf("INFO 08-17 10:00:10 [metrics.py:125] SpecDecoding metrics: Mean acceptance length: %.3f, Accepted: 5 tokens, Drafted: %d tokens, Per-position acceptance rate: 0.600, 0.001, Avg Draft acceptance rate: 1.0%%\n", length, drafted), n)
	}
	vllm := func(n int, length float64) string { return some(n, length, 900) }
	for name, c := range map[string]struct{ log, want string }{
		"declines":          {lines(100, 700, 3.07) + lines(100, 700, 2.9) + lines(100, 700, 2.4), "3.07 in its first third, 2.40 in its last"},
		"varies":            {lines(100, 700, 3.07) + lines(100, 700, 2.4) + lines(100, 700, 2.9), ""},
		"too short":         {lines(140, 700, 3.07) + lines(140, 700, 2.4), ""},
		"in no order":       {lines(40, 700, 2) + lines(60, 700, 3.07) + lines(100, 700, 2.9) + lines(100, 700, 2.4), ""},
		"with the context":  {lines(40, 700, 3.07) + lines(40, 1500, 2.9) + lines(40, 9000, 1.5), "falls with the context"},
		"vLLM declines":     {vllm(100, 3) + vllm(100, 2.5) + vllm(100, 2), "3.00 in its first third, 2.00 in its last"},
		"intervals of none": {vllm(20, 2.5) + vllm(4, 1) + vllm(20, 2.5), "in 4 of 44 intervals no draft was accepted"},
		"ends of answers":   {vllm(20, 2.5) + some(4, 1, 9) + vllm(20, 2.5), ""},
		"one such interval": {vllm(20, 2.5) + vllm(1, 1) + vllm(20, 2.5), ""},
	} {
		if text := strings.Join(read(t, c.log).Warnings, "\n"); !strings.Contains(text, c.want) || c.want == "" && (strings.Contains(text, "decline") || strings.Contains(text, "intervals")) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestKindsOfTextAreNoDecline: requests of all kinds in any order, whose accept lengths differ as those of held-out prompts do, hardly ever look
// like a drafter that wears out.
func TestKindsOfTextAreNoDecline(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alarms := 0
	for range 300 {
		var g group
		for len(g.accept) < 400 {
			kind := max(1.05, 2.1+0.45*rng.NormFloat64())
			for range 1 + rng.IntN(4) {
				g.accept.add(kind + 0.1*rng.NormFloat64())
			}
		}
		if g.decline() != "" {
			alarms++
		}
	}
	if alarms > 3 {
		t.Errorf("%d of 300 logs", alarms)
	}
}

// TestLowAcceptance: accept lengths that mean a fault have a warning that names causes, from SGLang's lines and vLLM's.
func TestLowAcceptance(t *testing.T) {
	vllm := func(length, first float64) string {
		return strings.Repeat(fmt.Sprintf("INFO 08-17 10:00:10 [metrics.py:125] SpecDecoding metrics: Mean acceptance length: %.3f, Accepted: 5 tokens, Per-position acceptance rate: %.3f, 0.001, Avg Draft acceptance rate: 1.0%%\n", length, first), 10)
	}
	for name, c := range map[string]struct{ log, want string }{
		"never":               {lines(4, 700, 1), "accept length is 1.00: drafts are hardly ever accepted"},
		"hardly ever":         {vllm(1.036, .036), "accept length is 1.04: drafts are hardly ever accepted"},
		"the wrong layers":    {vllm(1.12, .104), "only 10 % of first drafts"},
		"at most":             {lines(10, 700, 1.3), "only at most 30 % of first drafts"},
		"an answer or two":    {lines(9, 700, 1.3), ""},
		"sound":               {lines(10, 700, 1.6), ""},
		"deep drafts, sound":  {vllm(1.5, .4), ""},
		"deep drafts, faulty": {vllm(1.5, .3), "only 30 % of first drafts"},
		"look-up, ours":       {"[2026-02-26 16:20:30] settings draft_tokens=4 drafter=ngram drafter_format=q8\n" + lines(10, 700, 1.2), ""},
		"look-up, SGLang's":   {"[2026-02-26 16:20:30] server_args=ServerArgs(speculative_algorithm='NGRAM', port=1)\n" + lines(10, 700, 1), ""},
		"look-up, vLLM's":     {"INFO 08-17 10:00:00 [core.py:133] SpeculativeConfig(method='ngram', num_spec_tokens=3)\n" + vllm(1.1, .1), ""},
		"said by a request":   {lines(1, 700, 1) + "[2026-02-26 16:20:40] method='ngram\n" + lines(4, 700, 1), "hardly ever accepted"},
		"two lines":           {lines(2, 700, 1), ""},
	} {
		text := ""
		for _, w := range read(t, c.log).Warnings {
			if strings.Contains(w, "accepted") {
				text += w
			}
		}
		if (text != "") != (c.want != "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q", name, text)
		}
	}
}
