package report

import (
	"draftlab/lab/campaign"
	"fmt"
	"slices"
	"strings"
)

// cyclePhases are the known phases of a cycle in their order; each has a colour of its own in style.css.
var cyclePhases = []string{"decode", "draft", "verify", "accept", "draft_extend", "other"}

// perRequest reports the phases that are counted by the request, not by the cycle.
func perRequest(phase string) bool { return strings.HasPrefix(phase, "prefill") }

// phaseClass is the class of a phase's colour; phases that nobody foresaw share two.
func phaseClass(names []string, i int) string {
	if k := slices.Index(cyclePhases, names[i]); k >= 0 {
		return fmt.Sprintf("p%d", k)
	}
	return fmt.Sprintf("p%d", len(cyclePhases)+i%2)
}

// phaseNames are the phases that arms have, the known ones first.
func phaseNames(arms []*campaign.ArmResult) (cycle, request []string) {
	var others []string
	for _, a := range arms {
		for name := range a.Phases {
			if !slices.Contains(cyclePhases, name) && !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	for _, name := range append(slices.Clone(cyclePhases), others...) {
		used := slices.ContainsFunc(arms, func(a *campaign.ArmResult) bool { return a.Phases[name] > 0 })
		switch {
		case used && perRequest(name):
			request = append(request, name)
		case used:
			cycle = append(cycle, name)
		}
	}
	return cycle, request
}

// cycleMs is what a cycle of an arm takes by its phases.
func cycleMs(a *campaign.ArmResult) (ms float64) {
	for name, v := range a.Phases {
		if !perRequest(name) && v > 0 {
			ms += v
		}
	}
	return ms
}

// breakEven is the time of a cycle at which an arm would be as fast as plain decoding; false if that is unknown.
func (p *page) breakEven(a *campaign.ArmResult) (ms float64, known bool) {
	base := p.result.base(a)
	if base == nil || a.Plain() || !(a.Accept >= 1) {
		return 0, false
	}
	ms = cycleMs(base) * a.Accept
	return ms, ms > 0
}

// cycles is the chart of the phases of a cycle, stacked for each arm.
func (p *page) cycles() *figure {
	var arms []*campaign.ArmResult
	for i := range p.result.Arms {
		if a := &p.result.Arms[i]; cycleMs(a) > 0 {
			arms = append(arms, a)
		}
	}
	if len(arms) == 0 {
		return nil
	}
	names, request := phaseNames(arms)
	f := &figure{ID: "cycles", Title: "A cycle by phase", Desc: cyclesWords(arms, names)}
	f.Table = &table{Caption: "Milliseconds a cycle by phase, means of the server's ledger"}
	f.Table.Columns = []column{{"arm", false}}
	for _, name := range names {
		f.Table.Columns = append(f.Table.Columns, column{name, true})
	}
	f.Table.Columns = append(f.Table.Columns, column{"cycle", true}, column{"break-even", true})
	for _, name := range request {
		f.Table.Columns = append(f.Table.Columns, column{name + ", a request", true})
	}
	for _, a := range arms {
		row := []string{a.Name}
		for _, name := range names {
			row = append(row, figure3(a.Phases[name]))
		}
		row = append(row, figure3(cycleMs(a)), "")
		if ms, ok := p.breakEven(a); ok {
			row[len(row)-1] = figure3(ms)
		}
		for _, name := range request {
			row = append(row, figure3(a.Phases[name]))
		}
		f.Table.Rows = append(f.Table.Rows, row)
	}
	f.draw(func(d *drawing) { p.drawCycles(d, arms, names) })
	return f
}

func cyclesWords(arms []*campaign.ArmResult, names []string) string {
	longest := arms[0]
	for _, a := range arms {
		if cycleMs(a) > cycleMs(longest) {
			longest = a
		}
	}
	most := slices.MaxFunc(names, func(a, b string) int { return compare(longest.Phases[a], longest.Phases[b]) })
	return fmt.Sprintf("Stacked bars of %d arms. The longest cycle is that of %s, %s ms, of which %s takes %s ms.", len(arms), longest.Name, figure3(cycleMs(longest)), most, figure3(longest.Phases[most]))
}

func (p *page) drawCycles(d *drawing, arms []*campaign.ArmResult, names []string) {
	var samples []sample
	for i, name := range names {
		samples = append(samples, sample{name, func(d *drawing, x, y float64) { d.rect("phase "+phaseClass(names, i), x, y-6, 14, 12) }})
	}
	var all []float64
	var labels, values []string
	pays := false
	for _, a := range arms {
		all = append(all, cycleMs(a))
		labels, values = append(labels, a.Name), append(values, figure3(cycleMs(a))+" ms")
		if ms, ok := p.breakEven(a); ok {
			all, pays = append(all, min(ms, 3*cycleMs(a))), true
		}
	}
	if pays {
		samples = append(samples, sample{"break-even: a shorter cycle beats plain decoding", func(d *drawing, x, y float64) { d.goal(x+7, y-8, y+8) }})
	}
	d.legend(samples)
	r := newRows(d, labels, values, 22)
	s := linear(all, r.from, r.to)
	bottom := d.xAxis(s, r.top, r.bottom(len(arms)), "milliseconds a cycle", short)
	for i, a := range arms {
		class := ""
		if a.Name == p.result.best() {
			class = "strong"
		}
		y, sum := r.row(i, labels[i], values[i], class), 0.0
		for k, name := range names {
			ms := max(a.Phases[name], 0)
			x, w := s.at(sum), s.at(sum+ms)-s.at(sum)
			d.rect("phase "+phaseClass(names, k), x, y-11, w, 22)
			if textWidth(name, smallSize)+6 < w {
				d.text("inside", x+w/2, y+4, middle, name)
			}
			sum += ms
		}
		if ms, ok := p.breakEven(a); ok && s.holds(ms) {
			d.goal(s.at(ms), y-14, y+14)
		}
	}
	d.h = bottom
}

// goal draws a mark that a bar should stay below.
func (d *drawing) goal(x, top, bottom float64) {
	d.line("goal-halo", x, top, x, bottom)
	d.line("goal", x, top, x, bottom)
}
