// Package stats is the arithmetic of comparisons: quantiles, the signed-rank test of paired differences with the Hodges–Lehmann
// estimate and interval that go with it, and Holm's correction for several tests at once. [Monitor] looks at pairs while they come in,
// [Detectable] says beforehand what they can show, and [Placebo] checks the test on comparisons of a thing with itself.
//
// It is pure, and it knows nothing of what is measured. Nothing here assumes that measurements are normally distributed: a pair's
// difference may have any distribution that is symmetric about the true one.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Quantile returns the quantile of xs at q from 0 to 1, interpolated between order statistics (type 7 of Hyndman and Fan,
// as R and numpy do by default). It is NaN for no values. It leaves xs as it is.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	at := q * float64(len(s)-1)
	i := min(max(int(at), 0), len(s)-1)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// Median returns the middle value.
func Median(xs []float64) float64 { return Quantile(xs, 0.5) }

// exactLimit is the number of differences up to which the distribution of the rank sum is counted out: n³ steps, a
// millisecond at the limit. Above, the normal approximation is off by less than 2e-3.
const exactLimit = 100

// SignedRank returns the two-sided p-value of Wilcoxon's signed-rank test that the differences d have median zero. Zeros are
// left out and ties share their mean rank; up to 100 differences the distribution is exact, given the ties. It is 1 for no
// differences.
func SignedRank(d []float64) float64 {
	twice, plus := ranks(d)
	n := len(twice)
	if n == 0 {
		return 1
	}
	total := 0
	for _, r := range twice {
		total += r
	}
	low := min(plus, total-plus)
	if n > exactLimit {
		var square float64
		for _, r := range twice {
			square += float64(r) * float64(r)
		}
		sd := math.Sqrt(square) / 2 // of the doubled sum: each rank counts or not
		z := (float64(total)/2 - float64(low) - 1) / sd
		return min(1, math.Erfc(max(z, 0)/math.Sqrt2))
	}
	return min(1, 2*atMost(distribution(twice), low))
}

// ranks returns twice the mean rank of each difference's size, zeros left out, and the sum over the positive ones.
func ranks(d []float64) (twice []int, plus int) {
	s := slices.DeleteFunc(slices.Clone(d), func(x float64) bool { return x == 0 })
	slices.SortFunc(s, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && math.Abs(s[j]) == math.Abs(s[i]) {
			j++
		}
		for k := i; k < j; k++ { // ranks i+1 to j
			twice = append(twice, i+1+j)
			if s[k] > 0 {
				plus += i + 1 + j
			}
		}
		i = j
	}
	return twice, plus
}

// distribution returns the probability of each sum of a random subset of the ranks.
func distribution(ranks []int) []float64 {
	p := []float64{1}
	for _, r := range ranks {
		next := make([]float64, len(p)+r)
		for s, x := range p {
			next[s] += x / 2
			next[s+r] += x / 2
		}
		p = next
	}
	return p
}

// atMost returns the probability of a sum up to limit.
func atMost(p []float64, limit int) (sum float64) {
	for _, x := range p[:min(limit+1, len(p))] {
		sum += x
	}
	return sum
}

// Interval is an estimate with its confidence interval. Where there are too few values for the level, Low and High are
// infinite.
type Interval struct{ Estimate, Low, High float64 }

// HodgesLehmann returns the median of all pairwise means of d, which estimates the centre of its distribution, with the interval
// of all centres that the signed-rank test does not reject at the given confidence level, such as 0.95. The estimate is NaN
// for no values.
func HodgesLehmann(d []float64, level float64) Interval {
	n := len(d)
	walsh := make([]float64, 0, n*(n+1)/2)
	for i := range d {
		for j := i; j < n; j++ {
			walsh = append(walsh, (d[i]+d[j])/2)
		}
	}
	slices.Sort(walsh)
	iv := Interval{Median(walsh), math.Inf(-1), math.Inf(1)}
	if k := rejected(n, (1-level)/2); k > 0 {
		iv.Low, iv.High = walsh[k-1], walsh[len(walsh)-k]
	}
	return iv
}

// rejected returns the number of rank sums of n untied differences, from 0 up, whose probability together is at most tail.
func rejected(n int, tail float64) int {
	if n > exactLimit {
		m := float64(n) * float64(n+1) / 4
		sd := math.Sqrt(m * float64(2*n+1) / 6)
		return max(0, int(m-0.5+sd*math.Sqrt2*math.Erfinv(2*tail-1))+1)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	sum := 0.0
	for k, p := range distribution(all) {
		if sum += p; sum > tail {
			return k
		}
	}
	return 0 // n is 0
}

// Holm returns the p-values of several tests corrected so that the chance of any false alarm among them stays at the level of
// one (Holm, 1979).
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out := make([]float64, len(p))
	worst := 0.0
	for i, k := range order {
		worst = max(worst, min(1, p[k]*float64(len(p)-i)))
		out[k] = worst
	}
	return out
}
