package enginelog

import (
	"math"
	"slices"
)

// Dist describes the values of a figure over the lines that have it. Quantiles interpolate linearly between order statistics.
type Dist struct {
	N    int     `json:"n"`
	Min  float64 `json:"min"`
	P10  float64 `json:"p10"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// maxValues bounds what is kept of one figure: a year of SGLang's decode lines at one every two seconds is 16 times as much.
// Beyond it the older half is forgotten.
const maxValues = 1 << 20

// values collects one figure.
type values []float64

// add takes a finite figure; others, which only a mad log yields, it leaves out.
func (v *values) add(x float64) {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return
	}
	if len(*v) == maxValues {
		*v = append((*v)[:0], (*v)[maxValues/2:]...)
	}
	*v = append(*v, x)
}

// dist summarises the values; nil if there are none.
func (v values) dist() *Dist {
	if len(v) == 0 {
		return nil
	}
	s := slices.Clone(v)
	slices.Sort(s)
	var sum float64
	for _, x := range s {
		sum += x / float64(len(s)) // no overflow, whatever the log says
	}
	return &Dist{N: len(s), Min: s[0], P10: quantile(s, .1), P50: quantile(s, .5), P90: quantile(s, .9), P99: quantile(s, .99), Max: s[len(s)-1], Mean: sum}
}

// quantile returns the p-quantile of sorted values, of which there must be some.
func quantile(s []float64, p float64) float64 {
	at := p * float64(len(s)-1)
	i := int(math.Floor(at))
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
