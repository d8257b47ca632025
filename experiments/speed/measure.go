package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/engine/sample"
	"draftlab/experiments/rig"
)

// measurement is a run.
type measurement struct {
	e         *engine.Engine
	log       io.Writer
	ways      []engine.Spec
	prompts   [][]int32
	tokens    int                 // most output tokens
	stop      func(id int32) bool // nil for a random model
	simulated float64             // accept length, 0 for a real drafter

	samples []point
}

// point is one request.
type point struct {
	way, prompt, rep int
	rate             float64      // output tokens a second after the first
	bandwidth        float64      // bytes a second, probed just before
	cycles           int          // decode and verify passes
	times            ledger.Times // ns
	draft            draft.Stats
}

// run takes all samples. Ways of drafting alternate within a prompt, so that each meets the machine as the others do.
func (m *measurement) run(ctx context.Context, reps int) error {
	rng := rand.New(rand.NewPCG(2, 2))
	plain := make([][]int32, len(m.prompts))
	for rep := range reps + 1 { // the first one warms up, and says what the texts are
		start := time.Now()
		for prompt := range m.prompts {
			order := rng.Perm(len(m.ways))
			if rep == 0 {
				slices.Sort(order)
			}
			for _, way := range order {
				p, ids, err := m.sample(ctx, way, prompt)
				if err != nil {
					return err
				}
				if rep == 0 && isPlain(way) {
					plain[prompt] = ids
				}
				if m.simulated == 0 && !slices.Equal(ids, plain[prompt]) {
					return fmt.Errorf("%w: %s changed the text of prompt %d", rig.ErrClaim, name(m.ways[way]), prompt)
				}
				if p.rep = rep; rep > 0 && p.cycles > 0 {
					m.samples = append(m.samples, p)
				}
			}
		}
		fmt.Fprintf(m.log, "repetition %d of %d (0 warms up): %s\n", rep, reps, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// sample runs one request behind a probe of the bandwidth.
func (m *measurement) sample(ctx context.Context, way, prompt int) (point, []int32, error) {
	bytes, d := m.e.Device().ReadWeights(m.e.Device().Info().Threads)
	before := m.e.Stats().Time
	res, err := m.e.Generate(ctx, engine.Request{
		Prompt: m.prompts[prompt], MaxTokens: m.tokens, Sampling: sample.Defaults(), Stop: m.stop, NoCache: true, Spec: &m.ways[way],
	}, nil)
	if err != nil {
		return point{}, nil, fmt.Errorf("%s, prompt %d: %w", name(m.ways[way]), prompt, err)
	}
	p := point{
		way: way, prompt: prompt, cycles: res.Steps, draft: res.Draft, bandwidth: float64(bytes) / d.Seconds(),
		rate: float64(len(res.Tokens)-1) / res.Decode.Seconds(), times: m.e.Stats().Time,
	}
	for i := range p.times {
		p.times[i] -= before[i]
	}
	return p, res.IDs(), nil
}
