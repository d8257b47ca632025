package main

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
)

func TestMostAlarms(t *testing.T) {
	for n, want := range map[int]int{1: 1, 40: 6, 100: 11} { // binom.ppf(0.99, n, 0.05) of scipy
		if got := mostAlarms(n); got != want {
			t.Errorf("%d campaigns: at most %d alarms, want %d", n, got, want)
		}
	}
}

// say makes a reading.
func say(low, high float64) reading {
	return reading{"x", &campaign.Ratio{Estimate: (low + high) / 2, Low: &low, High: &high, Pairs: 30}}
}

// TestJudgement: the claim holds with few alarms and the slowed arm found, and not with an alarm too many, one found too few, an arm that
// is found to be faster, or readings whose test alarms too often.
func TestJudgement(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	sound := func() *found {
		f := &found{}
		for i := range 40 {
			f.same = append(f.same, say(0.98, 1.02))
			if i < 6 {
				f.same[i] = say(1.001, 1.03)
			}
			var run [][2]float64
			for range 24 {
				run = append(run, [2]float64{math.Exp(0.05 * rng.NormFloat64()), math.Exp(0.05 * rng.NormFloat64())})
			}
			f.runs = append(f.runs, run)
		}
		for i := range 10 {
			f.slow = append(f.slow, say(0.95, 0.99))
			if i == 0 {
				f.slow[0] = say(0.95, 1.01)
			}
		}
		return f
	}
	o := &options{comparisons: 5000, slow: 0.03}
	for name, c := range map[string]struct {
		spoil func(f *found)
		good  bool
	}{
		"sound":         {func(*found) {}, true},
		"an alarm more": {func(f *found) { f.same[7] = say(0.9, 0.99) }, false},
		"one less":      {func(f *found) { f.slow[1] = say(0.95, 1.01) }, false},
		"faster":        {func(f *found) { f.slow[1] = say(1.01, 1.05) }, false},
		"few pairs":     {func(f *found) { f.slow[1].ratio = nil }, false},
		"no readings":   {func(f *found) { f.runs = nil }, false},
	} {
		f := sound()
		c.spoil(f)
		var out bytes.Buffer
		err := f.write(&out, o)
		if (err == nil) != c.good || err != nil && !errors.Is(err, rig.ErrClaim) {
			t.Errorf("%s: err = %v\n%s", name, err, out.String())
		}
		if !strings.Contains(out.String(), "40 campaigns compared a thing with itself") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// TestTasks: each campaign has a name and a seed of its own, and half of them compare speculation with itself.
func TestTasks(t *testing.T) {
	o := &options{campaigns: 4, pairs: 24, slowCampaigns: 2, slowPairs: 108, slow: 0.03}
	names, seeds, spec := map[string]bool{}, map[uint64]bool{}, 0
	for _, k := range o.tasks() {
		names[k.Name], seeds[k.Seed] = true, true
		if k.A.Steps != k.B.Steps || k.A.Drafter != k.B.Drafter {
			t.Errorf("%s compares %+v with %+v", k.Name, k.A, k.B)
		}
		if k.A.Steps > 0 {
			spec++
		}
		if slow := strings.HasPrefix(k.Name, "slow"); slow != (k.Slow > 0) || k.Pairs != map[bool]int{true: 108, false: 24}[slow] {
			t.Errorf("%+v", k)
		}
	}
	if len(names) != 6 || len(seeds) != 6 || spec != 3 {
		t.Errorf("%d names, %d seeds, %d with drafts", len(names), len(seeds), spec)
	}
}
