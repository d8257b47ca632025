package explain

import (
	"fmt"
	"math"
	"strings"
)

// The thresholds of findings. Each says what a larger or smaller one would do.
const (
	// offFastPath is how many plain steps the fixed part of verify may cost. Both read the same weights once, so 1 is to be expected; measured
	// fast paths lie at 0.9 to 1.15. A smaller bound calls noise a fault.
	offFastPath = 1.25
	// belowPlain is how many plain steps a verification of one row for each sequence can cost at least: it is a plain step with other kernels, so that
	// less says that the machine ran at another speed.
	belowPlain = 0.75
	// mostly is the share of a verification from which its fixed part is called most of it.
	mostly = 0.5
	// dear is the share of a cycle from which a phase other than verify is worth work of its own.
	dear = 0.2
	// lowFirst is the acceptance of first drafts below which wiring is suspected: drafters reported to be wired to wrong layers had 10 to 30 %,
	// the same drafters rightly wired 45 % and more.
	lowFirst = 0.35
	// collapse is the rate of second drafts over that of first ones below which the drafter's recurrence is suspected. Sound drafters keep 0.8 and more.
	collapse = 0.5
	// dearCycle is how many plain steps a cycle may take before it is looked into where its parts are unknown: with graphs and few rows on a GPU, or kernels that
	// load each weight once, cycles take 1.1 to 1.7.
	dearCycle = 2
	// agree is how far two ways of computing the same figure may differ: the last digits and the prefill of a benchmark.
	agree = 0.05
)

// finder collects findings.
type finder struct {
	*Report
	c *Case
}

func (f *finder) add(code, format string, a ...any) {
	f.Findings = append(f.Findings, Finding{code, fmt.Sprintf(format, a...)})
}

func (f *finder) run() {
	f.outcome()
	f.confirmed()
	f.consistency()
	f.bottleneck()
	f.verifyCost()
	f.cycleCost()
	for i := range f.Arms {
		f.breakEven(i)
	}
	f.depth()
	f.acceptance()
	f.best()
	f.whatIf()
	f.missing()
	f.next()
}

// fastestArm is the measured arm of the highest speed-up, −1 if none is known.
func (f *finder) fastestArm() int {
	best := -1
	for i, a := range f.Arms {
		if a.Speedup != nil && (best < 0 || *a.Speedup > *f.Arms[best].Speedup) {
			best = i
		}
	}
	return best
}

func (f *finder) plainTokS(i int) float64 {
	if a := f.c.Arms[i]; a.PlainTokS.known {
		return a.PlainTokS.value
	}
	return f.c.PlainTokS.value
}

func (f *finder) outcome() {
	i := f.fastestArm()
	if i < 0 {
		return
	}
	a := f.Arms[i]
	code, word := "speculation_slower", "slower"
	switch {
	case straddles(a.SpeedupInterval, 1):
		f.add("speculation_undecided", "Whether speculation is faster than plain decoding stays open: the best arm (%v) makes %.2f× of plain decoding's %s tok/s (%.2f to %.2f).",
			a.Shape, *a.Speedup, digits(f.plainTokS(i)), a.SpeedupInterval[0], a.SpeedupInterval[1])
		return
	case *a.Speedup >= 1:
		code, word = "speculation_faster", "faster"
	}
	f.add(code, "Speculation is %s than plain decoding: the best arm (%v) makes %s tok/s where plain decoding makes %s, %.2f×.",
		word, a.Shape, digits(*a.TokS), digits(f.plainTokS(i)), *a.Speedup)
}

// confirmed says what became of a campaign's winner when it was measured again.
func (f *finder) confirmed() {
	switch c := f.c.confirmed; {
	case c == nil:
	case c.agrees:
		f.add("confirmed", "The campaign measured its winner again, on fresh prompts, and that agrees: %s made %s.", c.Arm, c.words())
	default:
		f.add("not_confirmed", "The campaign measured its winner again, on fresh prompts, and that does not agree: %s made %s.", c.Arm, c.words())
	}
}

// straddles reports whether an interval has a number inside.
func straddles(i *Interval, x float64) bool { return i != nil && i[0] < x && x < i[1] }

