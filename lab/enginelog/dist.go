package enginelog

import (
	"math"
	"slices"

	"draftlab/lab/stats"
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
	return &Dist{N: len(s), Min: s[0], P10: stats.Quantile(s, .1), P50: stats.Median(s), P90: stats.Quantile(s, .9), P99: stats.Quantile(s, .99), Max: s[len(s)-1], Mean: sum}
}
