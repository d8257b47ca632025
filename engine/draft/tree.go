package draft

import "fmt"

// Tree holds the candidates of one verify pass. Node 0 is the root: the last emitted token, which has not run
// yet. A parent's index is below its children's, so that node i can lie in slot base+i: along every path slots
// increase (invariant 2). Its rotary position is base+Depth[i]. The zero Tree holds nothing; begin with Reset.
type Tree struct {
	N      int               // nodes
	Token  [MaxNodes]int32   // token ids
	Parent [MaxNodes]int32   // index of the parent; −1 for the root
	Depth  [MaxNodes]int32   // edges from the root
	Score  [MaxNodes]float32 // product of the drafter's probabilities along the path; 1 for the root
	Mask   [MaxNodes]uint64  // the node itself and its ancestors: bit j is node j

	first, last, next [MaxNodes]int8 // children as a list in order of Add; −1 ends it
}

// Reset makes t a tree of its root alone.
func (t *Tree) Reset(root int32) {
	t.N = 0
	t.put(-1, root, 1, 0, 0)
}

// Add adds a child of node parent and returns its index. Siblings are kept in the order in which they were added. It panics if
// the tree is full or the parent is not in it.
func (t *Tree) Add(parent int, token int32, score float32) int {
	if parent < 0 || parent >= t.N || t.N == MaxNodes {
		panic(fmt.Sprintf("draft: child of node %d in a tree of %d nodes", parent, t.N))
	}
	i := t.put(int32(parent), token, score, t.Depth[parent]+1, t.Mask[parent])
	t.link(parent, i)
	return i
}

// put appends a node.
func (t *Tree) put(parent, token int32, score float32, depth int32, above uint64) int {
	i := t.N
	t.Token[i], t.Parent[i], t.Depth[i], t.Score[i] = token, parent, depth, score
	t.Mask[i] = above | 1<<i
	t.first[i], t.last[i], t.next[i] = -1, -1, -1
	t.N++
	return i
}

// Cut drops the nodes from the first on that is deeper than depth or does not fit rows: what remains is a tree, since no node is
// deeper than those behind it in a Builder's order, and parents come first in any. Rows is at least 1.
func (t *Tree) Cut(rows, depth int) {
	n := min(t.N, rows)
	for i := 1; i < n; i++ {
		if int(t.Depth[i]) > depth {
			n = i
		}
	}
	for i := range n { // children behind the cut leave their lists
		t.first[i], t.last[i], t.next[i] = -1, -1, -1
		if p := t.Parent[i]; p >= 0 {
			t.link(int(p), i)
		}
	}
	t.N = n
}

// link appends node i to the children of parent.
func (t *Tree) link(parent, i int) {
	if t.first[parent] < 0 {
		t.first[parent] = int8(i)
	} else {
		t.next[t.last[parent]] = int8(i)
	}
	t.last[parent] = int8(i)
}

// FirstChild returns the first child of a node, −1 for a leaf.
func (t *Tree) FirstChild(node int) int { return int(t.first[node]) }

// NextSibling returns the node added next to the same parent, −1 for the last.
func (t *Tree) NextSibling(node int) int { return int(t.next[node]) }

// Child returns the first child of a node that carries token, −1 if there is none: the target's token was not
// drafted, and the walk ends at node.
func (t *Tree) Child(node int, token int32) int {
	for c := t.FirstChild(node); c >= 0; c = t.NextSibling(c) {
		if t.Token[c] == token {
			return c
		}
	}
	return -1
}

// IsChain reports whether every node's parent is the node before it: then each row sees all slots up to its own,
// and no mask is needed.
func (t *Tree) IsChain() bool {
	for i := 1; i < t.N; i++ {
		if t.Parent[i] != int32(i-1) {
			return false
		}
	}
	return true
}

// MaxDepth returns the depth of the deepest node.
func (t *Tree) MaxDepth() int {
	var d int32
	for _, v := range t.Depth[:t.N] {
		d = max(d, v)
	}
	return int(d)
}

// AppendMoves appends the slots to copy so that an accepted path (nodes from the root on, each the parent of the next)
// lies in consecutive slots from base on: from[i] to to[i], in this order. Since a path's node indices never fall
// behind their place in it, no move overwrites what a later one reads. It allocates only where from and to lack capacity.
func AppendMoves(path []int32, base int32, from, to []int32) ([]int32, []int32) {
	for i, node := range path {
		if node != int32(i) {
			from, to = append(from, base+node), append(to, base+int32(i))
		}
	}
	return from, to
}
