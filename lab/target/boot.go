package target

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner"
)

// Status is how far a server that starts has come.
type Status struct {
	Stage   string // what is waited for
	Doing   string // the last step of the start-up that its log told of, "" if none
	Elapsed time.Duration
	Line    string // last one of the log
}

// String is a line of progress.
func (s Status) String() string {
	if s.Doing != "" {
		return fmt.Sprintf("%s … %.0f s; its log: %s", s.Doing, s.Elapsed.Seconds(), s.Line)
	}
	return fmt.Sprintf("waiting for %s, %.0f s; its log: %s", s.Stage, s.Elapsed.Seconds(), s.Line)
}

// How often a server that starts is looked at, and how often Status is told: so that a start of a tenth of a second is measured
// to a tenth, and a log of a quarter of an hour's loading stays short.
const (
	pollEvery   = 20 * time.Millisecond
	statusEvery = 5 * time.Second
	probeLimit  = 2 * time.Minute // for a health check or a first token; those of a cold engine compile kernels
)

// start starts the process and waits until it generates; on an error nothing is left of it.
func (s *Server) start(ctx context.Context, cmd runner.Command, c *Config, limit time.Duration, status func(Status)) (err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			s.Stop(0)
		}
	}()
	if s.watch, err = newWatch(s.LogPath, s.kind.address(), s.kind.ready()); err != nil {
		return err
	}
	if s.proc, err = runner.Start(cmd); err != nil {
		return fmt.Errorf("cannot start the server: %w", err)
	}
	s.connect(c)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	quiet, err := s.await(within, began, status)
	if err == nil {
		s.Ready = time.Since(began)
		s.watch.forget()
		return nil
	}
	exit, ended := s.ended()
	if !ended {
		s.proc.Stop(0)
	}
	switch elapsed := time.Since(began); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ended:
		return s.failure(exit, elapsed)
	default:
		return s.late(err, elapsed, quiet)
	}
}

// connect makes the client. No proxy: the server is on this machine. One connection at a time is idle.
func (s *Server) connect(c *Config) {
	s.http = &http.Transport{MaxIdleConnsPerHost: 1}
	s.Client = client.Client{HTTP: &http.Client{Transport: s.http}, Key: c.Key}
}

// await goes through the proofs; the error names the one that is missing. It returns how long the log has been silent.
func (s *Server) await(ctx context.Context, start time.Time, status func(Status)) (quiet time.Duration, err error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	told, moved := start, start
	for _, proof := range []struct {
		stage string
		holds func(context.Context) bool
	}{
		{"its address in the log", func(context.Context) bool { s.Client.Base, _, _, _ = s.watch.look(); return s.Client.Base != "" }},
		{"the line \"" + s.kind.ready() + "\" in the log", func(context.Context) bool { _, marked, _, _ := s.watch.look(); return marked }},
		{"its health check", s.healthy},
		{"a generated token", s.generates},
	} {
		for !proof.holds(ctx) {
			select {
			case <-ctx.Done():
				return time.Since(moved), fmt.Errorf("it did not show %s", proof.stage)
			case <-s.proc.Done():
				return time.Since(moved), fmt.Errorf("it ended before it showed %s", proof.stage)
			case now := <-tick.C:
				if s.watch.read(false) {
					moved = now
				}
				if status != nil && now.Sub(told) >= statusEvery {
					told = now
					_, _, doing, last := s.watch.look()
					status(Status{proof.stage, doing, now.Sub(start), last})
				}
			}
		}
	}
	return 0, nil
}

// ended reports whether the process has ended, and how.
func (s *Server) ended() (runner.Exit, bool) {
	select {
	case <-s.proc.Done():
		return s.proc.Exit(), true
	default:
		return runner.Exit{}, false
	}
}

func (s *Server) healthy(ctx context.Context) bool {
	_, err := s.get(ctx, http.MethodGet, "/health")
	return err == nil
}

func (s *Server) generates(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	sample := s.Client.Do(ctx, time.Now(), &client.Request{API: client.Completion, Model: s.Model, Prompt: "Hello", MaxTokens: 1,
		Extra: map[string]any{"temperature": 0}})
	return sample.Error == "" && sample.OutputTokens > 0
}

// Stop ends the server, in order if it does so within grace, closes the connections and removes what was made for it.
func (s *Server) Stop(grace time.Duration) {
	if s.proc != nil {
		s.proc.Stop(grace)
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	if s.watch != nil {
		s.watch.close()
	}
	if s.scratch != "" {
		_ = os.RemoveAll(s.scratch)
	}
}

// Failure returns why the server has ended, nil while it runs.
func (s *Server) Failure() error {
	if exit, ended := s.ended(); ended {
		return s.failure(exit, 0)
	}
	s.watch.read(false)
	return nil
}
