package profile

import (
	"fmt"
	"math"
)

// Facts are measured figures of cycles of one shape at one batch size. A zero is a figure that is not known.
type Facts struct {
	Steps, TopK, DraftTokens int
	Batch                    float64   // sequences in a cycle
	AcceptLength             float64   // tokens of a sequence in a cycle, the target's own included
	CycleMs                  float64   // prompt passes left out
	Phases                   []Part    // the cycle's parts, in ms
	PlainMs                  float64   // a step without drafts at the same batch size
	Survival                 []float64 // [i] share of sequence cycles that accepted more than i drafts
	RowMs                    float64   // what one more row costs verification; negative if it was measured to be nothing
}

// Part is a phase's mean time in a cycle.
type Part struct {
	Name string
	Ms   float64
}

// Line is one conclusion, with the figures it was drawn from.
type Line struct {
	Name    string             `json:"name"`
	Text    string             `json:"text"`
	Numbers map[string]float64 `json:"numbers,omitempty"`
	Missing string             `json:"missing,omitempty"` // what would have to be known; Text then says what was not concluded
}

// WhatIf draws the conclusions that simple arithmetic allows. Each names the figures that it used, or the one that it lacks.
func WhatIf(f *Facts) []Line {
	if f.CycleMs <= 0 {
		return nil
	}
	return []Line{bottleneck(f), breakEven(f), oneFewer(f), oneMore(f)}
}

func (f *Facts) part(name string) float64 {
	for _, p := range f.Phases {
		if p.Name == name {
			return p.Ms
		}
	}
	return 0
}

// bottleneck names the longest phase, how much faster cycles would be without all the others, and how verification compares
// with a plain step: it is the same pass over a few more rows, so that a large ratio means that it runs off decode's fast path.
func bottleneck(f *Facts) Line {
	l := Line{Name: "bottleneck"}
	var most Part
	for _, p := range f.Phases {
		if p.Ms > most.Ms {
			most = p
		}
	}
	if most.Ms <= 0 {
		l.Text, l.Missing = "the slowest phase is not known", "times by phase"
		return l
	}
	l.Numbers = map[string]float64{"phase_ms": most.Ms, "cycle_ms": f.CycleMs, "share": most.Ms / f.CycleMs}
	l.Text = fmt.Sprintf("%s: %.2f of %.2f ms, %.1f %% of a cycle; with everything else for nothing cycles would be %.2f times as fast",
		most.Name, most.Ms, f.CycleMs, 100*most.Ms/f.CycleMs, f.CycleMs/most.Ms)
	if verify := f.part("verify"); verify > 0 && f.PlainMs > 0 {
		l.Numbers["verify_over_plain"] = verify / f.PlainMs
		l.Text += fmt.Sprintf("; verification takes %.2f plain steps (%.2f / %.2f ms)", verify/f.PlainMs, verify, f.PlainMs)
	}
	return l
}

// breakEven is the accept length at which a cycle yields what plain steps yield in the same time.
func breakEven(f *Facts) Line {
	l := Line{Name: "break-even"}
	if f.PlainMs <= 0 {
		l.Text, l.Missing = "the accept length at which speculation breaks even is not known", "a plain step's time at this batch size"
		return l
	}
	even := f.CycleMs / f.PlainMs
	l.Numbers = map[string]float64{"accept_length": even, "cycle_ms": f.CycleMs, "plain_step_ms": f.PlainMs}
	l.Text = fmt.Sprintf("speculation breaks even at %.2f tokens a cycle (%.2f ms a cycle / %.2f ms a plain step)", even, f.CycleMs, f.PlainMs)
	if f.AcceptLength > 0 {
		l.Numbers["measured_accept_length"], l.Numbers["speed_up"] = f.AcceptLength, f.AcceptLength/even
		rate, plain := 1e3*f.AcceptLength/f.CycleMs, 1e3/f.PlainMs
		l.Numbers["tok_s"], l.Numbers["plain_tok_s"] = rate, plain
		l.Text += fmt.Sprintf("; with %.2f it runs at %.2f times plain decoding (%.1f tok/s a sequence, plain %.1f)", f.AcceptLength, f.AcceptLength/even, rate, plain)
	}
	return l
}

