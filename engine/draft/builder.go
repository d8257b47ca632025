package draft

import (
	"fmt"
	"slices"
)

// Row is a node that the drafter is to run, to get candidates for its children.
type Row struct {
	Token int32  // the candidate
	From  int32  // index, among the rows of the pass before, of the row that proposed it: its output state is the input
	Tail  int32  // index among all rows that the drafter has run in this draft, in order
	Mask  uint64 // the row itself and its ancestors: bit i is Tail i; 0 in a chain, which sees all rows before
	node  int32  // index in the pool
}

// candidate is a node of the pool.
type candidate struct {
	score  float64 // product of probabilities along the path
	parent int32   // index in the pool, −1 for a child of the root
	token  int32
}

// Builder grows a candidate tree by EAGLE-2's rule (Li et al. 2024, "EAGLE-2: Faster Inference of Language
// Models with Dynamic Draft Trees"): of each level the TopK best nodes by cumulative probability are
// expanded, and of all candidates the DraftTokens−1 best are kept. Since a child never scores above its
// parent and comes behind it, what is kept is closed under parents. Order and ties are decided by score, then
// by age, so a tree depends only on what the drafter proposed.
//
//	b.Start(shape, root, minProb)
//	b.Propose(0, tokens, probs)      // the candidates behind the root
//	for rows := b.Next(); len(rows) > 0; rows = b.Next() {
//		// run the drafter on rows, then for each of them
//		b.Propose(i, tokens, probs)
//	}
//	b.Tree(&t)
//
// It allocates nothing after NewBuilder.
type Builder struct {
	limit   Shape
	shape   Shape
	root    int32
	minProb float64

	pool  []candidate
	level int   // levels that Next has closed
	start int   // first candidate of the level that is being proposed
	rows  []Row // of the pass that proposes them; a single one, the root, at first
	spare []Row // the buffer for the next rows
	tail  int32 // rows run in this draft
	best  []int32
}

// NewBuilder makes a builder for shapes within a valid limit.
func NewBuilder(limit Shape) *Builder {
	if err := limit.Validate(); err != nil {
		panic("draft: " + err.Error())
	}
	k := max(1, limit.TopK)
	return &Builder{
		limit: limit,
		pool:  make([]candidate, 0, Bound(limit.Steps, k)),
		rows:  make([]Row, 0, k), spare: make([]Row, 0, k),
		best: make([]int32, 0, max(k, limit.Rows())),
	}
}

// Start begins a draft behind the token root. Nodes whose cumulative probability is below minProb are neither
// kept nor expanded: a draft that the target is likely to reject ends early (0 keeps all).
func (b *Builder) Start(shape Shape, root int32, minProb float32) {
	if err := shape.Within(b.limit); err != nil {
		panic("draft: " + err.Error())
	}
	b.shape, b.root, b.minProb = shape, root, float64(minProb)
	b.pool, b.level, b.start, b.tail = b.pool[:0], 0, 0, 0
	b.rows = append(b.rows[:0], Row{Token: root, node: -1})
}

// Propose adds the candidates of row i of the last Next (of the root before the first): tokens by
// descending probability, of which the first TopK count. One whose probability is not a number, or not above
// 0, is no candidate; a probability above 1 counts as 1.
func (b *Builder) Propose(i int, tokens []int32, probs []float32) {
	parent, score := b.rows[i].node, 1.0
	if parent >= 0 {
		score = b.pool[parent].score
	}
	for c := range min(len(tokens), b.shape.TopK) {
		p := float64(probs[c])
		if !(p > 0) {
			continue
		}
		if s := score * min(p, 1); s >= b.minProb {
			b.pool = append(b.pool, candidate{score: s, parent: parent, token: tokens[c]})
		}
	}
}

// Next closes a level and returns the rows to run for the one below it, the best first; none when the draft is
// complete. The rows are the builder's, good until the next call.
func (b *Builder) Next() []Row {
	b.level++
	next := b.spare[:0]
	if b.level < b.shape.Steps {
		for _, c := range b.top(b.start, b.shape.TopK) {
			next = append(next, b.row(c))
			b.tail++
		}
	}
	b.start = len(b.pool)
	b.rows, b.spare = next, b.rows
	return b.rows
}

// row describes the run of candidate c, which a row of the pass before proposed.
func (b *Builder) row(c int32) Row {
	n := &b.pool[c]
	from := slices.IndexFunc(b.rows, func(r Row) bool { return r.node == n.parent })
	r := Row{Token: n.token, From: int32(from), Tail: b.tail, node: c}
	if !b.shape.IsChain() {
		r.Mask = 1 << b.tail
		if n.parent >= 0 {
			r.Mask |= b.rows[from].Mask
		}
	}
	return r
}

// Tree writes the kept candidates to t, parents before children, siblings by descending probability.
func (b *Builder) Tree(t *Tree) {
	t.Reset(b.root)
	kept := b.top(0, b.shape.Rows()-1)
	slices.Sort(kept)
	for _, c := range kept {
		n := &b.pool[c]
		at := 0
		if n.parent >= 0 {
			i, found := slices.BinarySearch(kept, n.parent)
			if !found {
				panic(fmt.Sprintf("draft: candidate %d kept without its parent %d", c, n.parent))
			}
			at = i + 1
		}
		t.Add(at, n.token, float32(n.score))
	}
}

// top returns the n best candidates from the pool's index start on, by descending score, equals by age. The slice is b.best.
func (b *Builder) top(start, n int) []int32 {
	best := b.best[:0]
	for c := start; c < len(b.pool); c++ {
		s := b.pool[c].score
		at := len(best)
		for at > 0 && b.pool[best[at-1]].score < s {
			at--
		}
		if at == n {
			continue
		}
		if len(best) == n {
			best = best[:n-1]
		}
		best = slices.Insert(best, at, int32(c))
	}
	return best
}
