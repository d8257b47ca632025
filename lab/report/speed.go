package report

import (
	"fmt"
	"math"
	"slices"

	"draftlab/lab/campaign"
	"draftlab/lab/trial"
)

// contender is a row of the chart of speed-ups.
type contender struct {
	name      string
	measured  *campaign.Ratio // over plain decoding in the same environment; of plain decoding in another one, over the baseline
	overall   *campaign.Ratio // over the best plain decoding, where that is another one
	predicted *trial.Prediction
	best      bool
	again     bool // the confirm run
	decided   string
}

// contenders are the arms that were compared or predicted, and the confirm run.
func (p *page) contenders() (out []contender) {
	r := p.result
	for i := range r.Arms {
		a := &r.Arms[i]
		c := contender{name: a.Name, measured: same(a.Speedup), overall: p.overall(a, a.Speedup), predicted: p.predicted(a.Name, "speedup"), best: a.Name == r.best(), decided: a.Decided}
		if a.Plain() {
			c.measured = a.Effect
		}
		if c.measured != nil || c.predicted != nil || c.overall != nil {
			out = append(out, c)
		}
	}
	for c := r.Confirm; c != nil; c = c.Rival {
		if decisive(c.Speedup) == nil {
			continue
		}
		again := contender{name: c.Arm + ", confirm run", measured: same(c.Speedup), best: c.Arm == r.best(), again: true}
		if a := r.arm(c.Arm); a != nil {
			again.overall = p.overall(a, c.Speedup)
		}
		out = append(out, again)
	}
	return out
}

// overall is a speed-up over the best plain decoding, nil if that is the arm's own baseline.
func (p *page) overall(a *campaign.ArmResult, s *campaign.Speedup) *campaign.Ratio {
	if base := p.result.base(a); s == nil || p.result.BestPlain == "" || (base != nil && base.Name == p.result.BestPlain) {
		return nil
	}
	return s.BestPlain
}

// predicted returns the last prediction of a quantity of an arm, nil if there is none.
func (p *page) predicted(arm, quantity string) (found *trial.Prediction) {
	for i := range p.Predictions {
		if q := &p.Predictions[i]; q.Arm == arm && q.Quantity == quantity {
			found = q
		}
	}
	return found
}

// speedups is the chart of speed-ups with their intervals, predictions below them.
func (p *page) speedups() *figure {
	cs := p.contenders()
	if len(cs) == 0 {
		return nil
	}
	f := &figure{ID: "speedups", Title: "Speed-up over plain decoding", Desc: p.speedupWords(cs)}
	f.Table = &table{Caption: "Speed-up over plain decoding in the same environment; of plain decoding in another one, over the baseline", Columns: []column{{"arm", false}, {"speed-up", true}, {"interval", true}, {"pairs", true}, {"predicted", true}, {"its interval", true}}}
	best := "over " + p.result.BestPlain
	has := kinds(cs)
	if has.overall {
		f.Table.Columns = append(f.Table.Columns, column{best, true}, column{"its interval", true})
	}
	if has.decided {
		f.Table.Columns = append(f.Table.Columns, column{"measured", false})
	}
	for _, c := range cs {
		row := []string{c.name, "", "", "", "", ""}
		if c.measured != nil {
			row[1], row[2], row[3] = times(c.measured.Estimate), between(c.measured.Low, c.measured.High, 2), fmt.Sprint(c.measured.Pairs)
		}
		if c.predicted != nil {
			row[4], row[5] = times(c.predicted.Estimate), between(c.predicted.Low, c.predicted.High, 2)
		}
		switch {
		case has.overall && c.overall != nil:
			row = append(row, times(c.overall.Estimate), between(c.overall.Low, c.overall.High, 2))
		case has.overall:
			row = append(row, "", "")
		}
		if has.decided {
			row = append(row, c.decided)
		}
		f.Table.Rows = append(f.Table.Rows, row)
	}
	f.draw(func(d *drawing) { drawSpeedups(d, cs, best) })
	return f
}

func (p *page) speedupWords(cs []contender) string {
	best, faster, slower := cs[0], 0, 0
	for _, c := range cs {
		if c.measured == nil {
			continue
		}
		if best.measured == nil || c.measured.Estimate > best.measured.Estimate {
			best = c
		}
		if c.measured.Low != nil && *c.measured.Low > 1 {
			faster++
		}
		if c.measured.High != nil && *c.measured.High < 1 {
			slower++
		}
	}
	if best.measured == nil {
		return fmt.Sprintf("Predictions of %s, none of which was measured.", count(len(cs), "arm"))
	}
	return fmt.Sprintf("%s. The highest is %s at %s. The whole interval lies above 1 in %d of them and below 1 in %d.", count(len(cs), "row"), best.name, ratioWords(best.measured), faster, slower)
}

