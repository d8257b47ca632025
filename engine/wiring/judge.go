package wiring

import (
	"context"

	"draftlab/engine/draft/eagle3"
)

// Role is why a wiring was measured on the texts that judge.
type Role string

// The roles.
const (
	Configured Role = "configured" // as the files say
	Supported  Role = "supported"  // another that acceptance supports, or seems to
	Rival      Role = "rival"      // the nearest others
	// Control has the best wiring, but states of other positions: what is accepted even so does not come from the states.
	Control Role = "control"
)

// Measured is what a wiring got on the texts that judge.
type Measured struct {
	Role   Role          `json:"role"`
	Wiring eagle3.Wiring `json:"wiring"`
	Text   string        `json:"text"`
	// Accepted are the shares of positions from which at least 1, 2, … drafts of a chain are accepted.
	Accepted []Interval `json:"accepted"`
	// Drafts is how many are accepted from a position, the sum of Accepted.
	Drafts Interval `json:"drafts"`
	// Less is by how much Drafts is below that of the first wiring of the result, paired by text; zero for itself.
	Less Interval `json:"less"`
	// AcceptLength is the tokens a cycle that greedy decoding of these texts makes with a chain as long, as a server counts it.
	AcceptLength float64 `json:"accept_length"`

	positions, accepted [][]float64 // by depth, by text: positions[0] and accepted[depth]
	cycles, drafts      int
}

// judgement is the measurement of the contenders.
type judgement struct {
	list  []*Measured // the control last
	texts int
}

// rivals is how many wirings beside the configured and the supported one are measured on the texts that judge.
const rivals = 3

// confidence of the intervals of shares. Differences to the supported wiring are several comparisons, for which the doubt is divided (Bonferroni).
const confidence = 0.95

// looks is how often a verdict is tried: where the first texts leave it undecided, as many again are drafted over. Each look is one more chance to
// err, for which the doubt is divided as well.
const looks = 2

// contenders are the best wiring that the search found, the configured one, the nearest rivals and the control.
func (x *examiner) contenders(s *search, best eagle3.Wiring) *judgement {
	configured := x.space.configured
	j := &judgement{}
	add := func(role Role, w eagle3.Wiring) {
		j.list = append(j.list, &Measured{Role: role, Wiring: w, Text: x.space.describe(w)})
	}
	if best != configured {
		add(Supported, best)
	}
	add(Configured, configured)
	for _, w := range s.runnersUp(rivals, best, configured) {
		add(Rival, w)
	}
	add(Control, best)
	return j
}

// judge measures the contenders on fresh texts, beside those that they have been measured on.
func (x *examiner) judge(ctx context.Context, j *judgement) error {
	for left := x.p.judge; left > 0 && len(x.queue) > 0; {
		before := x.used
		if err := x.write(ctx, left); err != nil {
			return err
		}
		left -= x.used - before
		for _, m := range j.list {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			traces, err := x.b.measure(m.Wiring, Steps, m.Role == Control)
			if err != nil {
				return err
			}
			m.add(traces)
		}
		j.texts += x.used - before
	}
	return nil
}

// add takes the traces of some more texts.
func (m *Measured) add(traces []accepted) {
	if m.accepted == nil {
		m.positions, m.accepted = make([][]float64, 1), make([][]float64, Steps)
	}
	for _, t := range traces {
		c := t.count(Steps)
		m.positions[0] = append(m.positions[0], c[0])
		for i := range m.accepted {
			m.accepted[i] = append(m.accepted[i], c[1+i])
		}
		cycles, drafts := t.walk()
		m.cycles += cycles
		m.drafts += drafts
	}
}

// total returns the drafts accepted by text.
func (m *Measured) total() []float64 {
	sum := make([]float64, len(m.accepted[0]))
	for _, depth := range m.accepted {
		for i, n := range depth {
			sum[i] += n
		}
	}
	return sum
}

// finish turns counts into figures; comparisons is how many wirings are held against the best.
func (m *Measured) finish(best *Measured, comparisons int) {
	m.Accepted, m.Less = nil, Interval{}
	for _, depth := range m.accepted {
		m.Accepted = append(m.Accepted, clamp(ratio(depth, m.positions[0], confidence), 1))
	}
	m.Drafts = clamp(ratio(m.total(), m.positions[0], confidence), Steps)
	if m.cycles > 0 {
		m.AcceptLength = 1 + float64(m.drafts)/float64(m.cycles)
	}
	if m != best {
		m.Less = best.less(m, 1, comparisons)
	}
}

// less returns by how many drafts o, taken so many times, is below m, paired by text, with the interval for one of several comparisons.
func (m *Measured) less(o *Measured, times float64, comparisons int) Interval {
	diff, theirs := m.total(), o.total()
	for i := range diff {
		diff[i] -= times * theirs[i]
	}
	return ratio(diff, m.positions[0], 1-(1-confidence)/float64(comparisons*looks))
}

// clamp cuts an interval to what a mean of at least 0 and at most limit can be.
func clamp(v Interval, limit float64) Interval {
	return Interval{v.Value, max(v.Low, 0), min(v.High, limit)}
}
