// Package report makes one HTML page of a campaign: [Read] collects what a campaign's directory holds, and [Write] renders it. The page
// stands alone: it asks for nothing from anywhere, runs no script, and each chart has its figures in words and in a table.
//
// A report is a function of what is stored: it measures nothing, and what it says beyond stored figures is lab/explain's. A part whose
// data is absent becomes a sentence that says so. Names and lines of logs come from servers and files and are not trusted.
package report

import (
	"bytes"
	"draftlab/lab/campaign"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html style.css
var files embed.FS

// page is a report in the making.
type page struct {
	*Data
	*result
}

// document is what the template renders.
type document struct {
	Title    string
	Headline string
	Style    template.CSS
	Facts    []fact
	Sections []section
	Foot     string
}

// fact is a key figure.
type fact struct{ Name, Value, Note string }

// section is a part of the page. Whatever is empty is left out.
type section struct {
	ID, Title string
	Text      []string
	Notes     []string // a list
	Figures   []*figure
	Entries   []entry
	Tables    []*table
	Code      []code
}

// figure is a chart in two sizes with its text equivalents.
type figure struct {
	ID, Title, Desc, Note string
	Pictures              []template.HTML
	Table                 *table
}

// draw draws the figure in each format.
func (f *figure) draw(paint func(d *drawing)) {
	for _, size := range []format{wide, narrow} {
		d := &drawing{format: size}
		paint(d)
		f.Pictures = append(f.Pictures, d.finish(f.ID, f.Title, f.Desc))
	}
}

// table is a table of texts.
type table struct {
	Caption string
	Columns []column
	Rows    [][]string
	Closed  bool // shown only when it is opened, and in print not at all
}

type column struct {
	Name   string
	Number bool
}

// entry is a finding or a verdict.
type entry struct {
	Mark, Class, Title, Code string
	Pairs                    [][2]string
}

// code is text to copy.
type code struct{ Title, Text string }

// Write renders the report. The same data give the same bytes.
func Write(w io.Writer, d *Data) error {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	t, err := template.New("page.html").ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	p := &page{d, d.result}
	doc := p.document()
	doc.Style = template.CSS(style)
	var b bytes.Buffer
	if err := t.Execute(&b, doc); err != nil {
		return err
	}
	_, err = io.WriteString(w, clean(b.String()))
	return err
}

func (p *page) document() *document {
	return &document{
		Title: "draftlab report: " + p.headlineShort(), Headline: p.headline(), Facts: p.facts(), Foot: p.foot(),
		Sections: []section{
			p.doubts(), p.speedSection(), p.cycleSection(), p.acceptanceSection(), p.verifySection(), p.findings(), p.predictions(),
			p.timelineSection(), p.verdicts(), p.environment(), p.reproduce(),
		},
	}
}

// part is a section of one chart, or of a sentence in the place of it.
func part(id, title string, f *figure, text, absent string) section {
	s := section{ID: id, Title: title}
	if f == nil {
		s.Text = []string{absent}
		return s
	}
	s.Text, s.Figures = []string{text}, []*figure{f}
	return s
}

func (p *page) speedSection() section {
	s := part("speed", "Speed", p.speedups(), p.compared(),
		"No arm was compared with plain decoding, so there are no speed-ups to show.")
	if f := p.throughput(); f != nil {
		s.Figures = append(s.Figures, f)
	} else {
		s.Text = append(s.Text, "No output was long enough to have a speed.")
	}
	r := p.result
	var passed []string
	for i := range r.Arms {
		if a := &r.Arms[i]; a.Decided == campaign.Unmeasured {
			passed = append(passed, a.Name)
		}
	}
	if len(passed) > 0 {
		s.Text = append(s.Text, "Not measured, as the search passed them over or the time was up: "+strings.Join(passed, ", ")+".")
	}
	if r.Objective.Concurrency > 1 {
		s.Text = append(s.Text, fmt.Sprintf("%d requests ran at once; tokens a second are those of one request.", r.Objective.Concurrency))
	}
	if r.Plan.DetectableEffect > 0 {
		s.Text = append(s.Text, fmt.Sprintf("With %d readings of each arm, scattered as these were (by %s), an effect of %s or more is found by 80 of 100 such campaigns.", r.Plan.Pairs, percent(r.Plan.CV), finePercent(r.Plan.DetectableEffect)))
	}
	return s
}

// compared says how arms were compared with plain decoding.
func (p *page) compared() string {
	paired, boots := false, false
	for _, a := range p.result.Arms {
		if r := same(a.Speedup); r != nil {
			paired, boots = paired || r.Method != "boots", boots || r.Method == "boots"
		}
	}
	const beside = "ran beside plain decoding on the same prompts, in pairs; the ratio of the two is what counts, as it holds where the machine's speed drifts."
	const apart = "a server of its own and saw the same prompts there as plain decoding on its servers: prompts and starts of servers both count as observations."
	switch {
	case paired && boots:
		return "Where one server decodes both ways, an arm " + beside + " Every other arm had " + apart
	case boots:
		return "Each arm had " + apart
	}
	return "Each arm " + beside
}

func (p *page) cycleSection() section {
	return part("cycle", "Where a cycle's time goes", p.cycles(), "A cycle is draft, verify, accept and draft_extend; one that drafts nothing is a decode step. Means of the server's own ledger.",
		"The server keeps no ledger of its phases, so that where a cycle's time went is not known.")
}

func (p *page) acceptanceSection() section {
	return part("accepted", "Acceptance", p.accepted(), "The share of cycles in which the drafts up to a position were all accepted. An accept length is one, for the target's own token, plus these shares.",
		"No arm's server told how many drafts were accepted at each position.")
}

func (p *page) verifySection() section {
	s := part("verification", "What a draft costs", p.verification(), "A verification reads the weights once, however many drafts it checks, and then costs something for each row. The times are verify's shares of cycles as long as the paired speed-ups imply, so that the machine's drift does not bend them.",
		"Verify times of two row counts are needed for a line, and this campaign has none.")
	if t := p.chains(); t != nil {
		s.Tables = append(s.Tables, t)
	}
	return s
}

// foot says what the page was made of.
func (p *page) foot() string {
	return fmt.Sprintf("Made of %s, %s and %s of %s. It asks for nothing from the network and runs no script.", count(len(p.Trials), "trial"), count(len(p.Boots), "start"), count(len(p.Verdicts), "verdict"), p.Source)
}
