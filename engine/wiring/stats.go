package wiring

import "math"

// Interval is a value with the bounds of its interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// ratio returns Σnum/Σden over texts with its interval at the given confidence, by the linearised variance of a ratio of
// sums over clusters (Cochran, Sampling Techniques, 3rd ed., §6.3) and Student's t with a degree of freedom less than there are texts.
func ratio(num, den []float64, confidence float64) Interval {
	n := float64(len(num))
	var sn, sd float64
	for i := range num {
		sn += num[i]
		sd += den[i]
	}
	if sd == 0 {
		return Interval{}
	}
	r := sn / sd
	if n < 2 {
		return Interval{r, math.Inf(-1), math.Inf(1)}
	}
	var ss float64
	for i := range num {
		e := num[i] - r*den[i]
		ss += e * e
	}
	half := studentT((1+confidence)/2, n-1) * math.Sqrt(n/(n-1)*ss) / sd
	return Interval{r, r - half, r + half}
}

// studentT is the p-quantile of Student's distribution with v degrees of freedom, by the expansion of Abramowitz and Stegun, 26.7.5: within
// 0.5 % from 3 degrees on at p = 0.975, and too low below that.
func studentT(p, v float64) float64 {
	x := math.Sqrt2 * math.Erfinv(2*p-1)
	x2 := x * x
	g1 := (x2 + 1) * x / 4
	g2 := ((5*x2+16)*x2 + 3) * x / 96
	g3 := (((3*x2+19)*x2+17)*x2 - 15) * x / 384
	g4 := ((((79*x2+776)*x2+1482)*x2-1920)*x2 - 945) * x / 92160
	return x + (g1+(g2+(g3+g4/v)/v)/v)/v
}
