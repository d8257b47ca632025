package search

import (
	"math"

	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// cycles are the logarithms of the pairs' cycles.
func (m *Measured) cycles() []float64 {
	return m.each(func(p *Pair) float64 { return p.Cycle })
}

// speedups are the logarithms of the pairs' speed-ups.
func (m *Measured) speedups() []float64 {
	return m.each(func(p *Pair) float64 { return p.Speedup })
}

// gains are the logarithms of the pairs' tokens a pass.
func (m *Measured) gains() []float64 {
	return m.each(func(p *Pair) float64 { return math.Log(float64(p.Tokens) / float64(p.Passes)) })
}

func (m *Measured) each(of func(p *Pair) float64) []float64 {
	out := make([]float64, len(m.Pairs))
	for i := range m.Pairs {
		out[i] = of(&m.Pairs[i])
	}
	return out
}

// lower is the lower bound of the speed-up, as a ratio; false if there is none.
func (m *Measured) lower() (float64, bool) {
	iv := stats.HodgesLehmann(m.speedups(), 0.95)
	return math.Exp(iv.Low), !math.IsInf(iv.Low, 0) && !math.IsNaN(iv.Low)
}

// histogram is that of all pairs on some prompts, nil standing for all.
func (m *Measured) histogram(prompts map[string]bool) (sum []int64) {
	for _, p := range m.Pairs {
		if prompts == nil || prompts[p.Prompt] {
			sum = addCounts(sum, p.Histogram)
		}
	}
	return sum
}

// prompts are those of the pairs.
func (m *Measured) prompts() map[string]bool {
	out := map[string]bool{}
	for _, p := range m.Pairs {
		out[p.Prompt] = true
	}
	return out
}

func addCounts(sum, more []int64) []int64 {
	for k, n := range more {
		if k == len(sum) {
			sum = append(sum, 0)
		}
		sum[k] += n
	}
	return sum
}

// drafted are the cycles that drafted on some prompts, nil standing for all, and the drafts that they accepted.
func (m *Measured) drafted(prompts map[string]bool) (cycles, accepted float64) {
	for _, p := range m.Pairs {
		if prompts == nil || prompts[p.Prompt] {
			cycles, accepted = cycles+float64(p.Cycles), accepted+float64(p.Accepted)
		}
	}
	return cycles, accepted
}

// acceptance is how often a chain's drafts are accepted at each depth on some prompts, nil standing for all; nil if nothing was counted. Where
// cycles were counted and not what each accepted, every depth has the same rate.
func (m *Measured) acceptance(prompts map[string]bool) drafts {
	if h := m.histogram(prompts); h != nil {
		return ofChain(h)
	}
	cycles, accepted := m.drafted(prompts)
	return ofMean(m.Steps, cycles, accepted)
}

// acceptLength is one and the accepted drafts over the cycles; 0 if nothing was counted.
func (m *Measured) acceptLength() float64 {
	cycles, accepted := m.drafted(nil)
	if cycles == 0 {
		return 0
	}
	return 1 + accepted/cycles
}

// Score puts into predictions what was measured of their arms then.
func Score(predictions []trial.Prediction, done []Measured) {
	for i := range predictions {
		p := &predictions[i]
		for k := range done {
			if m := &done[k]; m.Name == p.Arm && len(m.Pairs) >= leastPairs {
				p.Measured = m.reading(p.Quantity)
			}
		}
	}
}

// reading is a quantity as it was measured. Accept lengths are counts of these very prompts, without an interval.
func (m *Measured) reading(quantity string) *trial.Interval {
	const confidence = 0.95
	var logs []float64
	switch quantity {
	case AcceptLength:
		return &trial.Interval{Estimate: m.acceptLength(), Confidence: confidence}
	case Cycle:
		logs = m.cycles()
	default:
		logs = m.speedups()
	}
	iv := stats.HodgesLehmann(logs, confidence)
	low, high := math.Exp(iv.Low), math.Exp(iv.High)
	return &trial.Interval{Estimate: math.Exp(iv.Estimate), Low: &low, High: &high, Confidence: confidence}
}

// Calibration is how predictions fared.
type Calibration struct {
	Predictions int     // that were measured
	Covered     int     // whose interval held what was measured
	HalfWidth   float64 // median of half the interval over the estimate
	Bias        float64 // median of measured over foretold, less 1
}

// Assess counts the predictions of a quantity, of all for "", that were measured.
func Assess(predictions []trial.Prediction, quantity string) (c Calibration) {
	var half, off []float64
	for _, p := range predictions {
		if p.Measured == nil || quantity != "" && p.Quantity != quantity {
			continue
		}
		c.Predictions++
		if *p.Low <= p.Measured.Estimate && p.Measured.Estimate <= *p.High {
			c.Covered++
		}
		half = append(half, (*p.High-*p.Low)/2/p.Estimate)
		off = append(off, p.Measured.Estimate/p.Estimate-1)
	}
	c.HalfWidth, c.Bias = stats.Median(half), stats.Median(off)
	return c
}
