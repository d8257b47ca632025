// Package ngram drafts without a model: [Index] finds the latest earlier occurrence of a sequence's last tokens
// in the sequence itself and proposes what followed there (prompt look-up). The longest match wins.
//
// It knows tokens only; a sequence has an index of its own, which follows its tokens as they come and, after a
// roll-back, as they go.
package ngram

import (
	"fmt"
	"math/bits"
)

// Options bound the length of the match in tokens.
type Options struct {
	Min int // shortest match; at least 1
	Max int // longest that is looked for; longer ones are as good
}

// MaxN bounds Options.Max: each length costs two table entries a token.
const MaxN = 16

// Validate returns an error that names the bound which o breaks.
func (o Options) Validate() error {
	if o.Min < 1 || o.Max < o.Min || o.Max > MaxN {
		return fmt.Errorf("n-gram lengths %d to %d: they must satisfy 1 ≤ min ≤ max ≤ %d", o.Min, o.Max, MaxN)
	}
	return nil
}

// Index holds a sequence's tokens and, for every length, where each n-gram occurred last. Append costs one look-up a length and
// token, Draft a look at each length. It allocates only while the sequence outgrows what was reserved.
type Index struct {
	opt    Options
	seed   uint64
	tokens []int32
	grams  []grams // by length − Min
}

// grams are the n-grams of one length. An n-gram is named by the position of its last token.
type grams struct {
	n    int
	prev []int32 // [len(tokens)] the occurrence before, −1 for the first and where the sequence is shorter than n

	// heads maps an n-gram to its latest occurrence: open addressing with linear probing, −1 for empty. Entries are
	// removed in the reverse order of their making (roll-back), so a removed one leaves no gap in anyone's probe.
	heads []int32
}

// New makes an empty index. Seed scatters the hash, so that nobody can write a prompt whose n-grams all collide; it has no
// effect on what is proposed. Options must be valid.
func New(o Options, seed uint64) *Index {
	if err := o.Validate(); err != nil {
		panic("ngram: " + err.Error())
	}
	x := &Index{opt: o, seed: seed, grams: make([]grams, o.Max-o.Min+1)}
	for i := range x.grams {
		x.grams[i].n = o.Min + i
	}
	x.Reserve(64)
	return x
}

// Len returns the number of tokens.
func (x *Index) Len() int { return len(x.tokens) }

// Reserve makes room for sequences of n tokens, so that Append up to there allocates nothing.
func (x *Index) Reserve(n int) {
	if n <= cap(x.tokens) {
		return
	}
	size := 2 << bits.Len(uint(n-1)) // at most half full, so probes stay short
	old := x.tokens
	x.tokens = make([]int32, 0, n)
	for i := range x.grams {
		x.grams[i].prev = make([]int32, 0, n)
		x.grams[i].heads = make([]int32, size)
		clearHeads(x.grams[i].heads)
	}
	for _, t := range old {
		x.push(t)
	}
}

// Reset empties the index for another sequence and keeps its memory.
func (x *Index) Reset() {
	x.tokens = x.tokens[:0]
	for i := range x.grams {
		x.grams[i].prev = x.grams[i].prev[:0]
		clearHeads(x.grams[i].heads)
	}
}

// clearHeads empties a table.
func clearHeads(h []int32) {
	for i := range h {
		h[i] = -1
	}
}

// Append adds tokens at the sequence's end.
func (x *Index) Append(tokens ...int32) {
	if n := len(x.tokens) + len(tokens); n > cap(x.tokens) {
		x.Reserve(max(n, 2*cap(x.tokens)))
	}
	for _, t := range tokens {
		x.push(t)
	}
}

// Truncate drops all but the first n tokens.
func (x *Index) Truncate(n int) {
	if n < 0 || n > len(x.tokens) {
		panic(fmt.Sprintf("ngram: truncate %d tokens to %d", len(x.tokens), n))
	}
	for len(x.tokens) > n {
		x.pop()
	}
}

// push adds one token; there is room.
func (x *Index) push(t int32) {
	x.tokens = append(x.tokens, t)
	end := int32(len(x.tokens) - 1)
	for i := range x.grams {
		g := &x.grams[i]
		if len(x.tokens) < g.n {
			g.prev = append(g.prev, -1)
			continue
		}
		h := x.find(g, end)
		g.prev = append(g.prev, g.heads[h])
		g.heads[h] = end
	}
}

// pop drops the last token.
func (x *Index) pop() {
	end := int32(len(x.tokens) - 1)
	for i := range x.grams {
		g := &x.grams[i]
		if len(x.tokens) >= g.n {
			g.heads[x.find(g, end)] = g.prev[end]
		}
		g.prev = g.prev[:end]
	}
	x.tokens = x.tokens[:end]
}

// find returns the place in heads of the n-gram that ends at position end: the one that holds it, or the empty one where it belongs.
func (x *Index) find(g *grams, end int32) int {
	want := x.tokens[int(end)-g.n+1 : end+1]
	mask := uint64(len(g.heads) - 1)
	for at := x.hash(want) & mask; ; at = (at + 1) & mask {
		p := g.heads[at]
		if p < 0 || equal(want, x.tokens[int(p)-g.n+1:p+1]) {
			return int(at)
		}
	}
}

// equal compares two n-grams of one length.
func equal(a, b []int32) bool {
	for i, t := range a {
		if b[i] != t {
			return false
		}
	}
	return true
}

// hash mixes an n-gram and the seed: a 64×64-bit product folded for each token.
func (x *Index) hash(gram []int32) uint64 {
	h := x.seed
	for _, t := range gram {
		hi, lo := bits.Mul64(h^uint64(uint32(t))^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		h = hi ^ lo
	}
	return h
}

// Draft appends at most k proposed tokens to dst: what followed the latest earlier occurrence of the longest
// suffix of Max down to Min tokens; nothing where no suffix occurred before. Where the continuation reaches
// the sequence's end it goes on with the proposed tokens themselves, as a repetition would.
func (x *Index) Draft(dst []int32, k int) []int32 {
	end := len(x.tokens) - 1
	if end < 0 {
		return dst
	}
	for i := len(x.grams) - 1; i >= 0; i-- {
		p := int(x.grams[i].prev[end])
		if p < 0 {
			continue
		}
		made := len(dst)
		for j := p + 1; j <= p+k; j++ {
			if j <= end {
				dst = append(dst, x.tokens[j])
			} else {
				dst = append(dst, dst[made+j-end-1])
			}
		}
		return dst
	}
	return dst
}
