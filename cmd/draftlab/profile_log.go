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
	r := l.report()
	if asJSON {
		return ui.JSON(env.Stdout, r)
	}
	return printLog(env.Stdout, env.IsTerminal(env.Stdout), r)
}

// watch waits for the end, and shows the state until then if the log is followed.
func (l *logReader) watch(ctx context.Context, env *Env, asJSON, follow bool, done <-chan error) error {
	every := followEvery
	var live *ui.Live
	if env.IsTerminal(env.Stdout) {
		live, every = ui.NewLive(env.Stdout), followRedraw
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
	if err := printDecode(&b, true, r); err != nil {
		return err
	}
	if err := printPressure(&b, r); err != nil {
		return err
	}
	return live.Show(b.String())
}
