// Package sched decides which sequences run next. [Scheduler] is a state machine over counts: the engine
// submits sequences, asks for a [Plan], runs it and reports what came out.
//
// It knows no tokens, no tensors and no clock (invariant 5); blocks are behind [Memory]. Its rules:
//
//   - S1: first come, first served. Prompts are taken in order of arrival; a prompt gets rows only when all
//     before it have theirs, so first tokens come in order of arrival while nothing is preempted.
//   - S2: every running sequence past its prompt takes part in every step, drafts or not.
//   - S3: no step exceeds the row budgets; no more than MaxRunning sequences run.
//   - S4: drafts never take what a sequence may not emit, nor cost anyone a place: they use blocks that nobody else wants in
//     the step, and without room for all of its draft rows a sequence runs with those that fit its blocks.
//   - S5: without room for one row the youngest running sequence is preempted. It waits in front of those that never ran and
//     runs its prompt and its output so far again, so the oldest always advances and every sequence ends.
package sched

import (
	"fmt"

	"draftlab/engine/compute"
)

// Seq is a sequence's handle: a small index from 1 on, used again after the sequence is gone. 0 is no sequence.
type Seq int32

// Memory is what the scheduler asks of the block storage. All blocks that are not given to the scheduler's
// sequences can be given to them: whoever else holds some breaks S5.
type Memory interface {
	// Capacity is the number of token slots that a sequence alone can have.
	Capacity() int
	// Match gives q, which holds nothing, the longest cached prefix of its known tokens, and returns its length in
	// slots, less than the number of known tokens.
	Match(q Seq) int
	// Extend makes q's blocks cover slots, or changes nothing and returns false.
	Extend(q Seq, slots int) bool
	// Truncate takes the blocks of q behind the first slots: rejected drafts are rolled back.
	Truncate(q Seq, slots int)
	// Release takes all of q's blocks. It is called when q has finished, was cancelled or
	// is preempted, and when what Match gave was not enough to start.
	Release(q Seq)
}

// Config bounds a scheduler.
type Config struct {
	Context     int // longest sequence in slots: prompt and output but for the last token, which needs none
	MaxRunning  int // sequences in one step
	MaxWaiting  int // sequences not yet running; beyond it Submit refuses
	PrefillRows int // prompt rows in one step
	DecodeRows  int // decode and verify rows in one step, at least MaxRunning
	// Spare is the number of slots that a sequence has beyond those of its rows: a drafter's row of the next token, say,
	// which is made before that token runs.
	Spare int
}

// Validate returns an error for bounds with which nothing, or not every running sequence, could advance.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		v    int
		min  int
	}{
		{"context", c.Context, 1}, {"running sequences", c.MaxRunning, 1}, {"waiting sequences", c.MaxWaiting, 1},
		{"prefill rows", c.PrefillRows, 1}, {"decode rows", c.DecodeRows, c.MaxRunning},
	} {
		if f.v < f.min {
			return fmt.Errorf("sched: %s = %d: at least %d is needed", f.name, f.v, f.min)
		}
	}
	return nil
}

// Request describes a sequence by its counts.
type Request struct {
	Prompt int // tokens, at least 1
	Output int // most tokens to emit, at least 1; the context may end the output earlier
	Depth  int // drafted tokens a cycle on one path, 0 for plain decoding
	Rows   int // rows of a verify pass, root included: 1 + nodes of the candidate tree

	// After, if not 0, is a live sequence with the same prompt (another choice of one request): this one is not
	// admitted while that one runs its prompt, and then finds the prompt's full blocks in the cache.
	After Seq
}

// Chunk is a run of prompt rows of one sequence: its known tokens in slots [From, From+N).
type Chunk struct {
	Seq  Seq
	From int
	N    int
	Last bool // the chunk ends at the last known token: its last row's logits give the next one
}

// Step is one decode or verify cycle of a sequence.
type Step struct {
	Seq   Seq
	Root  int // slot of the root, the last token emitted, which has not run yet
	Depth int // most drafted tokens on one path; 0 for plain decoding
	Rows  int // most rows in slots [Root, Root+Rows), root included
}

