package draft

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"draftlab/engine/sample"
)

// Rules A and B are put to the test on a vocabulary so small that the probability of every output of outLen tokens is known.
const (
	tinyVocab = 6
	outLen    = 3
)

// tinyDraft are the drafter's tokens.
var tinyDraft = []int32{0, 2, 3, 5}

// world holds, for every prefix of an output, the target's distribution and the drafter's, which have little in common. A prefix
// is a number in base tinyVocab with a leading 1.
type world struct {
	p      [][]uint64        // [prefix] weights by token; some tokens are filtered out
	ids    [][]int32         // [prefix] the tokens that are not
	total  []uint64          // [prefix]
	q      []sample.Proposal // [prefix]
	best   [][]int32         // [prefix] the drafter's tokens, the most probable first
	prob   [][]float32       // [prefix] their probabilities
	output map[int32]float64 // probability of each output
	tree   Tree              // scratch
	tokens [tinyVocab]uint64 // scratch: the weights at hand
	cand   [MaxTopK]int32    // scratch: candidates at hand
	probs  [MaxTopK]float32  // scratch
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	prefixes := 1
	for range outLen {
		prefixes = prefixes*tinyVocab + tinyVocab
	}
	w := &world{output: map[int32]float64{}}
	for range 2 * prefixes {
		p, ids, total := make([]uint64, tinyVocab), []int32(nil), uint64(0)
		masked := rng.IntN(2 * tinyVocab)
		for i := range p {
			if i != masked {
				p[i] = uint64(1+rng.IntN(9)) << 40
				ids, total = append(ids, int32(i)), total+p[i]
			}
		}
		w.p, w.ids, w.total = append(w.p, p), append(w.ids, ids), append(w.total, total)
		w.addDrafter(rng)
	}
	w.expect(1, 1, 0)
	return w
}

// addDrafter makes the drafter's distribution for one prefix; it may be short of a token.
func (w *world) addDrafter(rng *rand.Rand) {
	var q sample.Proposal
	for i, masked := range rng.Perm(2 * len(tinyDraft))[:len(tinyDraft)] {
		if n := uint64(1 + rng.IntN(9)); masked != 0 {
			q.IDs, q.Weights, q.Total = append(q.IDs, tinyDraft[i]), append(q.Weights, n), q.Total+n
		}
	}
	order := make([]int, len(q.IDs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(q.Weights[b], q.Weights[a]) })
	var best []int32
	var prob []float32
	for _, i := range order {
		best, prob = append(best, q.IDs[i]), append(prob, float32(q.Weights[i])/float32(q.Total))
	}
	w.q, w.best, w.prob = append(w.q, q), append(w.best, best), append(w.prob, prob)
}

// expect computes the probability of all outputs that go on from a prefix.
func (w *world) expect(prefix int32, prob float64, n int) {
	if n == outLen {
		w.output[prefix] = prob
		return
	}
	for _, id := range w.ids[prefix] {
		w.expect(prefix*tinyVocab+id, prob*float64(w.p[prefix][id])/float64(w.total[prefix]), n+1)
	}
}

// target is the target's distribution behind a prefix, free to be used up.
func (w *world) target(prefix int32) sample.Distribution {
	copy(w.tokens[:], w.p[prefix])
	return sample.Distribution{IDs: w.ids[prefix], Weights: w.tokens[:], Total: w.total[prefix]}
}

// rule is a way of drafting and verifying: draft makes the tree behind a prefix, step takes the token at a node.
type rule struct {
	draft func(w *world, t *Tree, shape Shape, prefix int32, seed uint64, position int)
	step  func(w *world, t *Tree, node int, prefix int32, seed uint64, position int) (token int32, next int)
}

// run makes one output, in as many cycles as it takes.
func (w *world) run(r *rule, shape Shape, seed uint64) (prefix int32, accepted int) {
	t := &w.tree
	prefix = 1
	for n := 0; n < outLen; {
		t.Reset(0)
		if capped := shape.Cap(outLen-n-1, MaxNodes); capped.Steps > 0 {
			r.draft(w, t, capped, prefix, seed, n)
		}
		for node := 0; node >= 0 && n < outLen; n++ {
			var token int32
			token, node = r.step(w, t, node, prefix, seed, n)
			prefix = prefix*tinyVocab + token
			if node >= 0 {
				accepted++
			}
		}
	}
	return prefix, accepted
}

// grower is what Builder and Fixed have in common.
type grower interface {
	Start(Shape, int32, float32)
	Propose(int, []int32, []float32)
	Next() []Row
	Tree(*Tree)
}

// grow grows a tree behind a prefix; propose gives the candidates behind a path, the position of which is given.
func (w *world) grow(g grower, t *Tree, shape Shape, prefix int32, position int, minProb float32, propose func(i int, prefix int32, position int) ([]int32, []float32)) {
	g.Start(shape, 0, minProb)
	tokens, probs := propose(0, prefix, position)
	g.Propose(0, tokens, probs)
	before := [MaxTopK]int32{prefix}
	for rows := g.Next(); len(rows) > 0; rows = g.Next() {
		position++
		var now [MaxTopK]int32
		for i, r := range rows {
			now[i] = before[r.From]*tinyVocab + r.Token
			tokens, probs := propose(i, now[i], position)
			g.Propose(i, tokens, probs)
		}
		before = now
	}
	g.Tree(t)
}

