package model_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/model"
	"draftlab/engine/weights"
)

// arrays are the float32 arrays of a golden file by name (testdata/README.md); whole numbers are stored so too.
type arrays map[string]array

type array struct {
	v     []float32
	width int // elements of a row: the last dimension, 1 for a vector
}

func (a array) row(i int) []float32 { return a.v[i*a.width : (i+1)*a.width] }

// whole returns a vector of whole numbers.
func (a array) whole() []int32 {
	n := make([]int32, len(a.v))
	for i, x := range a.v {
		n[i] = int32(x)
	}
	return n
}

func readGolden(t *testing.T, path string) arrays {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := arrays{}
	for _, x := range f.Tensors() {
		a := array{v: make([]float32, x.Elements()), width: 1}
		if len(x.Shape) == 2 {
			a.width = x.Shape[1]
		}
		for i := range a.v {
			a.v[i] = math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:]))
		}
		all[x.Name] = a
	}
	return all
}

// split returns token sequence i of a golden file and the index of its first position.
func (a arrays) split(i int) (ids []int32, from int) {
	s := a["starts"].whole()
	return a["tokens"].whole()[s[i]:s[i+1]], int(s[i])
}

// sequences is the number of token sequences.
func (a arrays) sequences() int { return len(a["starts"].v) - 1 }

// load opens a model on a device of two threads with room for one sequence of context tokens in chunks of rows.
func load(t *testing.T, set *kernel.Set, path string, context, rows int, float32s bool, taps ...int) *model.Model {
	t.Helper()
	dev, err := cpu.New(2, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(dev, path, model.Options{
		Context: context, Blocks: (context + compute.BlockSlots - 1) / compute.BlockSlots,
		MaxRows: rows, MaxSeqs: 1, MaxOut: rows, TapLayers: taps, Float32: float32s,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pass is what the model computed at one position.
type pass struct {
	best   int32
	logits []float32   // [vocab], valid until visit returns
	taps   [][]float32 // [taps][hidden], likewise
}

// feed runs ids from slot from on, in chunks of the model's MaxRows, and calls visit with each position.
func feed(t *testing.T, m *model.Model, ids []int32, from int, visit func(pos int, p pass)) {
	t.Helper()
	c, o, b := m.Config(), m.Options(), m.Batch()
	table := make([]int32, o.Blocks)
	for i := range table {
		table[i] = int32(o.Blocks - 1 - i) // not in order, as a busy server would have them
	}
	logits := make([]float32, o.MaxRows*c.Vocab)
	taps := make([][]float32, len(o.TapLayers))
	for j := range taps {
		taps[j] = make([]float32, o.MaxRows*c.Hidden)
	}
	for at := 0; at < len(ids); at += o.MaxRows {
		n := min(o.MaxRows, len(ids)-at)
		b.Reset()
		b.Blocks[0] = table
		for i := range n {
			b.WantLogits(b.Append(0, ids[at+i], int32(from+at+i)))
		}
		if err := m.Forward(); err != nil {
			t.Fatal(err)
		}
		m.Logits(logits[:n*c.Vocab], n)
		for j := range taps {
			m.Tap(j, n, taps[j][:n*c.Hidden])
		}
		for i := range n {
			p := pass{best: b.Best[i], logits: logits[i*c.Vocab : (i+1)*c.Vocab]}
			for j := range taps {
				p.taps = append(p.taps, taps[j][i*c.Hidden:(i+1)*c.Hidden])
			}
			visit(from+at+i, p)
		}
	}
}

// worst collects the largest relative error by name.
type worst map[string]float64

// add notes the largest |got − want| of a row over scale. A NaN counts as infinite.
func (w worst) add(name string, got, want []float32, scale float64) {
	if len(got) != len(want) {
		panic("model_test: rows of different length")
	}
	for i := range got {
		e := math.Abs(float64(got[i])-float64(want[i])) / scale
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		w[name] = max(w[name], e)
	}
}

func (w worst) check(t *testing.T, limit float64) {
	t.Helper()
	for name, e := range w {
		t.Logf("%s: relative error %.2e", name, e)
		if e > limit {
			t.Errorf("%s: relative error %.2e, want at most %.0e", name, e, limit)
		}
	}
}

// largest returns max |x|, the scale of a row of logits.
func largest(row []float32) (m float64) {
	for _, x := range row {
		m = max(m, math.Abs(float64(x)))
	}
	return m
}

// rms returns the root of the mean square, the scale of a tapped row.
func rms(row []float32) float64 {
	var s float64
	for _, x := range row {
		s += float64(x) * float64(x)
	}
	return math.Sqrt(s / float64(len(row)))
}

// TestGoldenTiny holds every family's float32 path, under every kernel set of this machine, to what transformers computes on the same
// random checkpoint: all logits and the input of every layer.
func TestGoldenTiny(t *testing.T) {
	for _, family := range []string{"llama", "llama-tied", "mistral", "qwen2", "qwen3"} {
		want := readGolden(t, filepath.Join("testdata", "tiny", family+".golden.safetensors"))
		for _, set := range kernel.Sets() {
			t.Run(family+"/"+set.Name, func(t *testing.T) {
				checkTiny(t, set, filepath.Join("testdata", "tiny", family), want)
			})
		}
	}
}

func checkTiny(t *testing.T, set *kernel.Set, dir string, want arrays) {
	var taps []int
	for {
		if _, ok := want[fmt.Sprintf("tap.%d", len(taps))]; !ok {
			break
		}
		taps = append(taps, len(taps))
	}
	// Chunks of 5 rows cross blocks of 16 positions and leave a short last chunk.
	m := load(t, set, dir, 70, 5, true, taps...)
	if n := m.Config().Layers; n != len(taps) {
		t.Fatalf("%d layers, but the golden file has %d taps", n, len(taps))
	}
	errs := worst{}
	for i := range want.sequences() {
		ids, first := want.split(i)
		feed(t, m, ids, 0, func(pos int, p pass) {
			logits := want["logits"].row(first + pos)
			errs.add("logits", p.logits, logits, largest(logits))
			for j := range taps {
				tap := want[fmt.Sprintf("tap.%d", j)].row(first + pos)
				errs.add(fmt.Sprintf("tap %d", j), p.taps[j], tap, rms(tap))
			}
			if top := argmax(p.logits); p.best != top {
				t.Errorf("position %d: Best = %d, but the largest logit is that of %d", pos, p.best, top)
			}
		})
	}
	errs.check(t, 1e-4)
}

// argmax returns the lowest index of the largest element.
func argmax(row []float32) int32 {
	best := 0
	for i, x := range row {
		if x > row[best] {
			best = i
		}
	}
	return int32(best)
}
