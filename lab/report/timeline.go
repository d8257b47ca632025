package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// clock places moments on a timeline: seconds since the first event.
type clock struct {
	zero, last time.Time
	unit       float64 // seconds
	name       string
}

func (p *page) clock() clock {
	var c clock
	take := func(t time.Time) {
		if t.IsZero() {
			return
		}
		if c.zero.IsZero() || t.Before(c.zero) {
			c.zero = t
		}
		if t.After(c.last) {
			c.last = t
		}
	}
	for i := range p.Boots {
		b := &p.Boots[i]
		take(b.Started)
		take(b.Ended)
		take(readyAt(b))
	}
	for i := range p.Trials {
		take(p.Trials[i].Start)
		take(p.Trials[i].End)
	}
	switch s := c.last.Sub(c.zero).Seconds(); {
	case s < 180:
		c.unit, c.name = 1, "seconds"
	case s < 3*3600:
		c.unit, c.name = 60, "minutes"
	default:
		c.unit, c.name = 3600, "hours"
	}
	return c
}

func (c clock) at(t time.Time) float64 { return t.Sub(c.zero).Seconds() / c.unit }

// lane is a row of a timeline.
type lane struct {
	name  string
	marks []Mark
}

// lanes are the trials of each arm, in the order of the result's arms.
func (p *page) lanes() (out []lane) {
	byArm := map[string][]Mark{}
	var order []string
	for _, a := range p.result.Arms {
		order = append(order, a.Name)
	}
	for _, m := range p.Trials {
		if !slices.Contains(order, m.Arm) {
			order = append(order, m.Arm)
		}
		byArm[m.Arm] = append(byArm[m.Arm], m)
	}
	for _, name := range order {
		if marks := byArm[name]; len(marks) > 0 {
			slices.SortFunc(marks, func(a, b Mark) int { return a.Start.Compare(b.Start) })
			out = append(out, lane{name, marks})
		}
	}
	return out
}

// stages are the stages with their classes in charts.
var stages = []struct {
	stage trial.Stage
	class string
}{{trial.WarmUp, "quiet"}, {trial.Measure, "s0"}, {trial.Confirm, "s3"}}

// timeline is the chart of starts and trials over time, with memory bandwidth and the speed of plain decoding below.
func (p *page) timeline() *figure {
	lanes := p.lanes()
	if len(lanes) == 0 && len(p.Boots) == 0 {
		return nil
	}
	c := p.clock()
	f := &figure{ID: "timeline", Title: "Timeline", Desc: p.timelineWords(c, lanes)}
	f.Table = &table{Caption: "Trials by arm and stage; times since the beginning, in " + c.name, Columns: []column{{"arm", false}, {"stage", false}, {"trials", true}, {"failed", true}, {"first began", true}, {"last ended", true}, {"median tok/s", true}, {"median bandwidth, GB/s", true}}}
	for _, l := range lanes {
		for _, s := range stages {
			marks := slices.DeleteFunc(slices.Clone(l.marks), func(m Mark) bool { return m.Stage != s.stage })
			if len(marks) == 0 {
				continue
			}
			failed, last := 0, marks[0].End
			for _, m := range marks {
				if m.Failed {
					failed++
				}
				if m.End.After(last) {
					last = m.End
				}
			}
			f.Table.Rows = append(f.Table.Rows, []string{l.name, string(s.stage), fmt.Sprint(len(marks)), fmt.Sprint(failed), short(c.at(marks[0].Start)), short(c.at(last)),
				middleOf(marks, func(m Mark) float64 { return m.TokS }), middleOf(marks, func(m Mark) float64 { return m.Bandwidth })})
		}
	}
	f.draw(func(d *drawing) { p.drawTimeline(d, c, lanes) })
	return f
}

// middleOf is the median of what is known of trials, "" if nothing is.
func middleOf(marks []Mark, of func(Mark) float64) string {
	if xs := known(marks, of); len(xs) > 0 {
		return figure3(stats.Median(xs))
	}
	return ""
}

func known(marks []Mark, of func(Mark) float64) (xs []float64) {
	for _, m := range marks {
		if v := of(m); v > 0 && !math.IsInf(v, 0) {
			xs = append(xs, v)
		}
	}
	return xs
}