// consistency compares tokens a second as given with accept length over cycle time.
func (f *finder) consistency() {
	for i, a := range f.c.Arms {
		s := f.Arms[i]
		own := a.CycleMs.known || a.VerifyMs.known && a.VerifyShare.known
		counted := a.AcceptLength.known || a.AcceptByStep != nil || a.AcceptHistogram != nil
		if !own || !counted || !a.TokS.known || s.CycleMs == nil || s.AcceptLength == nil {
			continue
		}
		implied := *s.AcceptLength * s.Batch / *s.CycleMs * 1000
		switch gap := implied/a.TokS.value - 1; {
		case gap > agree:
			f.add("time_outside_cycles", "At %v, accept length over cycle time makes %s tok/s, but %s were measured: %.0f %% of the time is spent outside decode cycles (prefill, idle, client), or the figures are of different runs.",
				s.Shape, digits(implied), digits(a.TokS.value), 100*(1-a.TokS.value/implied))
		case gap < -agree:
			f.add("inconsistent_input", "At %v, accept length over cycle time makes only %s tok/s, but %s were measured: the figures are of different runs, or one of them counts otherwise.",
				s.Shape, digits(implied), digits(a.TokS.value))
		}
	}
}

// phase is a part of a cycle.
type phase struct {
	name string
	ms   float64
}

// phases are the known parts of an arm's cycle, and what is left of it.
func (f *finder) phases(i int) (parts []phase) {
	a, s := f.c.Arms[i], f.Arms[i]
	if s.CycleMs == nil || s.VerifyMs == nil {
		return nil
	}
	left := *s.CycleMs - *s.VerifyMs
	parts = []phase{{"verify", *s.VerifyMs}}
	for _, p := range []struct {
		name string
		n    number
	}{{"draft", a.DraftMs}, {"accept", a.AcceptMs}, {"draft_extend", a.ExtendMs}, {"other", a.OtherMs}} {
		if p.n.known {
			parts = append(parts, phase{p.name, p.n.value})
			left -= p.n.value
		}
	}
	if left > 0.005**s.CycleMs {
		parts = append(parts, phase{"the rest", left})
	}
	return parts
}

// told reports whether an arm's cycle time was given or follows from what was, rather than being filled in by the model.
func (f *finder) told(i int) bool {
	a := f.c.Arms[i]
	return a.CycleMs.known || a.VerifyShare.known || a.TokS.known && (a.AcceptLength.known || a.AcceptByStep != nil || a.AcceptHistogram != nil) ||
		a.AcceptMs.known && a.ExtendMs.known && a.OtherMs.known
}

// bottleneck names the largest phase of the arm whose cycle is known best, and phases that are dear.
func (f *finder) bottleneck() {
	arm := -1
	for i := range f.Arms {
		if f.told(i) && len(f.phases(i)) > 0 && (arm < 0 || len(f.phases(i)) > len(f.phases(arm))) {
			arm = i
		}
	}
	if arm < 0 {
		return
	}
	ps, cycle := f.phases(arm), *f.Arms[arm].CycleMs
	top := ps[0]
	for _, p := range ps {
		if p.ms > top.ms {
			top = p
		}
	}
	f.add("bottleneck_"+strings.ReplaceAll(strings.TrimPrefix(top.name, "the "), " ", "_"), "The bottleneck is %s: %s of %s ms of a cycle (%.1f %%) at %v.",
		top.name, digits(top.ms), digits(cycle), 100*top.ms/cycle, f.Arms[arm].Shape)
	for _, p := range ps {
		share := p.ms / cycle
		if share < dear {
			continue
		}
		switch p.name {
		case "draft":
			per := ""
			if n := f.Arms[arm].Steps - 1; n > 0 {
				per = fmt.Sprintf(", %.2f plain steps for each of %d passes", p.ms/float64(n)/f.CostModel.PlainStepMs, n)
			}
			f.add("draft_too_dear", "Drafting takes %.0f %% of a cycle (%s ms%s). A smaller draft vocabulary or drafter, graphs for its passes, or fewer steps would help; a drafter spread over many devices may be waiting for collectives.", 100*share, digits(p.ms), per)
		case "draft_extend":
			f.add("draft_extend_dear", "Re-extending the drafter takes %.0f %% of a cycle (%s ms): see whether it runs in a graph.", 100*share, digits(p.ms))
		case "other", "accept":
			f.add("host_dear", "%s takes %.0f %% of a cycle (%s ms), which is the host's work between passes: scheduling, sampling, streaming.", capital(p.name), 100*share, digits(p.ms))
		}
	}
}

