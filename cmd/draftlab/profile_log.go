package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"draftlab/internal/ui"
	"draftlab/lab/enginelog"
	"draftlab/lab/profile"
)

// followEvery is the time between two lines about a log that is followed into a pipe, and followRedraw between two pictures on a
// terminal.
const (
	followEvery  = 5 * time.Second
	followRedraw = time.Second
)

// logReader reads a log while others ask for its state.
type logReader struct {
	mu      sync.Mutex
	summary enginelog.Summary
}

// run adds all lines of r.
func (l *logReader) run(ctx context.Context, r io.Reader) error {
	lines := enginelog.NewReader(r)
	for ctx.Err() == nil {
		raw, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.summary.Add(raw)
		l.mu.Unlock()
	}
	return ctx.Err()
}

func (l *logReader) report() *enginelog.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.summary.Report()
}

// profileLog reads a log and prints what it shows.
func profileLog(ctx context.Context, env *Env, asJSON bool, f *profileFlags) error {
	var in io.Reader = env.Stdin
	if f.log != "-" {
		file, err := os.Open(f.log)
		if err != nil {
			return withHint(err.Error(), "name the server's log, or - for standard input")
		}
		in = file
		if f.follow {
			follower := &followed{ctx: ctx, path: f.log, file: file}
			in = follower
			defer func() { _ = follower.file.Close() }() // only read
		} else {
			defer func() { _ = file.Close() }() // only read
		}
	}
	l := &logReader{}
	done := make(chan error, 1)
	go func() { done <- l.run(ctx, in) }() // it may hang in standard input when ctx ends: then it ends with the process
	err := l.watch(ctx, env, asJSON, f.follow, done)
	if err != nil && (!f.follow || ctx.Err() == nil) {
		return err
	}
	r := loggedReport{l.report(), nil}
	r.WhatIf = whatIfLog(r.Report, f.plain)
	var silent error // a log that is followed may only begin to tell
	if len(r.Decode) == 0 && !f.follow {
		silent = withHint(fmt.Sprintf("%s: no line about decoding among its %d: looked for are %s", ui.Clean(f.log), r.Lines.Total, enginelog.DecodeLines),
			"name the log of a server that has decoded for a while; SGLang writes such a line every 40 batches unless told otherwise, vLLM every 10 s unless with --disable-log-stats")
		if r.Lines.Read == 0 {
			return silent
		}
	}
	return errors.Join(r.print(env, asJSON), silent)
}

// print writes the report in the form that was asked for.
func (r *loggedReport) print(env *Env, asJSON bool) error {
	if asJSON {
		return ui.JSON(env.Stdout, r)
	}
	if err := printLog(env.Stdout, env.width(env.Stdout), r.Report); err != nil {
		return err
	}
	return printWhatIf(env.Stdout, r.WhatIf)
}

// loggedReport is the JSON document of --log.
type loggedReport struct {
	*enginelog.Report
	WhatIf []profile.Line `json:"what_if"`
}

// whatIfLog draws the conclusions that a log's medians allow, of the rank with the most lines: where speculation breaks even, with a plain
// step's time from lines without speculation or from the rate of one sequence.
//
// The figures are medians; they hold for one batch size as far as the number of running requests was steady.
func whatIfLog(r *enginelog.Report, plainTokS float64) []profile.Line {
	lines := []profile.Line{}
	var most *enginelog.Group
	for i := range r.Decode {
		if g := &r.Decode[i]; g.Cycle != nil && g.AcceptLength != nil && (most == nil || g.Lines > most.Lines) {
			most = g
		}
	}
	if most == nil {
		return lines
	}
	f := profile.Facts{AcceptLength: most.AcceptLength.P50, CycleMs: most.Cycle.P50}
	switch {
	case plainTokS > 0:
		f.PlainMs = 1e3 / plainTokS
	case most.Plain != nil:
		f.PlainMs = most.Plain.P50
	}
	for _, l := range profile.WhatIf(&f) {
		if l.Name == "break-even" { // the others need times by phase, which no log has
			if l.Missing != "" {
				l.Missing += ": give the rate of plain decoding with --plain"
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// watch waits for the end, and shows the state until then if the log is followed.
func (l *logReader) watch(ctx context.Context, env *Env, asJSON, follow bool, done <-chan error) error {
	every := followEvery
	var live *ui.Live
	if width := env.width(env.Stdout); width > 0 {
		live, every = ui.NewLive(env.Stdout, width), followRedraw
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, clearLive(live))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), clearLive(live))
		case <-tick.C:
		}
		if !follow || asJSON {
			continue
		}
		if err := l.show(env, live); err != nil {
			return err
		}
	}
}

// clearLive takes a picture away, so that the last table comes in its place.
func clearLive(live *ui.Live) error {
	if live == nil {
		return nil
	}
	return live.Show("")
}

// show draws or writes the state.
func (l *logReader) show(env *Env, live *ui.Live) error {
	r := l.report()
	if live == nil {
		for _, g := range r.Decode {
			if _, err := fmt.Fprintln(env.Stdout, logLine(r, &g)); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer // what changes; start-ups and messages could be longer than the screen
	if err := printDecode(&b, env.width(env.Stdout), r); err != nil {
		return err
	}
	if err := printPressure(&b, r); err != nil {
		return err
	}
	return live.Show(b.String())
}