func (p *page) timelineWords(c clock, lanes []lane) string {
	trials, failed := len(p.Trials), 0
	for _, m := range p.Trials {
		if m.Failed {
			failed++
		}
	}
	text := count(trials, "trial") + " of " + count(len(lanes), "arm")
	if failed > 0 {
		text += fmt.Sprintf(", %d of which failed,", failed)
	}
	if len(p.Boots) > 0 {
		text += " on " + count(len(p.Boots), "start") + " of the server"
	}
	return text + " within " + seconds(c.last.Sub(c.zero).Seconds()) + "."
}

func (p *page) drawTimeline(d *drawing, c clock, lanes []lane) {
	d.timelineLegend(p, lanes)
	left := 118.0
	if d.small {
		left = 46
	}
	x := scale{lo: 0, hi: max(c.at(c.last), 1e-9) * 1.005, from: left, to: d.w - 10}
	top := d.h + 2
	y := top
	if len(p.Boots) > 0 {
		y = d.laneName("starts", left, y)
		d.boots(p.Boots, c, x, y)
		y += 24
	}
	for _, l := range lanes {
		y = d.laneName(l.name, left, y)
		d.lane(l, c, x, y)
		y += 20
	}
	y = d.panel("memory, GB/s", p.Trials, c, x, y, "s2", func(m Mark) float64 { return m.Bandwidth })
	if l := p.steady(lanes); l != nil {
		y = d.panel(l.name+", tok/s", l.marks, c, x, y, "s0", func(m Mark) float64 { return m.TokS })
	}
	d.h = d.xAxis(x, top, y, c.name+" since the beginning", short)
}

// steady is the lane whose speed shows how the machine's moves: the baseline, or if that was not measured the best plain decoding; nil if
// neither was.
func (p *page) steady(lanes []lane) *lane {
	for _, name := range []string{p.result.Baseline, p.result.BestPlain} {
		for i := range lanes {
			if lanes[i].name == name {
				return &lanes[i]
			}
		}
	}
	return nil
}

func (d *drawing) timelineLegend(p *page, lanes []lane) {
	var samples []sample
	if len(p.Boots) > 0 {
		samples = append(samples,
			sample{"server starting", func(d *drawing, x, y float64) { d.rect("starting", x, y-6, 14, 12) }},
			sample{"ready", func(d *drawing, x, y float64) { d.rect("ready", x, y-6, 14, 12) }})
		if slices.ContainsFunc(p.Boots, func(b trial.Boot) bool { return b.Cause != "" }) {
			samples = append(samples, sample{"start failed", func(d *drawing, x, y float64) { d.failure(x+7, y) }})
		}
	}
	for _, s := range stages {
		if slices.ContainsFunc(p.Trials, func(m Mark) bool { return m.Stage == s.stage }) {
			samples = append(samples, sample{string(s.stage), func(d *drawing, x, y float64) { d.rect("trial "+s.class, x+2, y-6, 9, 12) }})
		}
	}
	if slices.ContainsFunc(p.Trials, func(m Mark) bool { return m.Failed }) {
		samples = append(samples, sample{"request failed", func(d *drawing, x, y float64) { d.failure(x+7, y) }})
	}
	d.legend(samples)
}

// laneName names a lane beside it, or above it on a narrow page, and returns where the lane begins.
func (d *drawing) laneName(name string, left, y float64) float64 {
	if d.small {
		d.text("small", 4, y+12, start, fit(name, smallSize, d.w-8))
		return y + 16
	}
	d.text("small", left-8, y+13, end, fit(name, smallSize, left-12))
	return y
}

// boots draws the starts of the server: a light part until it was ready, a solid one until it ended, a cross for a failure.
func (d *drawing) boots(boots []trial.Boot, c clock, x scale, y float64) {
	for i := range boots {
		b := &boots[i]
		if b.Started.IsZero() {
			continue
		}
		ended := b.Ended
		if ended.IsZero() {
			ended = c.last
		}
		from, to := x.at(c.at(b.Started)), x.at(c.at(ended))
		turn := to
		if ready := readyAt(b); !ready.IsZero() {
			turn = min(max(x.at(c.at(ready)), from), to)
		}
		d.rect("starting", from, y+2, max(turn-from, 1), 16)
		d.rect("ready", turn, y+2, to-turn, 16)
		if label := fmt.Sprint(b.ID); textWidth(label, smallSize)+4 < to-turn {
			d.text("inside", (turn+to)/2, y+14, middle, label)
		}
		if b.Cause != "" {
			d.failure((from+to)/2, y+10)
		}
	}
}

