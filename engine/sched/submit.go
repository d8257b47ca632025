package sched

import (
	"errors"
	"fmt"
	"slices"
)

// ErrContext is wrapped by the error for a prompt that is longer than the context.
var ErrContext = errors.New("the prompt does not fit the context")

// ErrTooLarge is wrapped by the error for a sequence that would not fit the memory even alone.
var ErrTooLarge = errors.New("the sequence never fits the key/value memory")

// FullError is Submit's refusal when the queue is full.
type FullError struct{ Backlog Backlog }

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("the queue is full: %d waiting, %d running; a place is free after at most about %d steps",
		e.Backlog.Waiting, e.Backlog.Running, e.Backlog.Steps)
}

// Backlog is the work that is queued, for an estimate of when to come back.
type Backlog struct {
	Waiting, Running int
	PromptRows       int // prompt rows still to run, cache hits not counted off
	OutputTokens     int // most tokens still to emit
	// Steps is the number of steps until the first running sequence ends, if it emits all it may at one token a
	// step: then the queue moves up. Drafts and stop tokens make it sooner, a preemption later.
	Steps int
}

// Backlog returns the work that is queued.
func (s *Scheduler) Backlog() Backlog {
	b := Backlog{Waiting: len(s.queue), Running: len(s.running)}
	for _, q := range s.queue {
		b.PromptRows += s.seqs[q].known()
		b.OutputTokens += s.seqs[q].output - s.seqs[q].emitted
	}
	ahead := 0 // prompt rows up to and with the sequence's own
	for i, q := range s.running {
		r := &s.seqs[q]
		steps := r.output - r.emitted
		b.OutputTokens += steps
		if r.state == prefill {
			ahead += r.known() - r.ran
			steps += (ahead+s.cfg.PrefillRows-1)/s.cfg.PrefillRows - 1 // its last chunk emits the first of them
		}
		if i == 0 || steps < b.Steps {
			b.Steps = steps
		}
	}
	b.PromptRows += ahead
	return b
}

// Submit adds a sequence at the end of the queue and returns its handle. It refuses what could never run (errors
// that wrap ErrContext or ErrTooLarge, or name the count that is wrong) and, with a *FullError, what finds the queue full.
func (s *Scheduler) Submit(r Request) (Seq, error) {
	output, err := s.admissible(&r)
	if err != nil {
		return 0, err
	}
	if len(s.queue) >= s.cfg.MaxWaiting {
		return 0, &FullError{s.Backlog()}
	}
	var after int64
	if r.After != 0 {
		after = s.get(r.After).arrival
	}
	q := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.arrivals++
	s.seqs[q] = seq{req: r, state: waiting, arrival: s.arrivals, after: after, output: output}
	s.queue = append(s.queue, q)
	return q, nil
}

// admissible refuses a request that can never run, and returns how many tokens it may emit in the context.
func (s *Scheduler) admissible(r *Request) (output int, err error) {
	switch {
	case r.Prompt < 1:
		return 0, errors.New("the prompt is empty: at least one token is needed")
	case r.Output < 1:
		return 0, fmt.Errorf("output tokens = %d: at least 1 is needed", r.Output)
	case r.Depth < 0 || r.Rows < 1 || (r.Depth == 0) != (r.Rows == 1):
		return 0, fmt.Errorf("draft depth %d with %d verify rows: a draft needs at least 2 rows, plain decoding (depth 0) exactly 1",
			r.Depth, r.Rows)
	case r.Prompt > s.cfg.Context:
		return 0, fmt.Errorf("%w: %d prompt tokens, context %d", ErrContext, r.Prompt, s.cfg.Context)
	}
	output = min(r.Output, s.cfg.Context-r.Prompt+1)
	if need := r.Prompt + output - 1; need+s.cfg.Spare > s.mem.Capacity() {
		return 0, fmt.Errorf("%w: %d prompt and %d output tokens need %d slots, all blocks together hold %d: "+
			"ask for fewer output tokens or give the server more blocks", ErrTooLarge, r.Prompt, output, need, s.mem.Capacity())
	}
	return output, nil
}

// Cancel removes a sequence, whatever its state, and releases its blocks. One that is in the current plan stays until it is
// reported, since its rows may be running; that Report then returns true whatever it reports.
func (s *Scheduler) Cancel(q Seq) {
	r := s.get(q)
	if r.planned > 0 {
		r.cancelled = true
		return
	}
	s.remove(q)
}

// remove forgets a sequence.
func (s *Scheduler) remove(q Seq) {
	if s.seqs[q].state == waiting {
		s.queue = without(s.queue, q)
	} else {
		s.running = without(s.running, q)
		s.release(q)
	}
	s.seqs[q].state = absent
	s.free = append(s.free, q)
}

// release gives back a running sequence's blocks.
func (s *Scheduler) release(q Seq) {
	s.mem.Release(q)
	s.seqs[q].ran, s.seqs[q].slots = 0, 0
}

// without removes q from a list in place.
func without(list []Seq, q Seq) []Seq {
	i := slices.Index(list, q)
	return slices.Delete(list, i, i+1)
}
