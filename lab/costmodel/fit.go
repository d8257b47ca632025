package costmodel

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// members is the size of the ensemble beside member 0. Its 5 % quantiles then rest on 50 draws each, which moves them by
// about a hundredth of the interval; the fit of a member costs microseconds.
const members = 1000

// Member is one fit of the ensemble. Times are in ms.
type member struct {
	plain               float64 // a plain step
	fixed, perRow       float64 // verify
	perPosition         float64 // verify, for each position of context
	base, perPass       float64 // the cycle outside verify: at every depth, and for each further drafter pass of one row
	breadth             float64 // what each further row of a drafter pass adds to it, as a share of a pass of one row
	noise               float64 // relative: how far one more measurement of an arm lies from the fit
	curve               curve
	cycle, verify, gain []float64 // of the observations as drawn: ms, ms, accept length; 0 is unknown
}

// Residual compares an observation with the fit.
type Residual struct {
	Shape
	Phase                string // "verify" or "cycle"
	MeasuredMs, FittedMs float64
}

// Domain is what the observations cover. Beyond it a prediction is an extrapolation, and says so.
type Domain struct {
	RowsLo, RowsHi       float64
	BatchLo, BatchHi     float64
	StepsHi              int
	ContextLo, ContextHi float64 // 0 where unknown
	Chains, Trees        bool
}

// Model is a fitted cost model.
type Model struct {
	Doubts    Doubts
	Residuals []Residual
	Domain    Domain
	obs       []Observation
	batch     float64 // of the plain step
	split     bool    // verify's fixed part and its part per row were told apart
	priced    bool    // verify was seen at all
	members   []member
	context   float64 // middle of the observed contexts, 0 if unknown
}

// Fit fits the model to observations of speculative arms and to the plain decoding step beside them, in ms for a batch of
// the given size. Observations of one shape are replicates. It fails only on what no model can be made of, and names
// the observation, counted from 1.
func Fit(plain Figure, batch float64, obs []Observation) (*Model, error) {
	if !plain.known || !(plain.value > 0) || math.IsInf(plain.value, 0) {
		return nil, fmt.Errorf("a plain decoding step must take more than 0 ms, not %g", plain.value)
	}
	if len(obs) == 0 {
		return nil, fmt.Errorf("there is no speculative arm to fit")
	}
	for i, o := range obs {
		if err := o.Check(); err != nil {
			return nil, fmt.Errorf("observation %d (%v): %w", i+1, o.Shape, err)
		}
	}
	m := &Model{obs: obs, batch: batch}
	m.survey()
	r := rand.New(rand.NewPCG(0x5eed, uint64(len(obs))))
	m.members = make([]member, 1+members)
	m.members[0] = m.fit(plain, nil)
	m.residuals()
	for i := range m.members[1:] {
		m.members[1+i] = m.fit(plain, r)
	}
	m.judge()
	return m, nil
}

// Check says what is impossible about an observation.
func (o *Observation) Check() error {
	if err := o.Shape.Check(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		Figure
		zero bool
		most float64
	}{
		{"plain step", o.Plain, false, 0}, {"cycle", o.Cycle, false, 0}, {"verify", o.Verify, false, 0}, {"draft", o.Draft, true, 0}, {"accept", o.Accept, true, 0},
		{"draft_extend", o.Extend, true, 0}, {"other", o.Other, true, 0}, {"verify share", o.VerifyShare, false, 1},
		{"accept length", o.AcceptLength, false, float64(o.Steps + 1)}, {"tok/s", o.TokS, false, 0},
	} {
		v := f.value
		switch {
		case !f.known:
		case math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !f.zero:
			return fmt.Errorf("%s must be a positive number, not %g", f.name, v)
		case f.most > 0 && v > f.most:
			return fmt.Errorf("%s is %g, which cannot exceed %g", f.name, v, f.most)
		}
	}
	if o.AcceptLength.known && o.AcceptLength.value < 1 {
		return fmt.Errorf("accept length is %g, but counts the target's own token and is at least 1", o.AcceptLength.value)
	}
	if len(o.Accepted) > 0 && len(o.Accepted) != o.Steps+1 {
		return fmt.Errorf("the histogram of accepted drafts has %d entries, want %d (0 to steps)", len(o.Accepted), o.Steps+1)
	}
	for _, n := range o.Accepted {
		if n < 0 {
			return fmt.Errorf("the histogram of accepted drafts has the count %d", n)
		}
	}
	return o.checkSurvival()
}

