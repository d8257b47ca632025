package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	answerLimit = 5 * time.Minute // without a byte of an answer
)

// start starts the process and waits until it generates; on an error nothing is left of it.
func (s *Server) start(ctx context.Context, cmd runner.Command, t traits, limit time.Duration, status func(Status)) (err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			s.Stop(0)
		}
	}()
	if s.watch, err = newWatch(s.LogPath, t.address, t.ready); err != nil {
		return err
	}
	s.watch.secrets = s.secrets
	if err = s.expectNCCL(ctx); err != nil {
		return err
	}
	if s.proc, err = s.host.Start(cmd); err != nil {
		return fmt.Errorf("cannot start the server: %w", err)
	}
	s.connect()
	if len(cmd.Ports) > 0 {
		s.Client.Base = "http://" + s.proc.Address(cmd.Ports[0])
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := waiting{began: began, moved: began, told: began, doomed: t.doomed, status: status}
	err = w.await(within, s, s.proofs(t.ready))
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
		return s.failure(exit.String(), &exit, elapsed)
	case errors.Is(err, errDoomed):
		return s.failure(err.Error(), nil, elapsed)
	default:
		return s.late(err, elapsed, time.Since(w.moved))
	}
}

// proof is something that a server shows when it is ready.
type proof struct {
	stage string
	holds func(context.Context) bool
}

// proofs are the four: each alone has been seen to lie. That the process lives is looked at all the time.
func (s *Server) proofs(marker string) []proof {
	return []proof{
		{"its address in the log", func(context.Context) bool {
			if s.Client.Base == "" {
				s.Client.Base, _, _, _ = s.watch.look()
			}
			return s.Client.Base != ""
		}},
		{"the line \"" + marker + "\" in the log", func(context.Context) bool { _, marked, _, _ := s.watch.look(); return marked }},
		{"its health check", s.healthy},
		{"a generated token", s.generates},
	}
}

// waiting is a wait for a server to be ready.
type waiting struct {
	began, moved, told time.Time // its start; when its log grew last; when status was told last
	doomed             bool      // a fault in the log ends the wait
	fault              time.Time // when the first one was seen
	status             func(Status)
}

// doomGrace is how long a server with a fault in its log may take to end by itself, so that its log is complete: SGLang's launcher
// needs some seconds to notice that a rank has died, and sometimes does not.
const doomGrace = 10 * time.Second

var errDoomed = errors.New("its log shows a fault that no start survives, but its process lived on")

// await goes through the proofs; the error names the one that is missing.
func (w *waiting) await(ctx context.Context, s *Server, proofs []proof) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(ctx) // a proof that waits for an answer ends with the process
	defer cancel()
	go func() {
		select {
		case <-s.proc.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	for _, p := range proofs {
		for !p.holds(ctx) {
			select {
			case <-s.proc.Done():
				return fmt.Errorf("it ended before it showed %s", p.stage)
			case <-ctx.Done():
				return fmt.Errorf("it did not show %s", p.stage)
			case now := <-tick.C:
				if s.watch.read(false) {
					w.moved = now
				}
				if w.doom(s, now) {
					return errDoomed
				}
				w.tell(s, now, p.stage)
			}
		}
	}
	return nil
}

// doom reports that the log has shown a fault for so long that the server will not end by itself.
func (w *waiting) doom(s *Server, now time.Time) bool {
	if !w.doomed || !s.watch.doomed() {
		return false
	}
	if w.fault.IsZero() {
		w.fault = now
	}
	return now.Sub(w.fault) > doomGrace
}

// tell tells the status now and then.
func (w *waiting) tell(s *Server, now time.Time, stage string) {
	if w.status == nil || now.Sub(w.told) < statusEvery {
		return
	}
	w.told = now
	_, _, doing, last := s.watch.look()
	w.status(Status{stage, doing, now.Sub(w.began), last})
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
	if s.http != nil { // ssh stays as long as a connection through it does
		s.http.CloseIdleConnections()
	}
	if s.proc != nil {
		s.proc.Stop(grace)
	}
	if s.http != nil { // those that were busy
		s.http.CloseIdleConnections()
	}
	if s.watch != nil {
		s.watch.close()
		ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
		_, _ = s.takeNCCL(ctx) // once more, to their ends; an error was told before
		cancel()
		_ = s.secrets.file(s.LogPath) // where even the log's directory cannot be written any more, nothing is left to do
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	for _, dir := range s.scratch {
		_ = s.host.Remove(ctx, dir) // links and one small file: nothing depends on it
	}
	s.scratch = nil
}

// Failure returns why the server has ended, nil while it runs.
func (s *Server) Failure() error {
	if s.watch == nil {
		return s.answers()
	}
	if exit, ended := s.ended(); ended {
		return s.failure(exit.String(), &exit, 0)
	}
	s.watch.read(false)
	return nil
}
