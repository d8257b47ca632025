package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
)

// specs are ways of speculating that must not change any output.
var specs = []Spec{
	{Drafter: DraftNgram, Shape: draft.Chain(1)},
	{Drafter: DraftNgram, Shape: draft.Chain(4)},
	{Drafter: DraftModel, Shape: draft.Chain(1)},
	{Drafter: DraftModel, Shape: draft.Chain(3)},
	{Drafter: DraftModel, Shape: draft.Chain(7)},
	{Drafter: DraftModel, Shape: draft.Chain(5), PMin: 0.02},
	{Drafter: DraftModel, Shape: draft.Shape{Steps: 2, TopK: 2, DraftTokens: 6}},
	{Drafter: DraftModel, Shape: draft.Shape{Steps: 3, TopK: 4, DraftTokens: 12}},
	{Drafter: DraftModel, Shape: draft.Shape{Steps: 1, TopK: 8, DraftTokens: 9}},
}

var specLimit = draft.Shape{Steps: 7, TopK: 8, DraftTokens: 16}

// cases makes seeded requests of many kinds; some share long prefixes.
func cases(n int, seed uint64) []Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	reqs := make([]Request, n)
	for i := range reqs {
		p := sample.Defaults()
		if rng.IntN(2) == 0 {
			p.Temperature, p.Seed = 0.3+0.9*rng.Float64(), rng.Uint64()
			p.TopP = 0.5 + 0.5*rng.Float64()
			if rng.IntN(2) == 0 {
				p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = rng.Float64(), rng.Float64(), 1+rng.Float64()/2
			}
		}
		tokens := prompt(1 + rng.IntN(90)) // prefixes of one another
		if rng.IntN(3) == 0 {
			for j := range tokens {
				tokens[j] = int32(rng.IntN(5)) // repetitive: look-up hits
			}
		}
		reqs[i] = Request{Prompt: tokens, MaxTokens: 1 + rng.IntN(40), Sampling: p, NoCache: rng.IntN(4) == 0}
		if rng.IntN(3) == 0 {
			stop := int32(rng.IntN(97))
			reqs[i].Stop = func(id int32) bool { return id == stop }
		}
	}
	return reqs
}

// plainOutputs runs the requests one by one without speculation.
func plainOutputs(t *testing.T, reqs []Request) [][]int32 {
	e := open(t, Options{Context: 160})
	out := make([][]int32, len(reqs))
	for i, r := range reqs {
		r.NoCache = true
		res, err := e.Generate(context.Background(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = res.IDs()
	}
	return out
}

// TestSpeculationChangesNothing is invariant 1: with every drafter and shape, at several batch widths, with prefix hits and with so
// few blocks that sequences are preempted, each output equals plain decoding's, greedy and seeded alike.
func TestSpeculationChangesNothing(t *testing.T) {
	n, widths := 60, []int{1, 3, 8}
	if testing.Short() {
		n = 16
	}
	if !kernel.Best().Amortises { // the oracle's kernels take some hundred times as long
		n, widths = 3, []int{3}
	}
	reqs := cases(n, 1)
	want := plainOutputs(t, reqs)
	for _, running := range widths {
		for _, blocks := range []int{0, 14} {
			e := open(t, Options{
				Context: 160, MaxRunning: running, MaxWaiting: len(reqs), Blocks: blocks,
				Drafter: RandomDrafter, Limit: specLimit, Model: tiny,
			})
			checkOutputs(t, e, reqs, want, fmt.Sprintf("%d running, %d blocks", running, blocks))
		}
	}
}

// checkOutputs submits all requests with all specs in turn and compares.
func checkOutputs(t *testing.T, e *Engine, reqs []Request, want [][]int32, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx)
	}()
	var stats draft.Stats
	preempted, cached := 0, 0
	for at := range specs {
		var wg sync.WaitGroup
		results := make([]Result, len(reqs))
		errs := make([]error, len(reqs))
		for i, r := range reqs {
			spec := specs[(at+i)%len(specs)]
			r.Spec = &spec
			wg.Go(func() { results[i], errs[i] = e.Generate(ctx, r, nil) })
		}
		wg.Wait()
		for i := range reqs {
			if errs[i] != nil {
				t.Fatalf("%s: request %d: %v", name, i, errs[i])
			}
			if got := results[i].IDs(); !slices.Equal(got, want[i]) {
				t.Fatalf("%s: request %d with %+v: %v, want %v", name, i, specs[(at+i)%len(specs)], got, want[i])
			}
			stats.Add(&results[i].Draft)
			preempted += results[i].Preempted
			cached += results[i].Cached
		}
	}
	cancel()
	<-done
	if err := e.ledger.CheckIntegrity(); err != nil || e.ledger.Used() != 0 {
		t.Fatalf("%s: %d blocks in use at the end, %v", name, e.ledger.Used(), err)
	}
	t.Logf("%s: %d cycles, accept length %.2f, %d preemptions, %d cached tokens", name, stats.Cycles, stats.AcceptLength(), preempted, cached)
}
