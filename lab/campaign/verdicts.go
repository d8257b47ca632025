package campaign

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"draftlab/lab/costmodel"
	"draftlab/lab/search"
	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// hypotheses are what a campaign sets out to test, one for each arm but the baseline, in the order of the arms.
func hypotheses(arms []trial.Arm, now time.Time) (out []trial.Verdict) {
	base := arms[0]
	for _, a := range arms[1:] {
		v := trial.Verdict{At: now, Hypothesis: fmt.Sprintf("%s decodes faster than %s", a.Name, a.Baseline), Change: strings.Join(append(drafts(a.Knobs), changes(base.Knobs, a.Knobs)...), ", ")}
		if a.Plain() {
			v.Hypothesis = fmt.Sprintf("plain decoding is faster with %s", v.Change)
		}
		out = append(out, v)
	}
	return out
}

// drafts says in words how an arm drafts.
func drafts(k trial.Knobs) []string {
	if k.Plain() {
		return nil
	}
	return []string{fmt.Sprintf("%s drafts, steps %d, topk %d, draft tokens %d", k.Drafter, k.Steps, k.TopK, k.DraftTokens)}
}

// conclude fills in what the result says about each hypothesis.
func (r *Result) conclude(verdicts []trial.Verdict, now time.Time) []trial.Verdict {
	out := slices.Clone(verdicts)
	for i := range out {
		if i+1 >= len(r.Arms) {
			break
		}
		a := &r.Arms[i+1]
		v := &out[i]
		v.At = now
		v.Predicted = r.foretold(a.Name)
		ratio := a.Effect
		if !a.Plain() {
			ratio = nil
			if a.Speedup != nil {
				ratio = a.Speedup.SameEnv
			}
		}
		v.Outcome, v.Evidence = a.outcome(ratio)
		if acted := r.acted(a); acted != "" {
			v.Evidence += "; " + acted
		}
		v.Next = r.next(a, v.Outcome)
	}
	return out
}