// has says what the rows of the chart of speed-ups have.
type has struct{ overall, predicted, decided bool }

func kinds(cs []contender) (h has) {
	for _, c := range cs {
		h.overall = h.overall || c.overall != nil
		h.predicted = h.predicted || c.predicted != nil
		h.decided = h.decided || c.decided != ""
	}
	return h
}

// ratioScale is logarithmic, holds 1, all estimates, and intervals as far as they are not absurdly wide.
func ratioScale(cs []contender, from, to float64) scale {
	lo, hi := 0.9, 1.1
	take := func(v, least, most float64) {
		if v > 0 && !math.IsInf(v, 0) {
			lo, hi = min(lo, max(v, least)), max(hi, min(v, most))
		}
	}
	for _, c := range cs {
		for _, r := range c.both() {
			e := min(max(r.Estimate, 1e-3), 1e3)
			take(e, 1e-3, 1e3)
			if r.Low != nil && r.High != nil {
				take(*r.Low, e/4, e)
				take(*r.High, e, e*4)
			}
		}
	}
	return scale{lo: lo / 1.03, hi: hi * 1.03, from: from, to: to, log: true}
}

// kinds of marks in the chart of speed-ups: what each looks like.
var marks = []struct {
	class string
	shape int
}{{"s0", 0}, {"s3", 1}, {"s1", 2}}

// ratios are what was measured, what that is over the best plain decoding, and what was predicted; nil for none.
func (c *contender) ratios() []*campaign.Ratio {
	out := []*campaign.Ratio{c.measured, c.overall, nil}
	if q := c.predicted; q != nil {
		out[2] = &campaign.Ratio{Estimate: q.Estimate, Low: q.Low, High: q.High}
	}
	return out
}

// both are those of them that there are.
func (c *contender) both() []*campaign.Ratio {
	return slices.DeleteFunc(c.ratios(), func(r *campaign.Ratio) bool { return r == nil })
}

func drawSpeedups(d *drawing, cs []contender, best string) {
	h := kinds(cs)
	var samples []sample
	for i, text := range []string{"measured, with its interval", best, "predicted from other arms"} {
		if i == 0 || i == 1 && h.overall || i == 2 && h.predicted {
			samples = append(samples, sample{text, func(d *drawing, x, y float64) { d.interval(marks[i].class, marks[i].shape, x, x+14, x+7, y) }})
		}
	}
	d.legend(samples)
	var names, values []string
	most := 1
	for _, c := range cs {
		names, values = append(names, c.label()), append(values, c.value())
		most = max(most, len(c.both()))
	}
	const apart = 12.0 // between the marks of a row
	r := newRows(d, names, values, 2+apart*float64(most))
	s := ratioScale(cs, r.from, r.to)
	bottom := d.xAxis(s, r.top, r.bottom(len(cs)), "times plain decoding (logarithmic)", times)
	d.line("reference", s.at(1), r.top, s.at(1), r.bottom(len(cs)))
	for i, c := range cs {
		class := ""
		if c.best {
			class = "strong"
		}
		y := r.row(i, names[i], values[i], class) - apart*float64(len(c.both())-1)/2
		for k, q := range c.ratios() {
			if q != nil {
				d.ratio(marks[k].class, marks[k].shape, s, q, y)
				y += apart
			}
		}
	}
	d.h = bottom
}

// label is the name beside the chart: the winner has a star, and its confirm run stands last.
func (c *contender) label() string {
	name := c.name
	if c.again && c.best {
		name = "confirm run"
	}
	if c.best {
		return "★ " + name
	}
	return name
}

func (c *contender) value() string {
	switch {
	case c.measured != nil:
		return ratioBrief(c.measured)
	case c.overall != nil:
		return ratioBrief(c.overall)
	}
	return "not measured"
}

// ratio draws an estimate with its interval; an end beyond the scale has an arrow.
func (d *drawing) ratio(class string, shape int, s scale, r *campaign.Ratio, y float64) {
	if r.Low != nil && r.High != nil && *r.Low > 0 && *r.High > 0 {
		lo, hi := max(*r.Low, s.lo), min(*r.High, s.hi)
		d.line("interval "+class, s.at(lo), y, s.at(hi), y)
		d.cap(class, s.at(lo), y, lo == *r.Low, -1)
		d.cap(class, s.at(hi), y, hi == *r.High, 1)
	}
	if r.Estimate > 0 {
		d.mark("mark "+class, shape, s.at(min(max(r.Estimate, s.lo), s.hi)), y, 4.5)
	}
}

