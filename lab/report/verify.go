package report

import (
	"fmt"
	"math"

	"draftlab/lab/explain"
)

// verifyPoint is what a verification of so many rows was measured to take.
type verifyPoint struct {
	shape    string
	rows, ms float64
}

// verification is the chart of verify time against rows with the fitted line, nil if fewer than two row counts were measured.
func (p *page) verification() *figure {
	e := p.Explanation
	if e == nil || e.CostModel.VerifyFixedMs == nil || e.CostModel.VerifyPerRowMs == nil {
		return nil
	}
	var points []verifyPoint
	for i := range e.Arms {
		if a := &e.Arms[i]; a.VerifyMs != nil {
			points = append(points, verifyPoint{a.Shape.String(), a.Rows(), *a.VerifyMs})
		}
	}
	if len(points) == 0 {
		return nil
	}
	c := &e.CostModel
	f := &figure{ID: "verify", Title: "What verification costs by its rows", Desc: fmt.Sprintf("%d configurations and a line: %s.", len(points), fitWords(c))}
	f.Table = &table{Caption: "Verify time a cycle, milliseconds", Columns: []column{{"configuration", false}, {"rows", true}, {"measured", true}, {"line", true}, {"off the line", true}}}
	for _, v := range points {
		line := *c.VerifyFixedMs + *c.VerifyPerRowMs*v.rows
		f.Table.Rows = append(f.Table.Rows, []string{v.shape, short(v.rows), figure3(v.ms), figure3(line), signedPercent(v.ms/line - 1)})
	}
	f.draw(func(d *drawing) { drawVerify(d, points, c) })
	return f
}

// fitWords says what the fit is.
func fitWords(c *explain.CostModel) string {
	text := fmt.Sprintf("verify takes %s ms", figure3(*c.VerifyFixedMs))
	text += ofInterval(c.VerifyFixedInterval) + fmt.Sprintf(" and %s ms", figure3(*c.VerifyPerRowMs)) + ofInterval(c.VerifyPerRowIntv) + " for each row"
	if c.InterceptOverPlain != nil {
		text += fmt.Sprintf("; its fixed part is %s", figure3(*c.InterceptOverPlain)) + ofInterval(c.InterceptInterval) + " plain steps"
	}
	return text
}

func ofInterval(i *explain.Interval) string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf(" (90 %%: %s – %s)", figure3(i[0]), figure3(i[1]))
}

func drawVerify(d *drawing, points []verifyPoint, c *explain.CostModel) {
	samples := []sample{
		{"measured", func(d *drawing, x, y float64) { d.mark("mark s0", 0, x+7, y, 4.5) }},
		{"fitted line", func(d *drawing, x, y float64) { d.line("series s1", x, y, x+16, y) }},
		{"a plain decoding step", func(d *drawing, x, y float64) { d.line("reference", x, y, x+16, y) }},
	}
	d.legend(samples)
	line := func(rows float64) float64 { return *c.VerifyFixedMs + *c.VerifyPerRowMs*rows }
	most, all := 1.0, []float64{c.PlainStepMs}
	for _, v := range points {
		most = max(most, v.rows)
		all = append(all, v.ms, line(v.rows))
	}
	top := d.h + 18
	s := linear(all, top+230, top)
	x := scale{lo: 0, hi: most * 1.08, from: 50, to: d.w - 12}
	d.yAxis(s, x.from, x.to, 5, func(v float64) string { return short(v) })
	bottom := d.xAxis(x, top, s.from, "rows of a verification", func(v float64) string {
		if v != math.Trunc(v) {
			return ""
		}
		return short(v)
	})
	d.text("small", x.from, top-4, start, "ms")
	d.line("reference", x.from, s.at(c.PlainStepMs), x.to, s.at(c.PlainStepMs))
	d.line("series s1", x.from, s.at(line(0)), x.to, s.at(line(x.hi)))
	for _, v := range points {
		d.line("stem s0", x.at(v.rows), s.at(v.ms), x.at(v.rows), s.at(line(v.rows)))
	}
	for _, v := range points {
		d.mark("mark s0", 0, x.at(v.rows), s.at(v.ms), 4.5)
	}
	d.h = bottom
}
