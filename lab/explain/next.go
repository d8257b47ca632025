package explain

import (
	"fmt"
	"strings"

	"draftlab/lab/costmodel"
)

// missing lists what would let more be said.
func (f *finder) missing() {
	var want []string
	d := f.model.Doubts
	if d.Has("verify_unknown") {
		want = append(want, "verify_ms of two arms with different draft_tokens")
	}
	if d.Has("one_row_count") {
		want = append(want, "verify_ms at a second number of draft tokens, which tells the fixed cost from that of a row")
	}
	open := 0
	for i := range f.Arms {
		if !f.told(i) {
			open++
		}
	}
	if open > 0 && !d.Has("verify_unknown") {
		want = append(want, fmt.Sprintf("cycle_ms or verify_share of every arm (%d of %d have none, so their cycle is bounded only)", open, len(f.Arms)))
	}
	if d.Has("accept_unknown") {
		if f.someTokS() {
			want = append(want, "accept_length of an arm, which with its tok_s gives the time of a cycle")
		} else {
			want = append(want, "tok_s or accept_length of an arm")
		}
	} else if !f.countedChain() {
		want = append(want, "accept_by_position or accept_histogram of the deepest chain, which gives the accept length of every shallower one")
	}
	if len(want) > 0 {
		f.add("missing_data", "To say more: %s.", strings.Join(want, "; "))
	}
}

func (f *finder) someTokS() bool {
	for _, a := range f.c.Arms {
		if a.TokS.known {
			return true
		}
	}
	return false
}

func (f *finder) countedChain() bool {
	for _, a := range f.c.Arms {
		if a.AcceptByStep != nil || a.AcceptHistogram != nil {
			return true
		}
	}
	return false
}

// next says what to try.
func (f *finder) next() {
	has := func(code string) bool {
		for _, x := range f.Findings {
			if x.Code == code {
				return true
			}
		}
		return false
	}
	var tries []string
	if has("low_first_position") || has("acceptance_collapses") {
		tries = append(tries, "check the drafter's wiring first, since no setting makes up for it")
	}
	if has("verify_off_fast_path") {
		tries = append(tries, "bring verification onto decode's fast path: at one plain step of fixed cost it would decide more than any number of steps"+f.onFastPath())
	}
	if has("draft_too_dear") {
		tries = append(tries, "make drafting cheaper")
	}
	if p := fastest(f.Predictions); p != nil && has("predicted_best") && !f.wasMeasured(p.Shape) {
		tries = append(tries, fmt.Sprintf("run %v, the predicted optimum that nobody has measured", p.Shape))
	}
	if i := f.fastestArm(); i >= 0 && *f.Arms[i].Speedup < 1 {
		if text := f.needed(i); text != "" {
			tries = append(tries, text)
		}
	}
	switch c := f.c.confirmed; {
	case c != nil && !c.agrees:
		tries = append(tries, fmt.Sprintf("measure %s for longer before relying on it", c.Arm))
	case len(tries) > 0:
	case c != nil:
		tries = append(tries, fmt.Sprintf("use %s, which was confirmed", c.Arm))
	case has("speculation_faster"):
		tries = append(tries, "confirm the winner in interleaved runs before relying on it")
	}
	if len(tries) > 0 {
		f.add("try_next", "Next: %s.", strings.Join(tries, "; "))
	}
}

// onFastPath predicts the best chain if verify's fixed part were one plain step.
func (f *finder) onFastPath() string {
	cm := f.CostModel
	best, speed := costmodel.Shape{}, 0.0
	for _, p := range f.Predictions {
		if p.AcceptLength == nil {
			return ""
		}
		cycle := p.CycleMs - *cm.VerifyFixedMs + cm.PlainStepMs
		if s := *p.AcceptLength * p.Batch / cycle * 1000; s > speed {
			best, speed = p.Shape, s
		}
	}
	if speed == 0 {
		return ""
	}
	return fmt.Sprintf(" (about %s tok/s at %v)", digits(speed), best)
}

func (f *finder) wasMeasured(s costmodel.Shape) bool {
	for _, a := range f.Arms {
		if a.Shape == s {
			return true
		}
	}
	return false
}

// needed says how much verify would have to fall for an arm to break even.
func (f *finder) needed(i int) string {
	a := f.Arms[i]
	if a.VerifyMs == nil || a.CycleMs == nil || a.AcceptLength == nil || a.BreakEven == nil {
		return ""
	}
	target := *a.VerifyMs - *a.CycleMs*(1 - *a.AcceptLength / *a.BreakEven)
	if target <= 0 {
		return fmt.Sprintf("not verify alone: even at no cost it would leave %v slower than plain decoding", a.Shape)
	}
	return fmt.Sprintf("verify at %v would have to fall from %s to %s ms (%.0f %%) for break-even at today's acceptance", a.Shape, digits(*a.VerifyMs), digits(target), 100*(target / *a.VerifyMs - 1))
}
