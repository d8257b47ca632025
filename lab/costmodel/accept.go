package costmodel

import (
	"math"
	"math/rand/v2"
	"slices"
)

// curve is how acceptance falls with depth.
type curve struct {
	s         []float64 // s1…sK; nil is unknown
	beyond    float64   // the share of drafts accepted past sK of those whose predecessors were
	siblings  float64   // exponent: n candidates in the place of one leave n^−siblings of the misses
	irregular bool      // the observations are not of one falling curve
}

// The exponent of siblings. Lists of published tree and chain accept lengths of EAGLE drafters lie within these
// bounds; they are wide on purpose, as nothing but a run of the tree itself says what its siblings catch.
const (
	siblingsLo, siblings, siblingsHi = 0.1, 0.6, 1.1
)

// fitCurve makes the curve of acceptance. A histogram of the deepest chain has all shallower ones in it: whether draft k
// is accepted does not depend on the drafts after it. Where there are accept lengths only, the curve goes through
// them, and between two of them its shape is open.
func (m *Model) fitCurve(gain, w []float64, r *rand.Rand) curve {
	c := curve{s: m.counted(w, r), siblings: siblings}
	if r != nil {
		c.siblings = siblingsLo + (siblingsHi-siblingsLo)*r.Float64()
	}
	depths, lengths := m.anchors(gain, w)
	for i, depth := range depths {
		have := len(c.s)
		if depth <= have {
			c.irregular = c.irregular || math.Abs(1+sum(c.s[:depth])-lengths[i]) > 0.07*lengths[i]
			continue
		}
		prev := 1.0
		if have > 0 {
			prev = c.s[have-1]
		}
		gain, floor := lengths[i]-1-sum(c.s), 0.0
		if i+1 < len(depths) {
			floor = max(lengths[i+1]-lengths[i], 0) / float64(depths[i+1]-depth)
		}
		n := float64(depth - have)
		c.irregular = c.irregular || gain < 0 || gain > 1.0001*prev*n || floor*n > 1.0001*gain
		lean := 0.0
		if r != nil {
			lean = r.Float64() - 0.5
		}
		middle := falling(prev, geometric(prev, depth-have, gain), depth-have)
		if have == 0 && i+1 < len(depths) && !c.irregular {
			if s := firstApart(depth, gain, depths[i+1], lengths[i+1]-1); s != nil {
				middle = s
			}
		}
		c.s = append(c.s, segment(prev, middle, gain, floor, lean)...)
	}
	if k := len(c.s); k > 0 {
		c.beyond = c.s[0]
		if k > 1 && c.s[k-2] > 0 {
			c.beyond = c.s[k-1] / c.s[k-2]
		}
		if r != nil { // Nothing was seen there.
			c.beyond = min(c.beyond*(0.5+0.7*r.Float64()), 1)
		}
	}
	return c
}

// counted is the curve of the deepest chain whose acceptance was counted by position, nil if none was.
func (m *Model) counted(w []float64, r *rand.Rand) []float64 {
	depth := 0
	for _, o := range m.obs {
		if o.chain() && (o.Accepted != nil || o.Survival != nil) {
			depth = max(depth, o.Steps)
		}
	}
	if depth == 0 {
		return nil
	}
	pool, shares, weight := make([]float64, depth+1), make([]float64, depth), 0.0
	for i, o := range m.obs {
		if !o.chain() || o.Steps != depth {
			continue
		}
		for k, n := range counts(o.Accepted, w[i]/max(o.Cycles, 1)) {
			pool[k] += n
		}
		if o.Accepted == nil && o.Survival != nil {
			weight += w[i]
			for k, s := range o.Survival {
				shares[k] += w[i] * s
			}
		}
	}
	if sum(pool) > 0 {
		return survival(pool, r)
	}
	if weight == 0 {
		return nil // counted, but nothing happened
	}
	for k := range shares {
		shares[k] /= weight
	}
	return shares
}

// anchors are the accept lengths of chains by depth, the shallowest first.
func (m *Model) anchors(gain, w []float64) (depths []int, lengths []float64) {
	total, weight := map[int]float64{}, map[int]float64{}
	for i, o := range m.obs {
		if o.chain() && gain[i] > 0 {
			total[o.Steps] += w[i] * gain[i]
			weight[o.Steps] += w[i]
		}
	}
	for depth := range total {
		depths = append(depths, depth)
	}
	slices.Sort(depths)
	for _, depth := range depths {
		lengths = append(lengths, total[depth]/weight[depth])
	}
	return depths, lengths
}

