package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }

func TestQuantile(t *testing.T) {
	xs := []float64{3, 1, 4, 2} // numpy.quantile
	for q, want := range map[float64]float64{0: 1, 0.25: 1.75, 0.5: 2.5, 0.9: 3.7, 1: 4} {
		if got := Quantile(xs, q); !near(got, want) {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if !slices.Equal(xs, []float64{3, 1, 4, 2}) {
		t.Errorf("the values were moved: %v", xs)
	}
	if !math.IsNaN(Median(nil)) || Median([]float64{7}) != 7 {
		t.Error("the median of none is not NaN, or that of one not the value")
	}
}

// TestSignedRankAgainstBruteForce counts all choices of signs.
func TestSignedRankAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SliceOfN(rapid.Map(rapid.IntRange(-6, 6), func(i int) float64 { return float64(i) }), 0, 10).Draw(t, "d") // ties and zeros
		twice, plus := ranks(d)
		total := 0
		for _, r := range twice {
			total += r
		}
		extreme := 0
		for signs := range 1 << len(twice) {
			sum := 0
			for i, r := range twice {
				sum += r * (signs >> i & 1)
			}
			if min(sum, total-sum) <= min(plus, total-plus) {
				extreme++
			}
		}
		if got, want := SignedRank(d), float64(extreme)/float64(int(1)<<len(twice)); !near(got, want) {
			t.Errorf("%v: p = %v, by counting %v", d, got, want)
		}
	})
}

// TestCriticalValues: the published table of Wilcoxon's test, two-sided 5 %: the largest rank sum that is significant.
func TestCriticalValues(t *testing.T) {
	for n, want := range map[int]int{5: -1, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137, 50: 434} {
		if got := rejected(n, 0.025) - 1; got != want {
			t.Errorf("n = %d: %d, want %d", n, got, want)
		}
	}
}

// TestDarwin: the heights of crossed and self-fertilised maize (Darwin 1876, in eighths of an inch), of which Fisher's and R's
// examples are made: wilcox.test(d, conf.int = TRUE) says p = 0.04126.
func TestDarwin(t *testing.T) {
	d := []float64{49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48}
	if p := SignedRank(d); math.Abs(p-0.04126) > 5e-6 {
		t.Errorf("p = %v", p)
	}
}

// TestIntervalIsWhatTheTestDoesNotReject holds the interval to its definition.
func TestIntervalIsWhatTheTestDoesNotReject(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 5, 6, 7, 12, 30} {
		d := make([]float64, n)
		for i := range d {
			d[i] = rng.NormFloat64()
		}
		iv := HodgesLehmann(d, 0.95)
		if n < 6 {
			if !math.IsInf(iv.Low, -1) || !math.IsInf(iv.High, 1) {
				t.Errorf("%d values have the interval %v", n, iv)
			}
			continue
		}
		p := func(centre float64) float64 {
			moved := slices.Clone(d)
			for i := range moved {
				moved[i] -= centre
			}
			return SignedRank(moved)
		}
		const e = 1e-9
		if p(iv.Low+e) <= 0.05 || p(iv.High-e) <= 0.05 || p(iv.Low-e) > 0.05 || p(iv.High+e) > 0.05 {
			t.Errorf("n = %d, %v: p inside %v %v, outside %v %v", n, iv, p(iv.Low+e), p(iv.High-e), p(iv.Low-e), p(iv.High+e))
		}
		if !(iv.Low < iv.Estimate && iv.Estimate < iv.High) {
			t.Errorf("n = %d: %v", n, iv)
		}
	}
}

// TestLargeSamplesAgreeWithExact compares the approximation, past the limit, with counting.
func TestLargeSamplesAgreeWithExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = exactLimit + 1
	for _, shift := range []float64{0, 0.1, 0.2, 0.3} {
		d := make([]float64, n)
		all := make([]int, n)
		for i := range d {
			d[i], all[i] = rng.NormFloat64()+shift, i+1
		}
		twice, plus := ranks(d)
		exact := min(1, 2*atMost(distribution(twice), min(plus, 2*n*(n+1)/2-plus)))
		if got := SignedRank(d); math.Abs(got-exact) > 5e-4+2e-3*exact {
			t.Errorf("shift %v: p = %v, exactly %v", shift, got, exact)
		}
		k := rejected(n, 0.025)
		if p := distribution(all); math.Abs(atMost(p, k-1)-0.025) > 3e-4 {
			t.Errorf("the %d lowest rank sums have probability %v", k, atMost(p, k-1))
		}
	}
}

// TestCoverage: in 2000 experiments the interval holds the truth as often as it claims, and hardly more.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const runs, n = 2000, 12
	held := 0
	for range runs {
		d := make([]float64, n)
		for i := range d {
			d[i] = 0.3 + rng.ExpFloat64() - rng.ExpFloat64()
		}
		if iv := HodgesLehmann(d, 0.95); iv.Low <= 0.3 && 0.3 <= iv.High {
			held++
		}
	}
	if share := float64(held) / runs; share < 0.94 || share > 0.97 {
		t.Errorf("the 95 %% interval held the truth in %.1f %% of runs", 100*share)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005}) // R: p.adjust(p, "holm")
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if !near(got[i], want) {
			t.Errorf("got %v", got)
			break
		}
	}
	if got := Holm([]float64{0.9, 0.8}); got[0] != 1 || got[1] != 1 {
		t.Errorf("got %v, want 1 at most", got)
	}
}
