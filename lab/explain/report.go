// Package explain says in sentences with numbers why speculative decoding is as fast as it is. [Parse] reads a handful of figures
// from a YAML file, and [Analyse] turns them into a [Report]: a fitted cost model, what each arm needs and gets, what untried
// arms are predicted to do, findings and doubts. docs/explain.md lists the keys and the codes.
//
// It does no arithmetic of its own that belongs to a cost model (lab/costmodel), runs nothing, and knows no engine.
package explain

import (
	"errors"
	"fmt"
	"slices"

	"draftlab/lab/costmodel"
)

// Interval holds the middle 90 % of what the figures leave open.
type Interval [2]float64

// Report is the JSON document of explain. What the figures cannot tell is null.
type Report struct {
	CostModel   CostModel         `json:"cost_model"`
	Arms        []Arm             `json:"arms"`
	Acceptance  []Share           `json:"acceptance"`
	Predictions []Prediction      `json:"predictions"`
	WhatIf      *WhatIf           `json:"what_if,omitempty"`
	Findings    []Finding         `json:"findings"`
	Warnings    []costmodel.Doubt `json:"warnings"`
	model       *costmodel.Model
}

// CostModel is the fitted cost of a cycle.
type CostModel struct {
	PlainStepMs         float64    `json:"plain_step_ms"`
	VerifyFixedMs       *float64   `json:"verify_fixed_ms"`
	VerifyFixedInterval *Interval  `json:"verify_fixed_ms_interval"`
	VerifyPerRowMs      *float64   `json:"verify_per_row_ms"`
	VerifyPerRowIntv    *Interval  `json:"verify_per_row_ms_interval"`
	InterceptOverPlain  *float64   `json:"verify_intercept_over_plain"`
	InterceptInterval   *Interval  `json:"verify_intercept_over_plain_interval"`
	BaseMs              *float64   `json:"rest_base_ms"`     // the cycle outside verify, at any depth
	PerPassMs           *float64   `json:"rest_per_pass_ms"` // and for each drafter pass after the first draft
	Residuals           []Residual `json:"residuals"`
	Domain              Domain     `json:"domain"`
}

// Residual compares an arm with the fit.
type Residual struct {
	Steps      int     `json:"steps"`
	Rows       float64 `json:"rows"`
	Phase      string  `json:"phase"`
	MeasuredMs float64 `json:"measured_ms"`
	FittedMs   float64 `json:"fitted_ms"`
}

// Domain is what the model was fitted on.
type Domain struct {
	Rows    Interval  `json:"rows"`
	Batch   Interval  `json:"batch"`
	Context *Interval `json:"context"`
	Steps   int       `json:"steps_most"`
}

// Share is the share of cycles in which the first so many drafts were accepted.
type Share struct {
	Position int      `json:"position"`
	Share    float64  `json:"share"`
	Interval Interval `json:"interval"`
}

// Arm is a measured configuration.
type Arm struct {
	costmodel.Shape
	CycleMs              *float64  `json:"cycle_ms"`
	VerifyMs             *float64  `json:"verify_ms"`
	AcceptLength         *float64  `json:"accept_length"`
	AcceptLengthInterval *Interval `json:"accept_length_interval"`
	BreakEven            *float64  `json:"break_even_accept_length"`
	BreakEvenInterval    *Interval `json:"break_even_accept_length_interval"`
	TokS                 *float64  `json:"tok_s"`
	Speedup              *float64  `json:"speedup"`
	SpeedupInterval      *Interval `json:"speedup_interval"`
}

// Prediction is what the model says of a configuration.
type Prediction struct {
	costmodel.Shape
	CycleMs              float64           `json:"cycle_ms"`
	CycleInterval        Interval          `json:"cycle_ms_interval"`
	AcceptLength         *float64          `json:"accept_length"`
	AcceptLengthInterval *Interval         `json:"accept_length_interval"`
	BreakEven            float64           `json:"break_even_accept_length"`
	BreakEvenInterval    Interval          `json:"break_even_accept_length_interval"`
	TokS                 *float64          `json:"tok_s"`
	TokSInterval         *Interval         `json:"tok_s_interval"`
	Speedup              *float64          `json:"speedup"`
	SpeedupInterval      *Interval         `json:"speedup_interval"`
	Warnings             []costmodel.Doubt `json:"warnings"`
}

