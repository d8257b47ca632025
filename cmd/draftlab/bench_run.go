package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/bench"
	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/measure"
	"draftlab/lab/probe"
	"draftlab/lab/prompts"
	"draftlab/lab/selfcheck"
)

// probeLimit bounds the silence of a server that is asked what it is.
const probeLimit = 30 * time.Second

// measureServer carries out a benchmark and prints what came of it.
func measureServer(env *Env, cmd *cobra.Command, f *benchFlags, plan load.Plan, set prompts.Set) (err error) {
	api, err := f.door(cmd)
	if err != nil {
		return err
	}
	slo, err := f.slo(cmd)
	if err != nil {
		return err
	}
	extra, err := f.fields(cmd)
	if err != nil {
		return err
	}
	header, err := f.header(cmd)
	if err != nil {
		return err
	}
	h := client.NewHTTP(1, probeLimit)
	defer h.CloseIdleConnections()
	server, err := identify(cmd.Context(), env, f, h, header)
	if err != nil {
		return err
	}
	watch := &benchWatch{env: env, plan: plan, note: env.progress().Note}
	cfg := &bench.Config{
		Server: server, API: api, Dataset: f.dataset, Prompts: set, Plan: plan, MaxTokens: f.outputLen, Extra: extra, IgnoreEOS: f.ignoreEOS,
		Turns:  f.dataset != randomPrompts && f.dataset != string(prompts.JSONL),
		Repeat: f.repeat, Stall: f.stall, SLO: slo, Warmups: f.warmups, Version: buildVersion().Version, Note: watch.note, Progress: watch.show,
	}
	if f.out != "" {
		raw, openErr := os.Create(f.out) // unbuffered: what has been measured is there, whatever happens
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, raw.Close()) }()
		cfg.Raw = raw
	}
	var summary *os.File
	if f.benchout != "" { // now, and not when all is measured
		var openErr error
		if summary, openErr = os.OpenFile(f.benchout, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, summary.Close()) }()
	}
	s, err := bench.Run(cmd.Context(), cfg)
	if s == nil || err != nil && s.Completed == 0 {
		return err
	}
	if err := printBench(env, wantsJSON(cmd), s); err != nil {
		return err
	}
	if err == nil && summary != nil {
		_, err = io.WriteString(summary, s.Benchstat())
	}
	if err == nil && s.Completed == 0 {
		err = errors.New("no request succeeded")
	}
	return err
}

// identify asks the server what it is.
func identify(ctx context.Context, env *Env, f *benchFlags, h *http.Client, header http.Header) (*probe.Server, error) {
	base := strings.TrimSuffix(strings.TrimSuffix(f.url, "/"), "/v1")
	s, err := probe.Identify(ctx, h, base, env.Getenv("DRAFTLAB_API_KEY"), header)
	if err != nil {
		return nil, withHint(err.Error(), "start one with draftlab serve, or name another by --base-url; a key goes into DRAFTLAB_API_KEY")
	}
	if f.model != "" {
		s.Model = f.model
	}
	return s, nil
}

// printBench writes the result.
func printBench(env *Env, asJSON bool, s *measure.Summary) error {
	if asJSON {
		return ui.JSON(env.Stdout, s) // the warnings are in it
	}
	if err := s.WriteTable(env.Stdout); err != nil {
		return err
	}
	for _, w := range s.Warnings {
		env.progress().Note("warning: " + w)
	}
	return nil
}

// benchWatch shows how far a run is: in place on a terminal, a line every so often elsewhere.
type benchWatch struct {
	env  *Env
	plan load.Plan
	note func(string)
	live *ui.Live
	last time.Duration
}

func (w *benchWatch) show(s bench.State) {
	if width := w.env.width(w.env.Stderr); width > 0 {
		if w.live == nil {
			w.live = ui.NewLive(w.env.Stderr, width)
		}
		_ = w.live.Show(benchLine(w.plan, s)) // a terminal that has gone shows nothing
		return
	}
	if s.Elapsed-w.last < 5*time.Second {
		return
	}
	w.last = s.Elapsed
	w.note(benchLine(w.plan, s))
}

// benchLine says how far a run is and how long it may still take.
func benchLine(p load.Plan, s bench.State) string {
	done := 0.0
	of := ""
	if p.Requests > 0 {
		done = float64(s.Ended) / float64(p.Requests)
		of = fmt.Sprintf(" of %d", p.Requests)
	}
	if p.Duration > 0 {
		done = max(done, min(1, s.Elapsed.Seconds()/p.Duration.Seconds()))
	}
	line := fmt.Sprintf("%d%s requests, %.1f tok/s, %v", s.Ended, of, float64(s.Output)/s.Elapsed.Seconds(), s.Elapsed.Round(time.Second))
	if s.Failed > 0 {
		line += fmt.Sprintf(", %d failed", s.Failed)
	}
	if done > 0 && done < 1 {
		left := time.Duration(s.Elapsed.Seconds() * (1 - done) / done * float64(time.Second))
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return line
}

// printSelfCheck writes what the client found out about itself.
func printSelfCheck(env *Env, asJSON bool, r *selfcheck.Result) error {
	if asJSON {
		return ui.JSON(env.Stdout, r)
	}
	var rows [][]string
	for _, one := range append([]selfcheck.Reading{r.Chosen}, r.Rungs...) {
		name := fmt.Sprintf("%.6g req/s", one.Rate)
		if one.Rate == 0 {
			name = fmt.Sprintf("%d streams", one.Concurrency)
		}
		verdict := "holds"
		if !one.Holds() {
			verdict = "too much"
		}
		two := func(s selfcheck.Spread) string { return fmt.Sprintf("%.3f / %.3f", s.Median, s.P99) }
		lag := "–" // a closed loop has no due times
		if one.Rate > 0 {
			lag = two(one.Lag)
		}
		rows = append(rows, []string{name, fmt.Sprint(one.Requests), fmt.Sprint(one.Failed), fmt.Sprintf("%.0f", one.TokS),
			two(one.TTFTError), two(one.TPOTError), two(one.TTFTInjected), two(one.TPOTInjected), lag, verdict})
	}
	err := ui.Table(env.Stdout, env.width(env.Stdout), []ui.Column{
		{Head: "LOAD", Right: true}, {Head: "REQUESTS", Right: true}, {Head: "FAILED", Right: true}, {Head: "TOK/S", Right: true},
		{Head: "TTFT ERROR MS", Right: true}, {Head: "TPOT ERROR MS", Right: true}, {Head: "TTFT WITH MOCK'S", Right: true}, {Head: "TPOT WITH MOCK'S", Right: true}, {Head: "SEND LAG MS", Right: true}, {Head: "CLIENT"},
	}, rows)
	if err != nil {
		return err
	}
	switch {
	case r.TooMuch == 0:
		_, err = fmt.Fprintf(env.Stdout, "\nmedian / 99th percentile. The saturation knee lies beyond %.6g.\n", r.Knee)
	case r.Knee == 0:
		_, err = fmt.Fprintln(env.Stdout, "\nmedian / 99th percentile. This machine cannot measure at the chosen load.")
	default:
		_, err = fmt.Fprintf(env.Stdout, "\nmedian / 99th percentile. The saturation knee lies between %.6g and %.6g.\n", r.Knee, r.TooMuch)
	}
	return err
}
