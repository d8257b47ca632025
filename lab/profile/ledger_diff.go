package profile

import (
	"fmt"

	"draftlab/lab/stats"
)

// diff is what came since the first call of Poll, or since the server's start.
func (s *ledgerSource) diff() totals {
	d := s.last
	b := &s.base
	d.WallNS -= b.WallNS
	d.IdleNS -= b.IdleNS
	d.OffNS -= b.OffNS
	d.Cycles -= b.Cycles
	d.Emitted -= b.Emitted
	d.Accepted -= b.Accepted
	d.SequenceCycles -= b.SequenceCycles
	d.PhaseNS, d.OtherNS = less(d.PhaseNS, b.PhaseNS), less(d.OtherNS, b.OtherNS)
	d.Histogram = append([]int64{}, s.last.Histogram...)
	for i := range d.Histogram {
		if i < len(b.Histogram) {
			d.Histogram[i] -= b.Histogram[i]
		}
	}
	d.ByShape = nil
	for _, now := range s.last.ByShape {
		for _, then := range b.ByShape {
			if then.shapeKey == now.shapeKey {
				now.Cycles -= then.Cycles
				now.Accepted -= then.Accepted
				now.SequenceCycles -= then.SequenceCycles
				now.WallNS -= then.WallNS
				now.PhaseNS = less(now.PhaseNS, then.PhaseNS)
			}
		}
		if now.Cycles > 0 {
			d.ByShape = append(d.ByShape, now)
		}
	}
	return d
}

// less is a − b by key.
func less(a, b map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(a))
	for k, v := range a {
		out[k] = v - b[k]
	}
	return out
}

// leastCycles is how many cycles make a figure that conclusions are drawn from.
const leastCycles = 10

// timing is the time of a shape's cycles without prompt passes.
type timing struct {
	cycleMs float64
	phase   func(name string) float64 // ms; 0 for a phase that it does not have
	medians bool
}

// timing returns medians of the cycles watched, where there are enough: on a machine that does other things, too, single cycles
// take a hundred times as long, and means are theirs. Else it returns means since the server's start; nil if it has not shown
// enough of the shape.
func (s *ledgerSource) timing(key shapeKey) *timing {
	if own := s.shapes[key]; own != nil && len(own.walls) >= leastCycles {
		return &timing{median(own.walls), func(name string) float64 { return median(own.phases[name]) }, true}
	}
	for i := range s.last.ByShape {
		if b := &s.last.ByShape[i]; b.shapeKey == key && b.Cycles >= leastCycles {
			mean := func(name string) float64 { return float64(b.PhaseNS[name]) / 1e6 / float64(b.Cycles) }
			return &timing{float64(b.WallNS)/1e6/float64(b.Cycles) - mean("prefill") - mean("prefill.draft"), mean, false}
		}
	}
	return nil
}

// median of a list, 0 if it is empty.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return stats.Median(list)
}

// conclude finds the commonest drafting shape and says what follows from its figures. The plain step and the cost of a row
// may come from any time of the server's life.
func (s *ledgerSource) conclude(r *Report, d totals) {
	var own *byShape
	for i := range d.ByShape {
		if b := &d.ByShape[i]; b.SequenceCycles > 0 && !b.Mixed && (own == nil || b.Cycles > own.Cycles) {
			own = b
		}
	}
	if own == nil {
		r.Missing = append(r.Missing, "speculation: no sequence drafted; requests draft as the server's flags or their field \"speculative\" say")
		return
	}
	r.Shape, r.Batch = &Shape{own.Steps, own.TopK, own.DraftTokens}, ptr(float64(own.Batch))
	t := s.timing(own.shapeKey)
	if t == nil {
		r.Missing = append(r.Missing, fmt.Sprintf("conclusions: they take %d cycles of one shape", leastCycles))
		return
	}
	r.Basis = "means since the server's start"
	if t.medians {
		r.Basis = "medians of the cycles watched"
	}
	f := &Facts{Steps: own.Steps, TopK: own.TopK, DraftTokens: own.DraftTokens, Batch: float64(own.Batch), CycleMs: t.cycleMs,
		AcceptLength: 1 + float64(own.Accepted)/float64(own.SequenceCycles), RowMs: s.rowMs(own.shapeKey, t), PlainMs: s.conn.plainMs}
	for _, name := range s.phases {
		if ms := t.phase(name); name != "prefill" && name != "prefill.draft" && ms > 0 {
			f.Phases = append(f.Phases, Part{name, ms})
		}
	}
	if 10*own.SequenceCycles >= 9*d.SequenceCycles { // else the histogram is of several shapes
		f.Survival = survivalOf(d.Histogram, own.Steps)
	}
	s.findPlain(r, f, own.Batch)
	r.WhatIf = WhatIf(f)
}

// findPlain fills in a plain step's time, or says that it is missing.
func (s *ledgerSource) findPlain(r *Report, f *Facts, batch int) {
	for i := range s.last.ByShape {
		if b := &s.last.ByShape[i]; f.PlainMs == 0 && b.Steps == 0 && !b.Mixed && b.Batch == batch && b.PhaseNS["decode"] > 0 {
			if t := s.timing(b.shapeKey); t != nil {
				f.PlainMs = t.cycleMs
			}
		}
	}
	if f.PlainMs <= 0 {
		r.Missing = append(r.Missing, fmt.Sprintf("a plain step's time at batch size %d: send requests with \"speculative\": {\"drafter\": \"none\"}, more than %d tokens", batch, leastCycles))
		return
	}
	r.PlainStepMs = ptr(f.PlainMs)
	if f.PlainMs > f.CycleMs {
		r.Warnings = append(r.Warnings, "a plain step took longer than a cycle, which cannot be: the two were seen under different loads of the machine; let plain and drafting requests alternate")
	}
}

// survivalOf is the share of cycles that accepted more than i drafts, for i below steps.
func survivalOf(histogram []int64, steps int) (out []float64) {
	var all int64
	for _, n := range histogram {
		all += n
	}
	if all == 0 {
		return nil
	}
	for i := range steps {
		var more int64
		for n := i + 1; n < len(histogram); n++ {
			more += histogram[n]
		}
		out = append(out, float64(more)/float64(all))
	}
	return out
}

// rowMs is what a further row costs verification: the slope between the shape and the one with the most different number of draft
// tokens at the same batch size; 0 if there is none, negative for a cost of nothing.
func (s *ledgerSource) rowMs(own shapeKey, t *timing) float64 {
	far, slope := 0, 0.0
	for i := range s.last.ByShape {
		b := s.last.ByShape[i].shapeKey
		d := b.DraftTokens - own.DraftTokens
		if b.Steps == 0 || b.Mixed || b.Batch != own.Batch || max(d, -d) <= far {
			continue
		}
		other := s.timing(b)
		if other == nil || other.medians != t.medians {
			continue // a median beside a mean tells nothing
		}
		far = max(d, -d)
		if slope = (other.phase("verify") - t.phase("verify")) / float64(d*max(1, own.Batch)); slope <= 0 {
			slope = -1
		}
	}
	return slope
}
