package draft

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// scripted is a drafter: what it proposes behind a path is a function of the path. Its probabilities are multiples of
// 1/levels, so that ties are frequent, and some are no numbers.
type scripted struct {
	seed   uint64
	levels int
	topk   int
}

func (d scripted) propose(path []int32) (tokens []int32, probs []float32) {
	h := d.seed
	for _, t := range path {
		h = (h ^ uint64(t)) * 0x9e3779b97f4a7c15
		h ^= h >> 31
	}
	for c := range d.topk {
		h = h*0x5851f42d4c957f2d + 1
		p := float32(h>>40%uint64(d.levels)+1) / float32(d.levels)
		switch h >> 33 % 40 {
		case 0:
			p = float32(math.NaN())
		case 1:
			p = 0
		case 2:
			p = float32(math.Inf(1))
		case 3:
			p = -1
		}
		tokens, probs = append(tokens, int32(10*len(path)+c)), append(probs, p)
	}
	sort.SliceStable(probs, func(i, j int) bool { return probs[i] > probs[j] })
	return tokens, probs
}

// node is a candidate of the oracle.
type node struct {
	path  []int32 // tokens behind the root
	score float64
	index int // in the pool
}

// best returns the n best of nodes by score, the first among equals.
func best(nodes []*node, n int) []*node {
	nodes = slices.Clone(nodes)
	sort.SliceStable(nodes, func(i, j int) bool { return nodes[i].score > nodes[j].score })
	return nodes[:min(n, len(nodes))]
}

// expand is the rule as the paper and its code state it: the whole pool, sorted. It returns the kept nodes in the
// order of the pool, and the nodes expanded on each level.
func expand(d scripted, s Shape, root int32, minProb float64) (kept []*node, levels [][]*node) {
	var pool []*node
	alive := []*node{{score: 1}}
	for level := 0; level < s.Steps; level++ {
		var made []*node
		for _, a := range alive {
			tokens, probs := d.propose(append([]int32{root}, a.path...))
			for c, p := range probs {
				score := a.score * math.Min(float64(p), 1)
				if p > 0 && score >= minProb {
					n := &node{path: append(slices.Clone(a.path), tokens[c]), score: score, index: len(pool) + len(made)}
					made = append(made, n)
				}
			}
		}
		pool = append(pool, made...)
		alive = best(made, s.TopK)
		levels = append(levels, alive)
	}
	kept = best(pool, s.Rows()-1)
	sort.Slice(kept, func(i, j int) bool { return kept[i].index < kept[j].index })
	return kept, levels
}

// path returns a node's tokens behind the root.
func path(t *Tree, i int) (tokens []int32) {
	for ; i > 0; i = int(t.Parent[i]) {
		tokens = append([]int32{t.Token[i]}, tokens...)
	}
	return tokens
}