// ruleA drafts the most probable tokens and accepts what the target's own choice matches.
func ruleA() *rule {
	b := NewBuilder(Shape{3, 4, 16})
	return &rule{
		draft: func(w *world, t *Tree, shape Shape, prefix int32, _ uint64, position int) {
			w.grow(b, t, shape, prefix, position, 0, func(_ int, prefix int32, _ int) ([]int32, []float32) {
				return w.best[prefix], w.prob[prefix]
			})
		},
		step: func(w *world, t *Tree, node int, prefix int32, seed uint64, position int) (int32, int) {
			d := w.target(prefix)
			token := d.Draw(sample.Uniform(seed, position))
			return token, t.Child(node, token)
		},
	}
}

// ruleB draws candidates and puts them to the test against the proposals that they were drawn from.
func ruleB(minProb float32) *rule {
	f := NewFixed(Shape{3, 4, 16})
	return &rule{step: verify, draft: func(w *world, t *Tree, shape Shape, prefix int32, seed uint64, position int) {
		w.grow(f, t, shape, prefix, position, minProb, func(i int, prefix int32, position int) ([]int32, []float32) {
			n, _ := f.Want(i)
			n = w.q[prefix].Draw(n, seed, position, w.cand[:], w.probs[:])
			return w.cand[:n], w.probs[:n]
		})
	}}
}

// verify is rule B at a node.
func verify(w *world, t *Tree, node int, prefix int32, seed uint64, position int) (int32, int) {
	var candidates, nodes [MaxTopK]int32
	n := 0
	for c := t.FirstChild(node); c >= 0; c = t.NextSibling(c) {
		candidates[n], nodes[n] = t.Token[c], int32(c)
		n++
	}
	own := &w.q[prefix]
	var weights [tinyVocab]uint64
	q := sample.Proposal{IDs: own.IDs, Weights: append(weights[:0], own.Weights...), Total: own.Total}
	d := w.target(prefix)
	token, i := d.Verify(&q, candidates[:n], seed, position)
	if i < 0 {
		return token, -1
	}
	return token, int(nodes[i])
}

// wrongChoice is the well-known mistake: the most probable candidates, tested as if they had been drawn.
func wrongChoice() *rule {
	f := NewFixed(Shape{3, 4, 16})
	return &rule{step: verify, draft: func(w *world, t *Tree, shape Shape, prefix int32, _ uint64, position int) {
		w.grow(f, t, shape, prefix, position, 0, func(_ int, prefix int32, _ int) ([]int32, []float32) {
			return w.best[prefix], w.prob[prefix]
		})
	}}
}

// wrongTree draws candidates, and keeps those of them that the drafter finds most probable.
func wrongTree() *rule {
	b := NewBuilder(Shape{3, 4, 16})
	return &rule{step: verify, draft: func(w *world, t *Tree, shape Shape, prefix int32, seed uint64, position int) {
		w.grow(b, t, shape, prefix, position, 0, func(_ int, prefix int32, position int) ([]int32, []float32) {
			n := w.q[prefix].Draw(shape.TopK, seed, position, w.cand[:], w.probs[:])
			return w.cand[:n], w.probs[:n]
		})
	}}
}

// chiSquare runs a rule n times and returns the distance of the joint outputs from plain sampling's, in standard deviations of what
// chi-square has by chance, and the accept length.
func (w *world) chiSquare(r *rule, shape Shape, n int) (deviation, acceptRate float64) {
	seen := make([]int64, len(w.p))
	accepted := 0
	for seed := range n {
		prefix, a := w.run(r, shape, uint64(seed))
		seen[prefix]++
		accepted += a
	}
	sum, cells, known := 0.0, 0, int64(0)
	for prefix, prob := range w.output {
		expected := prob * float64(n)
		sum += (float64(seen[prefix]) - expected) * (float64(seen[prefix]) - expected) / expected
		cells++
		known += seen[prefix]
	}
	if known != int64(n) {
		return math.Inf(1), 0 // an output that the target never gives
	}
	free := float64(cells - 1)
	return (sum - free) / math.Sqrt(2*free), float64(accepted) / float64(n*(outLen-1))
}

// TestRulesAreLossless holds the joint distribution of three tokens, made in one cycle or several, to plain sampling's: a million
// outputs of each rule, chain and tree, with a drafter of fewer tokens than the target. Rules known to be wrong fail the
// same test with a tenth of the outputs.
func TestRulesAreLossless(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	const limit = 4 // deviations: by chance, one in thousands of seeds, and the seeds are fixed
	chain, tree, wide := Chain(2), Shape{2, 3, 7}, Shape{2, 2, 4}
	w := newWorld(5)
	for _, c := range []struct {
		name  string
		rule  *rule
		shape Shape
		wrong bool
	}{
		{"A", ruleA(), chain, false},
		{"A", ruleA(), tree, false},
		{"B", ruleB(0), chain, false},
		{"B", ruleB(0), tree, false},
		{"B with p-min", ruleB(0.3), wide, false},
		{"top-k tested as if drawn", wrongChoice(), chain, true},
		{"top-k tested as if drawn", wrongChoice(), tree, true},
		{"drawn and reranked", wrongTree(), wide, true},
	} {
		runs := n
		if c.wrong {
			runs /= 10
		}
		deviation, rate := w.chiSquare(c.rule, c.shape, runs)
		t.Logf("%s, %v: chi-square is off by %.1f deviations, %.2f of 2 drafts accepted", c.name, c.shape, deviation, 2*rate)
		if (math.Abs(deviation) > limit) != c.wrong {
			t.Errorf("%s, %v: chi-square is off by %.1f deviations of %d outputs; wrong: %v", c.name, c.shape, deviation, runs, c.wrong)
		}
	}
}
