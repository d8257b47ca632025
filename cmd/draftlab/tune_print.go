package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/campaign"
)

// printTuned writes the result in the form that was asked for, and its warnings to standard error.
func printTuned(env *Env, cmd *cobra.Command, doc *tuned) error {
	for _, w := range doc.Warnings {
		fmt.Fprintln(env.Stderr, "warning: "+ui.Clean(w))
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, doc)
	}
	if err := printArms(env, doc); err != nil {
		return err
	}
	if err := printArmPhases(env, doc); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.Stdout, "\n"+verdict(doc))
	return err
}

// printArms writes the table of arms.
func printArms(env *Env, doc *tuned) error {
	var rows [][]string
	for i := range doc.Arms {
		a := &doc.Arms[i]
		row := []string{a.Name, median(a.TokS, "%.1f"), "", "", "", median(a.Cycle, "%.2f ms"), median(a.TTFT, "%.0f ms"), ""}
		if a.Speedup != nil {
			row[2], row[3] = fmt.Sprintf("%.2f×", a.Speedup.Estimate), between(a.Speedup)
			row[4] = fmt.Sprintf("%.2f", a.Accept)
			row[7] = "same"
		}
		switch {
		case a.Failed > 0:
			row[7] = fmt.Sprintf("%d FAILED", a.Failed)
		case len(a.Different) > 0:
			row[7] = fmt.Sprintf("%d DIFFER", len(a.Different))
		}
		rows = append(rows, row)
	}
	return ui.Table(env.Stdout, env.IsTerminal(env.Stdout), []ui.Column{
		{Head: "ARM"}, {Head: "TOK/S", Right: true}, {Head: "SPEED-UP", Right: true}, {Head: "95 % INTERVAL", Right: true}, {Head: "ACCEPT LEN", Right: true},
		{Head: "CYCLE", Right: true}, {Head: "TTFT", Right: true}, {Head: "OUTPUT"},
	}, rows)
}

// cyclePhases are the columns of the second table: what a cycle consists of.
var cyclePhases = []string{"draft", "decode", "verify", "accept", "draft_extend", "other"}

// printArmPhases writes where a cycle's time goes, if the server kept a ledger.
func printArmPhases(env *Env, doc *tuned) error {
	cols := []ui.Column{{Head: "MS A CYCLE"}}
	for _, p := range cyclePhases {
		cols = append(cols, ui.Column{Head: p, Right: true})
	}
	var rows [][]string
	for i := range doc.Arms {
		a := &doc.Arms[i]
		if a.Phases == nil {
			continue
		}
		row := []string{a.Name}
		for _, p := range cyclePhases {
			row = append(row, fmt.Sprintf("%.2f", a.Phases[p]))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(env.Stdout)
	return ui.Table(env.Stdout, env.IsTerminal(env.Stdout), cols, rows)
}

// median formats a spread's median, "-" for none.
func median(s *campaign.Spread, format string) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf(format, s.Median)
}

// between formats a ratio's interval.
func between(r *campaign.Ratio) string {
	if r.Low == nil {
		return fmt.Sprintf("none (%d pairs)", r.Pairs)
	}
	return fmt.Sprintf("%.2f – %.2f", *r.Low, *r.High)
}

// verdict is the answer in words.
func verdict(doc *tuned) string {
	memory := ""
	if b := doc.Bandwidth; b != nil {
		memory = fmt.Sprintf("\nMemory bandwidth beside the pairs: %.1f GB/s (quartiles %.1f – %.1f).", b.Median, b.P25, b.P75)
	}
	switch doc.Verdict {
	case campaign.Faster:
		i := slices.IndexFunc(doc.Arms, func(a campaign.ArmResult) bool { return a.Name == doc.Best.Name })
		return fmt.Sprintf("Best: %s, %.2f× plain decoding (95 %% interval %s, %d fresh prompts; %.2f× when it was chosen).\nUse it with: %s%s",
			doc.Best.Name, doc.Speedup.Estimate, between(doc.Speedup), doc.Speedup.Pairs, doc.Arms[i].Speedup.Estimate, useWith(doc), memory)
	case campaign.NotConfirmed:
		again := "no usable pair"
		if r := doc.Confirm.Speedup; r != nil {
			again = fmt.Sprintf("%.2f× (95 %% interval %s, %d fresh prompts)", r.Estimate, between(r), r.Pairs)
		}
		return fmt.Sprintf("Best: plain decoding, as far as can be told. %s seemed faster, but the confirm run gave %s.%s", doc.Confirm.Arm, again, memory)
	case campaign.Undecided:
		return undecided(doc.Open()) + memory
	}
	return "Best: plain decoding. No arm is faster." + memory
}

// undecided says what could not be excluded.
func undecided(open *campaign.ArmResult) string {
	text := "Undecided: no arm is faster than plain decoding beyond doubt"
	if r := open.Speedup; r != nil && r.High != nil {
		text += fmt.Sprintf(", but %s may be (95 %% interval %s)", open.Name, between(r))
	} else {
		text += ", but there are too few pairs for an interval"
	}
	return text + ".\nMeasure again on a quieter machine, or for longer."
}

// useWith is the command line of serve that decodes as the best arm did.
func useWith(doc *tuned) string {
	drafter := doc.Environment.Drafter
	if doc.Best.Drafter == "ngram" {
		drafter = "ngram"
	}
	line := fmt.Sprintf("draftlab serve --model %s --drafter %s --steps %d", doc.Environment.Model, drafter, doc.Best.Steps)
	if doc.Best.TopK > 1 {
		line += fmt.Sprintf(" --topk %d --draft-tokens %d", doc.Best.TopK, doc.Best.DraftTokens)
	}
	return ui.Clean(line)
}
