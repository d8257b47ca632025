package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		s    scale
		n    int
		want []float64
	}{
		{scale{lo: 0, hi: 10}, 5, []float64{0, 2, 4, 6, 8, 10}},
		{scale{lo: 0, hi: 0.7}, 4, []float64{0, 0.2, 0.4, 0.6}},
		{scale{lo: 0.8, hi: 1.9, log: true}, 7, []float64{0.8, 1, 1.2, 1.4, 1.6, 1.8}},
		{scale{lo: 0.2, hi: 6, log: true}, 7, []float64{0.2, 0.5, 1, 2, 5}},
	} {
		got := c.s.ticks(c.n)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
		}
	}
}

func TestTicksLieOnTheScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(1e-6, 1e6).Draw(t, "lo")
		s := scale{lo: lo, hi: lo * rapid.Float64Range(1.01, 1e9).Draw(t, "ratio"), from: 10, to: 300, log: rapid.Bool().Draw(t, "log")}
		n := rapid.IntRange(2, 10).Draw(t, "n")
		got := s.ticks(n)
		if len(got) > 2*n+2 || !slices.IsSorted(got) {
			t.Fatalf("%d ticks for %d: %v", len(got), n, got)
		}
		for _, v := range got {
			if x := s.at(v); x < 10-1e-6 || x > 300+1e-6 {
				t.Fatalf("%g lies at %g", v, x)
			}
		}
	})
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1234.5: "1235", 99.96: "100", 12.34: "12.3", 0.04567: "0.0457", -3.456: "-3.46", 5: "5", 1e7: "1e+07", math.NaN(): "0", math.Inf(1): "0"} {
		if got := short(v); got != want {
			t.Errorf("short(%g) is %s, want %s", v, got, want)
		}
	}
}

func TestFigure3(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 2.9: "2.90", 359.4: "359", 1234.5: "1234", 0.04567: "0.0457", -3: "-3.00", 1e-9: "1e-09", math.Inf(-1): "0"} {
		if got := figure3(v); got != want {
			t.Errorf("figure3(%g) is %s, want %s", v, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	if got := fit("steps-3", textSize, 200); got != "steps-3" {
		t.Errorf("a short name became %q", got)
	}
	a, b := fit("steps-3, NCCL_ALGO=Ring, NCCL_PROTO=LL", textSize, 140), fit("steps-3, NCCL_ALGO=Ring, NCCL_PROTO=LL128", textSize, 140)
	if a == b || !strings.HasPrefix(a, "steps-3") {
		t.Errorf("names that differ at their ends became %q and %q", a, b)
	}
	for _, s := range hostile {
		if got := fit(s, textSize, 120); textWidth(got, textSize) > 120 {
			t.Errorf("%q is %g wide", got, textWidth(got, textSize))
		}
	}
}
