package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/costmodel"
	"draftlab/lab/explain"
)

// caseHelp is the part of the manuals of explain and predict about their file.
const caseHelp = `
The file holds figures that you have, and no more than you have:

    plain_tok_s: 88.8              # output tokens a second without speculation
    arms:                          # speculative configurations that were measured
      - {steps: 5, draft_tokens: 6, tok_s: 71.3, verify_ms: 28.7, verify_share: 0.955}
      - {steps: 2, draft_tokens: 3, tok_s: 75.9, verify_ms: 25.6}
    what_if: {verify_scale: 0.73}  # optional: verify takes 27 % less time

draft_tokens counts the rows of a verification, the root among them: steps + 1 in a chain. Other keys of an
arm: topk, batch, plain_tok_s, context, cycles, cycle_ms, draft_ms, accept_ms, draft_extend_ms, other_ms,
accept_length, accept_by_position, accept_histogram. docs/explain.md describes all keys, finding codes and warnings.
Figures count as rounded at their last digit. Intervals hold the middle 90 % of what the figures leave open.

In place of such a file there may be what /debug/cycles of draftlab serve answers (its sums by shape, plain
decoding among them), or a campaign's directory or result.json.`

func newExplain(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE|DIR",
		Short: "Say from measurements why speculation is as fast as it is",
		Long: `Explain fits a cost model to measurements of plain and speculative decoding and says in sentences with
numbers which phase is the bottleneck, what verification costs at all and by the row, at which accept
length speculation breaks even, why deeper drafts are better or worse, and what to try next. It runs nothing.
` + caseHelp + `

The JSON document is {"cost_model": {"verify_fixed_ms", "verify_per_row_ms", "verify_intercept_over_plain", …},
"arms": [{"steps", "accept_length", "break_even_accept_length", "speedup", …}], "acceptance", "predictions",
"what_if", "findings": [{"code", "text"}], "warnings"}; what the figures cannot tell is null. FILE may be - for
standard input.` + exitHelp,
		Example: `  draftlab explain case.yaml
  draftlab explain case.yaml --json`,
		Args: exactlyOne("a file of measurements"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readCase(env, args[0])
			if err != nil {
				return err
			}
			r, err := explain.Analyse(c)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return ui.JSON(env.Stdout, r)
			}
			return printReport(env.Stdout, env.width(env.Stdout), r)
		},
	}
}

// exactlyOne accepts one argument; what says what it is.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(cmd, "%s needs %s", cmd.CommandPath(), what)
		}
		return atMost(1)(cmd, args)
	}
}

func readCase(env *Env, path string) (*explain.Case, error) {
	var text []byte
	var err error
	if path == "-" {
		path = "standard input"
		text, err = io.ReadAll(io.LimitReader(env.Stdin, 64<<20))
	} else {
		if fi, e := os.Stat(path); e == nil && fi.IsDir() {
			path = filepath.Join(path, "result.json")
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, withHint(err.Error(), "name a file of measurements, or the directory of a campaign, which has a result.json")
	}
	return explain.Read(path, text)
}

// printReport writes an explanation for people: the arms, the fit, predictions, and then sentences.
func printReport(w io.Writer, width int, r *explain.Report) error {
	var rows [][]string
	for _, a := range r.Arms {
		rows = append(rows, []string{a.Shape.String(), optional(a.CycleMs, 1), optional(a.VerifyMs, 1), optional(a.AcceptLength, 2), optional(a.BreakEven, 2), optional(a.TokS, 1), times(a.Speedup)})
	}
	err := ui.Table(w, width, []ui.Column{
		{Head: "MEASURED"}, {Head: "CYCLE ms", Right: true}, {Head: "VERIFY ms", Right: true}, {Head: "ACCEPT LENGTH", Right: true},
		{Head: "BREAK-EVEN", Right: true}, {Head: "TOK/S", Right: true}, {Head: "SPEED-UP", Right: true},
	}, rows)
	if err != nil {
		return err
	}
	cm := r.CostModel
	fmt.Fprintf(w, "\nplain step %.2f ms", cm.PlainStepMs) // the last write reports what goes wrong
	if cm.VerifyFixedMs != nil {
		fmt.Fprintf(w, "; verify = %.2f ms + %.2f ms × rows; its fixed part is %.2f plain steps", *cm.VerifyFixedMs, *cm.VerifyPerRowMs, *cm.InterceptOverPlain)
	}
	fmt.Fprintln(w)
	if len(r.Predictions) > 0 {
		fmt.Fprintln(w)
		if err := printPredictions(w, width, "PREDICTED", r.Predictions); err != nil {
			return err
		}
	}
	if r.WhatIf != nil && len(r.WhatIf.Predictions) > 0 {
		fmt.Fprintln(w)
		if err := printPredictions(w, width, "WHAT IF", r.WhatIf.Predictions); err != nil {
			return err
		}
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n%s\n", paragraph(ui.Clean(f.Text)+" ["+f.Code+"]", width))
	}
	return printDoubts(w, width, r.Warnings)
}

func printPredictions(w io.Writer, width int, head string, ps []explain.Prediction) error {
	var rows [][]string
	for _, p := range ps {
		row := []string{p.Shape.String(), fmt.Sprintf("%.1f", p.CycleMs), optional(p.AcceptLength, 2), fmt.Sprintf("%.2f", p.BreakEven), optional(p.TokS, 1), "", times(p.Speedup)}
		if i := p.TokSInterval; i != nil {
			row[5] = fmt.Sprintf("%.1f – %.1f", i[0], i[1])
		}
		rows = append(rows, row)
	}
	return ui.Table(w, width, []ui.Column{
		{Head: head}, {Head: "CYCLE ms", Right: true}, {Head: "ACCEPT LENGTH", Right: true}, {Head: "BREAK-EVEN", Right: true},
		{Head: "TOK/S", Right: true}, {Head: "90 %"}, {Head: "SPEED-UP", Right: true},
	}, rows)
}

func printDoubts(w io.Writer, width int, doubts []costmodel.Doubt) error {
	var err error
	for i, d := range doubts {
		if i == 0 {
			fmt.Fprintln(w)
		}
		_, err = fmt.Fprintln(w, paragraph("warning: "+ui.Clean(d.Text)+" ["+d.Code+"]", width))
	}
	return err
}

// paragraph breaks text at blanks into lines of at most 100 characters, and no more than a terminal's width, 0 for none.
func paragraph(text string, width int) string {
	const most = 100
	if width = min(width, most); width == 0 {
		width = most
	}
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case column > 0 && column+1+n > width:
			b.WriteByte('\n')
			column = 0
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func optional(x *float64, decimals int) string {
	if x == nil {
		return "unknown"
	}
	return strconv.FormatFloat(*x, 'f', decimals, 64)
}

func times(x *float64) string {
	if x == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f×", *x)
}
