package wiring

import (
	"fmt"
	"slices"
)

// Verdict is what an examination comes to.
type Verdict string

// The verdicts.
const (
	// Confirmed: no wiring is accepted more than the configured one, and the states matter under it.
	Confirmed Verdict = "wiring_confirmed"
	// Wrong: another wiring is accepted more than the configured one, on texts that did not choose it.
	Wrong Verdict = "wiring_wrong"
	// Undecided: another looked better by more than a hair, and the texts do not bear it out; or they are too few to tell anything.
	Undecided Verdict = "wiring_undecided"
	// None: under no wiring does the drafter make use of the states, beyond doubt.
	None Verdict = "wiring_none"
)

// Fix is one thing to change in a drafter's files.
type Fix struct {
	Key   string `json:"key"`   // of config.json, or a tensor's name
	Value string `json:"value"` // what it should be; "" for a key to leave out
	Text  string `json:"text"`
}

// Result is an examination.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Measured are the wirings on the texts that judge: first the supported one if the verdict is Wrong, else the configured one; last the control.
	Measured []*Measured `json:"measured"`
	Fixes    []Fix       `json:"fixes"` // nil unless the verdict is Wrong or the files are refused
	Chosen   int         `json:"texts_chosen_on"`
	Judged   int         `json:"texts_judged_on"`
	Tokens   int         `json:"tokens"` // of an answer, at most
	Tried    int         `json:"wirings_tried"`
	Left     []int       `json:"layers_not_tried"` // states that the target's size kept out of the search
	Cut      bool        `json:"cut_short"`        // the time was over before all was tried
	TooLong  int         `json:"prompts_too_long"`
}

// Of returns the first measurement in a role, nil if there is none.
func (r *Result) Of(role Role) *Measured {
	for _, m := range r.Measured {
		if m.Role == role {
			return m
		}
	}
	return nil
}

// A wiring that stands out gets leastGain times the control's drafts accepted, beyond doubt, since with fewer the states tell the drafter next to nothing;
// and leastDrafts a position can be, or there is nothing to compare. The shipped drafter gets twenty times the control's, and 1.6 a position; a copy for another
// target as many as the control, and 0.03.
const (
	leastGain   = 2.0
	leastDrafts = 0.1
)

// hair is the share of the drafts by which another wiring may come out ahead, within its interval, of one that is confirmed.
const hair = 0.05

// result makes the verdict and what follows from it.
func (j *judgement) result(x *examiner, s *search, read *Reading) *Result {
	r := &Result{
		Chosen: len(s.scores[x.space.configured].positions), Judged: j.texts, Tokens: x.p.tokens,
		Tried: len(s.scores) + len(s.first), Cut: s.cut, TooLong: x.long,
	}
	for layer := range x.space.layers + 1 {
		if !slices.Contains(x.space.kept, layer) {
			r.Left = append(r.Left, layer)
		}
	}
	r.Verdict = j.verdict()
	if r.Measured = j.list; r.Verdict != None {
		r.Fixes = read.fixes(j.list[0], x.space)
	}
	return r
}

// verdict compares all with the configured wiring, and then with the one that is supported, which it puts first.
func (j *judgement) verdict() Verdict {
	j.compare(func(m *Measured) bool { return m.Role == Configured })
	configured, control := j.list[0], j.list[len(j.list)-1]
	var best *Measured // of those that are better beyond doubt
	ahead := configured
	for _, m := range j.list[1 : len(j.list)-1] {
		if m.Less.High < 0 && (best == nil || m.Drafts.Value > best.Drafts.Value*(1+hair)) {
			best = m
		}
		if m.Drafts.Value > ahead.Drafts.Value {
			ahead = m
		}
	}
	top := ahead
	if best != nil {
		top = best
	}
	v := Confirmed
	switch {
	case top.Drafts.High < leastDrafts || top.less(control, leastGain, len(j.list)-1).High < 0:
		v = None
	case best != nil:
		v = Wrong
	case ahead.Drafts.Value > (1+hair)*configured.Drafts.Value || top.less(control, leastGain, len(j.list)-1).Low <= 0:
		v = Undecided
	}
	for _, m := range j.list[1 : len(j.list)-1] {
		m.Role = Rival
	}
	switch v {
	case Wrong:
		best.Role = Supported
		j.compare(func(m *Measured) bool { return m == best })
	case Undecided:
		if ahead != configured {
			ahead.Role = Supported
		}
	}
	return v
}

// compare puts the wiring in front that is wanted there, and holds all others against it. The control stays last.
func (j *judgement) compare(want func(*Measured) bool) {
	at := slices.IndexFunc(j.list, want)
	first := j.list[at]
	j.list = slices.Insert(slices.Delete(j.list, at, at+1), 0, first)
	for _, m := range j.list {
		m.finish(first, len(j.list)-1)
	}
}

// fixes says what to change for the files to mean a wiring: everything that they say otherwise, and everything that a reader refuses.
func (r *Reading) fixes(m *Measured, s *space) (list []Fix) {
	w, c := m.Wiring, &r.Config
	add := func(key, value, format string, a ...any) {
		list = append(list, Fix{key, value, fmt.Sprintf(format, a...)})
	}
	if w.AbsoluteMap {
		add("d2t", "", "subtract its own index from each element of the tensor d2t: it holds ids, where a checkpoint holds offsets")
	}
	r.layerFix(w.Layers, s, add)
	for _, f := range []struct {
		key       string
		said, is  bool
		mayBeLeft bool // leaving the key out says false
	}{
		{"norm_output", r.normOutput, w.NormOutput, true},
		{"norm_before_residual", c.NormBeforeResidual, w.NormBeforeResidual, false},
		{"norm_before_fc", c.NormBeforeFC, w.NormBeforeFC, false},
		{"fc_norm", c.FCNorm, w.FCNorm, false},
	} {
		switch mended := slices.Contains(r.Mended, f.key); {
		case f.said == f.is && !mended:
		case f.mayBeLeft && !f.is:
			add(f.key, "false", "set %s to false, or leave it out", f.key)
		default:
			add(f.key, fmt.Sprint(f.is), "set %s to %t", f.key, f.is)
		}
	}
	if w.RopeTheta != c.Rope.Theta {
		add("rope_theta", fmt.Sprint(w.RopeTheta), "set rope_theta to %g", w.RopeTheta)
	}
	return list
}

// layerFix says how config.json, or fc, comes to mean the states l.
func (r *Reading) layerFix(l layers3, s *space, add func(key, value, format string, a ...any)) {
	ascending := l
	slices.Sort(ascending[:])
	if slices.Contains(r.Mended, layerKey) || ascending != layers3(r.wiring(s.layers).Layers) {
		value := "[" + join(ascending[:]) + "]"
		or := ""
		if ascending == s.standard() {
			or = ", or leave the key out, which means the same to every engine"
		} else if r.Listed != nil && ascending == (layers3{r.Listed[0] + 1, r.Listed[1] + 1, r.Listed[2] + 1}) {
			or = "; the ids there number outputs"
		}
		add(layerKey, value, "set %s to %s%s", layerKey, value, or)
	}
	if l != ascending {
		add("fc.weight", "", "put the thirds of fc.weight's columns, which take the inputs of layers %s, into the order of the layers: no key says another", join(l[:]))
	}
}
