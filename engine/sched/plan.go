package sched

import (
	"fmt"
	"slices"

	"draftlab/engine/compute"
)

// Plan decides the next step. Everything in it must be reported before the next call.
func (s *Scheduler) Plan() *Plan {
	if s.pending > 0 {
		panic(fmt.Sprintf("sched: Plan with %d sequences of the last plan not reported", s.pending))
	}
	p := &s.plan
	p.Preempted, p.Admitted, p.Prefill, p.Decode = p.Preempted[:0], p.Admitted[:0], p.Prefill[:0], p.Decode[:0]
	s.makeRoom(p)
	budget := s.planPrefill(p)
	if len(p.Preempted) == 0 { // who was just sent away would be called back at once
		s.admit(p, budget)
	}
	s.planDecode(p) // last, so that drafts take no block that admits someone (S4)
	if len(s.running) == 0 && len(s.queue) > 0 {
		panic(fmt.Sprintf("sched: sequence %d does not run alone in a memory of %d slots: someone else holds blocks",
			s.queue[0], s.mem.Capacity()))
	}
	return p
}

// makeRoom sees to it that every sequence past its prompt has the slot of its root, the oldest first, at the cost
// of the youngest running sequence, which may be the one at hand (S5).
func (s *Scheduler) makeRoom(p *Plan) {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		if s.seqs[q].state != decode {
			continue
		}
		for !s.extend(q, s.seqs[q].known()) {
			youngest := s.running[len(s.running)-1]
			s.preempt(p, youngest)
			if youngest == q {
				break
			}
		}
	}
}

// preempt sends the youngest running sequence back to the head of the queue: all that wait arrived after it.
func (s *Scheduler) preempt(p *Plan, q Seq) {
	s.running = s.running[:len(s.running)-1]
	s.release(q)
	s.seqs[q].state = waiting
	s.queue = slices.Insert(s.queue, 0, q)
	p.Preempted = append(p.Preempted, q)
}

// planDecode plans a cycle for every sequence past its prompt (S2). Each has its share of the row budget; what
// one leaves of it is for those behind it.
func (s *Scheduler) planDecode(p *Plan) {
	left := 0
	for _, q := range s.running {
		if s.seqs[q].state == decode {
			left++
		}
	}
	rows := s.cfg.DecodeRows
	for _, q := range s.running {
		if s.seqs[q].state != decode {
			continue
		}
		step := s.cycle(q, rows/left)
		p.Decode = append(p.Decode, step)
		s.mark(q, step.Rows, 1+step.Depth)
		rows -= step.Rows
		left--
	}
}

// cycle caps a sequence's draft by what it may still emit, the context, its share of rows and its blocks (S4).
func (s *Scheduler) cycle(q Seq, share int) Step {
	r := &s.seqs[q]
	root := r.known() - 1
	depth := min(r.req.Depth, r.output-r.emitted-1) // a cycle emits up to depth+1 tokens
	rows := min(r.req.Rows, share, s.cfg.Context-root)
	if r.req.Rows == 1+r.req.Depth {
		rows = min(rows, 1+depth) // a chain has no use for more
	}
	if depth == 0 {
		rows = 1
	}
	if !s.extend(q, root+rows) {
		rows = r.slots - root // the root's slot is there since makeRoom
	}
	return Step{Seq: q, Root: root, Depth: min(depth, rows-1), Rows: rows}
}

// planPrefill gives prompt rows to the running sequences that need some, in order of arrival (S1), and returns the rows left.
func (s *Scheduler) planPrefill(p *Plan) (budget int) {
	budget = s.cfg.PrefillRows
	for _, q := range s.running {
		if s.seqs[q].state == prefill && budget > 0 {
			budget -= s.chunk(p, q, budget)
		}
	}
	return budget
}

// chunk plans the next prompt rows of a sequence, at most budget, and returns their number.
func (s *Scheduler) chunk(p *Plan, q Seq, budget int) int {
	r := &s.seqs[q]
	n := min(budget, r.known()-r.ran)
	c := Chunk{Seq: q, From: r.ran, N: n, Last: r.ran+n == r.known()}
	p.Prefill = append(p.Prefill, c)
	if c.Last {
		s.mark(q, n, 1)
	} else {
		s.mark(q, n, 0)
	}
	return n
}

// admit takes sequences from the head of the queue while there are places, prompt rows and blocks.
func (s *Scheduler) admit(p *Plan, budget int) {
	for len(s.queue) > 0 && len(s.running) < s.cfg.MaxRunning && budget > 0 {
		q := s.queue[0]
		r := &s.seqs[q]
		if a := &s.seqs[r.req.After]; a.state == prefill && a.arrival == r.after {
			return // its prompt is being run: soon a cache hit
		}
		cached := s.mem.Match(q)
		if cached < 0 || cached >= r.known() {
			panic(fmt.Sprintf("sched: a cached prefix of %d slots for %d known tokens", cached, r.known()))
		}
		// One block beyond the known tokens keeps it from being sent away again with its first tokens.
		if !s.extend(q, min(r.known()+compute.BlockSlots, r.limit())) {
			s.release(q)
			return
		}
		s.queue = slices.Delete(s.queue, 0, 1)
		s.running = append(s.running, q)
		r.state, r.ran = prefill, cached
		p.Admitted = append(p.Admitted, Admission{Seq: q, Cached: cached})
		budget -= s.chunk(p, q, budget)
	}
}

// extend makes a sequence's blocks cover slots if there is room.
func (s *Scheduler) extend(q Seq, slots int) bool {
	r := &s.seqs[q]
	if slots <= r.slots {
		return true
	}
	if !s.mem.Extend(q, slots+s.cfg.Spare) {
		return false
	}
	r.slots = s.covered(slots)
	return true
}

// covered is how many slots of rows there is room for, spare ones apart, where blocks for slots of them have been asked for.
func (s *Scheduler) covered(slots int) int { return roundUp(slots+s.cfg.Spare) - s.cfg.Spare }

// mark notes that rows of a sequence are planned, and that they emit at most the given number of tokens.
func (s *Scheduler) mark(q Seq, rows, emit int) {
	s.seqs[q].planned, s.seqs[q].emit = rows, emit
	s.pending++
}

// Report says what a planned chunk or cycle gave: how many tokens were emitted, and whether the sequence ended
// (a stop token, a failure). A chunk emits one token if it is the last, else none; a cycle emits one to Depth+1.
// Report returns true when the sequence is over, by its end, its limit or a Cancel: then its blocks are released and the handle
// is free. Otherwise the slots of rejected drafts are rolled back. Commit blocks to a cache before reporting.
func (s *Scheduler) Report(q Seq, emitted int, ended bool) (over bool) {
	r := s.get(q)
	if r.planned == 0 {
		panic(fmt.Sprintf("sched: sequence %d is not in the plan", q))
	}
	least := min(r.emit, 1)
	if emitted < 0 || emitted > r.emit || emitted < least && !ended {
		panic(fmt.Sprintf("sched: sequence %d emitted %d tokens, its plan allows %d to %d", q, emitted, least, r.emit))
	}
	if r.state == prefill {
		r.ran += r.planned
	} else {
		r.ran += emitted // the root and the accepted drafts
	}
	r.emitted += emitted
	r.planned = 0
	s.pending--
	if ended || r.cancelled || r.emitted == r.output {
		s.remove(q)
		return true
	}
	if r.state == decode {
		s.mem.Truncate(q, r.ran+s.cfg.Spare)
		r.slots = s.covered(r.ran)
	} else if emitted == 1 {
		r.state = decode
	}
	return false
}