// Admission is a sequence that starts to run, for the first time or again.
type Admission struct {
	Seq    Seq
	Cached int // slots that the cache gave; its prompt rows begin there
}

// Plan is one step. The slices are the scheduler's, good until the next call of Plan.
type Plan struct {
	Preempted []Seq // taken off first; Memory.Release was called for each
	Admitted  []Admission
	Prefill   []Chunk // in order of arrival, at most Config.PrefillRows rows together
	Decode    []Step  // in order of arrival, at most Config.DecodeRows rows together
}

// Empty reports whether there is nothing to run.
func (p *Plan) Empty() bool { return len(p.Prefill) == 0 && len(p.Decode) == 0 }

// state is where a sequence stands.
type state uint8

const (
	absent  state = iota // the handle is not in use
	waiting              // not admitted, or preempted
	prefill              // known tokens are being run
	decode               // all known tokens but the last have run
)

// seq is what the scheduler knows of a sequence.
type seq struct {
	req     Request
	state   state
	arrival int64 // order of Submit
	after   int64 // arrival of req.After, whose handle may be another's by now
	output  int   // most tokens to emit, cut to the context
	emitted int
	ran     int // slots whose rows have run
	slots   int // slots that its blocks cover

	planned   int  // rows of the current plan that are not reported yet
	emit      int  // most tokens that they emit
	cancelled bool // while planned
}

// known is the number of known tokens.
func (s *seq) known() int { return s.req.Prompt + s.emitted }

// limit is the number of slots that the whole sequence needs: its last token needs none.
func (s *seq) limit() int { return s.req.Prompt + s.output - 1 }

// Scheduler holds the waiting queue and the running set. One goroutine at a time may call it. After New it allocates nothing.
type Scheduler struct {
	cfg      Config
	mem      Memory
	seqs     []seq
	free     []Seq // unused handles
	queue    []Seq // waiting, in order of arrival
	running  []Seq // in order of arrival
	plan     Plan
	arrivals int64
	pending  int // planned sequences that are not reported yet
}

// New makes a scheduler.
func New(cfg Config, mem Memory) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// Submit needs a free place in the queue, so that no more than these live even when running ones return to it.
	n := cfg.MaxRunning + cfg.MaxWaiting
	s := &Scheduler{
		cfg: cfg, mem: mem, seqs: make([]seq, n+1), free: make([]Seq, n),
		queue: make([]Seq, 0, n), running: make([]Seq, 0, cfg.MaxRunning),
		plan: Plan{
			Preempted: make([]Seq, 0, cfg.MaxRunning), Admitted: make([]Admission, 0, cfg.MaxRunning),
			Prefill: make([]Chunk, 0, cfg.MaxRunning), Decode: make([]Step, 0, cfg.MaxRunning),
		},
	}
	for i := range s.free {
		s.free[i] = Seq(n - i)
	}
	return s, nil
}

// Handles returns one more than the largest handle, the size of an array that Seq indexes.
func (s *Scheduler) Handles() int { return len(s.seqs) }

// Running returns the number of running sequences.
func (s *Scheduler) Running() int { return len(s.running) }

// Waiting returns the number of waiting sequences, preempted ones included.
func (s *Scheduler) Waiting() int { return len(s.queue) }

// Emitted returns how many tokens of a sequence have been reported.
func (s *Scheduler) Emitted(q Seq) int { return s.get(q).emitted }

// Left returns how many tokens a sequence may still emit.
func (s *Scheduler) Left(q Seq) int { return s.get(q).output - s.get(q).emitted }

// get returns a sequence that must exist.
func (s *Scheduler) get(q Seq) *seq {
	if q < 1 || int(q) >= len(s.seqs) || s.seqs[q].state == absent {
		panic(fmt.Sprintf("sched: sequence %d does not exist", q))
	}
	return &s.seqs[q]
}

// roundUp rounds slots up to whole blocks.
func roundUp(slots int) int {
	return (slots + compute.BlockSlots - 1) / compute.BlockSlots * compute.BlockSlots
}
