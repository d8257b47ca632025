package main

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
	"draftlab/lab/trial"
)

func TestAtRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	measured := map[string]float64{"a": 1, "b": 2}
	if got := atRandom(measured, 2, rng); got != 1 {
		t.Errorf("all arms: %v", got)
	}
	if got := atRandom(measured, 1, rng); math.Abs(got-0.75) > 0.03 {
		t.Errorf("one of two arms: %v", got)
	}
}

// TestJudgement: time and ratio both have to hold, in every campaign.
func TestJudgement(t *testing.T) {
	make := func(seconds, low float64) outcome {
		high := low + 0.03
		arm := trial.Arm{Name: "chain-3"}
		return outcome{
			grid: &searched{arm, 100, map[string]float64{"chain-3": 1.5}}, model: &searched{arm, seconds, map[string]float64{"chain-3": 1.5}},
			head: &campaign.Ratio{Estimate: low + 0.015, Low: &low, High: &high}, random: 0.9,
		}
	}
	unmeasured := make(20, 0.98)
	unmeasured.head = nil
	for name, c := range map[string]struct {
		last outcome
		good bool
	}{"holds": {make(25, 0.97), true}, "too long": {make(26, 0.98), false}, "too slow": {make(20, 0.969), false}, "not compared": {unmeasured, false}} {
		var out bytes.Buffer
		err := write(&out, []outcome{make(20, 0.99), c.last})
		if (err == nil) != c.good || err != nil && !errors.Is(err, rig.ErrClaim) {
			t.Errorf("%s: err = %v\n%s", name, err, out.String())
		}
	}
}
