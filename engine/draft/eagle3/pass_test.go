package eagle3

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/model"
	"draftlab/engine/weights"
)

// bench is a tiny target that has run a text, and a drafter for it with a feature of each of the text's positions.
type bench struct {
	t     *testing.T
	m     *model.Model
	d     *Drafter
	ids   []int32
	taps  [taps][]float32 // [len(ids), Hidden]
	table []int32
}

// textLen is the length of a bench's text: it fills a block and part of another.
const textLen = 21

func tinyTarget(t *testing.T, threads int, floats bool) (compute.Device, *model.Model) {
	t.Helper()
	dev, err := cpu.New(threads, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.LoadRandom(dev, "tiny-q8_0", 7, model.Options{
		Blocks: 12, MaxRows: 32, MaxSeqs: 3, MaxOut: 32, TapLayers: []int{0, 1, 3}, Float32: floats,
	})
	if err != nil {
		t.Fatal(err)
	}
	return dev, m
}

func newBench(t *testing.T, threads int, floats bool, change func(*Config)) *bench {
	t.Helper()
	dev, m := tinyTarget(t, threads, floats)
	c := tinyConfig(t, m)
	change(&c)
	return benchOf(t, m, build(t, dev, m, c, randomTensors(&c, 3), Options{MaxTop: 8}))
}

func tinyConfig(t *testing.T, m *model.Model) Config {
	t.Helper()
	c, err := RandomConfig(m.Config(), 128)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// build makes a drafter of given tensors.
func build(t *testing.T, dev compute.Device, m *model.Model, c Config, tensors []weights.Tensor, opt Options) *Drafter {
	t.Helper()
	b := &builder{d: &Drafter{cfg: c, opt: opt, dev: dev, target: m}, release: func(weights.Tensor) {}}
	if err := b.index(tensors); err != nil {
		t.Fatal(err)
	}
	if err := b.build(); err != nil {
		t.Fatal(err)
	}
	return b.d
}

// benchOf runs a text through the target and makes the drafter's features of it.
func benchOf(t *testing.T, m *model.Model, d *Drafter) *bench {
	t.Helper()
	s := &bench{t: t, m: m, d: d, table: []int32{7, 2, 9}}
	rng := rand.New(rand.NewPCG(1, 1))
	b := m.Batch()
	b.Reset()
	b.Blocks[0] = s.table
	rows := make([]int32, textLen)
	for i := range rows {
		s.ids = append(s.ids, rng.Int32N(int32(m.Config().Vocab)))
		rows[i] = int32(b.Append(0, s.ids[i], int32(i)))
	}
	if err := m.Forward(); err != nil {
		t.Fatal(err)
	}
	for j := range s.taps {
		s.taps[j] = make([]float32, textLen*m.Config().Hidden)
		m.Tap(j, textLen, s.taps[j])
	}
	d.Features(rows)
	return s
}

// token returns the token at a slot: the text's, and behind it arbitrary ones.
func (s *bench) token(slot int) int32 {
	if slot < textLen {
		return s.ids[slot]
	}
	return int32(slot * 37 % s.m.Config().Vocab)
}

func (s *bench) reset() *compute.Batch {
	b := s.d.Batch()
	b.Reset()
	for i := range b.Blocks {
		b.Blocks[i] = s.table
	}
	return b
}

func (s *bench) run() {
	s.t.Helper()
	if err := s.d.Run(); err != nil {
		s.t.Fatal(err)
	}
}

// extend adds the rows of slots [from, to) of sequence 0, whose states are features, and wants all their logits.
func (s *bench) extend(from, to int) {
	for slot := from; slot < to; slot++ {
		s.d.Batch().WantLogits(s.d.Append(0, s.token(slot), int32(slot), int32(slot-1)))
	}
}

// hold keeps the state of a row of the last Run through later ones, in the place of a restored feature: the i-th.
func (s *bench) hold(i, row int) {
	s.d.dev.CopyRow(s.d.feature, int(s.held(i)), s.d.output, row)
	s.d.restored = max(s.d.restored, i+1)
}

// held returns the from of a state that hold keeps.
func (s *bench) held(i int) int32 { return int32(s.d.features.MaxRows + i) }

// result is what a row gave.
type result struct{ state, logits []float32 }

// results reads all rows of the last Run; every row must have had its logits wanted.
func (s *bench) results() []result {
	s.t.Helper()
	c, n := s.d.Config(), s.d.Batch().Rows
	states, logits := make([]float32, n*c.Hidden), make([]float32, n*c.DraftVocab)
	s.d.dev.Read(s.d.output, n, states)
	s.d.Logits(logits, n)
	var list []result
	for r := range n {
		list = append(list, result{states[r*c.Hidden : (r+1)*c.Hidden], logits[r*c.DraftVocab : (r+1)*c.DraftVocab]})
	}
	return list
}

func (s *bench) same(what string, got, want result) {
	s.t.Helper()
	if !slices.Equal(got.state, want.state) || !slices.Equal(got.logits, want.logits) {
		s.t.Errorf("%s: another result", what)
	}
}

// whole extends over the text and the token behind it in one pass.
func (s *bench) whole() []result {
	s.t.Helper()
	s.reset()
	s.extend(1, textLen+1)
	s.run()
	return s.results()
}

// nodes is a tree of drafts: tokens, parents (−1 is the last extended row), level by level.
var nodes = []struct {
	token  int32
	parent int
	depth  int
}{{11, -1, 1}, {12, -1, 1}, {13, 0, 2}, {14, 0, 2}, {15, 1, 2}, {16, 3, 3}, {17, 4, 3}}

// ancestors returns a node and those above it, top down.
func ancestors(i int) (list []int) {
	for ; i >= 0; i = nodes[i].parent {
		list = append([]int{i}, list...)
	}
	return list
}

// tree drafts nodes behind the extended text, a level a pass, and returns their results.
func (s *bench) tree(last int) []result {
	s.t.Helper()
	const base = textLen + 1
	all := make([]result, len(nodes))
	row := make([]int, len(nodes))
	for depth := 1; depth <= 3; depth++ {
		b := s.reset()
		for i, n := range nodes {
			if n.depth != depth {
				continue
			}
			from := last
			if n.parent >= 0 {
				from = row[n.parent]
			}
			r := s.d.Append(0, n.token, int32(base+i), ^int32(from))
			b.WantLogits(r)
			b.Pos[r], b.Tail[r] = int32(base-1+depth-1), base
			for _, a := range ancestors(i) {
				b.Mask[r] |= 1 << a
			}
			row[i] = r
		}
		s.run()
		got := s.results()
		for i, n := range nodes {
			if n.depth == depth {
				all[i] = got[row[i]]
			}
		}
	}
	return all
}

// flags are the switches of a configuration that change what is computed.
var flags = map[string]func(*Config){
	"plain":                func(*Config) {},
	"norm_before_residual": func(c *Config) { c.NormBeforeResidual = true },
	"norm_before_fc":       func(c *Config) { c.NormBeforeFC = true },
	"fc_norm":              func(c *Config) { c.FCNorm = true },
	"norm_output":          func(c *Config) { c.NormOutput = true },
	"all norms":            func(c *Config) { c.NormBeforeResidual, c.NormBeforeFC, c.FCNorm, c.NormOutput = true, true, true, true },
	"heads":                func(c *Config) { c.Heads, c.KVHeads, c.HeadDim = 3, 1, 32 },
	"theta":                func(c *Config) { c.Rope.Theta = 500 },
	"whole vocabulary":     func(c *Config) { c.DraftVocab = c.Vocab },
}

// TestAgainstReference compares extension, a chain and a tree with the float64 reference for every switch.
func TestAgainstReference(t *testing.T) {
	for name, change := range flags {
		t.Run(name, func(t *testing.T) {
			s := newBench(t, 2, true, change)
			c := s.d.Config()
			embeds := map[int32][]float64{}
			ref := newReference(c, randomTensors(&c, 3), func(id int32) []float64 { return embeds[id] })
			s.fillEmbeds(embeds)
			var sees []int
			var state []float64
			for i, got := range s.whole() {
				at, out, logits := ref.row(s.token(i+1), i, ref.feature(s.tapped(i)), sees)
				s.near(fmt.Sprint("row ", i), got, out, logits)
				sees, state = append(sees, at), out
			}
			states, at := make([][]float64, len(nodes)), make([]int, len(nodes))
			for i, got := range s.tree(textLen - 1) {
				from, path := state, slices.Clone(sees)
				for _, a := range ancestors(i)[:nodes[i].depth-1] {
					from, path = states[a], append(path, at[a])
				}
				var logits []float64
				at[i], states[i], logits = ref.row(nodes[i].token, textLen+nodes[i].depth-1, from, path)
				s.near(fmt.Sprint("node ", i), got, states[i], logits)
			}
		})
	}
}

// fillEmbeds runs every token that the tests use through the target: the input of its first layer is the embedding.
func (s *bench) fillEmbeds(embeds map[int32][]float64) {
	h := s.m.Config().Hidden
	var ids []int32
	for slot := range textLen + 1 {
		ids = append(ids, s.token(slot))
	}
	for _, n := range nodes {
		ids = append(ids, n.token)
	}
	b := s.m.Batch()
	b.Reset()
	b.Blocks[0] = []int32{1, 3}
	for i, id := range ids {
		b.Append(0, id, int32(i))
	}
	if err := s.m.Forward(); err != nil {
		s.t.Fatal(err)
	}
	all := make([]float32, len(ids)*h)
	s.m.Tap(0, len(ids), all)
	for i, id := range ids {
		embeds[id] = widen(all[i*h : (i+1)*h])
	}
}

// tapped returns the three hidden states at a position of the text.
func (s *bench) tapped(i int) (list [taps][]float64) {
	h := s.m.Config().Hidden
	for j := range list {
		list[j] = widen(s.taps[j][i*h : (i+1)*h])
	}
	return list
}

func (s *bench) near(what string, got result, state, logits []float64) {
	s.t.Helper()
	for _, p := range []struct {
		name string
		got  []float32
		want []float64
	}{{"state", got.state, state}, {"logits", got.logits, logits}} {
		for i, w := range p.want {
			if math.Abs(float64(p.got[i])-w) > 1e-4*max(1, math.Abs(w)) {
				s.t.Fatalf("%s, %s %d: %v, want %v", what, p.name, i, p.got[i], w)
			}
		}
	}
}

// TestRowsStandAlone: a row's bits do not depend on which rows, sequences and threads it ran with (invariant 2).
func TestRowsStandAlone(t *testing.T) {
	var want, wantTree []result
	for threads := 1; threads <= 3; threads++ {
		s := newBench(t, threads, false, func(*Config) {})
		all := s.whole()
		tree := s.tree(textLen - 1)
		if want == nil {
			want, wantTree = all, tree
		}
		for i := range all {
			s.same(fmt.Sprintf("%d threads, row %d", threads, i), all[i], want[i])
		}
		for i := range tree {
			s.same(fmt.Sprintf("%d threads, node %d", threads, i), tree[i], wantTree[i])
		}
		for _, step := range []int{1, 2, 5, 9} {
			for slot := 1; slot <= textLen; slot += step {
				s.reset()
				s.extend(slot, min(slot+step, textLen+1))
				s.run()
				for i, got := range s.results() {
					s.same(fmt.Sprintf("row %d in passes of %d", slot-1+i, step), got, want[slot-1+i])
				}
			}
		}
	}
}

// TestSequences: rows of a sequence give the same beside another sequence's, whose blocks are others.
func TestSequences(t *testing.T) {
	s := newBench(t, 2, false, func(*Config) {})
	want := s.whole()
	b := s.reset()
	b.Blocks[1] = []int32{4, 5}
	for slot := 1; slot <= 9; slot++ {
		b.WantLogits(s.d.Append(0, s.token(slot), int32(slot), int32(slot-1)))
	}
	for slot := 1; slot <= 12; slot++ {
		b.WantLogits(s.d.Append(1, s.token(slot), int32(slot), int32(slot-1)))
	}
	s.run()
	got := s.results()
	for i := range 9 {
		s.same("first sequence", got[i], want[i])
	}
	for i := range 12 {
		s.same("second sequence", got[9+i], want[i])
	}
}

// TestTreeIsChains: along every path a tree's rows are those of a chain, and a chain's those of one causal pass that
// is given the same states.
func TestTreeIsChains(t *testing.T) {
	s := newBench(t, 2, false, func(*Config) {})
	s.whole()
	s.hold(0, textLen-1)
	tree := s.tree(textLen - 1)
	for i, n := range nodes {
		path := ancestors(i)
		from := s.held(0)
		for depth, a := range path {
			b := s.reset()
			b.WantLogits(s.d.Append(0, nodes[a].token, int32(textLen+1+depth), from))
			s.run()
			s.same(fmt.Sprintf("node %d as a link of node %d's chain", a, i), s.results()[0], tree[a])
			if depth+1 < n.depth {
				s.hold(1+depth, 0)
				from = s.held(1 + depth)
			}
		}
		b := s.reset()
		s.extend(1, textLen+1)
		for depth, a := range path {
			b.WantLogits(s.d.Append(0, nodes[a].token, int32(textLen+1+depth), s.held(depth)))
		}
		s.run()
		for depth, got := range s.results()[textLen:] {
			s.same(fmt.Sprintf("node %d in one pass", path[depth]), got, tree[path[depth]])
		}
	}
}

// TestSlotZeroIsHidden: what lies in slot 0 is seen by no row, of chain or tree.
func TestSlotZeroIsHidden(t *testing.T) {
	s := newBench(t, 2, false, func(*Config) {})
	want := s.whole()
	wantTree := s.tree(textLen - 1)
	b := s.reset()
	b.First = 0
	r := s.d.Append(0, 5, 0, 3)
	b.Pos[r] = 0
	s.run()
	b.First = 1
	for i, got := range s.whole() {
		s.same(fmt.Sprint("row ", i), got, want[i])
	}
	for i, got := range s.tree(textLen - 1) {
		s.same(fmt.Sprint("node ", i), got, wantTree[i])
	}
}

// TestSavedFeatures: a restored feature is the one that was saved, after other passes of target and drafter.
func TestSavedFeatures(t *testing.T) {
	s := newBench(t, 1, false, func(*Config) {})
	want := s.whole()
	s.d.Save(7, 15)
	s.d.Save(2, 3)
	s.d.Save(2, 20)
	s.d.Features([]int32{0, 1})
	b := s.reset()
	b.WantLogits(s.d.Append(0, s.token(16), 16, s.d.Restore(7)))
	s.run()
	s.same("the first slot of the second block", s.results()[0], want[15])
	s.reset()
	for slot := 17; slot <= 20; slot++ { // states do not matter to what lies before slot 17
		s.d.Append(0, s.token(slot), int32(slot), 0)
	}
	s.run()
	if first, second := s.d.Restore(2), s.d.Restore(2); first == second {
		t.Error("two restored features have one index")
	}
}