func (o *Observation) checkSurvival() error {
	if len(o.Survival) > 0 && len(o.Survival) != o.Steps {
		return fmt.Errorf("%d shares of accepted drafts for %d steps", len(o.Survival), o.Steps)
	}
	last := 1.0
	for k, s := range o.Survival {
		if !(s >= 0 && s <= last) {
			return fmt.Errorf("share %g of accepted drafts at position %d: shares lie in 0 to 1 and never rise, as a draft counts only if those before it were accepted", s, k+1)
		}
		last = s
	}
	return nil
}

// survey notes what the observations cover.
func (m *Model) survey() {
	d := &m.Domain
	d.RowsLo, d.BatchLo, d.ContextLo = math.Inf(1), m.batch, math.Inf(1)
	d.BatchHi = m.batch
	for _, o := range m.obs {
		d.RowsLo, d.RowsHi = min(d.RowsLo, o.Rows()), max(d.RowsHi, o.Rows())
		d.BatchLo, d.BatchHi = min(d.BatchLo, o.Batch), max(d.BatchHi, o.Batch)
		if o.Context > 0 {
			d.ContextLo, d.ContextHi = min(d.ContextLo, o.Context), max(d.ContextHi, o.Context)
		}
		d.StepsHi = max(d.StepsHi, o.Steps)
		d.Chains = d.Chains || o.chain()
		d.Trees = d.Trees || !o.chain()
	}
	if math.IsInf(d.ContextLo, 1) {
		d.ContextLo = 0
	}
	m.context = (d.ContextLo + d.ContextHi) / 2
}

// fit makes one member: with a nil source from the observations as they stand.
func (m *Model) fit(plain Figure, r *rand.Rand) member {
	n := len(m.obs)
	w := m.weights(r)
	mb := member{plain: plain.draw(r), cycle: make([]float64, n), verify: make([]float64, n), gain: make([]float64, n)}
	if mb.plain <= 0 {
		mb.plain = plain.value
	}
	for i := range m.obs {
		mb.cycle[i], mb.verify[i], mb.gain[i] = m.obs[i].realise(r)
	}
	m.fitVerify(&mb, w, r)
	m.fitRest(&mb, w, r)
	for i, o := range m.obs {
		if mb.cycle[i] == 0 && mb.verify[i] > 0 {
			mb.cycle[i] = mb.verify[i] + mb.rest(o.Shape)
		}
		if mb.gain[i] == 0 && o.TokS.known && mb.cycle[i] > 0 {
			mb.gain[i] = o.TokS.draw(r) * mb.cycle[i] / 1000 / o.Batch
		}
	}
	mb.curve = m.fitCurve(mb.gain, w, r)
	mb.noise = m.members[0].noise // 0 while member 0 itself is made
	return mb
}

// weights are the observations' cycles; shapes with replicates are reweighted at random (Rubin's Bayesian bootstrap).
func (m *Model) weights(r *rand.Rand) []float64 {
	seen := map[Shape]int{}
	for _, o := range m.obs {
		seen[o.Shape]++
	}
	w := make([]float64, len(m.obs))
	for i, o := range m.obs {
		w[i] = max(o.Cycles, 1)
		if r != nil && seen[o.Shape] >= 3 { // two replicates do not make a distribution
			w[i] *= r.ExpFloat64()
		}
	}
	return w
}

// realise derives an observation's cycle and verify time in ms, and its accept length; 0 is unknown.
func (o *Observation) realise(r *rand.Rand) (cycle, verify, gain float64) {
	verify, gain = o.Verify.draw(r), o.AcceptLength.draw(r)
	share := o.VerifyShare.draw(r)
	if gain == 0 && len(o.Survival) > 0 {
		gain = 1 + sum(o.Survival)
	}
	if gain == 0 && len(o.Accepted) > 0 {
		gain = 1 + sum(survival(counts(o.Accepted, 1), r))
	}
	switch cycle = o.Cycle.draw(r); {
	case cycle > 0:
	case verify > 0 && share > 0:
		cycle = verify / min(share, 1)
	case o.Verify.known && o.Accept.known && o.Extend.known && o.Other.known && (o.Draft.known || o.Steps == 1):
		cycle = verify + o.Draft.draw(r) + o.Accept.draw(r) + o.Extend.draw(r) + o.Other.draw(r)
	case gain > 0 && o.TokS.known:
		cycle = gain * o.Batch / max(o.TokS.draw(r), 1e-9) * 1000
	}
	if verify == 0 && share > 0 && cycle > 0 {
		verify = cycle * min(share, 1)
	}
	if cycle > 0 && verify > cycle {
		verify = cycle
	}
	return cycle, verify, gain
}

