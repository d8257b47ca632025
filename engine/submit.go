package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"draftlab/engine/sched"
)

// ErrContext is wrapped by the error for a prompt that does not fit the context.
var ErrContext = sched.ErrContext

// ErrQueueFull is wrapped by Submit's error when as many requests wait as may.
var ErrQueueFull = errors.New("the queue is full")

var errNoDrafter = errors.New("drafter eagle3: no drafter is loaded")

// inbox is what other goroutines leave for the loop.
type inbox struct {
	mu     sync.Mutex
	fresh  []*sequence
	cancel []*Handle
	do     []func() // to be run between steps
	queued int      // requests that are submitted and do not run yet
	wake   chan struct{}
}

// post wakes the loop.
func (b *inbox) post() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Submit hands in a request, which waits for a place among the running ones. Its error says what is wrong with the request, or wraps
// ErrQueueFull. It may be called by any goroutine; the output comes while someone runs steps (Run, Generate).
func (e *Engine) Submit(req Request) (*Handle, error) {
	spec, err := e.check(&req)
	if err != nil {
		return nil, err
	}
	h := newHandle(nil)
	h.cancel = func() {
		e.inbox.mu.Lock()
		e.inbox.cancel = append(e.inbox.cancel, h)
		e.inbox.mu.Unlock()
		e.inbox.post()
	}
	s := e.newSequence(req, spec, h)
	e.inbox.mu.Lock()
	if e.inbox.queued >= e.opt.MaxWaiting {
		n := e.inbox.queued
		e.inbox.mu.Unlock()
		return nil, fmt.Errorf("%w: %d requests wait", ErrQueueFull, n)
	}
	e.inbox.queued++
	e.inbox.fresh = append(e.inbox.fresh, s)
	e.inbox.mu.Unlock()
	e.inbox.post()
	return h, nil
}

// check refuses what cannot be run and resolves how the request speculates.
func (e *Engine) check(req *Request) (Spec, error) {
	if len(req.Prompt) == 0 {
		return Spec{}, errors.New("the prompt is empty: at least one token is needed")
	}
	if len(req.Prompt) > e.Context() {
		return Spec{}, fmt.Errorf("%w: %d prompt tokens, context %d", ErrContext, len(req.Prompt), e.Context())
	}
	vocab := e.model.Config().Vocab
	for i, id := range req.Prompt {
		if id < 0 || int(id) >= vocab {
			return Spec{}, fmt.Errorf("prompt token %d: token id %d: the vocabulary has %d", i, id, vocab)
		}
	}
	if req.MaxTokens < 1 {
		return Spec{}, fmt.Errorf("max tokens = %d: at least 1 is needed", req.MaxTokens)
	}
	if need := min(len(req.Prompt)+req.MaxTokens-1, e.Context()); need+spareSlots > (memory{e}).Capacity() {
		return Spec{}, fmt.Errorf("%w: %d prompt and %d output tokens: ask for fewer output tokens", sched.ErrTooLarge, len(req.Prompt), req.MaxTokens)
	}
	if err := req.Sampling.Validate(); err != nil {
		return Spec{}, err
	}
	if req.TopLogprobs < 0 || req.TopLogprobs > vocab {
		return Spec{}, fmt.Errorf("top logprobs = %d: want 0 to %d", req.TopLogprobs, vocab)
	}
	for _, b := range req.Sampling.LogitBias {
		if b.ID < 0 || int(b.ID) >= vocab {
			return Spec{}, fmt.Errorf("logit bias for token id %d: the vocabulary has %d", b.ID, vocab)
		}
	}
	return e.checkSpec(req.Spec)
}

// checkSpec resolves a request's way of speculating.
func (e *Engine) checkSpec(own *Spec) (Spec, error) {
	if own == nil {
		return e.opt.Spec, nil
	}
	spec := *own
	if err := spec.resolve(); err != nil {
		return spec, err
	}
	if spec.Drafter == DraftModel && e.drafter == nil {
		return spec, errNoDrafter
	}
	if err := e.simulates(&spec); err != nil {
		return spec, err
	}
	return spec, spec.Shape.Within(e.opt.Limit)
}

// Flush drops the cached prefixes that no running sequence uses and returns the number of blocks. It may be called by any
// goroutine, whether or not someone runs steps.
func (e *Engine) Flush() int {
	n := 0
	e.onLoop(func() { n = e.ledger.Flush() })
	return n
}

// onLoop has f run between two steps, on whatever goroutine, and waits for it.
func (e *Engine) onLoop(f func()) {
	done := make(chan struct{})
	e.inbox.mu.Lock()
	e.inbox.do = append(e.inbox.do, func() {
		f()
		close(done)
	})
	e.inbox.mu.Unlock()
	e.inbox.post()
	for {
		if e.driver.TryLock() { // nobody runs steps, or no longer
			e.receive()
			e.driver.Unlock()
		}
		select {
		case <-done:
			return
		case <-time.After(loopRetry):
		}
	}
}

// loopRetry is how long onLoop waits for the step in progress before it looks again whether anyone runs steps.
const loopRetry = 20 * time.Millisecond

// receive takes what others have left: it runs between steps.
func (e *Engine) receive() {
	e.inbox.mu.Lock()
	fresh, cancel, do := e.inbox.fresh, e.inbox.cancel, e.inbox.do
	e.inbox.fresh, e.inbox.cancel, e.inbox.do = nil, nil, nil
	e.inbox.mu.Unlock()
	for _, s := range fresh {
		e.accept(s)
	}
	for _, h := range cancel {
		for q, s := range e.seqs {
			if s != nil && s.h == h {
				e.sched.Cancel(sched.Seq(q))
				e.end(s, FinishAbort, context.Canceled)
			}
		}
	}
	for _, f := range do {
		f()
	}
}

// accept hands a sequence to the scheduler.
func (e *Engine) accept(s *sequence) {
	q, err := e.sched.Submit(sched.Request{
		Prompt: len(s.req.Prompt), Output: s.req.MaxTokens, Depth: s.spec.Shape.Steps, Rows: s.spec.Shape.Rows(),
	})
	if err != nil {
		e.leaveQueue()
		s.finish(FinishAbort, err)
		e.count.update(func(c *Stats) { c.Failed++ })
		return
	}
	e.served++
	s.id, s.number, e.seqs[q] = q, e.served, s
}

// leaveQueue counts a request off the waiting ones.
func (e *Engine) leaveQueue() {
	e.inbox.mu.Lock()
	e.inbox.queued--
	e.inbox.mu.Unlock()
}

// end forgets a sequence that the scheduler has let go.
func (e *Engine) end(s *sequence, reason FinishReason, err error) {
	if s.started.IsZero() {
		e.leaveQueue()
	}
	e.seqs[s.id] = nil
	if e.trace != nil {
		e.traceRequest(s, reason)
	}
	s.finish(reason, err)
	e.count.update(func(c *Stats) {
		switch {
		case err == nil:
			c.Finished++
		case errors.Is(err, context.Canceled):
			c.Cancelled++
		default:
			c.Failed++
		}
	})
}
