package doctor

import (
	"fmt"
	"strings"

	"draftlab/engine/wiring"
)

// Measured puts an examination into words: the verdict first, then what else it shows.
func Measured(r *wiring.Result) []Finding {
	c := &checker{}
	first, configured, control := r.Measured[0], r.Of(wiring.Configured), r.Of(wiring.Control)
	switch r.Verdict {
	case wiring.Confirmed:
		c.add(OK, string(r.Verdict), "Acceptance supports the wiring as it is configured: %s. The target accepts %s; with a chain of %d a cycle makes %.2f tokens.%s",
			first.Text, depths(first), wiring.Steps, first.AcceptLength, nextBest(r))
	case wiring.Wrong:
		c.add(Fault, string(r.Verdict), "Acceptance supports another wiring than the configured one: %s. Under it the target accepts %s; as configured (%s) it accepts %s. "+
			"That is %s fewer drafts a position, and %.2f tokens a cycle instead of %.2f.",
			first.Text, depths(first), configured.Text, depths(configured), amount(configured.Less), configured.AcceptLength, first.AcceptLength)
	case wiring.Undecided:
		ahead := r.Of(wiring.Supported)
		if ahead == nil {
			c.add(Warning, string(r.Verdict), "These texts are too few to decide: as configured (%s) the target accepts %s of first drafts, and %s with the states of other positions. More prompts can decide it (--prompts).",
				first.Text, share(first.Accepted[0]), share(control.Accepted[0]))
			break
		}
		c.add(Warning, string(r.Verdict), "These texts do not decide between the configured wiring and another: as configured (%s) the target accepts %s of first drafts, and %s with %s; "+
			"the difference is %s drafts a position. More prompts can decide it (--prompts).",
			first.Text, share(first.Accepted[0]), share(ahead.Accepted[0]), ahead.Text, amount(negative(ahead.Less)))
	case wiring.None:
		c.add(Fault, string(r.Verdict), "No wiring stands out: as configured the target accepts %s of first drafts, and under the best of the others no more than %s, where %s are accepted "+
			"even with the states of other positions. The drafter makes next to nothing of the target's states: it was not trained, or for another target.",
			share(configured.Accepted[0]), share(best(r).Accepted[0]), share(control.Accepted[0]))
	}
	for _, f := range r.Fixes {
		c.add(Fault, "wiring_fix", "To change: %s.", f.Text)
	}
	if alike := alike(r); len(alike) > 0 && r.Verdict != wiring.None {
		c.add(Note, "wiring_alike", "On these texts the following cannot be told from it (their intervals of the difference contain zero): %s.", strings.Join(alike, "; "))
	}
	c.add(Note, "wiring_measured", "%d wirings were tried on %d texts, and %d of them measured on %d others, all of up to %d tokens that the target wrote greedily. "+
		"Intervals are of 95 %%, with a text as the unit.", r.Tried, r.Chosen, len(r.Measured)-1, r.Judged, r.Tokens)
	if r.Cut {
		c.add(Warning, "wiring_cut_short", "The time was over before all wirings were tried: another than those measured may be right.")
	}
	if len(r.Left) > 0 {
		c.add(Note, "wiring_layers_left", "The target is large: the states of %d of its layers were not kept, and not tried.", len(r.Left))
	}
	if r.TooLong > 0 {
		c.add(Note, "prompts_too_long", "%d prompts were too long to be used.", r.TooLong)
	}
	return c.findings
}

// depths says which shares of first, second and third drafts are accepted.
func depths(m *wiring.Measured) string {
	return fmt.Sprintf("%s of first drafts, %s of seconds and %s of thirds", share(m.Accepted[0]), share(m.Accepted[1]), share(m.Accepted[2]))
}

func share(v wiring.Interval) string {
	return fmt.Sprintf("%.1f %% (%.1f to %.1f)", 100*v.Value, 100*v.Low, 100*v.High)
}

func amount(v wiring.Interval) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", v.Value, v.Low, v.High)
}

func negative(v wiring.Interval) wiring.Interval {
	return wiring.Interval{Value: -v.Value, Low: -v.High, High: -v.Low}
}

// nextBest names the nearest wiring that is accepted less, beyond doubt.
func nextBest(r *wiring.Result) string {
	var near *wiring.Measured
	for _, m := range r.Measured[1:] {
		if m.Role == wiring.Rival && m.Less.Low > 0 && (near == nil || m.Drafts.Value > near.Drafts.Value) {
			near = m
		}
	}
	control := r.Of(wiring.Control)
	text := fmt.Sprintf(" With the states of other positions, a control, %s of first drafts are accepted.", share(control.Accepted[0]))
	if near != nil {
		text = fmt.Sprintf(" The nearest that falls behind is %s: %s fewer drafts a position.", near.Text, amount(near.Less)) + text
	}
	return text
}

// best returns the wiring with the most drafts, the control aside.
func best(r *wiring.Result) *wiring.Measured {
	top := r.Measured[0]
	for _, m := range r.Measured {
		if m.Role != wiring.Control && m.Drafts.Value > top.Drafts.Value {
			top = m
		}
	}
	return top
}

// alike lists the wirings that are as good as the first.
func alike(r *wiring.Result) (list []string) {
	for _, m := range r.Measured[1:] {
		if m.Role == wiring.Rival && m.Less.Low <= 0 && m.Less.High >= 0 {
			list = append(list, fmt.Sprintf("%s, %s drafts fewer", m.Text, amount(m.Less)))
		}
	}
	return list
}
