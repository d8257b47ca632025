package main

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"draftlab/experiments/rig"
)

// TestCount sorts stacks.
func TestCount(t *testing.T) {
	p := &profile.Profile{}
	add := func(n int64, names ...string) {
		s := &profile.Sample{Value: []int64{n, 10 * n}}
		for _, name := range names {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
		}
		p.Sample = append(p.Sample, s)
	}
	add(5, "kernel", passFunc, cycleFunc, loopFunc)
	add(3, "kernel", passFunc, "draftlab/engine.(*Engine).prefill", loopFunc)
	add(2, "kernel", "draftlab/engine/draft/eagle3.(*Drafter).Run", cycleFunc, loopFunc)
	add(7, "kernel", "worker")
	if in, all := count(p); in != 5 || all != 10 {
		t.Errorf("%d of %d samples, want 5 of 10", in, all)
	}
}

// TestReport judges by the whole interval and by the shares.
func TestReport(t *testing.T) {
	pairs := func(mid, spread float64) (d []float64) {
		for i := range 101 {
			d = append(d, mid+spread*float64(i-50)/50)
		}
		return d
	}
	for _, c := range []struct {
		wall, cpu []float64
		s         shares
		want      string
	}{
		{pairs(0.0005, 0.002), nil, shares{0.7, 0.71, 6000}, ""},
		{pairs(-0.001, 0.002), nil, shares{0.7, 0.69, 6000}, ""},
		{pairs(0.01, 0.002), nil, shares{0.7, 0.7, 6000}, "costs at least 0."},
		{pairs(0.0005, 0.5), nil, shares{0.7, 0.7, 6000}, "may cost up to"},
		{pairs(0.0005, 0.002), nil, shares{0.7, 0.65, 6000}, "-7.14 %"},
		{pairs(0.0005, 0.5), pairs(0.0005, 0.002), shares{0.7, 0.7, 6000}, ""},
		{pairs(0.0005, 0.5), pairs(0.01, 0.002), shares{0.7, 0.7, 6000}, "costs at least 0."},
		{pairs(0.01, 0.002), pairs(0.0005, 0.002), shares{0.7, 0.7, 6000}, "costs at least 0."},
	} {
		var out bytes.Buffer
		err := report(&out, overhead{c.wall, c.cpu}, c.s)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, rig.ErrClaim) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q\n%s", err, c.want, &out)
		}
	}
}

// switches is a ledger that notes how it is switched.
type switches []bool

func (s *switches) Switch(on bool) { *s = append(*s, on) }

// TestBlocks: after warming up, blocks come in pairs of one with the ledger and one without, in either order; the tokens of a cycle count once.
func TestBlocks(t *testing.T) {
	var s switches
	var out overhead
	b := blocks{l: &s, rng: rand.New(rand.NewPCG(1, 2)), size: 4, out: &out}
	for step := range int64(warmUp + 4*2*50) {
		for range 1 + step%3 {
			b.token(step + 1)
		}
	}
	if len(out.wall) != 50 || len(s) != 101 {
		t.Fatalf("%d pairs, switched %d times; want 50 and 101", len(out.wall), len(s))
	}
	onFirst := 0
	for i := 0; i+1 < len(s); i += 2 {
		if s[i] == s[i+1] {
			t.Errorf("pair %d has the ledger %t twice", i/2, s[i])
		}
		if s[i] {
			onFirst++
		}
	}
	if onFirst < 10 || onFirst > 40 {
		t.Errorf("the ledger comes first in %d of 50 pairs", onFirst)
	}
	if a, b := logRatio(2, 1, false), logRatio(1, 2, true); a != b || math.Abs(a-math.Ln2) > 1e-12 {
		t.Errorf("%v and %v, want ln 2", a, b)
	}
}