// cap ends an interval: a bar, or an arrow where it goes on beyond the scale.
func (d *drawing) cap(class string, x, y float64, ends bool, direction float64) {
	if ends {
		d.line("interval "+class, x, y-4, x, y+4)
		return
	}
	p := new(path)
	polygon(p, x+direction*6, y, x, y-4, x, y+4)
	d.path("mark "+class, p)
}

// interval draws a mark on an interval, for legends.
func (d *drawing) interval(class string, shape int, x1, x2, x, y float64) {
	d.line("interval "+class, x1, y, x2, y)
	d.mark("mark "+class, shape, x, y, 4.5)
}

// throughput is the chart of tokens a second, with the quartiles of single requests.
func (p *page) throughput() *figure {
	f := &figure{ID: "throughput", Title: "Output tokens a second"}
	f.Table = &table{Caption: "Output tokens a second after the first chunk, of single requests", Columns: []column{{"arm", false}, {"median, tok/s", true}, {"quartiles", true}, {"requests", true}, {"time to first token, ms", true}, {"cycle, ms", true}, {"outputs", false}}}
	var arms []*campaign.ArmResult
	for i := range p.result.Arms {
		a := &p.result.Arms[i]
		if a.TokS == nil {
			continue
		}
		arms = append(arms, a)
		f.Table.Rows = append(f.Table.Rows, []string{a.Name, figure3(a.TokS.Median), figure3(a.TokS.P25) + " – " + figure3(a.TokS.P75), fmt.Sprint(a.TokS.N), medianWords(a.TTFT), medianWords(a.Cycle), outputWords(a, p.result)})
	}
	if len(arms) == 0 {
		return nil
	}
	f.Desc = fmt.Sprintf("Median and quartiles of %d arms; %s.", len(arms), fastest(arms))
	f.draw(func(d *drawing) { p.drawThroughput(d, arms) })
	return f
}

func fastest(arms []*campaign.ArmResult) string {
	best := arms[0]
	for _, a := range arms {
		if a.TokS.Median > best.TokS.Median {
			best = a
		}
	}
	return fmt.Sprintf("the highest median is that of %s, %s tok/s", best.Name, figure3(best.TokS.Median))
}

// outputWords says whether an arm wrote what plain decoding did.
func outputWords(a *campaign.ArmResult, r *result) string {
	switch {
	case a.Failed > 0:
		return fmt.Sprintf("%d requests failed", a.Failed)
	case len(a.Different) > 0:
		return fmt.Sprintf("differ on %d prompts", len(a.Different))
	case a.Name == r.Baseline || a.Compared == 0:
		return ""
	}
	return "same as plain"
}

func (p *page) drawThroughput(d *drawing, arms []*campaign.ArmResult) {
	all, predicted := []float64{}, make([]*campaign.Ratio, len(arms))
	var names, values []string
	any := false
	for i, a := range arms {
		all = append(all, a.TokS.P75, a.TokS.Median)
		names, values = append(names, a.Name), append(values, figure3(a.TokS.Median)+" tok/s")
		if base := p.result.base(a); base != nil && base.TokS != nil {
			if q := p.predicted(a.Name, "speedup"); q != nil {
				r := scaled(q, base.TokS.Median)
				any, predicted[i], all = true, r, append(all, r.Estimate)
				if r.High != nil {
					all = append(all, min(*r.High, 2*r.Estimate))
				}
			}
		}
	}
	samples := []sample{{"median, with the quartiles of single requests", func(d *drawing, x, y float64) {
		d.rect("box s0", x, y-5, 14, 10)
		d.line("median", x+8, y-6, x+8, y+6)
	}}}
	if any {
		samples = append(samples, sample{"predicted speed-up times plain's median", func(d *drawing, x, y float64) { d.interval("s1", 2, x, x+14, x+7, y) }})
	}
	d.legend(samples)
	r := newRows(d, names, values, 20)
	s := linear(all, r.from, r.to)
	bottom := d.xAxis(s, r.top, r.bottom(len(arms)), "tokens a second", short)
	for i, a := range arms {
		class := ""
		if a.Name == p.result.best() {
			class = "strong"
		}
		y := r.row(i, names[i], values[i], class)
		d.rect("box s0", s.at(a.TokS.P25), y-7, s.at(a.TokS.P75)-s.at(a.TokS.P25), 14)
		d.line("median", s.at(a.TokS.Median), y-9, s.at(a.TokS.Median), y+9)
		if q := predicted[i]; q != nil {
			d.ratio("s1", 2, s, q, y)
		}
	}
	d.h = bottom
}

// scaled is a prediction times a number.
func scaled(q *trial.Prediction, by float64) *campaign.Ratio {
	r := &campaign.Ratio{Estimate: q.Estimate * by}
	if q.Low != nil && q.High != nil {
		low, high := *q.Low*by, *q.High*by
		r.Low, r.High = &low, &high
	}
	return r
}
