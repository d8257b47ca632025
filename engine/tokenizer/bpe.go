package tokenizer

import (
	"strings"
	"sync"
)

// A merge is what becomes of a pair of adjacent tokens.
type merge struct {
	rank int32 // lower merges first
	id   int32
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// bpe is byte-pair encoding of one word (Sennrich et al. 2016), over bytes.
type bpe struct {
	byteID [256]int32       // the token of each byte, -1 if the vocabulary has none
	merges map[uint64]merge // by pairKey
	whole  map[string]int32 // words that are tokens at once (ignore_merges), nil if merges decide
	cache  wordCache
	pool   sync.Pool // of *bpeScratch
}

// A symbol is a node of the doubly linked list of tokens that a word consists of so far.
type symbol struct {
	id         int32 // -1 once merged into the symbol before
	prev, next int32 // -1 at the ends
}

// A candidate is a merge that was possible when it was pushed. It is stale if the pair at pos no longer
// makes id.
type candidate struct {
	rank, pos, id int32
}

type bpeScratch struct {
	symbols []symbol
	heap    []candidate
}

// encode appends the ids of word to out. It returns the index in word of a byte without a token, if strict,
// or else drops such bytes and returns -1.
func (b *bpe) encode(out []int32, word string, strict bool) ([]int32, int) {
	if b.whole != nil {
		if id, ok := b.whole[word]; ok {
			return append(out, id), -1
		}
	}
	if ids, ok := b.cache.get(word); ok && !strict {
		return append(out, ids...), -1
	}
	sc, _ := b.pool.Get().(*bpeScratch)
	if sc == nil {
		sc = &bpeScratch{}
	}
	defer b.pool.Put(sc)
	sc.symbols, sc.heap = sc.symbols[:0], sc.heap[:0]
	for i := range len(word) {
		id := b.byteID[word[i]]
		if id < 0 {
			if strict {
				return out, i
			}
			continue
		}
		n := int32(len(sc.symbols))
		sc.symbols = append(sc.symbols, symbol{id, n - 1, n + 1})
	}
	if len(sc.symbols) > 0 {
		sc.symbols[len(sc.symbols)-1].next = -1
	}
	b.mergeAll(sc)
	start := len(out)
	for _, s := range sc.symbols {
		if s.id >= 0 {
			out = append(out, s.id)
		}
	}
	if !strict {
		b.cache.put(word, out[start:])
	}
	return out, -1
}

// mergeAll merges the lowest-ranked pair, the leftmost among equals, until none is left. A heap of candidates
// keeps that at n log n (T4); a scan for the best pair each time would be quadratic in the word.
func (b *bpe) mergeAll(sc *bpeScratch) {
	for i := range len(sc.symbols) - 1 {
		b.push(sc, int32(i))
	}
	for len(sc.heap) > 0 {
		c := sc.pop()
		s := &sc.symbols[c.pos]
		if s.id < 0 || s.next < 0 {
			continue
		}
		n := &sc.symbols[s.next]
		// Like Hugging Face, compare what the pair makes and not its rank (T1).
		if m, ok := b.merges[pairKey(s.id, n.id)]; !ok || m.id != c.id {
			continue
		}
		s.id, n.id = c.id, -1
		s.next = n.next
		if s.next >= 0 {
			sc.symbols[s.next].prev = c.pos
			b.push(sc, c.pos)
		}
		if s.prev >= 0 {
			b.push(sc, s.prev)
		}
	}
}

// push adds the merge of the symbol at pos with its successor, if there is one.
func (b *bpe) push(sc *bpeScratch, pos int32) {
	s := sc.symbols[pos]
	m, ok := b.merges[pairKey(s.id, sc.symbols[s.next].id)]
	if !ok {
		return
	}
	h := append(sc.heap, candidate{m.rank, pos, m.id})
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	sc.heap = h
}

func (sc *bpeScratch) pop() candidate {
	h := sc.heap
	top := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	sc.heap = h
	return top
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// The cache keeps at most cacheWords words of at most cacheWordLen bytes, some 4 MB; on being full it starts
// anew. Prose repeats a few thousand words; longer ones hardly repeat.
const (
	cacheWords   = 1 << 14
	cacheWordLen = 48
)

// wordCache remembers the ids of words; safe for concurrent use.
type wordCache struct {
	mu  sync.Mutex
	ids map[string][]int32
}

func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > cacheWordLen {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, ok := c.ids[word]
	return ids, ok
}

func (c *wordCache) put(word string, ids []int32) {
	if len(word) > cacheWordLen {
		return
	}
	key := strings.Clone(word) // a substring would keep the caller's whole text alive
	value := append([]int32(nil), ids...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = make(map[string][]int32, 1024)
	} else if len(c.ids) >= cacheWords {
		clear(c.ids)
	}
	c.ids[key] = value
}