// survival returns the share of cycles that accepted more than i drafts, for each i below Steps, and how it is known. Where only the
// accept length is, each position is taken to be accepted equally often given the ones before, which is r in
// 1 + r + … + r^steps = accept length.
func (f *Facts) survival() (s []float64, how string) {
	if len(f.Survival) >= f.Steps {
		return f.Survival[:f.Steps], "as measured by position"
	}
	lo, hi := 0.0, 1.0
	for range 60 { // bisection to the last bit
		r, sum, power := (lo+hi)/2, 1.0, 1.0
		for range f.Steps {
			power *= r
			sum += power
		}
		if sum < f.AcceptLength {
			lo = r
		} else {
			hi = r
		}
	}
	for i := range f.Steps {
		s = append(s, math.Pow(lo, float64(i+1)))
	}
	return s, "if every position is accepted equally often"
}

// change describes a chain of another length: the tokens it yields more (negative for fewer), and the draft tokens it has more.
func (f *Facts) change(name, verb string, tokens float64, draftTokens int, how string) Line {
	l := Line{Name: name}
	sign := float64(draftTokens)
	pass := 0.0
	if f.Steps > 1 {
		pass = f.part("draft") / float64(f.Steps-1) // the first draft comes of draft_extend
	}
	rowLo, rowHi := 0.0, f.part("verify")/float64(f.Steps+1) // verification all fixed, or all by row
	known := f.RowMs != 0
	if known {
		rowLo = max(0, f.RowMs) * max(1, f.Batch)
		rowHi = rowLo
	}
	accept := f.AcceptLength + tokens
	now := f.AcceptLength / f.CycleMs
	ratio := func(row float64) float64 { return accept / (f.CycleMs + sign*(pass+row)) / now }
	a, b := ratio(rowLo), ratio(rowHi)
	l.Numbers = map[string]float64{"tokens": tokens, "draft_pass_ms": pass, "row_ms_low": rowLo, "row_ms_high": rowHi,
		"cycle_ms": f.CycleMs, "accept_length": accept, "rate_ratio_low": min(a, b), "rate_ratio_high": max(a, b)}
	gain := fmt.Sprintf("%s %.2f tokens a cycle (%s)", verb, math.Abs(tokens), how)
	if known || a == b {
		l.Text = fmt.Sprintf("%s, for %.2f ms of drafting and %.2f ms of verification: %.3f times the present rate", gain, pass, rowLo, a)
		return l
	}
	l.Missing = "verification's cost by row: it takes cycles with another number of draft tokens at the same batch size"
	l.Text = fmt.Sprintf("%s, for %.2f ms of drafting and 0 to %.2f ms of verification: %.3f to %.3f times the present rate",
		gain, pass, rowHi, min(a, b), max(a, b))
	return l
}

// chain says why the effect of another number of draft tokens cannot be told, "" if it can.
func (f *Facts) chain() string {
	switch {
	case f.Steps < 1:
		return "the number of draft steps"
	case f.TopK > 1:
		return "which draft tokens of the tree were accepted"
	case f.AcceptLength <= 0:
		return "the accept length"
	case f.part("verify") <= 0 && f.RowMs == 0:
		return "verification's time"
	}
	return ""
}

func oneFewer(f *Facts) Line {
	const name = "one fewer"
	if missing := f.chain(); missing != "" {
		return Line{Name: name, Text: "what one fewer draft token saves is not known", Missing: missing}
	}
	if f.Steps == 1 {
		return Line{Name: name, Text: "one fewer draft token is plain decoding: see break-even"}
	}
	s, how := f.survival()
	return f.change(name, "loses", -s[f.Steps-1], -1, how)
}

func oneMore(f *Facts) Line {
	const name = "one more"
	if missing := f.chain(); missing != "" {
		return Line{Name: name, Text: "what one more draft token costs is not known", Missing: missing}
	}
	s, how := f.survival()
	last, before := s[f.Steps-1], 1.0
	if f.Steps > 1 {
		before = s[f.Steps-2]
	}
	gain := 0.0
	if before > 0 {
		gain = last * last / before
	}
	return f.change(name, "gains", gain, +1, how+"; the new position as often as the last")
}
