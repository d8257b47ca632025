package stats

import "math"

// Spending says how the chance of a wrong stop is spent as pairs come in, out of all of it at the last pair (Lan and DeMets 1983,
// Discrete sequential boundaries for clinical trials, Biometrika 70). What has been spent depends on the share of pairs alone, so
// that looks may come whenever it suits.
type Spending int

const (
	// OBrienFleming spends next to nothing early, so that the last look is hardly stricter than a single test of all pairs.
	OBrienFleming Spending = iota
	// Pocock spends evenly: it stops soonest where the effect is large, and asks for more of the last look.
	Pocock
)

// spent is the chance of an error that one side may have used up at a share t of the pairs, out of alpha.
func (s Spending) spent(alpha, t float64) float64 {
	if t >= 1 {
		return alpha
	}
	if s == Pocock {
		return alpha * math.Log(1+(math.E-1)*t)
	}
	return 2 * upper(quantileUpper(alpha/2)/math.Sqrt(t))
}

// upper is the chance that a standard normal variable exceeds z, and quantileUpper its inverse.
func upper(z float64) float64         { return math.Erfc(z/math.Sqrt2) / 2 }
func quantileUpper(p float64) float64 { return math.Sqrt2 * math.Erfcinv(2*p) }

// boundary finds how strict the test must be at each look so that the chance of stopping wrongly at any of them is what is spent.
// Sums of differences move like Brownian motion in the share of pairs; the density of those that have not been stopped is
// carried from look to look on a grid (Armitage, McPherson and Rowe 1969, Repeated significance tests on accumulating data).
type boundary struct {
	alpha float64 // each side
	sides float64 // 1 or 2
	spend Spending

	share float64   // of the pairs at the last look
	spent float64   // each side
	at    []float64 // grid of the sum at the last look; nil before the first
	mass  []float64 // probability that each grid point stands for
}

const (
	// gridSteps are the intervals of the grid. With twice as many, the boundaries of a hundred looks move by less than 0.0002, and a look
	// takes four times as long.
	gridSteps = 200
	// farthest bounds a boundary, in standard deviations: what lies beyond has a chance below 1e-15.
	farthest = 8
)

// look returns the level at which a test on so large a share of the pairs is to be held, on one side; 0 if it has nothing to spend.
func (b *boundary) look(share float64) (level float64) {
	share = min(share, 1)
	allow := b.spend.spent(b.alpha, share) - b.spent
	if share <= b.share || allow <= 0 {
		return 0
	}
	lo, hi := 0.0, float64(farthest)
	for range 60 {
		if mid := (lo + hi) / 2; b.crosses(mid, share) > allow {
			lo = mid
		} else {
			hi = mid
		}
	}
	b.advance(hi, share)
	b.share, b.spent = share, b.spent+allow
	return upper(hi)
}

// crosses is the chance, on one side, of reaching a boundary of c standard deviations at this look and none before.
func (b *boundary) crosses(c, share float64) float64 {
	if b.at == nil {
		return upper(c)
	}
	edge, sd := c*math.Sqrt(share), math.Sqrt(share-b.share)
	p := 0.0
	for i, m := range b.mass {
		p += m * upper((edge-b.at[i])/sd)
	}
	return p
}

// advance carries the density of what goes on past a look with a boundary of c standard deviations.
func (b *boundary) advance(c, share float64) {
	high := c * math.Sqrt(share)
	low := -high
	if b.sides == 1 {
		low = -farthest * math.Sqrt(share)
	}
	step := (high - low) / gridSteps
	at, mass := make([]float64, gridSteps+1), make([]float64, gridSteps+1)
	sd := math.Sqrt(share - b.share)
	for i := range at {
		at[i] = low + float64(i)*step
		weight := step / 3 // Simpson's rule
		switch {
		case i == 0 || i == gridSteps:
		case i%2 == 1:
			weight *= 4
		default:
			weight *= 2
		}
		mass[i] = weight * b.density(at[i], sd)
	}
	b.at, b.mass = at, mass
}