// verifyCost says what the fit of verify shows.
func (f *finder) verifyCost() {
	cm := f.CostModel
	if cm.VerifyFixedMs == nil {
		return
	}
	ratio, open := *cm.InterceptOverPlain, *cm.InterceptInterval
	one := *cm.VerifyPerRowMs * f.c.batch() / cm.PlainStepMs // plain steps that the first rows add
	switch {
	case open[1]+one < belowPlain:
		f.add("verify_below_plain", "A verification of one row would cost %.2f plain decoding steps by the fit, though it does the same work: plain decoding was measured while the machine was slower, or otherwise. Measure both side by side before drawing conclusions.", ratio+one)
	case open[0] > offFastPath:
		f.add("verify_off_fast_path", "The fixed part of verify, %s ms%s, is %.1f times a whole plain decoding step (%s ms), though both read the same weights once: verification runs off decode's fast path. Before tuning steps look at graphs (is verification captured at this batch and row count?), at the attention backend that verification uses, and at the collectives.",
			digits(*cm.VerifyFixedMs), within(cm.VerifyFixedInterval), ratio, digits(cm.PlainStepMs))
	case open[1] < offFastPath:
		f.add("verify_on_fast_path", "The fixed part of verify, %s ms, is %.2f plain decoding steps (%s ms): verification runs on decode's fast path.", digits(*cm.VerifyFixedMs), ratio, digits(cm.PlainStepMs))
	default:
		f.add("verify_path_unclear", "The fixed part of verify is %.2f plain decoding steps (%.2f to %.2f): whether verification is on decode's fast path stays open.", ratio, open[0], open[1])
	}
	rows := cm.Domain.Rows[1]
	share := *cm.VerifyFixedMs / (*cm.VerifyFixedMs + *cm.VerifyPerRowMs*rows)
	row := *cm.VerifyPerRowMs / cm.PlainStepMs
	if share >= mostly {
		f.add("verify_mostly_fixed", "Verify is mostly fixed cost: %.0f %% of it at %g rows. A row more costs %s ms (%.2f plain steps), so fewer draft tokens save little.", 100*share, rows, digits(*cm.VerifyPerRowMs), row)
	} else {
		f.add("verify_mostly_rows", "Verify is mostly paid by the row: %s ms for each (%.2f plain steps), %.0f %% of it at %g rows. The pass is bound by computation at this batch, or its kernels repeat work for each row; draft tokens are dear, so draft fewer, or speculate at smaller batches only.", digits(*cm.VerifyPerRowMs), row, 100*(1-share), rows)
	}
}

// cycleCost says that cycles are dear where nothing is known of their parts, for the arm with the fewest rows: that of many rows is to be expected.
func (f *finder) cycleCost() {
	least := -1
	for i, a := range f.Arms {
		if f.told(i) && a.VerifyMs == nil && a.BreakEvenInterval != nil && (least < 0 || a.Rows() < f.Arms[least].Rows()) {
			least = i
		}
	}
	if f.CostModel.VerifyFixedMs != nil || least < 0 || f.Arms[least].BreakEvenInterval[0] <= dearCycle {
		return
	}
	a := f.Arms[least]
	f.add("cycle_dear", "At %v a cycle takes %.1f plain steps, although its verification of %g rows reads the weights once, as a plain step does. Either a row is dear (kernels that repeat work for each row, or so many rows that computation decides: draft fewer tokens), or the drafter is (its passes come one after another, one for each step), or something runs off decode's fast path (verification or the drafter's passes without graphs, their attention backend, collectives of a drafter spread over devices, the host). Times of two numbers of draft tokens tell which, and times by phase tell where: draftlab profile.",
		a.Shape, *a.BreakEven, a.Rows())
}

