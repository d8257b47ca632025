package engine

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
)

// TestSimulatedAcceptance holds the mean accept length to what is asked for, chain and tree, greedy and sampled.
func TestSimulatedAcceptance(t *testing.T) {
	tokens, requests := 150, 12
	if !kernel.Best().Amortises {
		tokens, requests = 20, 1
	}
	for _, c := range []struct {
		shape  draft.Shape
		length float64
	}{
		{draft.Chain(3), 1}, {draft.Chain(3), 2.3}, {draft.Chain(3), 4}, {draft.Chain(1), 1.5}, {draft.Shape{Steps: 4, TopK: 3, DraftTokens: 10}, 3.2},
		{draft.Shape{Steps: 2, TopK: 4, DraftTokens: 8}, 2.5},
	} {
		e := open(t, Options{
			Context: 256, Drafter: RandomDrafter, Spec: Spec{Drafter: DraftModel, Shape: c.shape}, SimulateAcceptLength: c.length,
		})
		var stats draft.Stats
		for i := range requests {
			p := sample.Defaults()
			p.Temperature, p.Seed = float64(i%2), uint64(i/2)
			req := Request{Prompt: prompt(i + 1), MaxTokens: tokens, Sampling: p, Logprobs: i == 0, Stop: func(int32) bool { return true }}
			a, b := generate(t, e, req), generate(t, e, req)
			if !slices.Equal(a.IDs(), b.IDs()) || len(a.Tokens) != tokens || a.Simulated != c.length {
				t.Fatalf("%v: %d and %d tokens, simulated %v", c.shape, len(a.Tokens), len(b.Tokens), a.Simulated)
			}
			stats.Add(&a.Draft)
		}
		cycles := float64(stats.Cycles)
		// The variance of a cycle is below steps²/4; the last of a request's cycles may be cut.
		if tolerance := 4*float64(c.shape.Steps)/2/math.Sqrt(cycles) + float64(requests*c.shape.Steps)/cycles; math.Abs(stats.AcceptLength()-c.length) > tolerance {
			t.Errorf("%v: accept length %.3f over %v cycles, want %v ± %.2f", c.shape, stats.AcceptLength(), cycles, c.length, tolerance)
		}
		t.Logf("%v: accept length %.3f, want %v; %v", c.shape, stats.AcceptLength(), c.length, stats.AppendHistogram(nil))
	}
}

func TestSimulationRefused(t *testing.T) {
	model := Spec{Drafter: DraftModel, Shape: draft.Chain(3)}
	for _, c := range []struct {
		spec   Spec
		length float64
		want   string
	}{
		{model, 4.5, "drafts of shape 3-1-4 reach 1 to 4"},
		{model, 0.5, "reach 1 to 4"},
		{model, math.NaN(), "reach 1 to 4"},
		{Spec{}, 2, "drafter none"},
		{Spec{Drafter: DraftNgram, Shape: draft.Chain(3)}, 2, "drafter ngram"},
		{Spec{Drafter: DraftModel, Shape: draft.Chain(3), Rule: RuleB}, 2, "rule a"},
		{Spec{Drafter: DraftModel, Shape: draft.Chain(3), PMin: 0.1}, 2, "p-min"},
	} {
		e, err := Open(Options{Model: tiny, Threads: 1, Context: 64, Drafter: RandomDrafter, Spec: c.spec, SimulateAcceptLength: c.length})
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v at %v: error %v, want one with %q", c.spec, c.length, err, c.want)
		}
	}
	e := open(t, Options{Context: 64, Drafter: RandomDrafter, Spec: model, Limit: specLimit, SimulateAcceptLength: 3})
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Drafter: DraftModel, Shape: draft.Chain(1)}, "drafts of shape 1-1-2 reach 1 to 2"},
		{Spec{Drafter: DraftNgram, Shape: draft.Chain(3)}, "look-up"},
		{Spec{}, ""}, // plain decoding is real
	} {
		res, err := e.Generate(context.Background(), Request{Prompt: prompt(2), MaxTokens: 5, Sampling: sample.Defaults(), Spec: &c.spec}, nil)
		if c.want == "" && (err != nil || res.Simulated != 0) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: simulated %v, error %v, want %q", c.spec, res.Simulated, err, c.want)
		}
	}
}
