package draft

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawTree draws a tree whose tokens are all different.
func drawTree(t *rapid.T) *Tree {
	var tree Tree
	tree.Reset(100)
	for i := range rapid.IntRange(0, MaxNodes-1).Draw(t, "nodes") {
		tree.Add(rapid.IntRange(max(0, i-5), i).Draw(t, "parent"), int32(101+i), 1)
	}
	return &tree
}

func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		chain := true
		deepest := 0
		for i := range tree.N {
			var mask uint64
			depth := -1
			for a := i; a >= 0; a = int(tree.Parent[a]) {
				mask |= 1 << a
				depth++
			}
			if tree.Mask[i] != mask || tree.Depth[i] != int32(depth) {
				t.Fatalf("node %d: mask %b depth %d, its path gives %b and %d", i, tree.Mask[i], tree.Depth[i], mask, depth)
			}
			var want, got []int
			for c := range tree.N {
				if tree.Parent[c] == int32(i) {
					want = append(want, c)
				}
			}
			for c := tree.FirstChild(i); c >= 0; c = tree.NextSibling(c) {
				got = append(got, c)
				if tree.Child(i, tree.Token[c]) != c {
					t.Fatalf("node %d: token %d leads to %d, not %d", i, tree.Token[c], tree.Child(i, tree.Token[c]), c)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("node %d: children %v, want %v", i, got, want)
			}
			if tree.Child(i, tree.Token[i]) != -1 {
				t.Fatalf("node %d is found as its own child", i)
			}
			chain = chain && (i == 0 || int(tree.Parent[i]) == i-1)
			deepest = max(deepest, depth)
		}
		if tree.IsChain() != chain || tree.MaxDepth() != deepest {
			t.Fatalf("chain %v depth %d, want %v and %d", tree.IsChain(), tree.MaxDepth(), chain, deepest)
		}
	})
}

// TestAppendMoves copies slot by slot, in order, and finds every path in consecutive slots.
func TestAppendMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		var path []int32
		for n := int32(rapid.IntRange(0, tree.N-1).Draw(t, "leaf")); n >= 0; n = tree.Parent[n] {
			path = append([]int32{n}, path...)
		}
		const base = 7
		slots := make([]int32, base+tree.N)
		for i := range tree.N {
			slots[base+i] = tree.Token[i]
		}
		from, to := AppendMoves(path, base, nil, nil)
		for i := range from {
			slots[to[i]] = slots[from[i]]
		}
		for i, n := range path {
			if slots[base+i] != tree.Token[n] {
				t.Fatalf("path %v: slot %d holds %d, want %d", path, base+i, slots[base+i], tree.Token[n])
			}
		}
		if tree.IsChain() && len(from) > 0 {
			t.Fatalf("a chain moves %v to %v", from, to)
		}
	})
}

func TestTreePanics(t *testing.T) {
	var full Tree
	full.Reset(0)
	for full.N < MaxNodes {
		full.Add(0, 1, 1)
	}
	var one Tree
	one.Reset(0)
	for name, f := range map[string]func(){
		"full":            func() { full.Add(0, 1, 1) },
		"parent too high": func() { one.Add(1, 1, 1) },
		"parent too low":  func() { one.Add(-1, 1, 1) },
		"no row":          func() { Chain(2).Cap(2, 0) },
		"bad limit":       func() { NewBuilder(Shape{3, 1, 9}) },
		"beyond limit":    func() { NewBuilder(Chain(3)).Start(Chain(4), 0, 0) },
		"accepted > depth": func() {
			var s Stats
			s.Record(3, 1, 2)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestStats(t *testing.T) {
	var s, a, b Stats
	if s.AcceptLength() != 0 || s.Depth() != 0 || s.Survival(1) != 0 || len(s.AppendHistogram(nil)) != 0 {
		t.Error("no cycle: not all zero")
	}
	a.Record(3, 3, 3)
	a.Record(3, 3, 0)
	a.Record(3, 3, 1)
	b.Record(1, 1, 1) // the draft ended early
	b.Record(0, 0, 0) // plain
	s.Add(&a)
	s.Add(&b)
	if s.Cycles != 5 || s.Drafted != 10 || s.Accepted != 5 || s.Depth() != 3 {
		t.Errorf("%d cycles, %d drafted, %d accepted, depth %d", s.Cycles, s.Drafted, s.Accepted, s.Depth())
	}
	if h := s.AppendHistogram(nil); !slices.Equal(h, []int64{2, 2, 0, 1}) {
		t.Errorf("histogram %v", h)
	}
	if s.AcceptLength() != 2 {
		t.Errorf("accept length %v, want 1 + 5/5", s.AcceptLength())
	}
	sum := 1.0
	for i, want := range []struct {
		survival, conditional float64
		tried                 int64
	}{{3. / 5, 3. / 4, 4}, {1. / 5, 1. / 2, 2}, {1. / 5, 1, 1}, {0, 0, 0}} {
		share, tried := s.Conditional(i + 1)
		if s.Survival(i+1) != want.survival || share != want.conditional || tried != want.tried {
			t.Errorf("depth %d: survival %v, conditional %v of %d; want %+v", i+1, s.Survival(i+1), share, tried, want)
		}
		sum += s.Survival(i + 1)
	}
	if math.Abs(sum-s.AcceptLength()) > 1e-12 {
		t.Errorf("1 + Σ survival = %v, accept length %v", sum, s.AcceptLength())
	}
}
