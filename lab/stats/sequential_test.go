package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestBoundaries: published two-sided boundaries at 5 % for equally spaced looks (Reboussin, DeMets, Kim and Lan 2000, Computations for
// group sequential boundaries using the Lan–DeMets spending function method, and the manual of R's ldbounds).
func TestBoundaries(t *testing.T) {
	for _, c := range []struct {
		spend Spending
		want  []float64
	}{
		{OBrienFleming, []float64{4.8769, 3.3569, 2.6803, 2.2898, 2.0310}},
		{OBrienFleming, []float64{4.3326, 2.9631, 2.3590, 2.0141}},
		{Pocock, []float64{2.4380, 2.4268, 2.4101, 2.3966, 2.3859}},
	} {
		b := boundary{alpha: 0.025, sides: 2, spend: c.spend}
		for i, want := range c.want {
			if got := quantileUpper(b.look(float64(i+1) / float64(len(c.want)))); math.Abs(got-want) > 1e-3 {
				t.Errorf("spending %d, look %d of %d: %.4f, want %.4f", c.spend, i+1, len(c.want), got, want)
			}
		}
		if again := b.look(1.2); again != 0 {
			t.Errorf("a look after the last has the level %v", again)
		}
	}
	one := boundary{alpha: 0.025, sides: 1}
	if got := quantileUpper(one.look(1)); math.Abs(got-1.95996) > 1e-4 {
		t.Errorf("a single look: %v", got)
	}
}

// laplace draws differences with heavier tails than the normal distribution has, standard deviation 1.
func laplace(r *rand.Rand) float64 { return (r.ExpFloat64() - r.ExpFloat64()) / math.Sqrt2 }

// rehearsed is a monitor whose looks come after each block of pairs, with their levels worked out once for many campaigns.
type rehearsed struct {
	*Monitor
	pairs          []int
	level, exclude []float64
}

func rehearse(most, block int, worthwhile float64) *rehearsed {
	r := &rehearsed{Monitor: NewMonitor(most, 0.95, worthwhile)}
	for n := block; ; n += block {
		share := float64(n) / float64(most)
		r.pairs, r.level, r.exclude = append(r.pairs, n), append(r.level, r.effect.look(share)), append(r.exclude, r.futility.look(share))
		if n >= most {
			return r
		}
	}
}

// followed is a simulated monitor's end.
type followed struct {
	Look
	everOut bool // an interval on the way did not hold the truth
}

// follow runs a campaign whose differences have the given centre.
func (m *rehearsed) follow(r *rand.Rand, centre float64) (f followed) {
	var d []float64
	for i, n := range m.pairs {
		for len(d) < n {
			d = append(d, centre+laplace(r))
		}
		f.Look = m.judge(d, m.level[i], m.exclude[i])
		f.everOut = f.everOut || centre < f.Interval.Low || centre > f.Interval.High
		if f.Stop != GoOn {
			return f
		}
	}
	return f
}

// TestMonitorSize: in 2000 campaigns with looks after every seven pairs of 60, the rates of wrong conclusions stay below 5 %; the tolerance is
// three standard errors of the simulation (0.0146). They are not far below, either: the spending is used.
func TestMonitorSize(t *testing.T) {
	const runs, tolerance = 2000, 0.0146
	r := rand.New(rand.NewPCG(11, 1))
	alarms, out, excluded := 0, 0, 0
	null, there := rehearse(60, 7, 0.5), rehearse(60, 7, 0.4)
	for range runs {
		f := null.follow(r, 0)
		if f.Stop == Different {
			alarms++
		}
		if f.everOut {
			out++
		}
		if there.follow(r, 0.4).Stop == Futile {
			excluded++
		}
	}
	for name, n := range map[string]int{"alarms": alarms, "intervals without the truth": out} {
		if share := float64(n) / runs; share > 0.05+tolerance {
			t.Errorf("%s: %.2f %%", name, 100*share)
		}
	}
	if share := float64(excluded) / runs; share > 0.05+tolerance {
		t.Errorf("an effect that is there was excluded in %.2f %%", 100*share)
	}
	if alarms+excluded < runs/40 {
		t.Errorf("only %d alarms and %d exclusions: the monitor is too strict", alarms, excluded)
	}
}

// TestMonitorPower: an effect that a single test of all pairs finds with 80 % is found by the monitor with at least 75, and sooner on
// average; without an effect of half that size, most campaigns end before their last pair.
func TestMonitorPower(t *testing.T) {
	const runs, most = 600, 100
	r := rand.New(rand.NewPCG(12, 1))
	effect := Detectable(1/math.Sqrt2, most) // differences have the standard deviation 1
	m := rehearse(most, 10, effect)
	found, pairs, early := 0, 0, 0
	for range runs {
		f := m.follow(r, effect)
		if f.Stop == Different && f.Interval.Low > 0 {
			found++
		}
		pairs += f.Pairs
		if f := m.follow(r, 0); f.Stop == Futile && f.Pairs < most {
			early++
		}
	}
	if share := float64(found) / runs; share < 0.75 {
		t.Errorf("power %.1f %%", 100*share)
	}
	if mean := float64(pairs) / runs; mean > 0.85*most {
		t.Errorf("%.0f pairs on average", mean)
	}
	if share := float64(early) / runs; share < 0.6 {
		t.Errorf("only %.0f %% of hopeless campaigns ended early", 100*share)
	}
}

// TestMonitorFewPairs: the exact test cannot reject with fewer than six pairs, and a look without new pairs says nothing.
func TestMonitorFewPairs(t *testing.T) {
	m := NewMonitor(12, 0.95, 0.1)
	l := m.Look([]float64{1, 2, 3, 4})
	if l.Stop != GoOn || !math.IsInf(l.Interval.Low, -1) {
		t.Errorf("after four pairs: %+v", l)
	}
	if l = m.Look([]float64{1, 2, 3, 4}); l.Stop != GoOn {
		t.Errorf("the same pairs again: %+v", l)
	}
	all := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if l = m.Look(all); l.Stop != Different || l.Interval.Low <= 0 {
		t.Errorf("after twelve: %+v", l)
	}
	if l = NewMonitor(4, 0.95, 0.1).Look([]float64{1, -2, 3, -4}); l.Stop != Exhausted {
		t.Errorf("all of four: %+v", l)
	}
}

func TestSignedRankBelow(t *testing.T) {
	d := []float64{-3, -2, -1, -4, -5, 0.5}
	if got, want := signedRankBelow(d, 0), 2.0/64; !near(got, want) { // rank sums 0 and 1
		t.Errorf("p = %v, want %v", got, want)
	}
	if got := signedRankBelow([]float64{1, 2, 3}, 0); got != 1 {
		t.Errorf("p = %v for differences above", got)
	}
}
