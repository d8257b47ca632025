package report

import (
	"math"
	"strconv"
)

// scale maps values to pixels, evenly or by their logarithm.
type scale struct {
	lo, hi   float64 // values, lo < hi
	from, to float64 // pixels
	log      bool
}

// linear is a scale from 0, or from the least value if that is below, to a little above the greatest one.
func linear(values []float64, from, to float64) scale {
	s := scale{from: from, to: to}
	for _, v := range values {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			s.lo, s.hi = min(s.lo, v), max(s.hi, v)
		}
	}
	if s.hi <= s.lo {
		s.hi = s.lo + 1
	}
	s.hi += (s.hi - s.lo) * 0.04
	return s
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// holds reports that a value lies on the scale.
func (s scale) holds(v float64) bool { return v >= s.lo && v <= s.hi }

// ticks returns about n round values on the scale.
func (s scale) ticks(n int) []float64 {
	if s.log && s.hi/s.lo > 3 {
		return s.decades(n)
	}
	step := niceStep((s.hi - s.lo) / float64(max(n, 1)))
	var out []float64
	for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi*(1+1e-12) && len(out) < 3*n+3; i++ {
		out = append(out, i*step)
	}
	return out
}

// decades returns at most n values of the form 1, 2 and 5 times a power of ten, or fewer of them if those are too many.
func (s scale) decades(n int) (out []float64) {
	for _, mantissas := range [][]float64{{1, 1.5, 2, 3, 4, 5, 7}, {1, 2, 5}, {1, 3}, {1}} {
		out = out[:0]
		for e := math.Floor(math.Log10(s.lo)); e <= math.Log10(s.hi) && len(out) <= 20*n; e++ {
			for _, m := range mantissas {
				if v := m * math.Pow(10, e); s.holds(v) {
					out = append(out, v)
				}
			}
		}
		if len(out) <= n {
			return out
		}
	}
	return out[:n]
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below a step.
func niceStep(step float64) float64 {
	if !(step > 0) || math.IsInf(step, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= step*(1-1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// xAxis draws grid lines from top to bottom with their values below, and what they are; it returns where it ends.
func (d *drawing) xAxis(s scale, top, bottom float64, label string, format func(float64) string) float64 {
	n := 7
	if d.small {
		n = 4
	}
	reach := math.Inf(-1) // of the last value written
	for _, v := range s.ticks(n) {
		x, text := s.at(v), format(v)
		d.line("grid", x, top, x, bottom)
		half := textWidth(text, smallSize) / 2
		at := min(max(x, half), d.w-half)
		if at-half > reach+4 {
			d.text("small", at, bottom+14, middle, text)
			reach = at + half
		}
	}
	d.text("small", (s.from+s.to)/2, bottom+30, middle, fit(label, smallSize, d.w))
	return bottom + 36
}

// yAxis draws grid lines from left to right with their values to the left.
func (d *drawing) yAxis(s scale, left, right float64, n int, format func(float64) string) {
	for _, v := range s.ticks(n) {
		y := s.at(v)
		d.line("grid", left, y, right, y)
		d.text("small", left-6, y+4, end, format(v))
	}
}

// figure3 writes a measured number with three significant digits.
func figure3(v float64) string {
	if a := math.Abs(v); a >= 1e6 || a < 1e-3 || math.IsNaN(v) {
		return short(v)
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), 64)
}

// short writes a number with at most three significant digits, and no more than it needs.
func short(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	if a := math.Abs(v); a >= 1e6 || a < 1e-4 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	p := math.Pow(10, float64(digits))
	return strconv.FormatFloat(math.Round(v*p)/p, 'f', -1, 64)
}