// fitVerify fits verify = fixed + perRow × rows (+ perPosition × context) by weighted least squares. Neither slope may be
// negative: a pass over more is not cheaper, so what says so is noise.
func (m *Model) fitVerify(mb *member, w []float64, r *rand.Rand) {
	var a lsq
	rows := spread{}
	context := spread{}
	for i, o := range m.obs {
		if mb.verify[i] > 0 {
			a.add(w[i], o.Rows(), o.Context, mb.verify[i])
			rows.see(o.Rows())
			context.see(o.Context)
		}
	}
	m.priced = rows.n > 0
	m.split = rows.differ(1)
	switch {
	case !m.priced:
		m.fitLump(mb, w)
	case m.split && context.lo > 0 && context.differ(1.5) && rows.n >= 4:
		mb.fixed, mb.perRow, mb.perPosition = a.plane()
	case m.split:
		mb.fixed, mb.perRow = a.line()
	default: // One row count: a pass over one row may have cost anything from a plain step to all of it.
		v, one := a.mean(), min(mb.plain/m.batch, a.mean())
		if m.batch > 1 || rows.lo == 1 {
			one = 0
		}
		u := 0.5
		if r != nil {
			u = r.Float64()
		}
		one += u * (v - one)
		mb.perRow = (v - one) / max(rows.lo-1, 1)
		mb.fixed = max(v-mb.perRow*rows.lo, 0)
		if m.batch > 1 || rows.lo == 1 {
			mb.fixed, mb.perRow = one, (v-one)/rows.lo
		}
	}
}

// fitLump is for observations without verify times: it fits the whole cycle to the rows, so that cycles of other shapes
// can be predicted though verify cannot.
func (m *Model) fitLump(mb *member, w []float64) {
	var a lsq
	rows := spread{}
	for i, o := range m.obs {
		if mb.cycle[i] > 0 {
			a.add(w[i], o.Rows(), 0, mb.cycle[i])
			rows.see(o.Rows())
		}
	}
	if rows.differ(1) {
		mb.fixed, mb.perRow = a.line()
	} else {
		mb.fixed = a.mean()
	}
}

// rest is the part of a cycle outside verify.
func (mb *member) rest(s Shape) float64 { return mb.base + mb.perPass*mb.passes(s) }

// passes are the drafter's passes besides draft_extend, in passes of one row.
func (mb *member) passes(s Shape) float64 { return s.passes() * (1 + mb.breadth*float64(s.TopK-1)) }

// fitDraft fits the drafter's passes where they were timed: perPass × passes × (1 + breadth × (topk − 1)). Neither part may be negative.
// It reports whether any pass was timed.
func (m *Model) fitDraft(mb *member, w []float64, r *rand.Rand) bool {
	var oneOne, oneMore, moreMore, msOne, msMore float64
	for i, o := range m.obs {
		if one := o.passes(); o.Draft.known && one > 0 {
			more, ms := one*float64(o.TopK-1), o.Draft.draw(r)
			oneOne, oneMore, moreMore = oneOne+w[i]*one*one, oneMore+w[i]*one*more, moreMore+w[i]*more*more
			msOne, msMore = msOne+w[i]*one*ms, msMore+w[i]*more*ms
		}
	}
	if oneOne == 0 {
		return false
	}
	mb.perPass = msOne / oneOne
	if d := oneOne*moreMore - oneMore*oneMore; d > 1e-9*oneOne*moreMore {
		one, more := (msOne*moreMore-msMore*oneMore)/d, (msMore*oneOne-msOne*oneMore)/d
		if one > 0 && more > 0 {
			mb.perPass, mb.breadth = one, more/one
		}
	}
	return true
}

