package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/internal/shell"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// printTuned writes the result in the form that was asked for, and its warnings to standard error.
func printTuned(env *Env, cmd *cobra.Command, r *campaign.Result) error {
	for _, w := range r.Warnings {
		fmt.Fprintln(env.Stderr, "warning: "+ui.Clean(w))
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, r)
	}
	if err := printArms(env, r); err != nil {
		return err
	}
	if err := printArmPhases(env, r); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.Stdout, "\n"+settings(r)+verdict(r))
	return err
}

// settings says what each setting beside the drafts did to plain decoding, "" where there was none.
func settings(r *campaign.Result) (text string) {
	for i := range r.Arms {
		a := &r.Arms[i]
		if !a.Plain() || a.Name == r.Baseline || i > len(r.Verdicts) {
			continue
		}
		v := r.Verdicts[i-1] // one for each arm behind the baseline
		text += ui.Clean(fmt.Sprintf("%s: %s: %s", v.Hypothesis, v.Outcome, v.Evidence)) + ".\n"
	}
	return text
}

// printArms writes the table of arms. With several environments it has the best plain decoding of all beside that of the same one.
func printArms(env *Env, r *campaign.Result) error {
	several := r.BestPlain != r.Baseline
	for i := range r.Arms {
		several = several || r.Arms[i].Effect != nil
	}
	cols := []ui.Column{
		{Head: "ARM"}, {Head: "TOK/S", Right: true}, {Head: "SPEED-UP", Right: true}, {Head: "95 % INTERVAL", Right: true}, {Head: "ACCEPT LEN", Right: true},
		{Head: "CYCLE", Right: true}, {Head: "TTFT", Right: true}, {Head: "OUTPUT"},
	}
	if several {
		cols = append(cols, ui.Column{Head: "OVER BEST PLAIN", Right: true})
	}
	var rows [][]string
	for i := range r.Arms {
		row := armRow(&r.Arms[i], r)
		if several {
			row = append(row, "")
			if s := r.Arms[i].Speedup; s != nil && s.BestPlain != nil {
				row[len(row)-1] = fmt.Sprintf("%.2f×, %s", s.BestPlain.Estimate, between(s.BestPlain))
			}
		}
		rows = append(rows, row)
	}
	return ui.Table(env.Stdout, env.width(env.Stdout), cols, rows)
}

// armRow is an arm's line in the table.
func armRow(a *campaign.ArmResult, r *campaign.Result) []string {
	row := []string{ui.Clean(a.Name), median(a.TokS, "%.1f"), "", "", "", median(a.Cycle, "%.2f ms"), median(a.TTFT, "%.0f ms"), ""}
	if r.Objective.Concurrency > 1 {
		row[1] = median(a.Value, "%.1f")
	}
	if s := a.Speedup; s != nil && s.SameEnv != nil {
		row[2], row[3] = fmt.Sprintf("%.2f×", s.SameEnv.Estimate), between(s.SameEnv)
		row[4] = fmt.Sprintf("%.2f", a.Accept)
		row[7] = "same"
	}
	switch {
	case a.Failed > 0:
		row[7] = fmt.Sprintf("%d FAILED", a.Failed)
	case a.Decided == campaign.Failed:
		row[7] = "SERVER FAILED"
	case a.Decided == campaign.Unmeasured:
		row[7] = campaign.Unmeasured
	case a.Wrong:
		row[7] = fmt.Sprintf("%d DIFFER", len(a.Different))
	case len(a.Different) > 0:
		row[7] = fmt.Sprintf("%d differ, as plain decoding does", len(a.Different))
	}
	return row
}

// cyclePhases are the columns of the second table: what a cycle consists of.
var cyclePhases = []string{"draft", "decode", "verify", "accept", "draft_extend", "other"}

