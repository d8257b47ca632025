package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/experiments/rig"
)

// TestResults: ratios are taken within prompt and repetition, whatever the machine did between them, and each prompt counts once.
func TestResults(t *testing.T) {
	m := &measurement{ways: []engine.Spec{{Drafter: engine.DraftNone}, {Drafter: engine.DraftModel, Shape: draft.Chain(2)}}}
	for prompt := range 12 {
		for rep := 1; rep <= 3; rep++ {
			machine := float64(100 * (1 + prompt%3) * rep) // swings between requests, not within a pair
			speedup := 1.5
			if prompt < 6 {
				speedup = 2
			}
			m.samples = append(m.samples, point{way: 0, prompt: prompt, rep: rep, rate: machine, cycles: 10, bandwidth: 1e10},
				point{way: 1, prompt: prompt, rep: rep, rate: speedup * machine, cycles: 10, bandwidth: 1e10})
		}
	}
	r := m.results()
	if got := r[0].speedup; got.Estimate != 1 {
		t.Errorf("plain decoding is %v times itself", got)
	}
	got, want := r[1].speedup, math.Sqrt(1.5*2)
	if math.Abs(got.Estimate-want) > 1e-9 || got.Low < 1.5-1e-9 || got.High > 2+1e-9 || got.Low >= got.High || len(r[1].ratios) != 36 {
		t.Errorf("speed-up %+v of %d samples, want %g", got, len(r[1].ratios), want)
	}
}

// TestTinyModel runs all of it on a model that takes no time, and the claim fails where nothing is faster.
func TestTinyModel(t *testing.T) {
	o := options{model: "random:tiny-q4_1", accept: 2, steps: 2, prompts: 3, reps: 2, tokens: 20, length: 8, threads: 1}
	m, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.e.Close()
	m.log = t.Output()
	if err := m.run(t.Context(), o.reps); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := m.write(&out, 1000); !errors.Is(err, rig.ErrClaim) {
		t.Errorf("a claim of 1000 times: %v", err)
	}
	t.Log("\n" + out.String())
	for _, want := range []string{"SIMULATED (accept length 2)", "chain 2", "plain", "6 samples of each"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the tables", want)
		}
	}
}
