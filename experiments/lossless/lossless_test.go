package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"draftlab/engine"
)

// TestSample is a sample of the experiment: invariant 1 on the default target and the shipped drafter.
func TestSample(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the default target, which -short leaves out")
	}
	// One thread: several spin while they wait for each other, which is slow beside other tests.
	o := options{widths: []int{2, 8}, tokens: 24, sample: 48, threads: 1, seed: 3}
	if !engine.SpeculationPays() { // the generic kernels take some hundred times as long
		o = options{widths: []int{4}, tokens: 6, sample: 12, threads: 1, seed: 3}
	}
	p, err := prove(context.Background(), o, io.Discard)
	var out strings.Builder
	if p != nil {
		if err := p.write(&out); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("\n" + out.String())
	if err != nil && engine.SpeculationPays() || p == nil || len(p.mismatches) > 0 {
		t.Fatal(err)
	}
}

// TestJudge: a token that differs, one too many, one too few and another ending are mismatches, at the right place.
func TestJudge(t *testing.T) {
	text := &text{want: []int32{5, 6, 7, 8}, finish: engine.FinishStop}
	for _, c := range []struct {
		from     float64
		got      []int32
		finish   engine.FinishReason
		position int // -1: equal
	}{
		{0, []int32{5, 6, 7, 8}, engine.FinishStop, -1},
		{0.5, []int32{7, 8}, engine.FinishStop, -1},
		{0, []int32{5, 6, 9, 8}, engine.FinishStop, 2},
		{0.5, []int32{7, 9}, engine.FinishStop, 3},
		{0, []int32{5, 6, 7}, engine.FinishStop, 3},
		{0, []int32{5, 6, 7, 8, 9}, engine.FinishStop, 4},
		{0, []int32{5, 6, 7, 8}, engine.FinishLength, 4},
	} {
		p := &proof{byWay: make([]tally, len(ways)), byWidth: make([]tally, 1), widths: []int{1}}
		res := engine.Result{Finish: c.finish}
		for _, id := range c.got {
			res.Tokens = append(res.Tokens, engine.Token{ID: id})
		}
		p.judge(&testCase{text: text, from: c.from}, &group{}, &res)
		at := -1
		if len(p.mismatches) > 0 {
			at = p.mismatches[0].position
		}
		if at != c.position || (p.byWay[0].wrong > 0) != (at >= 0) || at >= 0 && p.verdict() == nil {
			t.Errorf("%+v: mismatch at %d, tally %+v, verdict %v", c, at, p.byWay[0], p.verdict())
		}
	}
	if !slices.ContainsFunc(ways, func(s engine.Spec) bool { return s.Shape == limit }) {
		t.Error("no way of drafting reaches the limit")
	}
}

// TestParseWidths: lists of widths, and what is none.
func TestParseWidths(t *testing.T) {
	if got, err := parseWidths("8, 1,64"); err != nil || !slices.Equal(got, []int{8, 1, 64}) {
		t.Errorf("8, 1,64: %v, %v", got, err)
	}
	for _, list := range []string{"", "0", "65", "2,2", "1,,2", "1-8", "x"} {
		if got, err := parseWidths(list); err == nil {
			t.Errorf("%q is read as %v", list, got)
		}
	}
}
