package engine

import (
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/draft"
	"draftlab/engine/invariants"
	"draftlab/engine/sample"
)

// TestCycleDoesNotAllocate runs whole iterations of the loop, scheduling to delivery, in the steady state of sequences past their
// prompts (invariant 6).
func TestCycleDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the self-checks after each step allocate")
	}
	steps := 60
	if !kernel.Best().Amortises { // the oracle's kernels take some hundred times as long
		steps = 3
	}
	tree := draft.Shape{Steps: 3, TopK: 3, DraftTokens: 9}
	for name, spec := range map[string]Spec{
		"plain":       {},
		"look-up":     {Drafter: DraftNgram, Shape: draft.Chain(3)},
		"chain":       {Drafter: DraftModel, Shape: draft.Chain(3)},
		"chain p-min": {Drafter: DraftModel, Shape: draft.Chain(3), PMin: 0.001},
		"tree":        {Drafter: DraftModel, Shape: tree},
		"rule b":      {Drafter: DraftModel, Shape: tree, Rule: RuleB},
		"simulated":   {Drafter: DraftModel, Shape: tree},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Context: 1024, MaxRunning: 3, MaxWaiting: 3, Drafter: RandomDrafter, Limit: specLimit}
			if name == "simulated" {
				o.Spec, o.SimulateAcceptLength = spec, 2
			}
			e := open(t, o)
			for i := range 3 { // greedy, sampled, sampled with penalties
				p := sample.Defaults()
				p.Temperature, p.Seed = float64(min(i, 1)), uint64(i)
				if i == 2 {
					p.FrequencyPenalty = 0.5
				}
				if _, err := e.Submit(Request{Prompt: prompt(20 + i), MaxTokens: 900, Sampling: p, Spec: &spec}); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 { // prompts, and scratch that grows to its size
				e.step()
			}
			run := func() {
				for range steps {
					e.step()
				}
			}
			if n := testing.AllocsPerRun(1, run); n != 0 { // all steps are one run: an average of less than 1 would read 0
				t.Errorf("%v allocations in %d steps", n, steps)
			}
			if e.sched.Running() != 3 {
				t.Fatalf("%d sequences are running", e.sched.Running())
			}
			e.abandon(nil)
		})
	}
}
