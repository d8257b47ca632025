package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/enginetest"
	"draftlab/engine/invariants"
)

// The tests of this file check invariant 2: what a row computes does not depend, to the bit, on what ran
// with it. They compare logits and taps of every position of a text over ways of running it.

// trace is what a model computes at each position of a text.
type trace struct {
	logits, taps [][]float32
}

// diff describes the first bit in which two traces differ, or returns "".
func (a trace) diff(b trace) string {
	for name, pair := range map[string][2][][]float32{"logit": {a.logits, b.logits}, "tap": {a.taps, b.taps}} {
		for pos := range pair[0] {
			for i, x := range pair[0][pos] {
				if y := pair[1][pos][i]; math.Float32bits(x) != math.Float32bits(y) {
					return fmt.Sprintf("%s %d at position %d is %v, want %v", name, i, pos, y, x)
				}
			}
		}
	}
	return ""
}

// add reads the outputs of the pass that has just run; every row has logits.
func (a *trace) add(m *Model) {
	rows, vocab, hidden := m.batch.Rows, m.cfg.Vocab, m.cfg.Hidden
	logits := make([]float32, rows*vocab)
	m.Logits(logits, rows)
	taps := make([]float32, rows*hidden)
	m.Tap(0, rows, taps)
	for r := range rows {
		a.logits = append(a.logits, logits[r*vocab:(r+1)*vocab])
		a.taps = append(a.taps, taps[r*hidden:(r+1)*hidden])
	}
}

// read runs a text in passes of the given widths, over and over, and returns its trace.
func read(t *testing.T, m *Model, text []int32, widths ...int) trace {
	t.Helper()
	var out trace
	b := m.Batch()
	b.Blocks[0] = []int32{5, 1, 4, 0} // not in order: a sequence's blocks lie anywhere
	for at, i := 0, 0; at < len(text); i++ {
		b.Reset()
		for range min(widths[i%len(widths)], len(text)-at) {
			b.WantLogits(b.Append(0, text[at], int32(at)))
			at++
		}
		if err := m.Forward(); err != nil {
			t.Fatal(err)
		}
		out.add(m)
	}
	return out
}

// text returns n token ids.
func text(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(mix(uint64(i)) % uint64(vocab))
	}
	return ids
}

// bitsOptions has taps of the last layer's output, and room for 64 positions of one sequence and two more.
var bitsOptions = Options{Context: 128, Blocks: 16, MaxRows: 40, MaxSeqs: 3, MaxOut: 40, TapLayers: []int{3}}

// families is a random model of each packed format and of each architecture. The race detector slows Go code
// tenfold and looks at threads, not formats: there a model of integer and one of float weights must do.
var families = func() []string {
	if invariants.Enabled {
		return []string{"tiny-q4_1", "tiny-bf16"}
	}
	return []string{
		"tiny-q4_0", "tiny-q4_1", "tiny-q4_k", "tiny-q5_0", "tiny-q5_1", "tiny-q5_k", "tiny-q6_k", "tiny-q8_0",
		"tiny-f16", "tiny-bf16", "tiny-f32", "tiny-qwen2-q4_1", "tiny-qwen3-q8_0",
	}
}()

// each loads every family on every set of kernels; on the generic one, which takes a hundred times as long,
// one family of integer and one of float weights.
func each(t *testing.T, threads int, f func(t *testing.T, set *kernel.Set, family string, m *Model)) {
	for _, set := range kernel.Sets() {
		for _, family := range families {
			if !set.Amortises && family != "tiny-q4_1" && (family != "tiny-bf16" || invariants.Enabled) {
				continue
			}
			t.Run(set.Name+"/"+family, func(t *testing.T) {
				opt := bitsOptions
				opt.Float32 = family == "tiny-f32"
				m, err := LoadRandom(newCPU(t, threads, set), family, 1, opt)
				if err != nil {
					t.Fatal(err)
				}
				f(t, set, family, m)
			})
		}
	}
}

