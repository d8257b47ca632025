package costmodel

import "math"

// lsq sums up weighted points (x, z, y) for least squares: y = a + b·x, or y = a + b·x + c·z.
type lsq struct {
	w, x, z, y []float64
}

func (l *lsq) add(w, x, z, y float64) {
	l.w, l.x, l.z, l.y = append(l.w, w), append(l.x, x), append(l.z, z), append(l.y, y)
}

func (l *lsq) weighted(v []float64) float64 {
	s, n := 0.0, 0.0
	for i, w := range l.w {
		s, n = s+w*v[i], n+w
	}
	if n == 0 {
		return 0
	}
	return s / n
}

func (l *lsq) mean() float64  { return l.weighted(l.y) }
func (l *lsq) meanX() float64 { return l.weighted(l.x) }

// moment is the weighted sum of products of deviations.
func (l *lsq) moment(u, v []float64) (s float64) {
	mu, mv := l.weighted(u), l.weighted(v)
	for i, w := range l.w {
		s += w * (u[i] - mu) * (v[i] - mv)
	}
	return s
}

// line fits y = a + b·x with b ≥ 0 and a ≥ 0 (x must differ). Where the free line breaks a bound, the best within is on it.
func (l *lsq) line() (a, b float64) {
	b = l.moment(l.x, l.y) / l.moment(l.x, l.x)
	if !(b > 0) {
		return l.mean(), 0
	}
	if a = l.mean() - b*l.meanX(); a >= 0 {
		return a, b
	}
	xy, xx := 0.0, 0.0
	for i, w := range l.w {
		xy, xx = xy+w*l.x[i]*l.y[i], xx+w*l.x[i]*l.x[i]
	}
	return 0, xy / xx
}

// plane fits y = a + b·x + c·z with b, c ≥ 0. Where x and z rise together they cannot be told apart, and z gets nothing.
func (l *lsq) plane() (a, b, c float64) {
	xx, zz, xz := l.moment(l.x, l.x), l.moment(l.z, l.z), l.moment(l.x, l.z)
	xy, zy := l.moment(l.x, l.y), l.moment(l.z, l.y)
	det := xx*zz - xz*xz
	if det < 0.05*xx*zz { // a correlation above 0.97
		a, b = l.line()
		return a, b, 0
	}
	b, c = (xy*zz-zy*xz)/det, (zy*xx-xy*xz)/det
	a = l.mean() - b*l.meanX() - c*l.weighted(l.z)
	if b < 0 || c < 0 || a < 0 || math.IsNaN(a) {
		a, b = l.line()
		return a, b, 0
	}
	return a, b, c
}

// spread is the range of some numbers.
type spread struct {
	n      int
	lo, hi float64
}

func (s *spread) see(x float64) {
	if s.n == 0 {
		s.lo, s.hi = x, x
	}
	s.n++
	s.lo, s.hi = min(s.lo, x), max(s.hi, x)
}

// differ reports whether the largest is above the smallest, times the ratio.
func (s *spread) differ(ratio float64) bool { return s.n > 1 && s.hi > s.lo*ratio }
