package draft

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFixedForm looks at trees by eye: a candidate is as likely as its first child and its next sibling together.
func TestFixedForm(t *testing.T) {
	f := NewFixed(Shape{3, 4, 16})
	for _, c := range []struct {
		shape Shape
		want  string
		runs  int
	}{
		{Chain(3), "[-1 0 1 2]", 3},
		{Shape{2, 2, 6}, "[-1 0 0 1 1 2]", 3},
		{Shape{1, 4, 5}, "[-1 0 0 0 0]", 1},
		{Shape{3, 4, 7}, "[-1 0 0 0 1 1 2]", 3},
		{Shape{}, "[-1]", 0},
	} {
		f.Start(c.shape, 0, 0)
		if got := fmt.Sprint(f.form.Parent[:f.form.N]); got != c.want || f.Rows() != c.runs {
			t.Errorf("%v: parents %s in %d runs, want %s in %d", c.shape, got, f.Rows(), c.want, c.runs)
		}
	}
}

// TestFixed grows trees whose nodes have random numbers of candidates and holds rows and tree to what was proposed.
func TestFixed(t *testing.T) {
	limit := Shape{8, 7, MaxNodes}
	f := NewFixed(limit)
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		if s.Within(limit) != nil {
			t.Skip()
		}
		minProb := rapid.SampledFrom([]float32{0, 0.01, 0.4, 2}).Draw(t, "minProb")
		f.Start(s, 77, minProb)
		next := int32(100)
		parent, run, prob := map[int32]int32{}, map[int32]int{77: 0}, map[int32]float64{77: 1}
		propose := func(i int, token int32, wantRun int) {
			want, r := f.Want(i)
			if r != wantRun || want > s.TopK {
				t.Fatalf("row %d wants %d candidates in run %d, want run %d and at most %d", i, want, r, wantRun, s.TopK)
			}
			var tokens []int32
			var probs []float32
			for range rapid.IntRange(0, s.TopK+1).Draw(t, "candidates") {
				p := float32(rapid.IntRange(1, 8).Draw(t, "p")) / 8
				if len(tokens) < want {
					parent[next], prob[next] = token, prob[token]*float64(p)
				}
				tokens, probs = append(tokens, next), append(probs, p)
				next++
			}
			f.Propose(i, tokens, probs)
		}
		propose(0, 77, 0)
		rows, tail, masks := []Row{{Token: 77}}, int32(0), map[int32]uint64{}
		for level := 1; ; level++ {
			before := slices.Clone(rows)
			rows = f.Next()
			if len(rows) == 0 {
				break
			}
			if len(rows) > s.TopK || level >= s.Steps {
				t.Fatalf("%v: %d rows on level %d", s, len(rows), level)
			}
			for i, r := range rows {
				if before[r.From].Token != parent[r.Token] || r.Tail != tail || !s.IsChain() && r.Mask != masks[parent[r.Token]]|1<<tail {
					t.Fatalf("%v: row %+v behind %d", s, r, parent[r.Token])
				}
				if prob[r.Token] < float64(minProb) {
					t.Fatalf("token of probability %g is expanded at minProb %g", prob[r.Token], minProb)
				}
				masks[r.Token] = r.Mask
				tail++
				run[r.Token] = int(tail)
				propose(i, r.Token, int(tail))
			}
		}
		var tree Tree
		f.Tree(&tree)
		if tree.N-1 != len(parent) || tree.N > s.Rows() || tree.MaxDepth() > s.Steps {
			t.Fatalf("%v: %d nodes of depth %d, %d proposed", s, tree.N, tree.MaxDepth(), len(parent))
		}
		for i := 1; i < tree.N; i++ {
			id := tree.Token[i]
			if tree.Token[tree.Parent[i]] != parent[id] || math.Abs(float64(tree.Score[i])-prob[id]) > 1e-6 {
				t.Fatalf("node %d carries %d behind %d with %g; want %d and %g", i, id, tree.Token[tree.Parent[i]], tree.Score[i], parent[id], prob[id])
			}
			if c := tree.FirstChild(i); c >= 0 && f.Run(i) != run[id] {
				t.Fatalf("node %d's children come of run %d, want %d", i, f.Run(i), run[id])
			}
		}
	})
}

// TestFixedIgnoresTokens is what rule B rests on: the form of a tree does not depend on the candidates' probabilities.
func TestFixedIgnoresTokens(t *testing.T) {
	f := NewFixed(Shape{3, 4, 16})
	forms := map[string]bool{}
	for _, probs := range [][]float32{{0.9, 0.05, 0.03, 0.02}, {0.01, 0.01, 0.01, 0.9}, {1, 1, 1, 1}} {
		f.Start(Shape{3, 4, 12}, 0, 0)
		f.Propose(0, []int32{1, 2, 3, 4}, probs)
		for rows := f.Next(); len(rows) > 0; rows = f.Next() {
			for i := range rows {
				f.Propose(i, []int32{5, 6, 7, 8}, probs)
			}
		}
		var tree Tree
		f.Tree(&tree)
		forms[fmt.Sprint(tree.Parent[:tree.N])] = true
	}
	if len(forms) != 1 {
		t.Errorf("%d forms: %v", len(forms), forms)
	}
}

func TestFixedAllocatesNothing(t *testing.T) {
	f := NewFixed(Shape{5, 4, 16})
	var tree Tree
	tokens, probs := []int32{1, 2, 3, 4}, []float32{0.5, 0.3, 0.1, 0.1}
	if n := testing.AllocsPerRun(100, func() {
		for _, s := range []Shape{{5, 4, 16}, {4, 4, 12}} {
			f.Start(s, 0, 0.01)
			f.Propose(0, tokens, probs)
			for rows := f.Next(); len(rows) > 0; rows = f.Next() {
				for i := range rows {
					f.Propose(i, tokens, probs)
				}
			}
			f.Tree(&tree)
		}
	}); n != 0 {
		t.Errorf("%v allocations a draft", n)
	}
}
