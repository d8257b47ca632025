package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/measure"
)

func newBenchCompare(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two runs prompt by prompt",
		Long: `Compare reads two files that bench --out wrote and pairs their requests by prompt. For each metric it gives the
ratio B/A of a typical pair (Hodges and Lehmann's estimate of the log ratios' centre) with its 95 % interval,
the p-value of Wilcoxon's signed-rank test, corrected for the number of metrics, and the smallest change that
these pairs could have shown with a chance of 80 %. A p-value above 0.05 beside a smallest change of 10 % does
not mean that nothing changed, but that nothing above some 10 % did.

The JSON document has "pairs", "only_a", "only_b", "same_text", "changes" and "warnings".` + exitHelp,
		Example: `  draftlab bench --out a.jsonl
  draftlab bench --out b.jsonl --extra-request-body '{"speculative":{"steps":0}}'
  draftlab bench compare a.jsonl b.jsonl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, "%s takes two files, not %d", cmd.CommandPath(), len(args))
			}
			return benchCompare(env, cmd, args[0], args[1])
		},
	}
}

func benchCompare(env *Env, cmd *cobra.Command, a, b string) error {
	x, err := readRun(a)
	if err != nil {
		return err
	}
	y, err := readRun(b)
	if err != nil {
		return err
	}
	c, err := measure.Compare(x, y)
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, c)
	}
	return printComparison(env, c)
}

// readRun reads a raw file.
func readRun(path string) (*measure.Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := measure.ReadRun(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// printComparison writes the table for people.
func printComparison(env *Env, c *measure.Comparison) error {
	var rows [][]string
	for _, x := range c.Changes {
		interval := "too few pairs"
		if x.Low != nil {
			interval = fmt.Sprintf("%.3f – %.3f", *x.Low, *x.High)
		}
		verdict := "no difference seen"
		if x.P < .05 {
			verdict = fmt.Sprintf("%+.1f %%", 100*(x.Ratio-1))
		}
		rows = append(rows, []string{x.Metric, fmt.Sprint(x.Pairs), fmt.Sprintf("%.3f", x.Ratio), interval, fmt.Sprintf("%.2g", x.P),
			fmt.Sprintf("%.1f %%", 100*x.Least), verdict})
	}
	err := ui.Table(env.Stdout, env.width(env.Stdout), []ui.Column{
		{Head: "METRIC"}, {Head: "PAIRS", Right: true}, {Head: "B/A", Right: true}, {Head: "95 % INTERVAL", Right: true}, {Head: "P", Right: true},
		{Head: "SMALLEST CHANGE", Right: true}, {Head: "VERDICT"},
	}, rows)
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		env.progress().Note("warning: " + w)
	}
	return nil
}
