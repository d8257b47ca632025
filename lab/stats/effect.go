package stats

import "math"

// power80 is the normal quantile of a two-sided test at 5 % plus that of a power of 80 %: 1.960 + 0.842.
const power80 = 2.802

// Detectable returns the smallest difference of logarithms that n pairs detect in 80 of 100 campaigns at 5 %, where a single
// reading has the coefficient of variation cv about its own truth: 2.8·cv·√(2/n), and so about the share by which one way must be faster.
// Differences between prompts, if pairs are of different ones, belong to cv. It is infinite for no pairs.
func Detectable(cv float64, n int) float64 {
	if n < 1 {
		return math.Inf(1)
	}
	return power80 * cv * math.Sqrt(2/float64(n))
}

// Resolved returns what differences that were measured could have detected in the same sense, from the interval that they gave at
// a confidence: half its width counts as many standard errors as the normal distribution has there. It is infinite without an interval.
func Resolved(iv Interval, confidence float64) float64 {
	return (iv.High - iv.Low) / 2 / quantileUpper((1-confidence)/2) * power80
}

// Scopes returns two intervals for the mean difference, from differences grouped by prompt. One is for these very prompts: it
// leaves open only what repeating them would change, taken from how pairs on the same prompt differ (pooled over prompts, Student's
// t), and is infinite if no prompt has two pairs. The other is for prompts like these, which differ among each
// other as well: each prompt counts as one observation, its mean (Hodges–Lehmann over prompts).
func Scopes(groups [][]float64, confidence float64) (these, like Interval) {
	var means []float64
	square, free, spread := 0.0, 0, 0.0
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		m := Mean(g)
		means = append(means, m)
		for _, x := range g {
			square += (x - m) * (x - m)
		}
		free += len(g) - 1
		spread += 1 / float64(len(g))
	}
	like = HodgesLehmann(means, confidence)
	these = Interval{Mean(means), math.Inf(-1), math.Inf(1)}
	if free > 0 {
		n := float64(len(means))
		half := StudentUpper((1-confidence)/2, free) * math.Sqrt(square/float64(free)*spread) / n
		these.Low, these.High = these.Estimate-half, these.Estimate+half
	}
	return these, like
}

// Mean is NaN for no values.
func Mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// StudentUpper returns the value that Student's t with so many degrees of freedom exceeds with probability p, for 0 < p < 0.5. The
// tail is integrated by Simpson's rule over the angle whose tangent is t/√free, in which the density is a power of the cosine.
func StudentUpper(p float64, free int) float64 {
	const steps = 300
	power := float64(free - 1)
	area := func(from, to float64) (sum float64) {
		h := (to - from) / steps
		for i := range steps + 1 {
			w := 2.0
			switch {
			case i == 0 || i == steps:
				w = 1
			case i%2 == 1:
				w = 4
			}
			sum += w * math.Pow(math.Cos(from+float64(i)*h), power)
		}
		return sum * h / 3
	}
	half := area(0, math.Pi/2)
	lo, hi := 0.0, math.Pi/2
	for range 40 {
		if mid := (lo + hi) / 2; area(mid, math.Pi/2)/(2*half) > p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Tan(lo) * math.Sqrt(float64(free))
}
