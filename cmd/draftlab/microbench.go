package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/microbench"
	"draftlab/internal/ui"
)

// measured is the JSON document of microbench.
type measured struct {
	Model string `json:"model"`
	*microbench.Result
}

func newMicrobench(env *Env) *cobra.Command {
	var f modelFlags
	var rounds int
	cmd := &cobra.Command{
		Use:   "microbench",
		Short: "Measure what a model's passes cost on this machine",
		Long: `Microbench measures, in one run and in turn, the memory's read speed, decoding, prefill, and passes that verify
2 to 16 rows behind a context of 512 tokens. Beside each figure stands its ceiling: a pass cannot be faster
than reading the weights once, which is probed between the passes since memory speed swings on a shared machine.

  verify cost   time of a pass of n rows over that of one row: what a draft token costs to verify
  floor ratio   time of a pass over reading its weights once at the probed speed; 1 is the limit

The JSON document has "read_bandwidth_gb_s", "decode_tok_s", "prefill_tok_s", "bandwidth_fraction", and by
number of rows "pass_ms", "verify_cost", "floor_ratio" and "operation_ms". Figures are medians over the
rounds.` + randomHelp + exitHelp,
		Example: `  draftlab microbench
  draftlab microbench --model random:llama-3.2-1b-q4_0 --rounds 10
  draftlab microbench --json --threads 1`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runMicrobench(env, cmd, &f, rounds) },
	}
	f.register(env, cmd)
	cmd.Flags().IntVar(&rounds, "rounds", 20, "take `N` samples of everything")
	return cmd
}

func runMicrobench(env *Env, cmd *cobra.Command, f *modelFlags, rounds int) error {
	if rounds < 1 || rounds > 10_000 {
		return usage(cmd, "--rounds %d: want 1 to 10000", rounds)
	}
	e, err := f.open(cmd.Context(), env, cmd, engine.Options{Context: microbench.Positions, Outs: microbench.MaxRows})
	if err != nil {
		return err
	}
	defer e.Close()
	p := env.progress()
	last := 0
	r, err := microbench.Run(cmd.Context(), e.Device(), e.Model(), rounds, func(done, total int) {
		if tenth := 10 * done / total; tenth > last {
			last = tenth
			p.Note(fmt.Sprintf("round %d of %d", done, total))
		}
	})
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, measured{f.model, r})
	}
	return printMeasured(env, f.model, r)
}

// printMeasured writes the tables for people.
func printMeasured(env *Env, name string, r *microbench.Result) error {
	width := env.width(env.Stdout)
	spread := func(s [2]float64, format string) string { return fmt.Sprintf(format+" – "+format, s[0], s[1]) }
	err := ui.Table(env.Stdout, width, []ui.Column{
		{Head: name}, {Head: "MEDIAN", Right: true}, {Head: "P10 – P90", Right: true}, {Head: "CEILING", Right: true},
	}, [][]string{
		{fmt.Sprintf("read bandwidth, %d threads", r.Threads), fmt.Sprintf("%.1f GB/s", r.ReadBandwidth), spread(r.BandwidthSpread, "%.1f"), ""},
		{"read bandwidth, 1 thread", fmt.Sprintf("%.1f GB/s", r.ReadBandwidthOne), "", ""},
		{"weights of a pass", ui.Bytes(r.WeightBytes), "", ""},
		{"decode", fmt.Sprintf("%.1f tok/s", r.DecodeTokS), spread(r.DecodeSpread, "%.0f"), fmt.Sprintf("%.1f tok/s (%.0f %% reached)", r.DecodeCeilingTokS, 100*r.BandwidthFraction)},
		{"prefill of 512 tokens", fmt.Sprintf("%.0f tok/s", r.PrefillTokS), spread(r.PrefillSpread, "%.0f"), fmt.Sprintf("(%.0f GMAC/s)", r.PrefillGMACs)},
	})
	if err != nil {
		return err
	}
	var rows [][]string
	for _, n := range microbench.Rows {
		k := strconv.Itoa(n)
		cost := ""
		if n > 1 {
			cost = fmt.Sprintf("%.2f×", r.VerifyCost[k])
		}
		rows = append(rows, []string{k, fmt.Sprintf("%.2f ms", r.PassMS[k]), cost, fmt.Sprintf("%.2f", r.FloorRatio[k])})
	}
	fmt.Fprintln(env.Stdout)
	if err := ui.Table(env.Stdout, width, []ui.Column{
		{Head: "ROWS", Right: true}, {Head: "PASS", Right: true}, {Head: "VERIFY COST", Right: true}, {Head: "FLOOR RATIO", Right: true},
	}, rows); err != nil {
		return err
	}
	return printOperations(env, width, r)
}

// printOperations writes the time by kind of operation at each width that was profiled.
func printOperations(env *Env, width int, r *microbench.Result) error {
	widths := make([]string, 0, len(r.OperationMS))
	kinds := map[string]bool{}
	for w, byKind := range r.OperationMS {
		widths = append(widths, w)
		for k := range byKind {
			kinds[k] = true
		}
	}
	slices.Sort(widths)
	cols := []ui.Column{{Head: "MS BY ROWS"}}
	for _, w := range widths {
		cols = append(cols, ui.Column{Head: w, Right: true})
	}
	var rows [][]string
	for k := range kinds {
		row := []string{k}
		for _, w := range widths {
			row = append(row, fmt.Sprintf("%.3f", r.OperationMS[w][k]))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, slices.Compare)
	fmt.Fprintln(env.Stdout)
	return ui.Table(env.Stdout, width, cols, rows)
}