// WhatIf is what the model says under a hypothesis.
type WhatIf struct {
	VerifyScale float64      `json:"verify_scale"`
	DraftScale  float64      `json:"draft_scale"`
	PlainScale  float64      `json:"plain_scale"`
	Predictions []Prediction `json:"predictions"`
	Best        *Prediction  `json:"best"`
	Measured    *Score       `json:"measured,omitempty"`
}

// Score compares a prediction with a run.
type Score struct {
	Prediction Prediction `json:"prediction"`
	TokS       float64    `json:"tok_s"`
	Error      float64    `json:"error"` // predicted over measured, less 1
	Inside     bool       `json:"inside_interval"`
}

// Finding is a sentence or two with a code for machines.
type Finding struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Model fits the cost model of a case.
func (c *Case) Model() (*costmodel.Model, error) {
	obs := make([]costmodel.Observation, len(c.Arms))
	for i := range c.Arms {
		obs[i] = c.Arms[i].observation(c)
	}
	return costmodel.Fit(step(c.PlainTokS, c.batch()), c.batch(), obs)
}

// Doubts are those of reading the case and of the fit. The fit sees one figure for each arm of a campaign, though that may rest on several
// starts of its server.
func (c *Case) Doubts(m *costmodel.Model) []costmodel.Doubt {
	all := append(append([]costmodel.Doubt{}, c.doubts...), m.Doubts...)
	campaign, once := 0, 0
	for _, a := range c.Arms {
		if a.boots > 0 {
			campaign++
		}
		if a.boots == 1 {
			once++
		}
	}
	if campaign == 0 {
		return all
	}
	all = slices.DeleteFunc(all, func(d costmodel.Doubt) bool { return d.Code == "no_replicates" })
	if once > 0 {
		all = append(all, costmodel.Doubt{Code: "one_boot", Text: fmt.Sprintf("%d of %d arms were measured on one start of the server: "+
			"intervals hold how prompts differ, not how another start would", once, len(c.Arms))})
	}
	return all
}

// Analyse explains a case that Read or Parse has accepted.
func Analyse(c *Case) (*Report, error) {
	m, err := c.Model()
	if err != nil {
		return nil, err
	}
	r := &Report{
		CostModel: costModel(m), Acceptance: []Share{}, Predictions: []Prediction{}, Findings: []Finding{},
		Warnings: c.Doubts(m), model: m,
	}
	for i := range c.Arms {
		a := seenArm(c.Arms[i].shape(c), m.Seen(i))
		if s := c.Arms[i].speedup; s.known {
			a.Speedup = &s.value
		}
		r.Arms = append(r.Arms, a)
	}
	for k, s := range m.Acceptance() {
		r.Acceptance = append(r.Acceptance, Share{k + 1, s.Value, Interval{s.Lo, s.Hi}})
	}
	if r.Predictions, err = chains(c, m, costmodel.Change{}); err != nil {
		return nil, err
	}
	if c.WhatIf != nil {
		if r.WhatIf, err = hypothesis(c, m); err != nil {
			return nil, err
		}
	}
	(&finder{Report: r, c: c}).run()
	return r, nil
}

// most is the deepest chain that explain predicts, whatever was measured: beyond it acceptance is guesswork.
const most = 16

