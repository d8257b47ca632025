package enginelog

import (
	"strings"
	"time"
)

// early are the milestones with which a start can begin: after a server was ready, one of them is another start.
var early = map[string]bool{"arguments read": true, "weights: begin": true}

// milestone adds a step of the start-up. Steps named "first …" count once, and only behind another milestone: a log that
// begins in the middle of serving has no start-up.
func (s *Summary) milestone(l *Line, name string) {
	at := l.Time
	if at.IsZero() {
		at = s.last
	}
	once := strings.HasPrefix(name, "first ")
	if len(s.boots) == 0 || s.boots[len(s.boots)-1].ready && early[name] {
		if once || len(s.boots) >= maxNames {
			return
		}
		began := at
		if len(s.boots) == 0 && !s.first.IsZero() {
			began = s.first
		}
		s.boots = append(s.boots, boot{began: began})
	}
	b := &s.boots[len(s.boots)-1]
	b.ready = b.ready || name == ReadyName || name == "HTTP: up" || once
	for i := range b.steps {
		if st := &b.steps[i]; st.name == name {
			if !once {
				st.count++
				st.at = later(st.at, at)
				st.took = max(st.took, l.Took)
			}
			return
		}
	}
	if len(b.steps) < maxNames {
		b.steps = append(b.steps, step{name: name, count: 1, at: at, took: l.Took, line: s.lines.Total})
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// report describes a boot.
func (b *boot) report() Boot {
	out := Boot{Milestones: []Step{}}
	previous := b.began
	for i := range b.steps {
		st := &b.steps[i]
		step := Step{Name: st.name, Count: st.count, Line: st.line}
		if !st.at.IsZero() && !b.began.IsZero() {
			at, since := between(b.began, st.at).Seconds(), between(previous, st.at).Seconds()
			step.At, step.Since = &at, &since
			previous = later(previous, st.at)
		}
		if st.took > 0 {
			took := st.took.Seconds()
			step.Took = &took
		}
		if st.name == ReadyName || st.name == "HTTP: up" && !b.has(ReadyName) {
			out.Ready = step.At
		}
		out.Milestones = append(out.Milestones, step)
	}
	return out
}

func (b *boot) has(name string) bool {
	for i := range b.steps {
		if b.steps[i].name == name {
			return true
		}
	}
	return false
}

// between is the time from a to b. vLLM writes no year: what seems to go back by most of one went over its end. What goes
// back by less, as ranks' lines may, is none.
func between(a, b time.Time) time.Duration {
	d := b.Sub(a)
	if a.Year() == 0 && d < -180*24*time.Hour {
		d = b.AddDate(1, 0, 0).Sub(a) // year 0 is a leap year, as any that has a 29 February to write
	}
	return max(d, 0)
}
