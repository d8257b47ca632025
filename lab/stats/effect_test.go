package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestDetectable: with the effect that it names, the signed-rank test of a plan finds 80 % within four points, of which the test's own
// efficiency (0.955 for normal readings) takes one and a half.
func TestDetectable(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 1))
	const runs, n, cv = 2000, 60, 0.05
	effect := Detectable(cv, n)
	found := 0
	resolved := 0.0
	for range runs {
		d := make([]float64, n)
		for i := range d {
			d[i] = effect + cv*r.NormFloat64() - cv*r.NormFloat64()
		}
		if SignedRank(d) <= 0.05 {
			found++
		}
		resolved += Resolved(HodgesLehmann(d, 0.95), 0.95) / runs
	}
	if share := float64(found) / runs; math.Abs(share-0.8) > 0.04 {
		t.Errorf("power %.1f %%", 100*share)
	}
	if math.Abs(resolved/effect-1) > 0.06 {
		t.Errorf("what was measured resolves %.4f, planned was %.4f", resolved, effect)
	}
	if !math.IsInf(Detectable(cv, 0), 1) || !math.IsInf(Resolved(HodgesLehmann(nil, 0.95), 0.95), 1) {
		t.Error("no pairs detect something")
	}
}

func TestStudent(t *testing.T) {
	for _, c := range []struct {
		p    float64
		free int
		want float64
	}{{0.025, 1, 12.7062}, {0.025, 2, 4.30265}, {0.05, 5, 2.01505}, {0.025, 10, 2.22814}, {0.005, 30, 2.74999}, {0.025, 500, 1.96472}} {
		if got := StudentUpper(c.p, c.free); math.Abs(got/c.want-1) > 1e-4 {
			t.Errorf("t(%v, %d) = %v, want %v", c.p, c.free, got, c.want)
		}
	}
}

// TestScopes: both intervals hold their own truth as often as they claim, within three standard errors (0.0146), and the one for these
// prompts is the narrower where prompts differ.
func TestScopes(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	const runs, prompts = 2000, 14
	heldThese, heldLike, narrower := 0, 0, 0
	for range runs {
		groups, truth := make([][]float64, prompts), 0.0
		for i := range groups {
			own := 0.3 + 0.2*r.NormFloat64()
			truth += own / prompts
			for range 2 {
				groups[i] = append(groups[i], own+0.05*r.NormFloat64())
			}
		}
		these, like := Scopes(groups, 0.95)
		if these.Low <= truth && truth <= these.High {
			heldThese++
		}
		if like.Low <= 0.3 && 0.3 <= like.High {
			heldLike++
		}
		if these.High-these.Low < like.High-like.Low {
			narrower++
		}
	}
	for name, n := range map[string]int{"these prompts": heldThese, "prompts like these": heldLike} {
		if share := float64(n) / runs; math.Abs(share-0.95) > 0.0146 {
			t.Errorf("%s: held the truth in %.1f %%", name, 100*share)
		}
	}
	if narrower < runs {
		t.Errorf("the interval for these prompts was narrower in %d of %d", narrower, runs)
	}
	if these, _ := Scopes([][]float64{{1}, {}, {2}}, 0.95); these.Estimate != 1.5 || !math.IsInf(these.High, 1) {
		t.Errorf("one pair a prompt: %+v", these)
	}
}

// TestPlacebo: readings that drift, burst and remember the last one do not move the rate of alarms from the test's size, which
// is 4.8 % with 25 pairs; three standard errors are 0.0064.
func TestPlacebo(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	var runs [][][2]float64
	for range 8 {
		var run [][2]float64
		level := 0.0
		for i := range 120 {
			level = 0.9*level + 0.05*r.NormFloat64()
			slow := 1.0
			if i%17 < 3 {
				slow = 0.7
			}
			run = append(run, [2]float64{slow * math.Exp(level+0.02*r.NormFloat64()), slow * math.Exp(level-0.03+0.02*r.NormFloat64())})
		}
		runs = append(runs, run)
	}
	if got := Placebo(r, runs, 25, 10000, 0.05); math.Abs(got-0.048) > 0.0064 {
		t.Errorf("alarms in %.2f %%", 100*got)
	}
	if !math.IsNaN(Placebo(r, runs, 121, 10, 0.05)) {
		t.Error("a rate for windows longer than any run")
	}
}
