package kvcache

import "draftlab/engine/compute"

// naive is the oracle: the same rules written with strings and scans. A cached block is named by its salt and all
// tokens up to its end, so there is no tree to keep consistent.
type naive struct {
	total  int
	clock  int
	cached map[string]*naiveBlock
	held   map[*naiveBlock]bool // refs > 0
}

type naiveBlock struct {
	refs  int
	name  string // "" while not cached
	stamp int    // when it became idle
}

type naiveTable struct {
	salt   byte
	blocks []*naiveBlock
}

func newNaive(total int) *naive {
	return &naive{total: total, cached: map[string]*naiveBlock{}, held: map[*naiveBlock]bool{}}
}

func (n *naive) idle() (idle []*naiveBlock) {
	for _, b := range n.cached {
		if b.refs == 0 {
			idle = append(idle, b)
		}
	}
	return idle
}

func (n *naive) free() int { return n.total - len(n.held) - len(n.idle()) }

func (n *naive) ref(b *naiveBlock) *naiveBlock {
	b.refs++
	n.held[b] = true
	return b
}

func (n *naive) unref(b *naiveBlock) {
	if b.refs--; b.refs == 0 {
		delete(n.held, b)
		n.clock++
		b.stamp = n.clock
	}
}

// take evicts the idle block with the oldest stamp if none is free.
func (n *naive) take() *naiveBlock {
	if n.free() == 0 {
		var oldest *naiveBlock
		for _, b := range n.idle() {
			if oldest == nil || b.stamp < oldest.stamp {
				oldest = b
			}
		}
		delete(n.cached, oldest.name)
	}
	return n.ref(&naiveBlock{})
}

func name(salt byte, tokens []int32) string {
	s := []byte{salt}
	for _, t := range tokens {
		s = append(s, byte(t))
	}
	return string(s)
}

func (n *naive) match(t *naiveTable, tokens []int32) int {
	for end := compute.BlockSlots; end < len(tokens); end += compute.BlockSlots {
		b := n.cached[name(t.salt, tokens[:end])]
		if b == nil {
			break
		}
		t.blocks = append(t.blocks, n.ref(b))
	}
	return len(t.blocks) * compute.BlockSlots
}

func (n *naive) extend(t *naiveTable, slots int) bool {
	need := BlocksFor(slots) - len(t.blocks)
	if need > n.free()+len(n.idle()) {
		return false
	}
	for ; need > 0; need-- {
		t.blocks = append(t.blocks, n.take())
	}
	return true
}

func (n *naive) commit(t *naiveTable, tokens []int32) (replaced int) {
	for i := 0; (i+1)*compute.BlockSlots <= len(tokens); i++ {
		own, id := t.blocks[i], name(t.salt, tokens[:(i+1)*compute.BlockSlots])
		switch old := n.cached[id]; {
		case old == nil:
			own.name, n.cached[id] = id, own
		case old != own:
			t.blocks[i] = n.ref(old)
			n.unref(own)
			replaced++
		}
	}
	return replaced
}

func (n *naive) truncate(t *naiveTable, slots int) {
	for len(t.blocks) > BlocksFor(slots) {
		n.unref(t.blocks[len(t.blocks)-1])
		t.blocks = t.blocks[:len(t.blocks)-1]
	}
}

func (n *naive) flush() (flushed int) {
	for _, b := range n.idle() {
		delete(n.cached, b.name)
		flushed++
	}
	return flushed
}
