package campaign

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

const (
	// deafBelow is the accept length below which a drafter guesses next to nothing: one that is trained for another model, or
	// wired to the wrong layers, comes out at 1.0 to 1.05, and speed alone does not show why.
	deafBelow = 1.05
	// swingAbove is how much the memory's speed may differ between the best and the worst tenth of the pairs before it is
	// worth a warning: pairs keep it out of the ratio, but a ratio at another speed of memory may be another one.
	swingAbove = 1.5
	// driftAbove is how much plain decoding may change within a boot before that is worth a warning.
	driftAbove = 1.1
)

// warn notes what makes the result doubtful.
func (r *Result) warn(d *data) {
	say := func(format string, a ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, a...)) }
	for _, n := range d.notes {
		if n.Kind == doubt {
			say("%s", n.Text)
		}
	}
	if len(d.state.WarmUp) > 0 && !d.state.Steady {
		say("decoding was not steady after %d warm-up requests: something else uses this machine", len(d.state.WarmUp))
	}
	_, free := d.betweenBoots(trial.Measure)
	for i := range r.Arms {
		r.Arms[i].warn(say)
		if s := r.Arms[i].Speedup.best(); s != nil && s.Method == "boots" && free == 0 {
			say("%s was compared across single starts of the server: what differs from one start to the next is not in its interval; set boots to 2 or more", r.Arms[i].Name)
		}
	}
	if r.Confirm != nil {
		arm := d.arm(r.Confirm.Arm)
		if o := d.outputs(trial.Confirm, arm); o.wrong() {
			say("%s: OUTPUT IS NOT PLAIN DECODING'S on %d prompts of the confirm run: %s", arm.Name, len(o.different), strings.Join(o.different, ", "))
		}
	}
	r.warnOfBoots(d, say)
	r.warnOfMachine(d, say)
}

func (a *ArmResult) warn(say func(string, ...any)) {
	switch {
	case a.Failed > 0:
		say("%s: %d requests failed: %s", a.Name, a.Failed, a.Error)
	case a.Decided == Failed:
		say("%s: not measured, as its server failed: %s", a.Name, strings.ReplaceAll(a.Error, "\n    ", "; "))
	case len(a.Different) > 0 && a.Plain():
		say("%s: its own outputs differ from one request to the next on %d prompts: %s", a.Name, len(a.Different), strings.Join(a.Different, ", "))
	case a.Wrong:
		say("%s: OUTPUT IS NOT PLAIN DECODING'S on %d prompts: %s", a.Name, len(a.Different), strings.Join(a.Different, ", "))
	case len(a.Different) > 0:
		say("%s: its output is not plain decoding's on %d prompts, about as many as those on which plain decoding differs from itself (%d)", a.Name, len(a.Different), len(a.Noise))
	case !a.Plain() && !strings.HasPrefix(a.Drafter, "ngram") && a.Accept <= deafBelow && a.Cycle != nil:
		say("%s: hardly a draft is accepted (accept length %.2f): is this drafter made for this model?", a.Name, a.Accept)
	}
}

// warnOfBoots notes what servers did otherwise than they were told.
func (r *Result) warnOfBoots(d *data, say func(string, ...any)) {
	told := map[string]bool{}
	once := func(format string, a ...any) {
		if text := fmt.Sprintf(format, a...); !told[text] {
			told[text] = true
			say("%s", text)
		}
	}
	for _, b := range d.boots {
		for _, x := range b.Differences {
			note := ""
			if x.Note != "" {
				note = " (" + x.Note + ")"
			}
			if x.Want == "" {
				once("the server did something of its own accord: %s: %s%s", x.Key, x.Got, note)
				continue
			}
			once("the server has %s = %s where %s was asked for%s", x.Key, x.Got, x.Want, note)
		}
	}
	warnOfVariables(d.boots, say)
	for _, x := range r.Drift {
		if math.Max(x.Ratio, 1/x.Ratio) > driftAbove {
			say("plain decoding changed to %.2f times its speed while boot %d ran: pairs keep that out of their ratios, other comparisons do not", x.Ratio, x.Boot)
		}
	}
}

// warnOfVariables notes variables that did not act, each once: a server has a process for each of its ranks.
func warnOfVariables(boots []trial.Boot, say func(string, ...any)) {
	type variable struct{ name, want, state string }
	type seen struct {
		boots, processes int
		first, line      string
		last             int // boot
	}
	var order []variable
	of := map[variable]*seen{}
	for _, b := range boots {
		for _, e := range b.Environment {
			if e.State != "ignored" && e.State != "missing" {
				continue
			}
			v := variable{e.Name, e.Want, e.State}
			if of[v] == nil {
				of[v] = &seen{first: fmt.Sprintf("%s of boot %s", e.Process, b.Name)}
				order = append(order, v)
			}
			s := of[v]
			if s.processes++; s.last != b.ID {
				s.boots, s.last = s.boots+1, b.ID
			}
			s.line = cmp.Or(s.line, strings.TrimSpace(e.Line))
		}
	}
	for _, v := range order {
		s := of[v]
		say("the variable %s=%s is %s in %d processes of %d boots, first in %s: %s", v.name, v.want, v.state, s.processes, s.boots, s.first, cmp.Or(s.line, "nothing in the log says why"))
	}
}

func (r *Result) warnOfMachine(d *data, say func(string, ...any)) {
	cached := 0
	var bandwidth []float64
	for _, t := range d.trials {
		if t.Bandwidth > 0 {
			bandwidth = append(bandwidth, t.Bandwidth)
		}
		if t.Sample.CachedTokens > 0 {
			cached++
		}
	}
	if cached > 0 {
		say("%d requests found a part of their prompt in the server's cache", cached)
	}
	if low, high := stats.Quantile(bandwidth, 0.1), stats.Quantile(bandwidth, 0.9); high > swingAbove*low {
		say("the memory's speed swung between %.1f and %.1f GB/s (tenth and ninetieth percentile): another run may see other speed-ups", low/1e9, high/1e9)
	}
}
