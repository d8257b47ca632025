// Package kvcache keeps the books of the paged key/value storage: which block belongs to whom.
// [Ledger] counts references to blocks and finds cached prefixes; [Table] lists the blocks of one
// sequence. Blocks are integers of [compute.BlockSlots] token slots each.
//
// It knows no tensor, no clock and no model (invariant 5): what lies in a block is the caller's. Three
// things are asked of the caller, and the sharing of blocks rests on them:
//
//   - What a block holds depends only on the tokens up to the block's end, to the bit (invariant 2), and
//     on the salt. The drafter's rows live in the same block ids as the target's: slot s of the drafter
//     holds the row made of the target's hidden state at s−1 and token s.
//   - A side buffer of state that continues behind a full block (the hidden state of its last row, of
//     which the drafter makes the next block's first row) is indexed by block id, and is filled before
//     [Ledger.Commit] sees the block. The ledger needs no entry for it: the state lives and dies with
//     its block.
//   - A slot is written only in a block that its sequence alone holds and that is not committed.
//     Appending behind the committed tokens keeps to that; [Ledger.Truncate] panics where it would end.
//
// The ledger keeps these invariants, which [Ledger.CheckIntegrity] checks:
//
//   - L1: every block is in exactly one state: free, held (references > 0), or idle (in the tree, held by nobody).
//   - L2: a block's references are the tables that list it; more than one only if it is in the tree.
//   - L3: the tree's parent of a held block is held; so an idle block's descendants are all idle.
//   - L4: in the order of eviction a block comes before its parent; so the first is always a leaf.
package kvcache

import (
	"fmt"

	"draftlab/engine/compute"
)

// none is the absent block: no parent, end of a list.
const none int32 = -1

// key is what makes two cached blocks equal: the block before, the salt (of first blocks; it is
// inherited through the parent) and the tokens.
type key struct {
	salt   uint64
	parent int32 // none for a first block
	tokens [compute.BlockSlots]int32
}

// block is the state of one block.
type block struct {
	refs     int32 // tables that list it
	children int32 // blocks of the tree that continue it
	cached   bool  // it is in the tree
	older    int32 // neighbours in the order of eviction while idle
	newer    int32
	key      key // while cached
}

// Ledger keeps the books of a fixed number of blocks. One goroutine at a time may call it. Extend, Truncate
// and Release allocate nothing once a table's Blocks has the capacity.
type Ledger struct {
	blocks []block
	free   []int32       // a stack
	tree   map[key]int32 // cached blocks by content
	oldest int32         // ends of the list of idle blocks
	newest int32
	idle   int
}

// Table lists the blocks of one sequence. The zero Table is empty and ready; it may be used again after
// [Ledger.Release]. Tables belong to one ledger.
type Table struct {
	// Blocks is the block table: slot s lies in block Blocks[s/BlockSlots]. Only the ledger writes it;
	// Commit may replace an entry by an equal block's.
	Blocks []int32

	salt   uint64
	cached int // leading blocks that lie in the tree
}

// Slots returns how many token slots the table covers.
func (t *Table) Slots() int { return len(t.Blocks) * compute.BlockSlots }

// New makes a ledger of n free blocks with the ids 0 to n−1. It panics if n is not positive.
func New(n int) *Ledger {
	if n < 1 {
		panic(fmt.Sprintf("kvcache: a ledger of %d blocks", n))
	}
	l := &Ledger{
		blocks: make([]block, n), free: make([]int32, n),
		tree:   make(map[key]int32, n),
		oldest: none, newest: none,
	}
	for i := range l.free {
		l.free[i] = int32(n - 1 - i) // the lowest id is taken first
		l.blocks[i].older, l.blocks[i].newer = none, none
	}
	return l
}

// Blocks returns the number of blocks; Free, Cached and Used add up to it.
func (l *Ledger) Blocks() int { return len(l.blocks) }

// Free returns the number of blocks that hold nothing.
func (l *Ledger) Free() int { return len(l.free) }

// Cached returns the number of idle blocks: cached, held by no sequence, given up when space is needed.
func (l *Ledger) Cached() int { return l.idle }

// Used returns the number of blocks that sequences hold.
func (l *Ledger) Used() int { return len(l.blocks) - len(l.free) - l.idle }

// BlocksFor returns the number of blocks that cover n slots.
func BlocksFor(n int) int { return (n + compute.BlockSlots - 1) / compute.BlockSlots }

// Extend makes t cover at least n slots. It takes free blocks first, then gives up the idle blocks that
// were used longest ago. If both together do not suffice it changes nothing and returns false.
func (l *Ledger) Extend(t *Table, n int) bool {
	need := BlocksFor(n) - len(t.Blocks)
	if need > len(l.free)+l.idle {
		return false
	}
	for ; need > 0; need-- {
		t.Blocks = append(t.Blocks, l.take())
	}
	return true
}

// Truncate drops the blocks of t that no slot below n needs: rejected drafts are rolled back. It panics if
// slot n lies in a block that is committed, because writing it again would change what others read.
func (l *Ledger) Truncate(t *Table, n int) {
	keep := BlocksFor(n)
	if n < 0 || keep > len(t.Blocks) {
		panic(fmt.Sprintf("kvcache: truncate to %d slots a table of %d", n, t.Slots()))
	}
	if n%compute.BlockSlots != 0 {
		if b := t.Blocks[keep-1]; l.blocks[b].cached {
			panic(fmt.Sprintf("kvcache: truncate to slot %d inside block %d, which is committed", n, b))
		}
	}
	l.drop(t, keep)
}

// Release gives all blocks of t back and empties it. Committed blocks stay in the tree until their space is needed.
func (l *Ledger) Release(t *Table) {
	l.drop(t, 0)
	t.salt = 0
}

// take returns a block with one reference, from the free ones or the idle one used longest ago. There must be one.
func (l *Ledger) take() int32 {
	if len(l.free) == 0 {
		l.evict()
	}
	b := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.blocks[b].refs = 1
	return b
}

// drop gives back all but the first keep blocks of t, the last first, so that a block becomes idle before its parent (L4).
func (l *Ledger) drop(t *Table, keep int) {
	for i := len(t.Blocks) - 1; i >= keep; i-- {
		l.unref(t.Blocks[i])
	}
	t.Blocks = t.Blocks[:keep]
	t.cached = min(t.cached, keep)
}

// unref takes one reference off a block; the last one frees it, or makes it idle if it is in the tree.
func (l *Ledger) unref(id int32) {
	b := &l.blocks[id]
	if b.refs < 1 {
		panic(fmt.Sprintf("kvcache: block %d released more often than taken", id))
	}
	b.refs--
	switch {
	case b.refs > 0:
	case b.cached:
		l.pushIdle(id)
	default:
		l.free = append(l.free, id)
	}
}