// acted says in how many processes the variables of an arm were seen in which state.
func (r *Result) acted(a *ArmResult) string {
	counts := map[string]int{}
	for _, b := range r.Boots {
		for _, e := range b.Environment {
			if _, own := a.Env[e.Name]; own && slices.Contains(a.Boots, b.ID) {
				counts[e.Name+" "+e.State]++
			}
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s in %d processes", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}

// outcome judges one arm by a ratio that may be nil.
func (a *ArmResult) outcome(r *Ratio) (trial.Outcome, string) {
	switch {
	case a.Decided == Failed:
		return trial.Failed, a.Error
	case a.Decided == Unmeasured:
		return trial.Undecided, "not measured: the search passed it over, or the time was up"
	case a.Wrong:
		return trial.Refuted, fmt.Sprintf("it wrote something else on %d prompts, so that its speed does not count", len(a.Different))
	case r == nil || r.Low == nil:
		return trial.Undecided, "too few readings for an interval"
	}
	evidence := fmt.Sprintf("%.3f× %s (95 %% interval %.3f – %.3f, %d pairs, %d boots, p %.2g)", r.Estimate, r.Against, *r.Low, *r.High, r.Pairs, r.Boots, r.P)
	if a.Decided == Early {
		evidence += "; decided early"
	}
	switch {
	case *r.Low > 1:
		return trial.Supported, evidence
	case *r.High < 1:
		return trial.Refuted, evidence
	case math.Max(*r.High, 1 / *r.Low) < worthwhile:
		return trial.NoEffect, fmt.Sprintf("%s: an effect of %.1f %% or more is excluded", evidence, 100*(math.Max(*r.High, 1 / *r.Low)-1))
	}
	return trial.Undecided, evidence
}

// next is what to do about an arm.
func (r *Result) next(a *ArmResult, o trial.Outcome) string {
	switch {
	case r.Best != nil && r.Best.Name == a.Name:
		return "use it: the confirm run agrees"
	case r.Confirm != nil && r.Confirm.Arm == a.Name:
		return "the confirm run does not agree: measure again, for longer"
	case r.Confirm.of(a.Name) != nil:
		return "measured again beside " + r.Confirm.Arm + ", which is faster over both measurements"
	case o == trial.Failed:
		return "see the boot's log"
	case o == trial.Undecided && a.Decided != Unmeasured:
		return "measure again on a quieter machine, or with more prompts or boots"
	case a.Plain() && o == trial.Supported:
		return "compare speculation with this plain decoding: that is what it has to beat"
	}
	return ""
}

// foretold is what was predicted of an arm, in words.
func (r *Result) foretold(arm string) string {
	var parts []string
	for _, p := range r.Predictions {
		if p.Arm != arm || p.Low == nil {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.3g (%.0f %% interval %.3g – %.3g)", strings.ReplaceAll(p.Quantity, "_", " "), p.Estimate, 100*p.Confidence, *p.Low, *p.High))
	}
	return strings.Join(parts, ", ")
}

// modelConfidence is the level of the cost model's intervals.
const modelConfidence = 0.9

// foretell predicts an arm by the cost model of the others in its environment, as if it had not been measured; nothing where no model can be
// made of them.
func (r *Result) foretell(arm *trial.Arm, batch float64, now time.Time) (out []trial.Prediction) {
	others := *r
	others.Baseline = arm.Baseline
	others.Arms = slices.DeleteFunc(slices.Clone(r.Arms), func(a ArmResult) bool {
		return a.Name == arm.Name || !a.Plain() && (a.Baseline != arm.Baseline || drafterOf(a.Knobs) != drafterOf(arm.Knobs))
	})
	m, err := others.model()
	if err != nil {
		return nil
	}
	p, err := m.Predict(costmodel.Shape{Steps: arm.Steps, TopK: arm.TopK, DraftTokens: arm.DraftTokens, Batch: batch}, costmodel.Change{})
	if err != nil {
		return nil
	}
	var from []string
	for _, a := range others.Arms {
		if !a.Plain() && a.Speedup != nil && a.Speedup.SameEnv != nil {
			from = append(from, a.Name)
		}
	}
	for _, q := range []struct {
		name string
		e    *costmodel.Estimate
	}{{"speedup", p.Ratio}, {"accept_length", p.AcceptLength}} {
		if q.e != nil {
			out = append(out, trial.Prediction{Arm: arm.Name, Quantity: q.name, Made: now, From: from,
				Interval: trial.Interval{Estimate: q.e.Value, Low: &q.e.Lo, High: &q.e.Hi, Confidence: modelConfidence}})
		}
	}
	return out
}

// drafterOf is equal for arms with the same drafter: one whose configuration is changed is another.
func drafterOf(k trial.Knobs) string {
	return identity(trial.Knobs{Drafter: k.Drafter, DrafterConfig: k.DrafterConfig})
}

// score puts beside predictions what was measured after them: of an arm that a search foretold its first measurement, of others the confirm
// run.
func (r *Result) score(d *data) {
	scored := slices.Clone(r.Predictions)
	var seen []search.Measured
	for i := range scored {
		p := &scored[i]
		if d.foretoldBeforehand(p) {
			if seen == nil {
				seen = d.seen()
			}
			search.Score(scored[i:i+1], seen)
			continue
		}
		again := r.Confirm.of(p.Arm)
		if again == nil {
			continue
		}
		switch p.Quantity {
		case "speedup":
			if s := again.Speedup.SameEnv; s != nil {
				p.Measured = &trial.Interval{Estimate: s.Estimate, Low: s.Low, High: s.High, Confidence: s.Confidence}
			}
		case "accept_length":
			if acc, ok := acceptance(d.of(trial.Confirm, p.Arm)); ok {
				p.Measured = &trial.Interval{Estimate: acc.AcceptLength}
			}
		}
	}
	r.Predictions = scored
	if r.Predictions == nil {
		r.Predictions = []trial.Prediction{}
	}
}

// planned says what the plan could find out, from how much pairs really scattered.
func (d *data) planned(r *Result) Planned {
	p := Planned{Boots: d.state.Boots, Pairs: d.most()}
	var cvs []float64
	for _, a := range d.arms {
		if _, all, _ := d.pairs(trial.Measure, a.Name); len(all) > 1 {
			cvs = append(cvs, scatter(all))
		}
	}
	if len(cvs) == 0 {
		for _, a := range r.Arms {
			if s := a.Speedup.best(); s != nil && s.Low != nil { // as wide an interval, from as many readings: a pair is of means over boots
				iv := stats.Interval{Low: math.Log(*s.Low), High: math.Log(*s.High)}
				cvs = append(cvs, stats.Resolved(iv, Confidence)/stats.Detectable(1, s.Pairs*max(1, s.Boots)))
			}
		}
	}
	if len(cvs) > 0 && p.Pairs > 0 {
		p.CV = stats.Median(cvs)
		p.DetectableEffect = math.Expm1(stats.Detectable(p.CV, p.Pairs))
	}
	return p
}

// scatter is the coefficient of variation of one reading, from logarithms of the ratios of two.
func scatter(logs []float64) float64 {
	mean, square := 0.0, 0.0
	for _, x := range logs {
		mean += x / float64(len(logs))
	}
	for _, x := range logs {
		square += (x - mean) * (x - mean)
	}
	return math.Sqrt(square/float64(len(logs)-1)) / math.Sqrt2
}
