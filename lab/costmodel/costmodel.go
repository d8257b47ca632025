// Package costmodel fits what a cycle of speculative decoding costs and how many tokens it yields, and predicts
// arms that nobody has run. [Fit] takes what was observed, and [Model.Predict] answers for a [Shape]:
//
//	cycle  = verify(rows, context) + draft(passes) + accept + draft_extend + other   [ms]
//	verify = fixed + per row × rows (+ per position × context, where the observations vary it)
//	draft  = per pass × (steps − 1) × (1 + breadth × (topk − 1)), as the first draft's head belongs to draft_extend
//	tok/s  = batch × accept length / cycle
//
// A row is a token position of a pass: a verification has batch × draft tokens of them. The accept length is the number
// of tokens that a sequence gains in a cycle, the target's own among them, so plain decoding has 1.
//
// Intervals come from an ensemble. What the observations leave open is drawn again and again (last digits uniformly,
// measured means from their standard error, counts from their posterior, replicates by the Bayesian bootstrap,
// splits that nobody measured over the whole range they can have), the model is fitted to each draw, and the interval of anything
// that the model says holds the middle 90 % of the draws. The seed is fixed, so equal observations give equal answers.
// Member 0 of the ensemble is the observations as they stand; it is the value between the bounds.
//
// The package is pure (invariant 5): no clock, no input or output. It knows no engine and no file format. Doubts about the observations
// travel with the results as data; nothing it returns is NaN or infinite.
package costmodel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Shape is what decides a cycle's work.
type Shape struct {
	Steps       int     `json:"steps"`        // depth of the drafts; 0 is plain decoding
	TopK        int     `json:"topk"`         // 1 is a chain
	DraftTokens int     `json:"draft_tokens"` // rows of a verification for each sequence, the root among them
	Batch       float64 `json:"batch"`        // sequences in a cycle, on average
}

// Chain is the shape of a chain of drafts: the drafts and the root are verified.
func Chain(steps int, batch float64) Shape { return Shape{steps, 1, steps + 1, batch} }

// Rows is the number of rows of a cycle's verification.
func (s Shape) Rows() float64 { return s.Batch * float64(s.DraftTokens) }

// passes is the number of drafter passes besides draft_extend.
func (s Shape) passes() float64 { return float64(max(s.Steps-1, 0)) }

func (s Shape) chain() bool { return s.TopK == 1 && s.DraftTokens == s.Steps+1 }

func (s Shape) String() string {
	text := fmt.Sprintf("%d steps, %d draft tokens", s.Steps, s.DraftTokens)
	if s.Steps == 1 {
		text = fmt.Sprintf("1 step, %d draft tokens", s.DraftTokens)
	}
	if s.TopK > 1 {
		text += fmt.Sprintf(", topk %d", s.TopK)
	}
	if s.Batch != 1 {
		text += fmt.Sprintf(", batch %g", s.Batch)
	}
	return text
}

// Check says what is impossible about a shape. The bound on trees is that of the candidates that can exist.
func (s Shape) Check() error {
	most := s.Steps + 1
	if s.TopK > 1 {
		most = 1 + s.TopK + (s.Steps-1)*s.TopK*s.TopK
	}
	switch {
	case s.Steps < 1 || s.Steps > maxSteps:
		return fmt.Errorf("steps must be 1 to %d, not %d", maxSteps, s.Steps)
	case s.TopK < 1 || s.TopK > maxTopK:
		return fmt.Errorf("topk must be 1 to %d, not %d", maxTopK, s.TopK)
	case s.DraftTokens < 2 || s.DraftTokens > most:
		return fmt.Errorf("draft_tokens must be 2 to %d with %d steps and topk %d, not %d: it counts the root and what can be drafted", most, s.Steps, s.TopK, s.DraftTokens)
	case !(s.Batch >= 1 && s.Batch <= maxBatch):
		return fmt.Errorf("batch must be 1 to %d, not %g", maxBatch, s.Batch)
	}
	return nil
}

// Bounds that no engine comes near; they keep arithmetic on shapes from overflowing.
const (
	maxSteps = 1024
	maxTopK  = 1024
	maxBatch = 1 << 20
)

// Figure is a number with what it leaves open. The zero Figure is unknown.
type Figure struct {
	value, half, stderr float64
	known               bool
}

// Exact is a figure that leaves nothing open.
func Exact(v float64) Figure { return Figure{value: v, known: true} }

// Rounded is a figure that may have been anything within half of v, evenly.
func Rounded(v, half float64) Figure { return Figure{value: v, half: half, known: true} }

// Measured is a mean with its standard error.
func Measured(v, stderr float64) Figure { return Figure{value: v, stderr: stderr, known: true} }

// Known reports whether there is a number.
func (f Figure) Known() bool { return f.known }

// Value is the number, 0 if unknown.
func (f Figure) Value() float64 { return f.value }

// draw is the figure in a member of the ensemble, never negative. A nil source gives the figure as it stands.
func (f Figure) draw(r *rand.Rand) float64 {
	if r == nil || !f.known {
		return f.value
	}
	v := f.value + f.half*(2*r.Float64()-1)
	if f.stderr > 0 && f.value > 0 { // times and rates are positive, so their logarithms are what scatters evenly
		v *= math.Exp(f.stderr / f.value * r.NormFloat64())
	}
	return max(v, 0)
}

// Observation is what was seen of one arm: means over its cycles, in milliseconds a cycle. Whatever is unknown
// stays the zero Figure; what follows from the rest is derived.
type Observation struct {
	Shape
	Context float64 // positions before a cycle, on average; 0 is unknown
	Cycles  float64 // cycles in the means: their weight beside other observations; 0 counts as 1

	Plain Figure // ms of a plain step at this batch, where it is not the batch of the fit's

	Cycle, Verify, Draft, Accept, Extend, Other Figure // ms a cycle
	VerifyShare                                 Figure // verify over cycle, 0 to 1

	AcceptLength Figure    // tokens a sequence and cycle, the target's own among them
	Survival     []float64 // s1…sK: share of a sequence's cycles whose first k drafts were all accepted
	Accepted     []int64   // histogram: sequence-cycles that accepted 0, 1, … steps drafts
	TokS         Figure    // output tokens a second, all sequences
}

// Estimate is a number between its bounds, which hold the middle 90 % of the ensemble.
type Estimate struct {
	Lo, Value, Hi float64
}

// Open reports whether the bounds leave more than a share of the value open.
func (e Estimate) Open(share float64) bool { return e.Hi-e.Lo > share*math.Abs(e.Value) }

// estimate condenses what the members say; the first is the value.
func estimate(members []float64) Estimate {
	value := members[0]
	s := slices.Clone(members[1:])
	slices.Sort(s)
	tail := len(s) / 20
	return Estimate{min(s[tail], value), value, max(s[len(s)-1-tail], value)}
}

// Doubt is a reason to trust a result less. Codes are documented in docs/explain.md.
type Doubt struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Doubts are what to keep in mind, each code once.
type Doubts []Doubt

func (d *Doubts) add(code, format string, a ...any) {
	if !slices.ContainsFunc(*d, func(o Doubt) bool { return o.Code == code }) {
		*d = append(*d, Doubt{code, fmt.Sprintf(format, a...)})
	}
}

// Has reports whether a doubt is among them.
func (d Doubts) Has(code string) bool {
	return slices.ContainsFunc(d, func(o Doubt) bool { return o.Code == code })
}