// breakEven says what an arm needs and gets.
func (f *finder) breakEven(i int) {
	a := f.Arms[i]
	if a.BreakEven == nil || a.BreakEvenInterval == nil {
		return
	}
	need := fmt.Sprintf("At %v a cycle takes %s ms, so speculation breaks even at an accept length of %.2f%s", a.Shape, digits(*a.CycleMs), *a.BreakEven, within(a.BreakEvenInterval))
	most := float64(a.Steps + 1)
	switch {
	case a.BreakEvenInterval[0] > most:
		f.add("never_pays", "%s: more than the %g tokens that a cycle yields when every draft is accepted. At this cost it never pays, however good the drafter.", need, most)
	case a.AcceptLength == nil:
		f.add("break_even", "%s.", need)
	case straddles(a.SpeedupInterval, 1):
		f.add("accept_near_break_even", "%s, and it yields %.2f%s: too near to tell.", need, *a.AcceptLength, within(a.AcceptLengthInterval))
	case a.Speedup != nil && *a.Speedup < 1:
		f.add("accept_too_low", "%s, and it yields %.2f%s. For break-even with these drafts every draft would have to be accepted at %.0f %% (now %.0f %%).",
			need, *a.AcceptLength, within(a.AcceptLengthInterval), 100*rate(a.Steps, *a.BreakEven), 100*rate(a.Steps, *a.AcceptLength))
	default:
		f.add("accept_suffices", "%s, and it yields %.2f%s.", need, *a.AcceptLength, within(a.AcceptLengthInterval))
	}
}

