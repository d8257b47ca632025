package main

import (
	"fmt"
	"io"
	"strings"

	"draftlab/internal/ui"
	"draftlab/lab/enginelog"
)

// logLine is the state of one rank in a line.
func logLine(r *enginelog.Report, g *enginelog.Group) string {
	words := []string{r.Last}
	add := func(name string, d *enginelog.Dist, format string) {
		if d != nil {
			words = append(words, name+" "+fmt.Sprintf(format, d.P50))
		}
	}
	if g.Ranks != "" {
		words = append(words, g.Ranks)
	}
	add("accept length", g.AcceptLength, "%.2f")
	add("tok/s", g.Throughput, "%.1f")
	add("cycle", g.Cycle, "%.2f ms")
	add("plain step", g.Plain, "%.2f ms")
	add("running", g.Running, "%.0f")
	add("queue", r.Pressure.Queue, "%.0f")
	words = append(words, fmt.Sprintf("%d lines", g.Lines))
	return ui.Clean(strings.Join(words, "  "))
}

// printLog writes what a log shows, for people.
func printLog(w io.Writer, width int, r *enginelog.Report) error {
	engine := r.Engine
	if engine == "" {
		engine = "no known engine's"
	}
	fmt.Fprintf(w, "%s log, %d lines: %d read, %d of no known kind, %d damaged", engine, r.Lines.Total, r.Lines.Read, r.Lines.Other, r.Lines.Damaged)
	if r.First != "" {
		fmt.Fprintf(w, "; %s to %s", r.First, r.Last)
	}
	fmt.Fprintln(w)
	for _, part := range []func() error{
		func() error { return printDecode(w, width, r) },
		func() error { return printPressure(w, r) },
		func() error { return printBoots(w, width, r) },
		func() error { return printMessages(w, width, r) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range r.Warnings {
		fmt.Fprintln(w, "warning: "+ui.Clean(text))
	}
	return nil
}

// printDecode writes the figures of decoding by rank.
func printDecode(w io.Writer, width int, r *enginelog.Report) error {
	var rows [][]string
	for _, g := range r.Decode {
		add := func(name, format string, d *enginelog.Dist) {
			if d != nil {
				cell := func(x float64) string { return fmt.Sprintf(format, x) }
				rows = append(rows, []string{g.Ranks, name, cell(d.P10), cell(d.P50), cell(d.P90), cell(d.P99), fmt.Sprint(d.N)})
			}
		}
		add("accept length", "%.2f", g.AcceptLength)
		for _, reach := range g.ByContext {
			if len(g.ByContext) > 1 {
				add(fmt.Sprintf("  context up to %d", reach.UpTo), "%.2f", reach.AcceptLength)
			}
		}
		add("throughput, tok/s", "%.1f", g.Throughput)
		add("running requests", "%.1f", g.Running)
		add("cycle, ms", "%.2f", g.Cycle)
		add("plain step, ms", "%.2f", g.Plain)
		add("iteration, ms", "%.2f", g.Iteration)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no line about decoding")
		return err
	}
	fmt.Fprintln(w)
	columns := []ui.Column{{Head: "RANK"}, {Head: "DECODING"}, {Head: "P10", Right: true}, {Head: "P50", Right: true}, {Head: "P90", Right: true}, {Head: "P99", Right: true}, {Head: "LINES", Right: true}}
	if len(r.Decode) == 1 && r.Decode[0].Ranks == "" {
		columns = columns[1:]
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	return ui.Table(w, width, columns, rows)
}

// printPressure writes how full the server was.
func printPressure(w io.Writer, r *enginelog.Report) error {
	fmt.Fprintln(w)
	for _, g := range r.Decode {
		name := strings.TrimSpace("decode lines " + g.Ranks)
		if r.Engine == "llama.cpp" {
			fmt.Fprintf(w, "answers: %d\n", g.Lines)
		} else if g.Lines > 0 {
			fmt.Fprintf(w, "%s: %d, of which %d follow a rest", ui.Clean(name), g.Lines, g.AfterRest)
			if g.GraphStated > 0 {
				fmt.Fprintf(w, "; without a CUDA graph: %d of %d that say so", g.WithoutGraph, g.GraphStated)
			}
			fmt.Fprintln(w)
		}
	}
	if p := r.Prefill; p != nil {
		fmt.Fprintf(w, "prefill: %d lines, %.0f new and %.0f cached tokens (%.1f %% from the cache)\n", p.Lines, p.New, p.Cached, 100*p.HitRate)
	}
	if q := r.Pressure.Queue; q != nil {
		fmt.Fprintf(w, "queue: median %.0f, most %.0f, in %d of %d lines; retractions %d, preemptions %d\n", q.P50, q.Max, r.Pressure.WithQueue, q.N, r.Pressure.Retracted, r.Pressure.Preempted)
	}
	if u := r.Pressure.Usage; u != nil {
		fmt.Fprintf(w, "key/value memory in use: median %.1f %%, most %.1f %%\n", 100*u.P50, 100*u.Max)
	}
	return nil
}

// printBoots writes the start-ups.
func printBoots(w io.Writer, width int, r *enginelog.Report) error {
	for i, b := range r.Boots {
		var rows [][]string
		for _, s := range b.Milestones {
			rows = append(rows, []string{s.Name, duration(s.At), duration(s.Since), duration(s.Took), fmt.Sprint(s.Count), fmt.Sprint(s.Line)})
		}
		ready := "did not become ready"
		if b.Ready != nil {
			ready = "ready after " + duration(b.Ready)
		}
		fmt.Fprintf(w, "\nstart %d of %d: %s\n", i+1, len(r.Boots), ready)
		if err := ui.Table(w, width, []ui.Column{{Head: "START-UP"}, {Head: "AT", Right: true}, {Head: "SINCE THE LAST", Right: true}, {Head: "AS REPORTED", Right: true}, {Head: "TIMES", Right: true}, {Head: "LINE", Right: true}}, rows); err != nil {
			return err
		}
	}
	return nil
}

// duration writes seconds that may be missing.
func duration(s *float64) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.1f s", *s)
}

// printMessages writes faults, notices and requests.
func printMessages(w io.Writer, width int, r *enginelog.Report) error {
	var rows [][]string
	for _, list := range []struct {
		kind string
		of   []enginelog.Message
	}{{"fault", r.Faults}, {"notice", r.Notices}} {
		for _, m := range list.of {
			rows = append(rows, []string{list.kind + ": " + m.Name, fmt.Sprint(m.Count), fmt.Sprint(m.Line), shorten(m.Text, 100)})
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := ui.Table(w, width, []ui.Column{{Head: "WHAT"}, {Head: "TIMES", Right: true}, {Head: "LINE", Right: true}, {Head: "TEXT"}}, rows); err != nil {
			return err
		}
	}
	rows = nil
	for _, q := range r.Requests {
		rows = append(rows, []string{shorten(q.Request, 60), fmt.Sprint(q.Status), fmt.Sprint(q.Count)})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return ui.Table(w, width, []ui.Column{{Head: "REQUEST"}, {Head: "STATUS", Right: true}, {Head: "TIMES", Right: true}}, rows)
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