// splits are the ways in which a text is cut into passes: every width up to 16, and uneven chunks.
func splits() [][]int {
	s := [][]int{{40}, {3, 16, 1, 7}, {16, 1, 1, 1, 5}}
	for w := 1; w <= 16; w++ {
		s = append(s, []int{w})
	}
	return s
}

func TestBitsOverWidths(t *testing.T) {
	first := map[string]trace{} // of the first assembly set, by family
	each(t, 1, func(t *testing.T, set *kernel.Set, family string, m *Model) {
		ids, ways := text(40, m.cfg.Vocab), splits()
		if !set.Amortises {
			ids, ways = ids[:20], [][]int{{3, 16, 1}} // the oracle is slow
		}
		want := read(t, m, ids, 1)
		for _, widths := range ways {
			if d := want.diff(read(t, m, ids, widths...)); d != "" {
				t.Errorf("passes of %v rows: %s", widths, d)
			}
		}
		if !set.Amortises {
			return
		}
		if f, ok := first[family]; !ok {
			first[family] = want
		} else if d := f.diff(want); d != "" {
			t.Errorf("%s differs from the first assembly set: %s", set.Name, d)
		}
	})
}

// TestBitsWithoutLogits: passes that want no logits, and one that wants its last row's alone.
func TestBitsWithoutLogits(t *testing.T) {
	each(t, 2, func(t *testing.T, _ *kernel.Set, _ string, m *Model) {
		ids := text(20, m.cfg.Vocab)
		all := read(t, m, ids, 20)
		b := m.Batch()
		for _, span := range [][2]int32{{0, 9}, {9, 20}} {
			b.Reset()
			for at := span[0]; at < span[1]; at++ {
				b.Append(0, ids[at], at)
			}
			if span[1] == 20 {
				b.WantLogits(b.Rows - 1)
			}
			if err := m.Forward(); err != nil {
				t.Fatal(err)
			}
		}
		got := trace{logits: [][]float32{make([]float32, m.cfg.Vocab)}}
		m.Logits(got.logits[0], 1)
		if d := got.diff(trace{logits: all.logits[19:]}); d != "" {
			t.Error(d)
		}
		if best := b.Best[0]; got.logits[0][best] != slices.Max(got.logits[0]) {
			t.Errorf("best token %d is not the arg-max", best)
		}
	})
}

