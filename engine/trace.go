package engine

import (
	"errors"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/trace"
)

// ErrTracing is StartTrace's error while a trace is being recorded.
var ErrTracing = errors.New("a trace is being recorded")

// StartTrace records what the engine does from a step on (Stats.Steps counts them; one that has passed is the next), for a number of cycles or,
// with 0, until StopTrace. The returned trace can be written once it is Done. It may be called by any goroutine.
func (e *Engine) StartTrace(first int64, cycles int) (t *trace.Trace, err error) {
	e.onLoop(func() {
		if e.trace != nil {
			err = ErrTracing
			return
		}
		t = trace.New(e.count.clock.Mark(), first, cycles)
		e.trace = t
		if dev := e.passLogger(); dev != nil {
			dev.LogPasses(true)
		}
	})
	return t, err
}

// StopTrace ends the trace that is being recorded and returns it, nil if there is none. It may be called by any goroutine.
func (e *Engine) StopTrace() (t *trace.Trace) {
	e.onLoop(func() {
		if t = e.trace; t != nil {
			e.endTrace()
		}
	})
	return t
}

// passLogger is the device if it can log passes, else nil.
func (e *Engine) passLogger() compute.PassLogger {
	dev, _ := e.Device().(compute.PassLogger)
	return dev
}

// endTrace ends the trace in progress.
func (e *Engine) endTrace() {
	if dev := e.passLogger(); dev != nil {
		dev.LogPasses(false)
	}
	for _, s := range e.seqs {
		if s != nil {
			e.traceRequest(s, "")
		}
	}
	e.trace.Finish(e.count.clock.Mark())
	e.trace = nil
}

// traceCycle adds the closed iteration to the trace in progress.
func (e *Engine) traceCycle() {
	if !e.trace.Cycle(e.count.stats.Steps+1, e.count.ledger, e.passLogger()) {
		e.endTrace()
	}
}

// traceRequest adds a request to the trace in progress, with what there is of it.
func (e *Engine) traceRequest(s *sequence, reason FinishReason) {
	origin := e.count.clock.Origin()
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return int64(t.Sub(origin))
	}
	s.h.mu.Lock()
	r := &s.h.res
	q := trace.Request{
		ID: s.number, Prompt: len(s.req.Prompt), Cached: r.Cached, Output: len(r.Tokens), Accepted: r.Draft.Accepted, Cycles: r.Draft.Cycles,
		Preempted: r.Preempted, Finish: string(reason),
	}
	s.h.mu.Unlock()
	q.Submitted, q.Started, q.First, q.Decoded = at(s.submitted), at(s.started), at(s.first), at(time.Now())
	e.trace.Request(q)
}
