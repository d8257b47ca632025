package costmodel

import (
	"fmt"
	"math/rand/v2"
)

// Change is a hypothesis about the machine: factors on parts of the model. The zero Change changes nothing.
type Change struct {
	Verify, Draft, Plain float64 // times the cost of verification, of a drafter pass, of a plain step; 0 counts as 1
}

func factor(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

// Prediction is what the model says of a shape. Yields are nil where no accept length is known.
type Prediction struct {
	Shape
	CycleMs, VerifyMs         Estimate // VerifyMs is zero if no verify time was seen
	BreakEven                 Estimate // the accept length at which the shape is as fast as plain decoding
	AcceptLength, TokS, Ratio *Estimate
	Doubts                    Doubts
}

// Predict predicts a shape under a change. The context is that of the middle of the observations. It fails on an impossible shape.
func (m *Model) Predict(s Shape, change Change) (Prediction, error) {
	if err := s.Check(); err != nil {
		return Prediction{}, err
	}
	r := rand.New(rand.NewPCG(0xfeed, uint64(s.Steps)<<32|uint64(s.DraftTokens)))
	n := len(m.members)
	cycle, verify, even := make([]float64, n), make([]float64, n), make([]float64, n)
	length, tokS, ratio := make([]float64, n), make([]float64, n), make([]float64, n)
	known := true
	for i := range m.members {
		mb := &m.members[i]
		verify[i] = mb.verifyAt(s, m.context) * factor(change.Verify)
		cycle[i] = verify[i] + mb.base + mb.perPass*mb.passes(s)*factor(change.Draft)*m.breadthCost(s, i, r)
		if i > 0 {
			cycle[i] *= max(1+mb.noise*r.NormFloat64(), 0.01)
		}
		cycle[i] = max(cycle[i], 1e-6)
		plain, _ := m.plainAt(mb, s.Batch)
		even[i] = cycle[i] / (plain * factor(change.Plain))
		length[i] = m.length(mb, s)
		known = known && length[i] > 0
		tokS[i] = length[i] * s.Batch / cycle[i] * 1000
		ratio[i] = length[i] / even[i]
	}
	p := Prediction{Shape: s, CycleMs: estimate(cycle), BreakEven: estimate(even)}
	if m.priced {
		p.VerifyMs = estimate(verify)
	}
	if known {
		l, t, x := estimate(length), estimate(tokS), estimate(ratio)
		p.AcceptLength, p.TokS, p.Ratio = &l, &t, &x
	}
	p.Doubts = m.extrapolates(s)
	return p, nil
}

// breadthCost is what a drafter pass of a tree costs over that of a chain, which is all that was seen unless trees were.
func (m *Model) breadthCost(s Shape, i int, r *rand.Rand) float64 {
	if s.TopK == 1 || m.Domain.Trees {
		return 1
	}
	if i == 0 {
		return 1.25
	}
	return 1 + 0.5*r.Float64()
}

// length is the accept length of a shape: as it was observed, or else by the curve.
func (m *Model) length(mb *member, s Shape) float64 {
	total, n := 0.0, 0.0
	for i, o := range m.obs {
		if !o.chain() && o.Steps == s.Steps && o.TopK == s.TopK && o.DraftTokens == s.DraftTokens && mb.gain[i] > 0 {
			total, n = total+mb.gain[i], n+1
		}
	}
	if n > 0 {
		return total / n
	}
	return mb.curve.length(s)
}

// plainAt is the plain step at a batch in ms, and whether it was measured there.
func (m *Model) plainAt(mb *member, batch float64) (float64, bool) {
	for _, o := range m.obs {
		if o.Plain.known && o.Batch == batch {
			return o.Plain.value, true
		}
	}
	return mb.plain, batch == m.batch
}

// extrapolates says where a shape leaves what was observed.
func (m *Model) extrapolates(s Shape) (d Doubts) {
	if rows := s.Rows(); m.split && (rows < 0.999*m.Domain.RowsLo || rows > 1.001*m.Domain.RowsHi) {
		d.add("rows_outside", "verification of %g rows is extrapolated: %g to %g were seen", rows, m.Domain.RowsLo, m.Domain.RowsHi)
	}
	if !m.split && s.Rows() != m.Domain.RowsLo {
		d.add("rows_outside", "verification of %g rows is a guess within bounds: only %g were seen", s.Rows(), m.Domain.RowsLo)
	}
	if s.Batch < m.Domain.BatchLo || s.Batch > m.Domain.BatchHi {
		d.add("batch_outside", "batch %g was not seen (%s)", s.Batch, between(m.Domain.BatchLo, m.Domain.BatchHi))
	}
	if _, ok := m.plainAt(&m.members[0], s.Batch); !ok {
		d.add("plain_batch", "the plain step was measured at batch %g; at batch %g it takes longer, so the speed-up is understated", m.batch, s.Batch)
	}
	if k := len(m.members[0].curve.s); k > 0 && min(s.Steps, s.DraftTokens-1) > k {
		d.add("depth_outside", "acceptance past depth %d was not seen", k)
	}
	if !s.chain() && s.TopK > 1 && !m.Domain.Trees {
		d.add("tree_unseen", "no tree was measured: what its siblings catch is taken from a wide range")
	}
	return d
}

func between(lo, hi float64) string {
	if lo == hi {
		return fmt.Sprintf("only %g was", lo)
	}
	return fmt.Sprintf("%g to %g were", lo, hi)
}

// Cost is the fitted cost of verification. What the observations cannot tell apart is nil.
type Cost struct {
	FixedMs, PerRowMs  *Estimate
	InterceptOverPlain *Estimate // the fixed part over a plain step: far above 1 means that verification is off decode's fast path
	BaseMs, PerPassMs  Estimate  // the cycle outside verify: at any depth, and for each drafter pass
	PlainMs            Estimate
}

// Cost returns the fitted costs.
func (m *Model) Cost() Cost {
	c := Cost{
		PlainMs:   m.over(func(mb *member) float64 { return mb.plain }),
		BaseMs:    m.over(func(mb *member) float64 { return mb.base }),
		PerPassMs: m.over(func(mb *member) float64 { return mb.perPass }),
	}
	if m.priced && m.split {
		fixed := m.over(func(mb *member) float64 { return mb.fixed })
		row := m.over(func(mb *member) float64 { return mb.perRow })
		ratio := m.over(func(mb *member) float64 { return mb.fixed / mb.plain })
		c.FixedMs, c.PerRowMs, c.InterceptOverPlain = &fixed, &row, &ratio
	}
	return c
}

func (m *Model) over(f func(*member) float64) Estimate {
	v := make([]float64, len(m.members))
	for i := range m.members {
		v[i] = f(&m.members[i])
	}
	return estimate(v)
}

// Seen is what an observation says of itself, unknown parts derived. Nil is unknown.
type Seen struct {
	CycleMs, VerifyMs, AcceptLength, BreakEven, TokS, Ratio *Estimate
}

// Seen returns what observation i says. Its break-even compares with the plain step of its batch, or else of the fit.
func (m *Model) Seen(i int) (s Seen) {
	o := m.obs[i]
	plain := func(mb *member) float64 {
		ms, _ := m.plainAt(mb, o.Batch)
		return ms
	}
	get := func(f func(*member) float64) *Estimate {
		if f(&m.members[0]) <= 0 {
			return nil
		}
		e := m.over(f)
		return &e
	}
	s.CycleMs = get(func(mb *member) float64 { return mb.cycle[i] })
	s.VerifyMs = get(func(mb *member) float64 { return mb.verify[i] })
	s.AcceptLength = get(func(mb *member) float64 { return mb.gain[i] })
	s.BreakEven = get(func(mb *member) float64 { return mb.cycle[i] / plain(mb) })
	switch {
	case o.TokS.known:
		v := o.TokS.value
		s.TokS = &Estimate{v - o.TokS.half - 1.645*o.TokS.stderr, v, v + o.TokS.half + 1.645*o.TokS.stderr}
		s.Ratio = get(func(mb *member) float64 { return v * plain(mb) / 1000 / o.Batch })
	case s.AcceptLength != nil && s.CycleMs != nil:
		s.TokS = get(func(mb *member) float64 { return mb.gain[i] * o.Batch / mb.cycle[i] * 1000 })
		s.Ratio = get(func(mb *member) float64 { return mb.gain[i] / (mb.cycle[i] / plain(mb)) })
	}
	return s
}

// Acceptance is the curve of acceptance s1…sK, nil if unknown.
func (m *Model) Acceptance() (s []Estimate) {
	for k := range m.members[0].curve.s {
		s = append(s, m.over(func(mb *member) float64 {
			if k < len(mb.curve.s) {
				return mb.curve.s[k]
			}
			return 0
		}))
	}
	return s
}

// Batch is the batch of the plain step that the model compares with.
func (m *Model) Batch() float64 { return m.batch }
