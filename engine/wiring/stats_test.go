package wiring

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestStudentT holds the quantile to the tables of Student's distribution.
func TestStudentT(t *testing.T) {
	for _, c := range []struct{ p, v, want float64 }{
		{0.975, 3, 3.1824}, {0.975, 7, 2.3646}, {0.975, 15, 2.1314}, {0.995, 7, 3.4995}, {0.995, 15, 2.9467}, {0.9, 7, 1.4149}, {0.975, 1e6, 1.96},
	} {
		if got := studentT(c.p, c.v); math.Abs(got/c.want-1) > 0.005 {
			t.Errorf("p %g, %g degrees: %g, want %g", c.p, c.v, got, c.want)
		}
	}
}

// TestRatioCovers: the interval of a ratio over texts of different length and difficulty contains the truth as often as it says.
func TestRatioCovers(t *testing.T) {
	const texts, runs, p = 16, 4000, 0.6
	rng := rand.New(rand.NewPCG(1, 2))
	hit := 0
	for range runs {
		num, den := make([]float64, texts), make([]float64, texts)
		for i := range texts {
			own := p + 0.3*(rng.Float64()-0.5)
			den[i] = float64(20 + rng.IntN(40))
			for range int(den[i]) {
				if rng.Float64() < own {
					num[i]++
				}
			}
		}
		if v := ratio(num, den, 0.95); v.Low <= p && p <= v.High {
			hit++
		}
	}
	if share := float64(hit) / runs; share < 0.93 || share > 0.97 {
		t.Errorf("95 %% intervals cover %.1f %%", 100*share)
	}
}

func TestRatioOfNothing(t *testing.T) {
	if v := ratio([]float64{0, 0}, []float64{0, 0}, 0.95); v != (Interval{}) {
		t.Errorf("%v", v)
	}
}
