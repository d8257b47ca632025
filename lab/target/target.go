// Package target starts a server that is to be measured, waits until it really generates, reads its state and stops it: [Boot]
// returns a [Server], or a [BootError] that says what went wrong, with the lines of the log that show it.
//
// What differs between engines is a [Kind]. The package measures nothing and decides nothing; readiness has four proofs,
// because each alone has been seen to lie: the process lives, its log says so, its health check says so, and it writes a token.
package target

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/runner"
)

// Kind is what must be known of an engine's servers.
type Kind struct {
	Name  string
	URL   *regexp.Regexp // its first submatch in the log is the server's address
	Ready string         // what the log says once the server is up
	Model string         // name of the model in requests
}

// Spec says what to start.
type Spec struct {
	Kind    Kind
	Command runner.Command
	Limit   time.Duration // to readiness
	// Status is told now and then what the server is at; nil is nobody.
	Status func(Status)
}

// Status is how far a server that starts has come.
type Status struct {
	Stage   string // what is waited for
	Elapsed time.Duration
	Line    string // last one of the log
}

// Server is a server that runs.
type Server struct {
	Client client.Client
	Kind   Kind
	Ready  time.Duration // that it took from the start to a token
	log    string
	proc   *runner.Process
	http   *http.Transport
}

// How often a server that starts is looked at, and how often Status is told: so that a start of a tenth of a second is measured
// to a tenth, and a log of a quarter of an hour's loading stays short.
const (
	pollEvery   = 20 * time.Millisecond
	statusEvery = 5 * time.Second
	probeLimit  = 2 * time.Minute // for a health check or a first token; those of a cold engine compile kernels
)

// Boot starts a server and waits until it generates. The error is a *BootError if the server ran and failed. The caller stops the
// server.
func Boot(ctx context.Context, spec Spec) (*Server, error) {
	start := time.Now()
	proc, err := runner.Start(spec.Command)
	if err != nil {
		return nil, fmt.Errorf("cannot start the server: %w", err)
	}
	// No proxy: the server is on this machine. One connection at a time is idle.
	s := &Server{Kind: spec.Kind, log: spec.Command.Log, proc: proc, http: &http.Transport{MaxIdleConnsPerHost: 1}}
	s.Client.HTTP = &http.Client{Transport: s.http}
	limit, cancel := context.WithTimeout(ctx, spec.Limit)
	defer cancel()
	if err := s.await(limit, start, spec.Status); err != nil {
		exit, ended := s.ended()
		s.Stop(0)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case ended:
			return nil, s.failure(exit, time.Since(start))
		}
		return nil, s.late(err, time.Since(start))
	}
	s.Ready = time.Since(start)
	return s, nil
}

// await goes through the proofs; the error names the one that is missing.
func (s *Server) await(ctx context.Context, start time.Time, status func(Status)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	told := start
	for _, proof := range []struct {
		stage string
		holds func(context.Context) bool
	}{
		{"its address in the log", s.findAddress},
		{"the line \"" + s.Kind.Ready + "\" in the log", func(context.Context) bool { return strings.Contains(s.readLog(), s.Kind.Ready) }},
		{"its health check", s.healthy},
		{"a generated token", s.generates},
	} {
		for !proof.holds(ctx) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("it did not show %s", proof.stage)
			case <-s.proc.Done():
				return fmt.Errorf("it ended before it showed %s", proof.stage)
			case now := <-tick.C:
				if status != nil && now.Sub(told) >= statusEvery {
					told = now
					status(Status{proof.stage, now.Sub(start), lastLine(s.readLog())})
				}
			}
		}
	}
	return nil
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

func (s *Server) findAddress(context.Context) bool {
	m := s.Kind.URL.FindStringSubmatch(s.readLog())
	if m == nil {
		return false
	}
	s.Client.Base = m[1]
	return true
}

func (s *Server) healthy(ctx context.Context) bool {
	_, err := s.get(ctx, http.MethodGet, "/health")
	return err == nil
}

func (s *Server) generates(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	sample := s.Client.Do(ctx, time.Now(), &client.Request{API: client.Completion, Model: s.Kind.Model, Prompt: "Hello", MaxTokens: 1,
		Extra: map[string]any{"temperature": 0}})
	return sample.Error == "" && sample.OutputTokens > 0
}

// maxBody bounds what is read of an answer that is no output.
const maxBody = 16 << 20

// get returns the body of an answer with status 200; every other one is an error.
func (s *Server) get(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.Client.Base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.Client.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &statusError{method + " " + path, resp.StatusCode, strings.TrimSpace(string(body[:min(len(body), 200)]))}
	}
	return body, err
}

// statusError is an answer that says no.
type statusError struct {
	what   string
	status int
	words  string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.what, e.status, e.words)
}

// maxLog is how much of the end of a log is looked at.
const maxLog = 1 << 20

// readLog returns the end of the log, "" if it cannot be read.
func (s *Server) readLog() string {
	f, err := os.Open(s.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > maxLog {
		_, _ = f.Seek(-maxLog, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

// Stop ends the server, in order if it does so within grace, and closes the connections.
func (s *Server) Stop(grace time.Duration) {
	s.proc.Stop(grace)
	s.http.CloseIdleConnections()
}

// Failure returns why the server has ended, nil while it runs.
func (s *Server) Failure() error {
	if exit, ended := s.ended(); ended {
		return s.failure(exit, 0)
	}
	return nil
}