// rate is the constant acceptance of drafts, given those before them, that makes an accept length of a chain.
func rate(steps int, length float64) float64 {
	lo, hi := 0.0, 1.0
	for range 50 {
		mid := (lo + hi) / 2
		total, alive := 1.0, 1.0
		for range steps {
			alive *= mid
			total += alive
		}
		if total < length {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// depth compares the shallowest and the deepest measured chain.
func (f *finder) depth() {
	lo, hi := -1, -1
	for i, a := range f.Arms {
		if a.TopK != 1 || a.Speedup == nil || a.CycleMs == nil || a.AcceptLength == nil || a.Batch != f.c.batch() {
			continue
		}
		if lo < 0 || a.Steps < f.Arms[lo].Steps {
			lo = i
		}
		if hi < 0 || a.Steps > f.Arms[hi].Steps {
			hi = i
		}
	}
	if lo == hi || f.Arms[lo].Steps == f.Arms[hi].Steps {
		return
	}
	a, b := f.Arms[lo], f.Arms[hi]
	code, verdict := "deeper_is_worse", "Deeper is worse here"
	switch {
	case straddles(a.SpeedupInterval, *b.Speedup) || straddles(b.SpeedupInterval, *a.Speedup):
		code, verdict = "depth_undecided", "Whether deeper is better stays open"
	case *b.Speedup > *a.Speedup:
		code, verdict = "deeper_is_better", "Deeper is better here"
	}
	f.add(code, "%s: from %d to %d steps a cycle yields %s tokens (%.2f to %.2f) and takes %s time (%s to %s ms).", verdict, a.Steps, b.Steps,
		percent(*b.AcceptLength / *a.AcceptLength), *a.AcceptLength, *b.AcceptLength, percent(*b.CycleMs / *a.CycleMs), digits(*a.CycleMs), digits(*b.CycleMs))
}

// acceptance looks for the marks of a drafter that is wired wrongly.
func (f *finder) acceptance() {
	if f.c.lookup {
		return
	}
	counted := false
	for _, a := range f.c.Arms {
		counted = counted || a.AcceptByStep != nil || a.AcceptHistogram != nil
	}
	first, atMost := math.Inf(1), ""
	if counted && len(f.Acceptance) > 0 {
		first = f.Acceptance[0].Share
	} else {
		for _, a := range f.Arms {
			if a.AcceptLength != nil && a.TopK == 1 && *a.AcceptLength-1 < first { // s1 is one of the shares that make up the rest
				first, atMost = *a.AcceptLength-1, "at most "
			}
		}
	}
	if first < lowFirst {
		f.add("low_first_position", "Only %s%.0f %% of first drafts are accepted, which looks like a wiring fault rather than a weak drafter: check which layers' states the drafter gets (inputs or outputs, embedding or final norm by mistake), the token shift, the draft vocabulary's map and the chat template, and compare with the accuracy that training reported.", atMost, 100*max(first, 0))
	}
	if counted && len(f.Acceptance) > 1 && first >= lowFirst {
		if second := f.Acceptance[1].Share / first; second < collapse*first {
			f.add("acceptance_collapses", "First drafts are accepted at %.0f %%, second ones after them at %.0f %%: the drafter's own recurrence is suspect (normalised or raw state fed back, positions of draft rows, draft ids not mapped before the next pass).", 100*first, 100*second)
		}
	}
}

// best names the predicted optimum.
func (f *finder) best() {
	p := fastest(f.Predictions)
	if p == nil || f.model.Doubts.Has("one_row_count") && len(f.Arms) == 1 {
		return
	}
	text := fmt.Sprintf("Of chains of 1 to %d steps the model expects most of %v: %s tok/s%s, %.2f× plain decoding.", len(f.Predictions), p.Shape, digits(*p.TokS), within(p.TokSInterval), *p.Speedup)
	if p.SpeedupInterval[1] < 1 {
		text += " None is expected to reach plain decoding at this cost and acceptance."
	}
	f.add("predicted_best", "%s", text)
}

// whatIf reports the hypothesis, and scores it where it was run.
func (f *finder) whatIf() {
	w := f.WhatIf
	if w == nil || w.Best == nil {
		return
	}
	b := w.Best
	f.add("what_if", "With %s, the best chain of 1 to %d steps is expected to be %v: %s tok/s%s, %.2f× plain decoding; it breaks even at an accept length of %.2f.",
		w.change(), len(w.Predictions), b.Shape, digits(*b.TokS), within(b.TokSInterval), *b.Speedup, b.BreakEven)
	if s := w.Measured; s != nil {
		verdict := "inside the interval"
		if !s.Inside {
			verdict = "outside the interval: the change did not act on every part as assumed, acceptance differed between the runs, or runs differ by more than these figures show"
		}
		f.add("what_if_scored", "Measured under it at %v: %s tok/s against the predicted %s%s (%+.1f %%), %s.", s.Prediction.Shape, digits(s.TokS),
			digits(*s.Prediction.TokS), within(s.Prediction.TokSInterval), 100*s.Error, verdict)
		if !s.Inside {
			f.implied(s)
		}
	}
	if w.VerifyScale != 1 && w.PlainScale == 1 {
		same := *b.Speedup * w.VerifyScale
		f.add("baseline_not_remeasured", "What changes verify may change plain decoding too, and plain_tok_s is from before: if a plain step gains as much as verify, the speed-up is %.2f× instead of %.2f×. Measure plain decoding again under the same settings.", same, *b.Speedup)
	}
}

// implied says which factor on verify would explain a run.
func (f *finder) implied(s *Score) {
	p := s.Prediction
	if f.WhatIf.VerifyScale == 1 || p.AcceptLength == nil || f.CostModel.VerifyFixedMs == nil {
		return
	}
	before := *f.CostModel.VerifyFixedMs + *f.CostModel.VerifyPerRowMs*p.Rows()
	rest := p.CycleMs - before*f.WhatIf.VerifyScale
	scale := (*p.AcceptLength*p.Batch/s.TokS*1000 - rest) / before
	if scale > 0 {
		f.add("what_if_implied", "At the same acceptance the measured speed means that verify of %g rows takes %.0f %% of its former time, not %.0f %%.", p.Rows(), 100*scale, 100*f.WhatIf.VerifyScale)
	}
}

func (w *WhatIf) change() string {
	var parts []string
	for _, p := range []struct {
		name string
		by   float64
	}{{"verify", w.VerifyScale}, {"drafting", w.DraftScale}, {"plain steps", w.PlainScale}} {
		if p.by != 1 {
			parts = append(parts, fmt.Sprintf("%s at %.0f %% of its time", p.name, 100*p.by))
		}
	}
	if parts == nil {
		return "nothing changed"
	}
	return strings.Join(parts, " and ")
}
