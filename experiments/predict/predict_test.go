package main

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"draftlab/experiments/rig"
	"draftlab/lab/search"
	"draftlab/lab/trial"
)

// TestHalves: what is foretold is not measured first, together it is the whole space unless fewer arms are wanted, and campaigns
// foretell other ones, the same each time.
func TestHalves(t *testing.T) {
	first, later := (&options{}).halves(0)
	seen := map[string]bool{}
	for _, a := range append(first, later...) {
		if seen[a.Name] {
			t.Errorf("%s is in both halves", a.Name)
		}
		seen[a.Name] = true
	}
	if n := len(search.Default("eagle3").Arms()); len(seen) != n || len(later) < 20 {
		t.Errorf("%d arms of %d, %d of them foretold", len(seen), n, len(later))
	}
	few := func(i int) (names []string) {
		_, later := (&options{arms: 12}).halves(i)
		for _, a := range later {
			names = append(names, a.Name)
		}
		return names
	}
	if one := few(1); len(one) != 12 || slices.Equal(one, few(2)) || !slices.Equal(one, few(1)) {
		t.Errorf("%v and %v are foretold", one, few(2))
	}
}

// predictions are so many, of which so many held, with a half-width.
func predictions(n, held int, half float64) (out []trial.Prediction) {
	for i := range n {
		low, high := 2*(1-half), 2*(1+half)
		p := trial.Prediction{Arm: "chain-3", Quantity: search.Speedup, Interval: trial.Interval{Estimate: 2, Low: &low, High: &high}}
		p.Measured = &trial.Interval{Estimate: 2}
		if i >= held {
			p.Measured.Estimate = 3
		}
		out = append(out, p)
	}
	return out
}

func TestJudgement(t *testing.T) {
	for name, c := range map[string]struct {
		all       []trial.Prediction
		campaigns int
		good      bool
	}{
		"holds":         {predictions(100, 90, 0.04), 5, true},
		"too narrow":    {predictions(100, 83, 0.04), 5, false},
		"too sure":      {predictions(100, 97, 0.04), 5, false},
		"too wide":      {predictions(100, 90, 0.06), 5, false},
		"too few":       {predictions(99, 90, 0.04), 5, false},
		"few campaigns": {predictions(100, 90, 0.04), 4, false},
		"none":          {nil, 5, false},
	} {
		var out bytes.Buffer
		err := write(&out, c.all, c.campaigns, true)
		if (err == nil) != c.good || err != nil && !errors.Is(err, rig.ErrClaim) {
			t.Errorf("%s: err = %v\n%s", name, err, out.String())
		}
	}
}
