// Command doctor examines the shipped drafter and copies of it with known faults, as `draftlab doctor` does, and holds each verdict to the fault.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"draftlab/engine"
	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/engine/wiring"
	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/prompts"
)

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	fl := flag.NewFlagSet("doctor", flag.ContinueOnError)
	quick := fl.Bool("quick", false, "examine as draftlab doctor --quick does")
	only := fl.String("only", "", "only the faults whose name contains this `TEXT`")
	threads := fl.Int("threads", runtime.NumCPU(), "compute on `N` threads")
	if err := rig.Parse(fl, args); err != nil {
		return err
	}
	target, drafter, err := rig.Files()
	if err != nil {
		return err
	}
	var rows [][]string
	var wrong []error
	for _, f := range faults() {
		if !strings.Contains(f.name, *only) {
			continue
		}
		start := time.Now()
		r, err := examine(ctx, target, drafter, &f, *quick, *threads)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := f.holds(r); err != nil {
			wrong = append(wrong, err)
		}
		rows = append(rows, row(&f, r, time.Since(start)))
		fmt.Fprintln(os.Stderr, strings.Join(rows[len(rows)-1], " | "))
	}
	err = ui.Table(os.Stdout, 0, []ui.Column{
		{Head: "COPY"}, {Head: "VERDICT"}, {Head: "FIX"}, {Head: "ACCEPTED AS CONFIGURED", Right: true}, {Head: "AS SUPPORTED", Right: true},
		{Head: "DRAFTS LESS", Right: true}, {Head: "SECONDS", Right: true},
	}, rows)
	if len(wrong) > 0 {
		err = errors.Join(append(wrong, err, rig.ErrClaim)...)
	}
	return err
}

// row makes a line of the table.
func row(f *fault, r *wiring.Result, took time.Duration) []string {
	c, best := r.Of(wiring.Configured), r.Measured[0]
	var fixes []string
	for _, fix := range r.Fixes {
		fixes = append(fixes, strings.TrimSpace(fix.Key+" "+fix.Value))
	}
	share := func(m *wiring.Measured) string {
		v := m.Accepted[0]
		return fmt.Sprintf("%.1f %% (%.1f–%.1f)", 100*v.Value, 100*v.Low, 100*v.High)
	}
	return []string{
		f.name, string(r.Verdict), strings.Join(fixes, "; "), share(c), share(best),
		fmt.Sprintf("%.2f (%.2f–%.2f)", c.Less.Value, c.Less.Low, c.Less.High), fmt.Sprintf("%.0f", took.Seconds()),
	}
}

// examine makes a copy with a fault and examines it.
func examine(ctx context.Context, target, drafter string, f *fault, quick bool, threads int) (_ *wiring.Result, err error) {
	dir, err := os.MkdirTemp("", "drafter-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := f.make(drafter, dir); err != nil {
		return nil, err
	}
	read, err := wiring.Read(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := config(target)
	if err != nil {
		return nil, err
	}
	s := wiring.SizesFor(read, cfg)
	e, err := rig.Load(engine.Options{Model: target, Threads: threads, MaxRunning: s.Seqs, Rows: s.Rows, Outs: s.Outs, Blocks: s.Blocks, Taps: s.Taps})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	ids, err := rig.Encode(e.Tokenizer(), prompts.All().Of(prompts.HeldOut).Shuffled(1))
	if err != nil {
		return nil, err
	}
	return wiring.Examine(ctx, e.Device(), e.Model(), read, wiring.Options{
		Prompts: ids, Stop: e.Tokenizer().IsEOG, Quick: quick, Budget: 15 * time.Minute, Progress: func(wiring.Stage) {},
	})
}

// config reads the target's configuration.
func config(path string) (_ model.Config, err error) {
	f, err := weights.Open(path)
	if err != nil {
		return model.Config{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return model.ReadConfig(f)
}
