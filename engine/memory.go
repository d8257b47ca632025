package engine

import (
	"draftlab/engine/compute"
	"draftlab/engine/sched"
)

// spareSlots is sched.Config.Spare: the drafter's row of the next token is made before that token has run.
const spareSlots = 1

// memory is the scheduler's view of the block ledger.
type memory struct {
	e *Engine
}

// Capacity implements sched.Memory.
func (m memory) Capacity() int { return m.e.ledger.Blocks() * compute.BlockSlots }

// Match implements sched.Memory.
func (m memory) Match(q sched.Seq) int {
	s := m.e.seqs[q]
	if s.req.NoCache {
		return m.e.ledger.Match(&s.table, nil, s.salt)
	}
	return m.e.ledger.Match(&s.table, s.tokens, s.salt)
}

// Extend implements sched.Memory.
func (m memory) Extend(q sched.Seq, slots int) bool {
	return m.e.ledger.Extend(&m.e.seqs[q].table, slots)
}

// Truncate implements sched.Memory.
func (m memory) Truncate(q sched.Seq, slots int) {
	m.e.ledger.Truncate(&m.e.seqs[q].table, slots)
}

// Release implements sched.Memory.
func (m memory) Release(q sched.Seq) { m.e.ledger.Release(&m.e.seqs[q].table) }

// commit lets other sequences find the full blocks of what has run of s: its first ran slots.
func (e *Engine) commit(s *sequence, ran int) {
	if !s.req.NoCache {
		e.ledger.Commit(&s.table, s.tokens[:ran/compute.BlockSlots*compute.BlockSlots])
	}
}

// The salts of the prefix tree: blocks with and without drafter rows are different blocks.
const (
	saltPlain   = 0
	saltDrafted = 1
)
