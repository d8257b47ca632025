package measure

import (
	"fmt"
	"io"
	"strings"
)

// width is that of the familiar table.
const width = 50

// sheet writes the familiar table and keeps the first error.
type sheet struct {
	w   io.Writer
	err error
}

func (t *sheet) line(text string) {
	if t.err == nil {
		_, t.err = io.WriteString(t.w, text+"\n")
	}
}

// rule writes a title in the middle of a line of marks.
func (t *sheet) rule(title, mark string) {
	left := (width - len(title)) / 2
	t.line(strings.Repeat(mark, max(left, 0)) + title + strings.Repeat(mark, max(width-len(title)-left, 0)))
}

func (t *sheet) count(name string, n int64)     { t.line(fmt.Sprintf("%-40s %-10d", name, n)) }
func (t *sheet) value(name string, v float64)   { t.line(fmt.Sprintf("%-40s %-10.2f", name, v)) }
func (t *sheet) word(name string, value string) { t.line(fmt.Sprintf("%-40s %-10s", name, value)) }

// WriteTable writes a run as the table that readers of vLLM's and SGLang's benchmarks know, with their names of rows.
func (s *Summary) WriteTable(w io.Writer) error {
	t := &sheet{w: w}
	t.rule(" Serving Benchmark Result ", "=")
	s.writeCounts(t)
	for _, d := range s.Distributions {
		if d.Name == "lag" && s.Plan.Rate == 0 {
			continue // a closed loop has no due times
		}
		short := strings.ToUpper(d.Name)
		t.rule(d.Title, "-")
		t.value("Mean "+short+" (ms):", d.Mean())
		for i, v := range d.Quantiles(.5, .9, .95, .99) {
			t.value([]string{"Median ", "P90 ", "P95 ", "P99 "}[i]+short+" (ms):", v)
		}
	}
	if a := s.Acceptance; a != nil {
		a.write(t)
	}
	t.line(strings.Repeat("=", width))
	return t.err
}

// writeCounts writes the rows before the distributions.
func (s *Summary) writeCounts(t *sheet) {
	elapsed := s.Tally.Elapsed
	t.word("Backend:", s.Backend)
	t.count("Successful requests:", s.Completed)
	t.count("Failed requests:", s.Failed)
	if s.Plan.Concurrency > 0 {
		t.count("Maximum request concurrency:", int64(s.Plan.Concurrency))
	}
	if s.Plan.Rate > 0 {
		t.value("Request rate configured (RPS):", s.Plan.Rate)
		t.count("Late starts:", s.Tally.Late)
		t.count("Dropped starts:", s.Tally.Dropped)
	}
	t.value("Benchmark duration (s):", elapsed.Seconds())
	t.count("Total input tokens:", s.Input)
	if s.Cached > 0 {
		t.count("Total cached input tokens:", s.Cached)
	}
	t.count("Total generated tokens:", s.Output)
	t.value("Request throughput (req/s):", rate(s.Completed, elapsed))
	if s.HasSLO {
		t.value("Request goodput (req/s):", rate(s.Good, elapsed))
	}
	t.value("Output token throughput (tok/s):", rate(s.Output, elapsed))
	if s.Steady.Span > 0 {
		t.value("Steady output throughput (tok/s):", s.Steady.TokS())
	}
	t.value("Peak output token throughput (tok/s):", float64(s.PeakTokS))
	t.count("Peak concurrent requests:", s.Tally.Peak)
	t.value("Total token throughput (tok/s):", rate(s.Input+s.Output, elapsed))
	t.value("Output speed per user (tok/s):", s.PerUser())
	if s.Speculation != "" {
		t.word("Speculative decoding:", s.Speculation)
	}
}

// write writes the section about drafts.
func (a *Acceptance) write(t *sheet) {
	t.rule("Speculative Decoding", "-")
	if a.Rate != nil {
		t.value("Acceptance rate (%):", 100*a.Rate.Value)
	}
	t.value("Acceptance length:", a.Length.Value)
	if a.Length.Low != nil {
		t.word("  95 % interval:", fmt.Sprintf("%.2f-%.2f", *a.Length.Low, *a.Length.High))
	}
	for _, r := range a.ByContext {
		t.value(fmt.Sprintf("  Context up to %d:", r.UpTo), r.Length.Value)
	}
	t.count("Drafts:", a.Cycles)
	t.count("Draft tokens:", a.Drafted)
	t.count("Accepted tokens:", a.Accepted)
	if len(a.Survival) > 0 {
		t.line("Per-position acceptance (%):")
	}
	for i, e := range a.Survival {
		t.value(fmt.Sprintf("  Position %d:", i), 100*e.Value)
	}
	for i, e := range a.Conditional {
		t.value(fmt.Sprintf("  Position %d, of those reached:", i), 100*e.Value)
	}
}
