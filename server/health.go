package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"draftlab/engine"
	"draftlab/openai"
)

// handleHealth answers GET /health: 200 if the engine made a token within Config.HealthFresh, or makes one now (S4).
func (s *Server) handleHealth(w http.ResponseWriter, _ *http.Request) { s.health(w, s.cfg.HealthFresh) }

// handleHealthGenerate answers GET /health_generate: 200 if the engine makes a token now.
func (s *Server) handleHealthGenerate(w http.ResponseWriter, _ *http.Request) { s.health(w, 0) }

func (s *Server) health(w http.ResponseWriter, fresh time.Duration) {
	e, fail := s.enter()
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer s.leave()
	if last := e.Stats().LastToken; time.Since(last) >= fresh {
		if err := s.probe.do(s.hard, e, s.cfg.HealthTimeout); err != nil {
			s.cfg.Log.Warn("Health check failed: " + err.Error())
			s.fail(w, unavailable("unhealthy", err.Error()))
			return
		}
	}
	s.writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// probe asks the engine for a token, once for all who ask at the same time.
type probe struct {
	mu      sync.Mutex
	running *probing // nil if none is
}

type probing struct {
	done chan struct{}
	err  error // set before done is closed
}

// do returns nil once the engine has made a token, for this probe or for anybody.
func (p *probe) do(ctx context.Context, e Engine, limit time.Duration) error {
	p.mu.Lock()
	if run := p.running; run != nil {
		p.mu.Unlock()
		<-run.done // within the limit
		return run.err
	}
	run := &probing{done: make(chan struct{})}
	p.running = run
	p.mu.Unlock()
	run.err = probeOnce(ctx, e, limit)
	p.mu.Lock()
	p.running = nil
	p.mu.Unlock()
	close(run.done)
	return run.err
}

// probePoll is how often a probe that waits for its turn looks whether others get tokens.
const probePoll = 50 * time.Millisecond

// probeOnce waits for a token of the engine's.
func probeOnce(ctx context.Context, e Engine, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the engine has made no token for %v", limit))
	var own sync.WaitGroup
	defer own.Wait()
	defer cancel()
	before := e.Stats().LastToken
	result := make(chan error, 1)
	st, err := e.Submit(engine.Request{Prompt: []int32{0}, MaxTokens: 1, Sampling: greedy(), NoCache: true})
	switch {
	case err == nil:
		defer st.Cancel()
		own.Go(func() {
			_, err := st.Next(ctx)
			result <- err
		})
	case !errors.Is(err, engine.ErrQueueFull): // a full queue is as good as a place in it: others must get tokens
		return err
	}
	tick := time.NewTicker(probePoll)
	defer tick.Stop()
	for {
		select {
		case err := <-result:
			if err == nil {
				return nil
			}
			if ctx.Err() == nil {
				return fmt.Errorf("the engine failed: %w", err)
			}
			return context.Cause(ctx)
		case <-tick.C:
			if e.Stats().LastToken.After(before) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handleFlush answers /flush_cache: like SGLang it refuses while requests run or wait.
func (s *Server) handleFlush(w http.ResponseWriter, _ *http.Request) {
	e, fail := s.enter()
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer s.leave()
	if st := e.Stats(); st.Running+st.Waiting > 0 {
		s.fail(w, &openai.Error{Status: http.StatusBadRequest, Type: openai.InvalidRequest, Code: "busy",
			Message: fmt.Sprintf("the cache is not flushed: %d requests run and %d wait", st.Running, st.Waiting)})
		return
	}
	n := e.Flush()
	s.report.flushed(e.Stats())
	s.cfg.Log.Info(fmt.Sprintf("Cache flushed: %d blocks", n))
	s.writeJSON(w, http.StatusOK, map[string]any{"success": true, "blocks": n})
}