// readyAt is when a server was ready, zero if it never was.
func readyAt(b *trial.Boot) time.Time {
	if b.ReadyS <= 0 || b.Started.IsZero() || b.ReadyS > 1e7 {
		return time.Time{}
	}
	return b.Started.Add(time.Duration(b.ReadyS * float64(time.Second)))
}

// failure draws a cross.
func (d *drawing) failure(x, y float64) {
	p := new(path)
	p.to("M", x-4.5, y-4.5)
	p.to("L", x+4.5, y+4.5)
	p.to("M", x-4.5, y+4.5)
	p.to("L", x+4.5, y-4.5)
	d.path("failed", p)
}

// lane draws the trials of an arm; of those that fall on the same pixels, one.
func (d *drawing) lane(l lane, c clock, x scale, y float64) {
	d.line("lane", x.from, y+10, x.to, y+10)
	for _, s := range stages {
		p, reach := new(path), math.Inf(-1)
		for _, m := range l.marks {
			from := x.at(c.at(m.Start))
			to := max(x.at(c.at(m.End)), from+1.2)
			if m.Stage != s.stage || m.Failed || to <= reach+0.4 {
				continue
			}
			reach = to
			polygon(p, from, y+4, to, y+4, to, y+16, from, y+16)
		}
		d.path("trial "+s.class, p)
	}
	reach := math.Inf(-1)
	for _, m := range l.marks {
		if at := x.at(c.at(m.Start)); m.Failed && at > reach+3 {
			d.failure(at, y+10)
			reach = at
		}
	}
}

// panel draws a quantity of trials over time: in each few pixels the range, and a line through the medians. It returns where it ends, the
// place where it would have begun if nothing is known.
func (d *drawing) panel(name string, marks []Mark, c clock, x scale, y float64, class string, of func(Mark) float64) float64 {
	const binPixels, height, apart = 5, 84, 6 // bins that are further apart are not joined
	bins := map[int][]float64{}
	for _, m := range marks {
		if v := of(m); v > 0 && !math.IsInf(v, 0) {
			k := int(x.at(c.at(m.Start)) / binPixels)
			bins[k] = append(bins[k], v)
		}
	}
	if len(bins) == 0 {
		return y
	}
	var keys []int
	var all []float64
	for k, xs := range bins {
		keys, all = append(keys, k), append(all, xs...)
	}
	slices.Sort(keys)
	y = y + 8
	d.text("small", 4, y+12, start, fit(name, smallSize, d.w-8))
	top := y + 20
	s := linear(all, top+height, top)
	d.yAxis(s, x.from, x.to, 4, short)
	medians, ranges := new(path), new(path)
	for i, k := range keys {
		at, xs := (float64(k)+0.5)*binPixels, bins[k]
		command := "L"
		if i == 0 || k-keys[i-1] > apart {
			command = "M"
		}
		medians.to(command, at, s.at(stats.Median(xs)))
		ranges.to("M", at, s.at(slices.Min(xs)))
		ranges.to("V", s.at(slices.Max(xs)))
	}
	d.path("range "+class, ranges)
	d.path("series thin "+class, medians)
	for _, k := range keys {
		d.mark("mark "+class, 0, (float64(k)+0.5)*binPixels, s.at(stats.Median(bins[k])), 1.8)
	}
	return top + height + 4
}

// bootRows are the starts of the server as a table.
func bootRows(boots []trial.Boot) *table {
	if len(boots) == 0 {
		return nil
	}
	t := &table{Caption: "Starts of the server", Columns: []column{{"start", true}, {"name", false}, {"began", false}, {"ready after", true}, {"what happened", false}}}
	for i := range boots {
		b := &boots[i]
		happened := "ran"
		if b.Cause != "" {
			happened = strings.TrimSuffix("FAILED: "+b.Cause+": "+b.Detail, ": ")
		}
		ready := "never"
		if b.ReadyS > 0 {
			ready = seconds(b.ReadyS)
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(b.ID), b.Name, moment(b.Started), ready, happened})
	}
	return t
}
