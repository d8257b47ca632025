package measure

import (
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"draftlab/lab/stats"
)

const (
	// ExactValues is the number of values up to which a distribution keeps them all: half a megabyte. Most runs stay below it.
	ExactValues = 1 << 16

	hdrDigits = 3                       // significant digits of values beyond: 0.1 %, in some 300 kB
	hdrMax    = int64(100 * 3600 * 1e9) // 100 hours; longer is counted as that
)

// Dist is a distribution of durations in nanoseconds.
type Dist struct {
	exact    []int64
	hist     *hdrhistogram.Histogram // takes over when exact is full
	n        int64
	mean, m2 float64 // Welford's: the mean and the sum of squared distances from it
	low, top int64
}

// Add takes in a value, n times.
func (d *Dist) Add(ns, n int64) {
	if n <= 0 {
		return
	}
	ns = max(ns, 0)
	if d.n == 0 || ns < d.low {
		d.low = ns
	}
	d.top = max(d.top, ns)
	d.n += n
	delta := float64(ns) - d.mean
	d.mean += delta * float64(n) / float64(d.n)
	d.m2 += delta * float64(n) * (float64(ns) - d.mean)
	if d.hist == nil && int64(len(d.exact))+n <= ExactValues {
		for range n {
			d.exact = append(d.exact, ns)
		}
		return
	}
	if d.hist == nil {
		d.hist = hdrhistogram.New(1, hdrMax, hdrDigits)
		for _, v := range d.exact {
			d.record(v, 1)
		}
		d.exact = nil
	}
	d.record(ns, n)
}

// record adds to the histogram, whose range holds every value that is clamped to it.
func (d *Dist) record(ns, n int64) {
	if err := d.hist.RecordValues(min(max(ns, 1), hdrMax), n); err != nil {
		panic("measure: " + err.Error())
	}
}

// N is the number of values.
func (d *Dist) N() int64 { return d.n }

// Mean, Std, Min and Max are in milliseconds, 0 without values. Std is that of the values, not an estimate of what they were drawn
// from, as numpy's default and the familiar scripts have it.
func (d *Dist) Mean() float64 { return d.mean / 1e6 }

// Std is the standard deviation in milliseconds.
func (d *Dist) Std() float64 {
	if d.n == 0 {
		return 0
	}
	return math.Sqrt(max(0, d.m2)/float64(d.n)) / 1e6
}

// Min is the least value in milliseconds.
func (d *Dist) Min() float64 { return float64(d.low) / 1e6 }

// Max is the greatest value in milliseconds.
func (d *Dist) Max() float64 { return float64(d.top) / 1e6 }

// Quantiles returns the quantiles at each q from 0 to 1 in milliseconds, 0 without values: interpolated while all values are
// kept, and the value of that rank beyond.
func (d *Dist) Quantiles(qs ...float64) []float64 {
	out := make([]float64, len(qs))
	if d.n == 0 {
		return out
	}
	if d.hist == nil {
		xs := make([]float64, len(d.exact))
		for i, v := range d.exact {
			xs[i] = float64(v) / 1e6
		}
		slices.Sort(xs)
		for i, q := range qs {
			out[i] = stats.Quantile(xs, q)
		}
		return out
	}
	for i, q := range qs {
		out[i] = float64(d.hist.ValueAtQuantile(100*q)) / 1e6
	}
	return out
}