// fitRest fits the cycle outside verify: base + perPass × passes.
func (m *Model) fitRest(mb *member, w []float64, r *rand.Rand) {
	if !m.priced {
		return // fitLump has all of it
	}
	var a lsq
	passes := spread{}
	timed := m.fitDraft(mb, w, r)
	for i, o := range m.obs {
		if mb.cycle[i] > 0 && mb.verify[i] > 0 {
			a.add(w[i], mb.passes(o.Shape), 0, mb.cycle[i]-mb.verify[i])
			passes.see(o.passes())
		}
	}
	u := defaultOpen
	if r != nil {
		u = r.Float64()
	}
	switch {
	case passes.n == 0: // Nothing beside verify was seen.
		mb.base = u * restShare * mb.verifyMean()
	case timed:
		mb.base = max(a.mean()-mb.perPass*a.meanX(), 0)
	case passes.differ(1):
		mb.base, mb.perPass = a.line()
	case passes.lo == 0: // No draft pass was seen; let it cost up to all of the rest.
		mb.base = a.mean()
		mb.perPass = u * u * mb.base
	default: // How much of the rest is for each pass was not seen: any share of it, less rather than more.
		share := 1.0 / 3
		if r != nil {
			share = u * u
		}
		mb.base = (1 - share) * a.mean()
		mb.perPass = share * a.mean() / passes.lo
	}
}

const (
	// restShare bounds the cycle outside verify, as a share of verify, where nothing was seen of it. Published cycles have
	// 5 % (tensor-parallel giants) to 57 % (an 8B model on one GPU).
	restShare = 0.6
	// defaultOpen is where member 0 stands in that range.
	defaultOpen = 0.25
)

func (mb *member) verifyMean() float64 {
	s, n := 0.0, 0
	for _, v := range mb.verify {
		if v > 0 {
			s, n = s+v, n+1
		}
	}
	return s / float64(max(n, 1))
}

// residuals compares observations with member 0 and takes from them how far one more measurement may lie off.
func (m *Model) residuals() {
	mb := &m.members[0]
	sq, n := 0.0, 0.0
	for i, o := range m.obs {
		fitted := mb.verifyAt(o.Shape, o.Context)
		if m.priced && mb.verify[i] > 0 {
			m.Residuals = append(m.Residuals, Residual{o.Shape, "verify", mb.verify[i], fitted})
		}
		if mb.cycle[i] > 0 && fitted > 0 {
			fit := fitted + mb.rest(o.Shape)
			m.Residuals = append(m.Residuals, Residual{o.Shape, "cycle", mb.cycle[i], fit})
			rel := mb.cycle[i]/fit - 1
			sq, n = sq+rel*rel, n+1
		}
	}
	if free := n - 2; free > 0 { // line of two parameters
		mb.noise = math.Sqrt(sq / free)
	}
}

// verifyAt is the fitted verify time in ms.
func (mb *member) verifyAt(s Shape, context float64) float64 {
	return max(mb.fixed+mb.perRow*s.Rows()+mb.perPosition*context, 0)
}

// judge notes the doubts that the observations raise.
func (m *Model) judge() {
	d, rows := &m.Doubts, map[float64]bool{}
	cycles := false
	for i, o := range m.obs {
		if m.members[0].verify[i] > 0 {
			rows[o.Rows()] = true
		}
		cycles = cycles || m.members[0].cycle[i] > 0 && (o.Cycle.known || o.VerifyShare.known || o.Other.known || o.AcceptLength.known || o.Survival != nil || o.Accepted != nil)
	}
	switch {
	case !m.priced:
		d.add("verify_unknown", "no arm has a verify time, so the cost of verification cannot be told from the rest of the cycle")
	case !m.split:
		d.add("one_row_count", "all verify times are of one row count, so what is fixed and what each row costs can only be bounded")
	case len(rows) == 2:
		d.add("two_points", "the line of verify over rows rests on two row counts: nothing checks that it is straight")
	}
	if m.priced && !cycles {
		d.add("rest_unknown", "the cycle outside verify was not given: it was taken as 0 to %.0f %% of verify", 100*restShare)
	}
	if m.split && m.members[0].perRow == 0 {
		d.add("verify_falls", "verify does not grow with its rows here: a slope of 0 was taken, and the difference is noise or another graph")
	}
	known := m.members[0].curve.s != nil || sum(m.members[0].gain) > 0
	if m.members[0].curve.irregular {
		d.add("accept_irregular", "accept lengths are not what one drafter gives at growing depth: measured on different prompts, or noise")
	}
	if !known {
		d.add("accept_unknown", "no arm has an accept length, so yields cannot be predicted")
	}
	if m.members[0].noise == 0 {
		d.add("no_replicates", "each arm was measured once: intervals hold what the figures leave open, not how a second run would differ")
	}
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}