// TestBuilder compares trees and the rows that grow them with the oracle.
func TestBuilder(t *testing.T) {
	builder := NewBuilder(Shape{8, 7, MaxNodes})
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		d := scripted{rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 20).Draw(t, "levels"), max(1, s.TopK)}
		minProb := rapid.SampledFrom([]float32{0, 0, 0.01, 0.3, 2}).Draw(t, "minProb")
		const root = 77
		kept, levels := expand(d, s, root, float64(minProb))

		builder.Start(s, root, minProb)
		tokens, probs := d.propose([]int32{root})
		builder.Propose(0, tokens, probs)
		paths, masks := [][]int32{{}}, []uint64{0} // of the rows of the pass before
		tail := 0
		for level := 0; ; level++ {
			rows := builder.Next()
			if len(rows) == 0 {
				if level < s.Steps-1 && len(levels[level]) > 0 {
					t.Fatalf("the draft ended at level %d of %v, %d nodes are alive", level, s, len(levels[level]))
				}
				break
			}
			var nextPaths [][]int32
			var nextMasks []uint64
			for i, r := range rows {
				p := append(slices.Clone(paths[r.From]), r.Token)
				if !slices.Equal(p, levels[level][i].path) {
					t.Fatalf("level %d row %d runs %v, oracle %v", level, i, p, levels[level][i].path)
				}
				if int(r.Tail) != tail {
					t.Fatalf("level %d row %d is Tail %d, want %d", level, i, r.Tail, tail)
				}
				mask := masks[r.From] | 1<<tail
				if s.IsChain() {
					mask = 0
				}
				if r.Mask != mask {
					t.Fatalf("level %d row %d sees %b, want %b", level, i, r.Mask, mask)
				}
				tokens, probs := d.propose(append([]int32{root}, p...))
				builder.Propose(i, tokens, probs)
				nextPaths, nextMasks = append(nextPaths, p), append(nextMasks, mask)
				tail++
			}
			paths, masks = nextPaths, nextMasks
		}
		var tree Tree
		builder.Tree(&tree)
		if tree.N != 1+len(kept) || tree.Token[0] != root || tree.N > s.Rows() || tree.MaxDepth() > s.Steps {
			t.Fatalf("%v: %d nodes of depth %d, the oracle keeps %d", s, tree.N, tree.MaxDepth(), len(kept))
		}
		for i, n := range kept {
			if got := path(&tree, i+1); !slices.Equal(got, n.path) || tree.Score[i+1] != float32(n.score) {
				t.Fatalf("node %d is %v with %v, oracle %v with %v", i+1, got, tree.Score[i+1], n.path, n.score)
			}
		}
		if s.IsChain() && !tree.IsChain() {
			t.Fatalf("%v made a tree", s)
		}
	})
}

// TestBuilderExample is a tree small enough to be checked by eye.
func TestBuilderExample(t *testing.T) {
	b := NewBuilder(Shape{3, 2, 6})
	b.Start(Shape{3, 2, 6}, 1, 0)
	b.Propose(0, []int32{10, 11, 12}, []float32{0.6, 0.3, 0.1}) // 12 is beyond topk
	got := fmt.Sprint(tokensOf(b.Next()))
	b.Propose(0, []int32{20, 21}, []float32{0.5, 0.4}) // .30 .24
	b.Propose(1, []int32{22, 23}, []float32{0.9, 0.1}) // .27 .03
	got += fmt.Sprint(tokensOf(b.Next()))
	b.Propose(0, []int32{30, 31}, []float32{0.2, 0.1}) // .06 .03 behind 20
	b.Propose(1, []int32{32, 33}, []float32{1, 0})     // .27 behind 22, like it
	got += fmt.Sprint(tokensOf(b.Next()))
	var tree Tree
	b.Tree(&tree)
	got += fmt.Sprint(tree.Token[:tree.N], tree.Parent[:tree.N])
	if want := "[10 11][20 22][][1 10 11 20 22 32] [-1 0 0 1 2 4]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func tokensOf(rows []Row) (tokens []int32) {
	for _, r := range rows {
		tokens = append(tokens, r.Token)
	}
	return tokens
}

func TestBuilderAllocatesNothing(t *testing.T) {
	s := Shape{5, 4, 16}
	b := NewBuilder(s)
	var tree Tree
	tokens, probs := []int32{1, 2, 3, 4}, []float32{0.5, 0.3, 0.1, 0.1}
	path, from, to := []int32{0, 2}, make([]int32, 0, 8), make([]int32, 0, 8)
	var stats Stats
	if n := testing.AllocsPerRun(100, func() {
		b.Start(s, 0, 0.01)
		b.Propose(0, tokens, probs)
		for rows := b.Next(); len(rows) > 0; rows = b.Next() {
			for i := range rows {
				b.Propose(i, tokens, probs)
			}
		}
		b.Tree(&tree)
		AppendMoves(path, 3, from, to)
		stats.Record(tree.N-1, tree.MaxDepth(), 1)
	}); n != 0 {
		t.Errorf("%v allocations a draft", n)
	}
}