// printArmPhases writes where a cycle's time goes, if the server kept a ledger.
func printArmPhases(env *Env, r *campaign.Result) error {
	cols := []ui.Column{{Head: "MS A CYCLE"}}
	var told []string // counters of some engines have no host's phases
	for _, p := range cyclePhases {
		if slices.ContainsFunc(r.Arms, func(a campaign.ArmResult) bool { _, ok := a.Phases[p]; return ok }) {
			told = append(told, p)
			cols = append(cols, ui.Column{Head: p, Right: true})
		}
	}
	var rows [][]string
	for i := range r.Arms {
		a := &r.Arms[i]
		if a.Phases == nil {
			continue
		}
		row := []string{ui.Clean(a.Name)}
		for _, p := range told {
			row = append(row, fmt.Sprintf("%.2f", a.Phases[p]))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(env.Stdout)
	return ui.Table(env.Stdout, env.width(env.Stdout), cols, rows)
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
func verdict(r *campaign.Result) string {
	memory := ""
	if b := r.Bandwidth; b != nil {
		memory = fmt.Sprintf("\nMemory bandwidth beside the pairs: %.1f GB/s (quartiles %.1f – %.1f).", b.Median, b.P25, b.P75)
	}
	plain := "plain decoding"
	if r.BestPlain != r.Baseline {
		plain = "the best plain decoding (" + ui.Clean(r.BestPlain) + ")"
	}
	switch r.Verdict {
	case campaign.Faster:
		s := r.Speedup.BestPlain
		chosen := ""
		for i := range r.Arms {
			if a := &r.Arms[i]; a.Name == r.Best.Name && a.Speedup != nil && a.Speedup.BestPlain != nil {
				chosen = fmt.Sprintf("; %.2f× when it was chosen", a.Speedup.BestPlain.Estimate)
			}
		}
		return fmt.Sprintf("Best: %s, %.2f× %s (95 %% interval %s, %d fresh prompts%s).%s%s%s",
			ui.Clean(r.Best.Name), s.Estimate, plain, between(s), s.Pairs, chosen, runnerUp(r), useWith(r), memory)
	case campaign.NotConfirmed:
		again := "no usable pair"
		if s := r.Confirm.Speedup; s != nil && s.BestPlain != nil {
			again = fmt.Sprintf("%.2f× (95 %% interval %s, %d fresh prompts)", s.BestPlain.Estimate, between(s.BestPlain), s.BestPlain.Pairs)
		}
		return fmt.Sprintf("Best: %s, as far as can be told. %s seemed faster, but the confirm run gave %s.%s", plain, ui.Clean(r.Confirm.Arm), again, memory)
	case campaign.Undecided:
		return undecided(r.Open()) + memory
	}
	return fmt.Sprintf("Best: %s. No arm is faster.%s", plain, memory)
}

// runnerUp is the arm that was measured again beside the winner.
func runnerUp(r *campaign.Result) string {
	if c := r.Confirm.Rival; c != nil && c.Speedup.BestPlain != nil {
		return fmt.Sprintf("\nBeside it on the same prompts: %s, %.2f× (%s).", ui.Clean(c.Arm), c.Speedup.BestPlain.Estimate, between(c.Speedup.BestPlain))
	}
	return ""
}

// undecided says what could not be excluded.
func undecided(open *campaign.ArmResult) string {
	text := "Undecided: no arm is faster than plain decoding beyond doubt"
	if open == nil {
		return "Undecided: no arm was measured, as far as it takes to compare it with plain decoding. The warnings say why."
	}
	switch s := open.Speedup; {
	case s == nil || s.BestPlain == nil || s.BestPlain.High == nil:
		text += ", but there are too few pairs for an interval"
	case *s.BestPlain.Low > 1:
		text += fmt.Sprintf(".\n%s would be by itself (95 %% interval %s), but of several arms one looks faster by luck more often, and %d pairs do not exclude that", ui.Clean(open.Name), between(s.BestPlain), s.BestPlain.Pairs)
	default:
		text += fmt.Sprintf(", but %s may be (95 %% interval %s)", ui.Clean(open.Name), between(s.BestPlain))
	}
	return text + ".\nMeasure again on a quieter machine, or for longer."
}

// useWith is the command line that decodes as the best arm did: that of serve for draftlab's own server, and else what its server was started with.
func useWith(r *campaign.Result) string {
	e, best := environmentOf(r), r.Best
	if e.Target != "draftlab" || e.Host != "" {
		for _, b := range r.Boots {
			if b.Cause == "" && b.Command != "" && startedFor(&b, best.Name, r) {
				return "\nIts server was started with: " + ui.Clean(b.Command)
			}
		}
		return ""
	}
	drafter := e.Drafter
	if best.Drafter == "ngram" {
		drafter = "ngram"
	}
	words := append(shell.Assignments(target.HideValues(best.Env)), shell.QuoteAll([]string{"draftlab", "serve", "--model", e.Model, "--drafter", drafter, "--steps", strconv.Itoa(best.Steps)}))
	if best.TopK > 1 {
		words = append(words, fmt.Sprintf("--topk %d --draft-tokens %d", best.TopK, best.DraftTokens))
	}
	return "\nUse it with: " + ui.Clean(strings.Join(words, " ")+flagWords(target.HideValues(best.Flags)))
}

// startedFor reports whether an arm was measured on a boot.
func startedFor(b *trial.Boot, arm string, r *campaign.Result) bool {
	for i := range r.Arms {
		for _, id := range r.Arms[i].Boots {
			if r.Arms[i].Name == arm && id == b.ID {
				return true
			}
		}
	}
	return false
}

// flagWords are an arm's own flags as serve takes them.
func flagWords(flags map[string]string) (words string) {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		words += " --" + name
		if value := flags[name]; value != "" {
			words += "=" + shell.Quote(value)
		}
	}
	return words
}