// segment returns shares that never rise, start at or below prev, end at or above floor and sum up to gain, as far as that is
// possible. A lean of 0 is the middle, which must do all this but for the floor; −1 is the same share everywhere; +1 has all that can be
// at the front.
func segment(prev float64, middle []float64, gain, floor, lean float64) []float64 {
	n := len(middle)
	gain = min(max(gain, 0), prev*float64(n))
	flat := gain / float64(n)
	floor = min(floor, flat)
	s, left := make([]float64, n), gain-floor*float64(n)
	for k := range s {
		front := floor + min(prev-floor, left)
		left -= front - floor
		other := front
		if lean < 0 {
			other = flat
		}
		s[k] = middle[k] + math.Abs(lean)*(other-middle[k])
	}
	if last := s[n-1]; last < floor && flat > last { // mix in as much of the flat one as it takes
		share := (floor - last) / (flat - last)
		for k := range s {
			s[k] += share * (flat - s[k])
		}
	}
	return s
}

// falling returns first·rate, first·rate², … first·rateⁿ.
func falling(first, rate float64, n int) []float64 {
	s := make([]float64, n)
	for k := range s {
		first *= rate
		s[k] = first
	}
	return s
}

// geometric solves prev·(r + r² + … + rⁿ) = gain for r in 0 to 1.
func geometric(prev float64, n int, gain float64) float64 {
	return bisect(func(r float64) float64 { return sum(falling(prev, r, n)) - gain })
}

// firstApart returns s1…sn of the drafter that accepts its first draft, made of the target's own states, at one rate and all later
// ones, made of its own, at another, and whose shares sum up to gain at depth n and to more at depth far. It is nil if no such
// drafter exists.
func firstApart(n int, gain float64, far int, more float64) []float64 {
	if n < 2 || gain <= 0 || more <= gain {
		return nil
	}
	rate := bisect(func(r float64) float64 {
		return (1+sum(falling(1, r, far-1)))*gain - (1+sum(falling(1, r, n-1)))*more
	})
	first := gain / (1 + sum(falling(1, rate, n-1)))
	if first > 1 || rate > 0.9999 {
		return nil
	}
	return append([]float64{first}, falling(first, rate, n-1)...)
}

// bisect finds the zero of a rising function in 0 to 1, or the end that is nearest to one.
func bisect(f func(float64) float64) float64 {
	lo, hi := 0.0, 1.0
	for range 60 {
		if r := (lo + hi) / 2; f(r) < 0 {
			lo = r
		} else {
			hi = r
		}
	}
	return (lo + hi) / 2
}

func counts(histogram []int64, weight float64) []float64 {
	out := make([]float64, len(histogram))
	for i, n := range histogram {
		out[i] = weight * float64(n)
	}
	return out
}

// survival turns a histogram of accepted drafts into s1…sK. A draw takes each conditional rate from the normal
// approximation of its posterior, which keeps the shares falling.
func survival(histogram []float64, r *rand.Rand) []float64 {
	alive := sum(histogram)
	s, share := make([]float64, len(histogram)-1), 1.0
	for k := range s {
		next := max(alive-histogram[k], 0)
		rate := 0.0
		if alive > 0 {
			rate = next / alive
		}
		if r != nil {
			p := (next + 0.5) / (alive + 1)
			rate = min(max(p+r.NormFloat64()*math.Sqrt(p*(1-p)/(alive+1)), 0), 1)
		}
		share *= rate
		s[k], alive = share, next
	}
	return s
}

// length is the accept length that the curve gives a shape, 0 if unknown.
func (c *curve) length(s Shape) float64 {
	if c.s == nil {
		return 0
	}
	depth := min(s.Steps, s.DraftTokens-1)
	breadth := min(float64(s.DraftTokens-1)/float64(depth), float64(s.TopK))
	total, alive, before := 1.0, 1.0, 1.0
	for k := range depth {
		rate := c.beyond
		if k < len(c.s) {
			rate = 0
			if before > 0 {
				rate = c.s[k] / before
			}
			before = c.s[k]
		}
		alive *= 1 - (1-min(rate, 1))*math.Pow(breadth, -c.siblings)
		total += alive
	}
	return total
}