func TestBitsOverThreads(t *testing.T) {
	want := map[string]trace{}
	for threads := 1; threads <= 4; threads++ {
		for _, family := range families {
			t.Run(fmt.Sprintf("%d/%s", threads, family), func(t *testing.T) {
				m, err := LoadRandom(newCPU(t, threads, kernel.Best()), family, 1, bitsOptions)
				if err != nil {
					t.Fatal(err)
				}
				ids := text(40, m.cfg.Vocab)
				if !kernel.Best().Amortises {
					ids = ids[:8] // the oracle is slow
				}
				got := read(t, m, ids, 7, 1)
				if threads == 1 {
					want[family] = got
				} else if d := want[family].diff(got); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

// TestBitsOverNeighbours runs a row beside rows of other sequences.
func TestBitsOverNeighbours(t *testing.T) {
	each(t, 2, func(t *testing.T, _ *kernel.Set, _ string, m *Model) {
		ids := text(20, m.cfg.Vocab)
		want := read(t, m, ids, 1)
		var got trace
		b := m.Batch()
		b.Blocks[0], b.Blocks[1], b.Blocks[2] = []int32{6}, []int32{7, 9}, []int32{8, 2}
		for at := range int32(20) {
			b.Reset()
			if at < 9 {
				b.Append(0, at, at)
			}
			r := b.Append(1, ids[at], at)
			if at%2 == 0 {
				b.Append(2, at*7, at)
				b.Append(2, at*11, at+1)
			}
			b.WantLogits(r)
			if err := m.Forward(); err != nil {
				t.Fatal(err)
			}
			logits, taps := make([]float32, m.cfg.Vocab), make([]float32, b.Rows*m.cfg.Hidden)
			m.Logits(logits, 1)
			m.Tap(0, b.Rows, taps)
			got.logits = append(got.logits, logits)
			got.taps = append(got.taps, taps[r*m.cfg.Hidden:(r+1)*m.cfg.Hidden])
		}
		if d := want.diff(got); d != "" {
			t.Error(d)
		}
	})
}

// TestBitsOfTrees verifies three paths of a tree in one pass; each must equal the chain that it is.
//
//	slot 30 ─ 31 ─ 34
//	        └ 32 ─ 35 ─ 37
//	        └ 33 ─ 36
func TestBitsOfTrees(t *testing.T) {
	const prefix = 30 // the tree crosses from the second block into the third
	parent := []int{-1, 0, 0, 0, 1, 2, 3, 5}
	each(t, 2, func(t *testing.T, _ *kernel.Set, _ string, m *Model) {
		ids := text(prefix+len(parent), m.cfg.Vocab)
		want := make([]trace, len(parent)) // of the path to each node
		for n := range parent {
			chain := slices.Clone(ids[:prefix])
			for i := n; i >= 0; i = parent[i] {
				chain = slices.Insert(chain, prefix, ids[prefix+i])
			}
			all := read(t, m, chain, 16)
			last := len(all.logits) - 1
			want[n] = trace{all.logits[last:], all.taps[last:]}
		}
		b := m.Batch()
		b.Reset()
		for n := range parent {
			r := b.Append(0, ids[prefix+n], int32(prefix+n))
			b.Tail[r], b.Pos[r] = prefix, prefix-1
			for i := n; i >= 0; i = parent[i] {
				b.Mask[r] |= 1 << i
				b.Pos[r]++
			}
			b.WantLogits(r)
		}
		if err := m.Forward(); err != nil {
			t.Fatal(err)
		}
		var got trace
		got.add(m)
		for n := range parent {
			if d := want[n].diff(trace{got.logits[n:], got.taps[n:]}); d != "" {
				t.Errorf("node %d: %s", n, d)
			}
		}
	})
}

func TestBitsOfRealModel(t *testing.T) {
	path := enginetest.DefaultTarget(t)
	var want trace
	for threads := 1; threads <= 4; threads++ {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			opt := Options{Context: 64, Blocks: 6, MaxRows: 40, MaxSeqs: 1, MaxOut: 40, TapLayers: []int{15}}
			m, err := Load(newCPU(t, threads, kernel.Best()), path, opt)
			if err != nil {
				t.Fatal(err)
			}
			ids, ways := text(40, m.cfg.Vocab), splits()
			if threads > 1 {
				ways = [][]int{{40}, {8}, {3, 16, 1, 7}} // every width has run on one thread
			}
			if !kernel.Best().Amortises {
				ids, ways = ids[:6], [][]int{{6}, {3, 1}} // a build without assembly: some seconds a way
			}
			if threads == 1 {
				want = read(t, m, ids, 1)
			}
			for _, widths := range ways {
				if d := want.diff(read(t, m, ids, widths...)); d != "" {
					t.Errorf("passes of %v rows: %s", widths, d)
				}
			}
		})
	}
}

// TestRealModelCost: the default target is what the arithmetic of the project rests on.
func TestRealModelCost(t *testing.T) {
	m, err := Load(newCPU(t, 2, kernel.Best()), enginetest.DefaultTarget(t), Options{Blocks: 1, MaxRows: 1, MaxSeqs: 1, MaxOut: 1})
	if err != nil {
		t.Fatal(err)
	}
	const layers, head, norms = 66355200, 30081024, 35136 * 4 // Q4_1, Q8_0, F32
	if got := m.WeightBytesPerToken(); got != layers+head+norms {
		t.Errorf("a pass reads %d bytes of weights, want %d", got, layers+head+norms)
	}
}
