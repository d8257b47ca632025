package main

import (
	"fmt"
	"io"
	"strings"

	"draftlab/internal/ui"
	"draftlab/lab/profile"
)

// barWidth is the width of a full bar in characters: the table then fits into 80 columns.
const barWidth = 20

// profileLine is the state in a line.
func profileLine(r *profile.Report) string {
	words := []string{fmt.Sprintf("%.1f s", r.Seconds), r.Engine}
	add := func(format string, x *float64) {
		if x != nil {
			words = append(words, fmt.Sprintf(format, *x))
		}
	}
	if n := cyclesOf(r); n != "" {
		words = append(words, n)
	}
	add("accept length %.2f", r.AcceptLength)
	if even := breakEven(r); even > 0 {
		words = append(words, fmt.Sprintf("break-even %.2f", even))
	}
	add("%.1f tok/s", r.TokS)
	if r.Cycle != nil {
		add("cycle %.2f ms", r.Cycle.MeanMs)
	}
	for _, p := range r.Phases {
		words = append(words, fmt.Sprintf("%s %.1f %%", p.Name, 100*p.Share))
	}
	if len(words) == 3 && r.BusySeconds != nil && *r.BusySeconds == 0 {
		words = append(words, "idle")
	}
	return ui.Clean(strings.Join(words, "  "))
}

// cyclesOf counts cycles, or those of sequences where the server has no others.
func cyclesOf(r *profile.Report) string {
	switch {
	case r.Cycles != nil:
		return fmt.Sprintf("%d cycles", *r.Cycles)
	case r.SeqCycles != nil:
		return fmt.Sprintf("%d cycles of sequences", *r.SeqCycles)
	}
	return ""
}

// breakEven is the accept length at which speculation pays, 0 if unknown.
func breakEven(r *profile.Report) float64 {
	for _, l := range r.WhatIf {
		if l.Name == "break-even" && l.Missing == "" {
			return l.Numbers["accept_length"]
		}
	}
	return 0
}

// printPhases writes what changes while a server is watched.
func printPhases(w io.Writer, width int, r *profile.Report) error {
	head := []string{r.Engine + " at " + r.URL}
	if n := cyclesOf(r); n != "" {
		head = append(head, n)
	}
	head = append(head, fmt.Sprintf("%.1f s", r.Seconds))
	if r.BusySeconds != nil {
		head = append(head, fmt.Sprintf("%.1f s busy", *r.BusySeconds))
	}
	fmt.Fprintln(w, ui.Clean(strings.Join(head, ", ")))
	var rows [][]string
	for _, p := range r.Phases {
		rows = append(rows, phaseRow(&p, width > 0))
	}
	if r.Cycle != nil {
		all := phaseRow(r.Cycle, width > 0)
		all[0], all[6] = "cycle", ""
		rows = append(rows, all)
	}
	if len(rows) > 0 {
		if err := ui.Table(w, width, []ui.Column{{Head: "PHASE"}, {Head: "P50", Right: true}, {Head: "P90", Right: true}, {Head: "P99", Right: true},
			{Head: "MEAN, MS", Right: true}, {Head: "SHARE", Right: true}, {Head: ""}}, rows); err != nil {
			return err
		}
	}
	var words []string
	add := func(format string, x *float64) {
		if x != nil {
			words = append(words, fmt.Sprintf(format, *x))
		}
	}
	add("accept length %.2f", r.AcceptLength)
	if even := breakEven(r); even > 0 {
		words = append(words, fmt.Sprintf("break-even %.2f", even))
	}
	if r.Cycles == nil { // a ledger's table has the phase
		add("plain step %.2f ms", r.PlainStepMs)
	}
	add("%.1f tok/s", r.TokS)
	if s := r.Shape; s != nil {
		words = append(words, fmt.Sprintf("steps %d, topk %d, draft tokens %d", s.Steps, s.TopK, s.DraftTokens))
	}
	add("batch %.1f", r.Batch)
	if len(words) == 0 {
		words = []string{"no request runs"}
	}
	_, err := fmt.Fprintln(w, strings.Join(words, "; "))
	return err
}

// phaseRow is a row of the table.
func phaseRow(p *profile.Phase, term bool) []string {
	ms := func(x *float64) string {
		if x == nil {
			return ""
		}
		return fmt.Sprintf("%.3f", *x)
	}
	return []string{p.Name, ms(p.P50Ms), ms(p.P90Ms), ms(p.P99Ms), ms(p.MeanMs), fmt.Sprintf("%.1f %%", 100*p.Share), ui.Bar(p.Share, barWidth, term)}
}

// printProfile writes a whole report for people.
func printProfile(w io.Writer, width int, r *profile.Report) error {
	if err := printPhases(w, width, r); err != nil {
		return err
	}
	if len(r.Other) > 0 {
		var parts []string
		for _, p := range r.Other {
			parts = append(parts, fmt.Sprintf("%s %.1f %%", p.Name, 100*p.Share))
		}
		fmt.Fprintln(w, "other: "+ui.Clean(strings.Join(parts, ", ")))
	}
	if len(r.WhatIf)+len(r.Missing)+len(r.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	if len(r.WhatIf) > 0 {
		fmt.Fprintf(w, "from %s:\n", r.Basis)
	}
	if err := printWhatIf(w, r.WhatIf); err != nil {
		return err
	}
	for _, text := range r.Missing {
		fmt.Fprintln(w, "missing: "+ui.Clean(text))
	}
	for _, text := range r.Warnings {
		fmt.Fprintln(w, "warning: "+ui.Clean(text))
	}
	return nil
}

// printWhatIf writes conclusions, each with what it lacks.
func printWhatIf(w io.Writer, lines []profile.Line) error {
	for _, l := range lines {
		text := l.Name + ": " + l.Text
		if l.Missing != "" {
			text += "; missing: " + l.Missing
		}
		if _, err := fmt.Fprintln(w, ui.Clean(text)); err != nil {
			return err
		}
	}
	return nil
}
