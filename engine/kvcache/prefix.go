package kvcache

import (
	"fmt"

	"draftlab/engine/compute"
)

// Match fills t, which must be empty, with the longest cached prefix of tokens in whole blocks and returns
// its length in slots. The last token is never part of it: it must run to give logits. Only blocks that were
// committed under the same salt match; the caller mixes into it whatever else than tokens decides what a
// block holds. Commit of t will use the same salt, so Match is called even where no hit is wanted or possible.
func (l *Ledger) Match(t *Table, tokens []int32, salt uint64) int {
	if len(t.Blocks) != 0 {
		panic("kvcache: match into a table that holds blocks")
	}
	t.salt = salt
	parent := none
	for n := 0; n+compute.BlockSlots < len(tokens); n += compute.BlockSlots {
		id, ok := l.tree[l.keyOf(t, parent, tokens[n:])]
		if !ok {
			break
		}
		l.ref(id)
		t.Blocks = append(t.Blocks, id)
		parent = id
	}
	t.cached = len(t.Blocks)
	return t.Slots()
}

// Commit puts the full blocks of t into the tree, so that Match finds them. Tokens are those of the table's
// slots from 0 on, all of them run; what was committed before is not looked at again. Where the tree holds an equal block
// already, t lists that one from now on and its own is given back: both hold the same bits. Commit returns how many
// blocks were replaced so.
func (l *Ledger) Commit(t *Table, tokens []int32) (replaced int) {
	full := len(tokens) / compute.BlockSlots
	if full > len(t.Blocks) {
		panic(fmt.Sprintf("kvcache: commit %d tokens of a table of %d slots", len(tokens), t.Slots()))
	}
	for i := t.cached; i < full; i++ {
		parent := none
		if i > 0 {
			parent = t.Blocks[i-1]
		}
		own := t.Blocks[i]
		k := l.keyOf(t, parent, tokens[i*compute.BlockSlots:])
		old, found := l.tree[k]
		switch {
		case !found:
			l.insert(own, k)
		case old != own:
			l.ref(old)
			t.Blocks[i] = old
			l.unref(own)
			replaced++
		}
		t.cached = i + 1
	}
	return replaced
}

// Flush gives up all idle blocks and returns their number. Blocks in use stay, and stay findable.
func (l *Ledger) Flush() int {
	n := l.idle
	for l.idle > 0 {
		l.evict()
	}
	return n
}

// keyOf is the key of the block behind parent that holds the first BlockSlots of tokens.
func (l *Ledger) keyOf(t *Table, parent int32, tokens []int32) key {
	k := key{parent: parent}
	if parent == none {
		k.salt = t.salt
	}
	copy(k.tokens[:], tokens[:compute.BlockSlots])
	return k
}

// ref adds a reference to a cached block; an idle one is idle no longer.
func (l *Ledger) ref(id int32) {
	b := &l.blocks[id]
	if b.refs == 0 {
		l.unlinkIdle(id)
	}
	b.refs++
}

// insert puts a held block into the tree.
func (l *Ledger) insert(id int32, k key) {
	b := &l.blocks[id]
	b.key, b.cached = k, true
	l.tree[k] = id
	if k.parent != none {
		l.blocks[k.parent].children++
	}
}

// evict frees the idle block that was used longest ago, which is a leaf (L4).
func (l *Ledger) evict() {
	id := l.oldest
	b := &l.blocks[id]
	if b.children != 0 {
		panic(fmt.Sprintf("kvcache: block %d would be evicted before the blocks behind it", id))
	}
	l.unlinkIdle(id)
	delete(l.tree, b.key)
	b.cached = false
	if b.key.parent != none {
		l.blocks[b.key.parent].children--
	}
	l.free = append(l.free, id)
}

// pushIdle makes a block the newest of the idle ones.
func (l *Ledger) pushIdle(id int32) {
	b := &l.blocks[id]
	b.older, b.newer = l.newest, none
	if l.newest != none {
		l.blocks[l.newest].newer = id
	} else {
		l.oldest = id
	}
	l.newest = id
	l.idle++
}

// unlinkIdle takes a block out of the list of idle ones.
func (l *Ledger) unlinkIdle(id int32) {
	b := &l.blocks[id]
	if b.older != none {
		l.blocks[b.older].newer = b.newer
	} else {
		l.oldest = b.newer
	}
	if b.newer != none {
		l.blocks[b.newer].older = b.older
	} else {
		l.newest = b.older
	}
	b.older, b.newer = none, none
	l.idle--
}
