package kvcache

import (
	"testing"

	"draftlab/engine/compute"
	"pgregory.net/rapid"
)

// sequence is a made-up sequence: its tokens, its table here and in the oracle.
type sequence struct {
	salt   byte
	tokens []int32 // all of them have run
	table  Table
	oracle *naiveTable
}

// machine drives a ledger and the oracle side by side, with a storage whose slots hold a digest of all tokens up
// to them: what a sequence reads through its table must be the digests of its own tokens.
type machine struct {
	l     *Ledger
	o     *naive
	store [][compute.BlockSlots]uint64
	seqs  []*sequence
}

// digest continues a digest by one token.
func digest(h uint64, t int32) uint64 { return (h^uint64(t)+1)*0x9e3779b97f4a7c15 ^ h>>29 }

// first is the digest of no tokens.
func (s *sequence) first() uint64 { return uint64(s.salt) << 8 }

func (m *machine) pick(t *rapid.T) *sequence {
	if len(m.seqs) == 0 {
		t.Skip("no sequence")
	}
	return m.seqs[rapid.IntRange(0, len(m.seqs)-1).Draw(t, "sequence")]
}

// run writes the digests of the slots from on.
func (m *machine) run(s *sequence, from int) {
	h := s.first()
	for i, tok := range s.tokens {
		h = digest(h, tok)
		if i >= from {
			m.store[s.table.Blocks[i/compute.BlockSlots]][i%compute.BlockSlots] = h
		}
	}
}

// drawTokens draws a few runs of equal tokens, so that prefixes meet often.
func drawTokens(t *rapid.T) (tokens []int32) {
	for range rapid.IntRange(1, 3).Draw(t, "runs") {
		v := rapid.Int32Range(0, 1).Draw(t, "token")
		for range rapid.SampledFrom([]int{1, 5, 15, 16, 17, 32}).Draw(t, "length") {
			tokens = append(tokens, v)
		}
	}
	return tokens
}

func (m *machine) start(t *rapid.T) {
	s := &sequence{salt: rapid.ByteRange(0, 1).Draw(t, "salt"), tokens: drawTokens(t)}
	s.oracle = &naiveTable{salt: s.salt}
	got, want := m.l.Match(&s.table, s.tokens, uint64(s.salt)), m.o.match(s.oracle, s.tokens)
	if got != want {
		t.Fatalf("Match(%v) = %d slots, oracle %d", s.tokens, got, want)
	}
	if got >= len(s.tokens) {
		t.Fatalf("Match gave %d slots for %d tokens: none is left to run", got, len(s.tokens))
	}
	if a, b := m.l.Extend(&s.table, len(s.tokens)), m.o.extend(s.oracle, len(s.tokens)); a != b {
		t.Fatalf("Extend = %v, oracle %v", a, b)
	} else if !a {
		m.l.Release(&s.table)
		m.o.truncate(s.oracle, 0)
		return
	}
	m.run(s, got)
	m.seqs = append(m.seqs, s)
}

func (m *machine) grow(t *rapid.T) {
	s, more := m.pick(t), drawTokens(t)
	n := len(s.tokens) + len(more)
	a, b := m.l.Extend(&s.table, n), m.o.extend(s.oracle, n)
	if a != b {
		t.Fatalf("Extend = %v, oracle %v", a, b)
	}
	if a {
		s.tokens = append(s.tokens, more...)
		m.run(s, n-len(more))
	}
}

// draft writes rows that are rejected, and rolls them back.
func (m *machine) draft(t *rapid.T) {
	s := m.pick(t)
	n := len(s.tokens)
	rows := rapid.IntRange(1, 40).Draw(t, "rows")
	if a, b := m.l.Extend(&s.table, n+rows), m.o.extend(s.oracle, n+rows); a != b {
		t.Fatalf("Extend = %v, oracle %v", a, b)
	} else if !a {
		return
	}
	for i := n; i < n+rows; i++ {
		m.store[s.table.Blocks[i/compute.BlockSlots]][i%compute.BlockSlots] = 0xbad
	}
	m.l.Truncate(&s.table, n)
	m.o.truncate(s.oracle, n)
}

func (m *machine) commit(t *rapid.T) {
	s := m.pick(t)
	if a, b := m.l.Commit(&s.table, s.tokens), m.o.commit(s.oracle, s.tokens); a != b {
		t.Fatalf("Commit replaced %d blocks, oracle %d", a, b)
	}
}

func (m *machine) release(t *rapid.T) {
	s := m.pick(t)
	m.l.Release(&s.table)
	m.o.truncate(s.oracle, 0)
	for i := range m.seqs {
		if m.seqs[i] == s {
			m.seqs = append(m.seqs[:i], m.seqs[i+1:]...)
			return
		}
	}
}

func (m *machine) flush(t *rapid.T) {
	if a, b := m.l.Flush(), m.o.flush(); a != b {
		t.Fatalf("Flush gave up %d blocks, oracle %d", a, b)
	}
}

// check holds the ledger to its invariants, to the oracle's counts, and to what its tables must lead to.
func (m *machine) check(t *rapid.T) {
	var tables []*Table
	for _, s := range m.seqs {
		tables = append(tables, &s.table)
		h := s.first()
		for i, tok := range s.tokens {
			h = digest(h, tok)
			if got := m.store[s.table.Blocks[i/compute.BlockSlots]][i%compute.BlockSlots]; got != h {
				t.Fatalf("slot %d of a sequence reads %x, its tokens make %x", i, got, h)
			}
		}
	}
	if err := m.l.CheckTables(tables...); err != nil {
		t.Fatal(err)
	}
	if f, c, u := m.o.free(), len(m.o.idle()), len(m.o.held); m.l.Free() != f || m.l.Cached() != c || m.l.Used() != u {
		t.Fatalf("free, cached, used = %d, %d, %d; oracle %d, %d, %d", m.l.Free(), m.l.Cached(), m.l.Used(), f, c, u)
	}
}

// TestLedger runs random histories of sequences against the oracle (L1 to L4, and that sharing is exact).
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 24).Draw(t, "blocks")
		m := &machine{l: New(n), o: newNaive(n), store: make([][compute.BlockSlots]uint64, n)}
		t.Repeat(map[string]func(*rapid.T){
			"start": m.start, "grow": m.grow, "draft": m.draft, "commit": m.commit,
			"release": m.release, "flush": m.flush, "": m.check,
		})
	})
}
