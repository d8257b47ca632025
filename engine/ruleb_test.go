package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
)

// outputs runs n requests that differ in their seeds, as many at once as the engine takes, and returns the tokens.
func outputs(t *testing.T, e *Engine, n int, req Request, first uint64) (ids [][]int32, stats draft.Stats) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx)
	}()
	ids = make([][]int32, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for worker := range e.opt.MaxRunning {
		wg.Go(func() {
			for i := worker; i < n; i += e.opt.MaxRunning {
				own := req
				own.Sampling.Seed = first + uint64(i)
				res, err := e.Generate(ctx, own, nil)
				if err != nil {
					t.Errorf("seed %d: %v", own.Sampling.Seed, err)
					return
				}
				ids[i] = res.IDs()
				mu.Lock()
				stats.Add(&res.Draft)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	cancel()
	<-done
	return ids, stats
}

// apart compares two samples of tokens at one output position by chi-square of homogeneity, in standard deviations.
func apart(a, b [][]int32, at, vocab int) float64 {
	counts := make([][2]float64, vocab)
	for i := range a {
		counts[a[i][at]][0]++
		counts[b[i][at]][1]++
	}
	sum, cells := 0.0, -1.0
	for _, c := range counts {
		if both := c[0] + c[1]; both > 0 { // samples of one size
			sum += (c[0] - c[1]) * (c[0] - c[1]) / both
			cells++
		}
	}
	return (sum - cells) / math.Sqrt(2*cells)
}

// TestRuleBDistribution compares rule B's output with plain decoding's, token by token, over many seeds: the wiring of what package
// sample and package draft prove by themselves.
func TestRuleBDistribution(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 1000
	}
	if !kernel.Best().Amortises { // the oracle's kernels take some hundred times as long
		n = 50
	}
	p := sample.Defaults()
	p.Temperature, p.FrequencyPenalty = 1.5, 0.5
	req := Request{Prompt: prompt(3), MaxTokens: 4, Sampling: p}
	e := open(t, Options{Context: 64, MaxRunning: 4, MaxWaiting: 8, Drafter: RandomDrafter, Limit: specLimit})
	vocab := e.model.Config().Vocab
	want, _ := outputs(t, e, n, req, 1e6)
	for _, shape := range []draft.Shape{draft.Chain(3), {Steps: 3, TopK: 3, DraftTokens: 10}} {
		req.Spec = &Spec{Drafter: DraftModel, Shape: shape, Rule: RuleB}
		got, stats := outputs(t, e, n, req, 0)
		if stats.Accepted == 0 {
			t.Errorf("%v: nothing was accepted", shape)
		}
		t.Logf("%v: accept length %.2f", shape, stats.AcceptLength())
		for at := range req.MaxTokens {
			if d := apart(got, want, at, vocab); math.Abs(d) > 4 {
				t.Errorf("%v: token %d is %.1f deviations away from plain decoding's", shape, at, d)
			}
		}
	}
}

// TestRuleBRuns takes rule B through prefix hits, preemption and stops beside requests of other kinds: alone, a request's output depends
// on its seed only.
func TestRuleBRuns(t *testing.T) {
	n := 24
	if !kernel.Best().Amortises {
		n = 2
	}
	reqs := cases(n, 3)
	e := open(t, Options{Context: 160, MaxRunning: 1, Drafter: RandomDrafter, Limit: specLimit})
	crowded := open(t, Options{Context: 160, MaxRunning: 4, MaxWaiting: n, Blocks: 14, Drafter: RandomDrafter, Limit: specLimit})
	plain := plainOutputs(t, reqs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = crowded.Run(ctx)
	}()
	var wg sync.WaitGroup
	for i, r := range reqs {
		spec := Spec{Drafter: DraftModel, Shape: []draft.Shape{draft.Chain(3), {Steps: 3, TopK: 4, DraftTokens: 12}}[i%2], Rule: RuleB, PMin: float32(i%3) / 100}
		r.Spec = &spec
		a, b := generate(t, e, r), generate(t, e, r)
		if !slices.Equal(a.IDs(), b.IDs()) {
			t.Errorf("request %d: one seed gave %v and %v", i, a.IDs(), b.IDs())
		}
		if r.Sampling.Temperature == 0 && !slices.Equal(a.IDs(), plain[i]) {
			t.Errorf("request %d: greedy output %v, want %v", i, a.IDs(), plain[i])
		}
		if i%2 == 0 { // the other half runs under rule A
			spec.Rule = RuleA
		}
		wg.Go(func() {
			res, err := crowded.Generate(ctx, r, nil)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			if spec.Rule == RuleA && !slices.Equal(res.IDs(), plain[i]) {
				t.Errorf("request %d under rule A beside rule B: %v, want %v", i, res.IDs(), plain[i])
			}
		})
	}
	wg.Wait()
	cancel()
	<-done
	if err := crowded.ledger.CheckIntegrity(); err != nil || crowded.ledger.Used() != 0 {
		t.Errorf("%d blocks in use at the end, %v", crowded.ledger.Used(), err)
	}
}

func TestRulesRefused(t *testing.T) {
	e := open(t, Options{Context: 64, Drafter: RandomDrafter, Limit: specLimit})
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Drafter: DraftNgram, Shape: draft.Chain(2), Rule: RuleB}, "rule b with drafter ngram"},
		{Spec{Rule: RuleB}, "rule b with drafter none"},
		{Spec{Drafter: DraftModel, Shape: draft.Chain(2), Rule: "c"}, `rule "c": want a or b`},
	} {
		_, err := e.Submit(Request{Prompt: prompt(1), MaxTokens: 1, Sampling: sample.Defaults(), Spec: &c.spec})
		if err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.spec, err, c.want)
		}
	}
}
