package report

import (
	"draftlab/lab/campaign"
	"fmt"
	"slices"
	"strings"
)

// lines is the number of arms that a chart of lines tells apart; the table has all.
const lines = 8

// curve is the acceptance of an arm by position.
type curve struct {
	arm    string
	shares []float64 // of cycles in which the drafts up to a position were all accepted
	campaign.Acceptance
}

func (p *page) curves() (out []curve) {
	for i := range p.result.Arms {
		name := p.result.Arms[i].Name
		if a := p.result.Acceptance[name]; len(a.Survival) > 0 {
			out = append(out, curve{name, a.Survival, a})
		}
	}
	return out
}

// accepted is the chart of acceptance by position.
func (p *page) accepted() *figure {
	cs := p.curves()
	if len(cs) == 0 {
		return nil
	}
	deepest := 0
	for _, c := range cs {
		deepest = max(deepest, len(c.shares))
	}
	f := &figure{ID: "acceptance", Title: "Acceptance by position", Desc: acceptedWords(cs)}
	f.Table = &table{Caption: "Share of cycles in which all drafts up to a position were accepted", Columns: []column{{"arm", false}, {"accept length", true}, {"cycles", true}}}
	for k := range deepest {
		f.Table.Columns = append(f.Table.Columns, column{fmt.Sprintf("position %d", k+1), true})
	}
	for _, c := range cs {
		row := []string{c.arm, fmt.Sprintf("%.2f", c.AcceptLength), fmt.Sprint(c.Cycles)}
		for k := range deepest {
			cell := ""
			if k < len(c.shares) {
				cell = percent(c.shares[k])
			}
			row = append(row, cell)
		}
		f.Table.Rows = append(f.Table.Rows, row)
	}
	shown := slices.Clone(cs)
	slices.SortStableFunc(shown, func(a, b curve) int { return len(b.shares) - len(a.shares) })
	if len(shown) > lines {
		f.Note = fmt.Sprintf("The chart has the %d deepest of %d arms; the table has all.", lines, len(shown))
		shown = shown[:lines]
	}
	f.draw(func(d *drawing) { drawAccepted(d, shown, deepest) })
	return f
}

func acceptedWords(cs []curve) string {
	var said []string
	for _, c := range cs {
		said = append(said, fmt.Sprintf("%s %s at position 1, accept length %.2f", c.arm, percent(c.shares[0]), c.AcceptLength))
	}
	if len(said) > 4 {
		said = append(said[:4], fmt.Sprintf("and %d more in the table", len(said)-4))
	}
	return strings.Join(said, "; ") + "."
}

func drawAccepted(d *drawing, cs []curve, deepest int) {
	var samples []sample
	for i, c := range cs {
		samples = append(samples, sample{c.arm, func(d *drawing, x, y float64) {
			d.line("series "+series(i), x, y, x+16, y)
			d.mark("mark "+series(i), i, x+8, y, 4)
		}})
	}
	d.legend(samples)
	top := d.h + 8
	s := scale{lo: 0, hi: 1, from: top + 220, to: top}
	x := scale{lo: 0.75, hi: float64(deepest) + 0.25, from: 46, to: d.w - 10}
	d.yAxis(s, x.from, x.to, 5, percent)
	for k := 1; k <= deepest; k++ {
		if d.small && deepest > 12 && k%4 != 1 {
			continue
		}
		d.text("small", x.at(float64(k)), s.from+15, middle, fmt.Sprint(k))
	}
	d.text("small", (x.from+x.to)/2, s.from+31, middle, "position of the draft")
	for i := len(cs) - 1; i >= 0; i-- { // the first is drawn last, on top
		p := new(path)
		for k, share := range cs[i].shares {
			command := "L"
			if k == 0 {
				command = "M"
			}
			p.to(command, x.at(float64(k+1)), s.at(min(max(share, 0), 1)))
		}
		d.path("series "+series(i), p)
		for k, share := range cs[i].shares {
			d.mark("mark "+series(i), i, x.at(float64(k+1)), s.at(min(max(share, 0), 1)), 4)
		}
	}
	d.h = s.from + 38
}

// series is the class of the colour of a series.
func series(i int) string { return fmt.Sprintf("s%d", i%lines) }