// density is that of the sum at this look, sd after the last.
func (b *boundary) density(x, sd float64) float64 {
	if b.at == nil {
		return normal(x/sd) / sd
	}
	p := 0.0
	for i, m := range b.mass {
		p += m * normal((x-b.at[i])/sd)
	}
	return p / sd
}

func normal(z float64) float64 { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }

// Monitor watches paired differences as they come in and says at each look whether they are decided: [Monitor.Look]. However
// often it looks, the chance that it ever sees a difference where there is none is at most one minus the confidence, and so is
// the chance that it ever excludes an effect which is there. Both tests are the signed-rank test, exact up to 100 pairs, at the levels of
// Lan's and DeMets's spending; with few pairs it can only be stricter than that. Stopping or going on in spite of either is free.
type Monitor struct {
	most       int
	confidence float64
	worthwhile float64
	effect     boundary
	futility   boundary
}

// NewMonitor returns a monitor of at most so many pairs. An effect of worthwhile or more, in the unit of the differences, is what
// futility must exclude. A difference is sought by O'Brien and Fleming's spending, so that the whole run loses nothing by the looks;
// effects are excluded by Pocock's, which lets hopeless ones go early. It panics on what makes no sense.
func NewMonitor(most int, confidence, worthwhile float64) *Monitor {
	if most < 1 || !(confidence > 0 && confidence < 1) || !(worthwhile >= 0) {
		panic("stats: a monitor needs pairs, a confidence within 0 and 1, and an effect that is not negative")
	}
	alpha := 1 - confidence
	return &Monitor{most: most, confidence: confidence, worthwhile: worthwhile,
		effect:   boundary{alpha: alpha / 2, sides: 2, spend: OBrienFleming},
		futility: boundary{alpha: alpha, sides: 1, spend: Pocock},
	}
}

// Stop is what a look concludes.
type Stop string

// The conclusions.
const (
	GoOn      Stop = ""          // nothing yet
	Different Stop = "different" // the centre is not 0: the interval says which way
	Futile    Stop = "futile"    // the centre is not as large as is worthwhile
	Exhausted Stop = "exhausted" // all pairs are in, and nothing is decided
)

// Look is what is known after some of the pairs. The interval is one of the repeated confidence intervals (Jennison and Turnbull 1989,
// Interim analyses: the repeated confidence interval approach, JRSS B 51): all of those of a monitor hold the truth together, with its
// confidence, so that the last one needs no correction for having stopped early. It is wider than that of as many pairs
// planned for.
type Look struct {
	Pairs    int
	Interval Interval
	Stop     Stop
}

// Look judges all differences so far. Looks must come in the order of time; one with no new pairs concludes nothing.
func (m *Monitor) Look(d []float64) Look {
	share := float64(len(d)) / float64(m.most)
	return m.judge(d, m.effect.look(share), m.futility.look(share))
}

// judge holds both tests, each at its level on one side.
func (m *Monitor) judge(d []float64, level, futile float64) Look {
	l := Look{Pairs: len(d), Interval: HodgesLehmann(d, 1-2*level)}
	switch {
	case l.Interval.Low > 0 || l.Interval.High < 0:
		l.Stop = Different
	case futile > 0 && signedRankBelow(d, m.worthwhile) <= futile:
		l.Stop = Futile
	case len(d) >= m.most:
		l.Stop = Exhausted
	}
	return l
}

// signedRankBelow returns the p-value, on one side, of the hypothesis that the centre of d is at least c; 1 where nothing speaks against it.
func signedRankBelow(d []float64, c float64) float64 {
	moved := make([]float64, len(d))
	for i, x := range d {
		moved[i] = x - c
	}
	twice, plus := ranks(moved)
	total := 0
	for _, r := range twice {
		total += r
	}
	if 2*plus >= total {
		return 1
	}
	return SignedRank(moved) / 2
}