// chains predicts the chains of all depths up to the deepest measured one.
func chains(c *Case, m *costmodel.Model, change costmodel.Change) ([]Prediction, error) {
	out := []Prediction{}
	if !c.timed(m) {
		return out, nil
	}
	for k := 1; k <= min(m.Domain.StepsHi, most); k++ {
		p, err := c.Predict(m, costmodel.Chain(k, c.batch()), change)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// timed reports whether how long a cycle takes is known of any arm.
func (c *Case) timed(m *costmodel.Model) bool {
	for i := range c.Arms {
		if m.Seen(i).CycleMs != nil {
			return true
		}
	}
	return false
}

// Predict predicts one shape for a report, by the model that was fitted to the case.
func (c *Case) Predict(m *costmodel.Model, s costmodel.Shape, change costmodel.Change) (Prediction, error) {
	if !c.timed(m) {
		return Prediction{}, errors.New("no arm tells how long a cycle takes: give an arm's cycle_ms, its verify_ms, or its tok_s with an accept length")
	}
	p, err := m.Predict(s, change)
	if err != nil {
		return Prediction{}, fmt.Errorf("%v: %w", s, err)
	}
	out := Prediction{
		Shape: s, CycleMs: p.CycleMs.Value, CycleInterval: Interval{p.CycleMs.Lo, p.CycleMs.Hi},
		BreakEven: p.BreakEven.Value, BreakEvenInterval: Interval{p.BreakEven.Lo, p.BreakEven.Hi},
		Warnings: append([]costmodel.Doubt{}, p.Doubts...),
	}
	out.AcceptLength, out.AcceptLengthInterval = parts(p.AcceptLength)
	out.TokS, out.TokSInterval = parts(p.TokS)
	out.Speedup, out.SpeedupInterval = parts(p.Ratio)
	return out, nil
}

func hypothesis(c *Case, m *costmodel.Model) (*WhatIf, error) {
	scale := func(n number) float64 {
		if n.known {
			return n.value
		}
		return 1
	}
	w := &WhatIf{VerifyScale: scale(c.WhatIf.VerifyScale), DraftScale: scale(c.WhatIf.DraftScale), PlainScale: scale(c.WhatIf.PlainScale)}
	change := costmodel.Change{Verify: w.VerifyScale, Draft: w.DraftScale, Plain: w.PlainScale}
	var err error
	if w.Predictions, err = chains(c, m, change); err != nil {
		return nil, err
	}
	w.Best = fastest(w.Predictions)
	if run := c.WhatIf.Measured; run != nil && c.timed(m) {
		p, err := c.Predict(m, run.shape(c), change)
		if err != nil {
			return nil, err
		}
		if p.TokS != nil {
			tokS := run.TokS.value
			w.Measured = &Score{p, tokS, *p.TokS/tokS - 1, p.TokSInterval[0] <= tokS && tokS <= p.TokSInterval[1]}
		}
	}
	return w, nil
}

// fastest is the prediction of the highest speed, nil if no speed is known.
func fastest(ps []Prediction) (best *Prediction) {
	for i := range ps {
		if p := &ps[i]; p.TokS != nil && (best == nil || *p.TokS > *best.TokS) {
			best = p
		}
	}
	return best
}

func parts(e *costmodel.Estimate) (*float64, *Interval) {
	if e == nil {
		return nil, nil
	}
	return &e.Value, &Interval{e.Lo, e.Hi}
}

func costModel(m *costmodel.Model) CostModel {
	c, d := m.Cost(), m.Domain
	out := CostModel{
		PlainStepMs: c.PlainMs.Value, Residuals: []Residual{},
		Domain: Domain{Rows: Interval{d.RowsLo, d.RowsHi}, Batch: Interval{d.BatchLo, d.BatchHi}, Steps: d.StepsHi},
	}
	out.VerifyFixedMs, out.VerifyFixedInterval = parts(c.FixedMs)
	out.VerifyPerRowMs, out.VerifyPerRowIntv = parts(c.PerRowMs)
	out.InterceptOverPlain, out.InterceptInterval = parts(c.InterceptOverPlain)
	if !m.Doubts.Has("verify_unknown") {
		out.BaseMs, out.PerPassMs = &c.BaseMs.Value, &c.PerPassMs.Value
	}
	if d.ContextHi > 0 {
		out.Domain.Context = &Interval{d.ContextLo, d.ContextHi}
	}
	for _, r := range m.Residuals {
		out.Residuals = append(out.Residuals, Residual{r.Steps, r.Rows(), r.Phase, r.MeasuredMs, r.FittedMs})
	}
	return out
}

func seenArm(s costmodel.Shape, seen costmodel.Seen) Arm {
	a := Arm{Shape: s}
	a.CycleMs, _ = parts(seen.CycleMs)
	a.VerifyMs, _ = parts(seen.VerifyMs)
	a.AcceptLength, a.AcceptLengthInterval = parts(seen.AcceptLength)
	a.BreakEven, a.BreakEvenInterval = parts(seen.BreakEven)
	a.TokS, _ = parts(seen.TokS)
	a.Speedup, a.SpeedupInterval = parts(seen.Ratio)
	return a
}
