package kvcache

import (
	"errors"
	"fmt"
)

// CheckIntegrity returns an error that names the first broken invariant of the ledger (L1, L3, L4 and that the tree
// agrees with its blocks), or nil. It walks all blocks: call it when idle and in tests.
func (l *Ledger) CheckIntegrity() error {
	isFree := make([]bool, len(l.blocks))
	for _, id := range l.free {
		if b := &l.blocks[id]; isFree[id] || b.refs != 0 || b.cached {
			return fmt.Errorf("kvcache: L1: free block %d: twice %v, references %d, cached %v", id, isFree[id], b.refs, b.cached)
		}
		isFree[id] = true
	}
	if err := l.checkIdle(); err != nil {
		return err
	}
	children := make([]int32, len(l.blocks))
	var cached int
	for i := range l.blocks {
		b, id := &l.blocks[i], int32(i)
		if b.refs < 0 || b.refs == 0 && !b.cached && !isFree[id] {
			return fmt.Errorf("kvcache: L1: block %d is lost: references %d, neither free nor cached", id, b.refs)
		}
		if !b.cached {
			if b.refs > 1 {
				return fmt.Errorf("kvcache: L2: block %d has %d references and is not committed", id, b.refs)
			}
			continue
		}
		cached++
		if at, ok := l.tree[b.key]; !ok || at != id {
			return fmt.Errorf("kvcache: the tree does not lead to cached block %d", id)
		}
		if p := b.key.parent; p != none {
			children[p]++
			if up := &l.blocks[p]; !up.cached || b.refs > 0 && up.refs == 0 {
				return fmt.Errorf("kvcache: L3: block %d has %d references, its parent %d has %d (cached %v)", id, b.refs, p, up.refs, up.cached)
			}
		}
	}
	for i := range l.blocks {
		if l.blocks[i].children != children[i] {
			return fmt.Errorf("kvcache: block %d counts %d children and has %d", i, l.blocks[i].children, children[i])
		}
	}
	if cached != len(l.tree) {
		return fmt.Errorf("kvcache: %d cached blocks, %d in the tree", cached, len(l.tree))
	}
	return nil
}

// checkIdle walks the order of eviction: exactly the idle blocks, each before its parent (L4).
func (l *Ledger) checkIdle() error {
	seen := make([]bool, len(l.blocks))
	n, before := 0, none
	for id := l.oldest; id != none; id = l.blocks[id].newer {
		b := &l.blocks[id]
		if seen[id] || b.refs != 0 || !b.cached || b.older != before {
			return fmt.Errorf("kvcache: L1: idle block %d: twice %v, references %d, cached %v, behind %d", id, seen[id], b.refs, b.cached, b.older)
		}
		if p := b.key.parent; p != none && seen[p] {
			return fmt.Errorf("kvcache: L4: idle block %d is evicted after its parent %d", id, p)
		}
		seen[id] = true
		n, before = n+1, id
	}
	if n != l.idle || before != l.newest {
		return fmt.Errorf("kvcache: %d idle blocks listed up to %d, %d counted up to %d", n, before, l.idle, l.newest)
	}
	for i := range l.blocks {
		if b := &l.blocks[i]; b.cached && b.refs == 0 && !seen[i] {
			return fmt.Errorf("kvcache: L1: block %d is idle and not in the order of eviction", i)
		}
	}
	return nil
}

// CheckTables is CheckIntegrity, and that the references are those of the given tables and no others (L2): tables
// are all that hold blocks. Without any, nothing may be held.
func (l *Ledger) CheckTables(tables ...*Table) error {
	if err := l.CheckIntegrity(); err != nil {
		return err
	}
	held := make([]int32, len(l.blocks))
	for n, t := range tables {
		if t.cached > len(t.Blocks) {
			return fmt.Errorf("kvcache: table %d has %d blocks, %d of them committed", n, len(t.Blocks), t.cached)
		}
		for i, id := range t.Blocks {
			if id < 0 || int(id) >= len(held) {
				return fmt.Errorf("kvcache: table %d lists block %d of %d", n, id, len(held))
			}
			held[id]++
			if i < t.cached && !l.blocks[id].cached {
				return fmt.Errorf("kvcache: table %d takes block %d for committed", n, id)
			}
		}
	}
	var errs []error
	for id, n := range held {
		if got := l.blocks[id].refs; got != n {
			errs = append(errs, fmt.Errorf("kvcache: L2: block %d has %d references, tables list it %d times", id, got, n))
		}
	}
	return errors.Join(errs...)
}
