package campaign

import (
	"testing"

	"draftlab/lab/client"
	"draftlab/lab/trial"
)

// TestCount: what answers do not tell follows from counters, unless these cannot be of the request alone.
func TestCount(t *testing.T) {
	chain := trial.Knobs{Drafter: "eagle3", Steps: 2, TopK: 1, DraftTokens: 3}
	plain := trial.Knobs{Drafter: "none"}
	for name, c := range map[string]struct {
		knobs    trial.Knobs
		cycles   int64
		tokens   []int
		accepted int64 // −1: nothing is told
		passes   int
	}{
		"a chain":             {chain, 10, []int{21}, 10, 10},
		"all accepted":        {chain, 10, []int{31}, 20, 10},
		"nothing accepted":    {chain, 20, []int{21}, 0, 20},
		"counted late":        {chain, 6, []int{21}, -1, 0},
		"counted with others": {chain, 21, []int{21}, -1, 0},
		"no counter":          {chain, 0, []int{21}, -1, 0},
		"two at once":         {chain, 20, []int{21, 21}, 20, 0},
		"plain":               {plain, 0, []int{21}, -1, 20},
		"plain, two at once":  {plain, 0, []int{21, 21}, -1, 0},
		"one token":           {plain, 0, []int{1}, -1, 0},
	} {
		side := &turn{}
		for _, n := range c.tokens {
			side.trials = append(side.trials, &trial.Trial{Sample: &client.Sample{OutputTokens: n}})
		}
		first := side.trials[0]
		first.Ledger = &trial.Ledger{Cycles: c.cycles}
		side.count(c.knobs)
		s := first.Sample
		if (s.Spec != nil) != (c.accepted >= 0) || s.Spec != nil && (s.Spec.Accepted != c.accepted || s.Spec.Cycles != c.cycles || s.Spec.Drafted != 2*c.cycles) || s.DecodeSteps != c.passes {
			t.Errorf("%s: %+v, %d passes", name, s.Spec, s.DecodeSteps)
		}
	}
	told := &turn{trials: []*trial.Trial{{Ledger: &trial.Ledger{Cycles: 10}, Sample: &client.Sample{OutputTokens: 21, DecodeSteps: 12, Spec: &client.Speculation{Cycles: 12}}}}}
	if told.count(chain); told.trials[0].Sample.Spec.Cycles != 12 {
		t.Error("what the server tells itself was changed")
	}
	cycles := &turn{trials: []*trial.Trial{{Sample: &client.Sample{OutputTokens: 21, Spec: &client.Speculation{Cycles: 12}}}}}
	if cycles.count(chain); cycles.trials[0].Sample.DecodeSteps != 12 {
		t.Errorf("%d passes of 12 cycles", cycles.trials[0].Sample.DecodeSteps)
	}
}
