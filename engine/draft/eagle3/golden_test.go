package eagle3

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/enginetest"
	"draftlab/engine/model"
	"draftlab/engine/weights"
)

const drafterDir = "../../../drafters/smollm2-135m-instruct-eagle3"

// golden reads the tensors of a golden file.
func golden(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]float32{}
	for _, x := range f.Tensors() {
		v := make([]float32, x.Elements())
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:]))
		}
		all[x.Name] = v
	}
	return all
}

// TestGolden holds the shipped drafter, extension and chain, to the trainer's tensors (testdata/README.md): closely in
// float32, and in what is served by its drafts alone.
func TestGolden(t *testing.T) {
	path := enginetest.DefaultTarget(t)
	g := golden(t, filepath.Join("testdata", "smollm2.golden.safetensors"))
	for _, floats := range []bool{true, false} {
		dev, err := cpu.New(1, kernel.Best())
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		m, err := model.Load(dev, path, model.Options{
			Context: 64, Blocks: 8, MaxRows: 64, MaxSeqs: 1, MaxOut: 64, TapLayers: []int{2, 15, 27}, Float32: floats,
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := Load(dev, drafterDir, m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		runGolden(t, &bench{t: t, m: m, d: d, table: []int32{5, 1, 7, 3}}, g, floats)
	}
}

func runGolden(t *testing.T, s *bench, g map[string][]float32, floats bool) {
	t.Helper()
	ids, c := g["tokens"], s.d.Config()
	n := len(ids) - 1
	b := s.m.Batch()
	b.Reset()
	b.Blocks[0] = s.table
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(b.Append(0, int32(ids[i]), int32(i)))
	}
	b.WantLogits(n - 1)
	if err := s.m.Forward(); err != nil {
		t.Fatal(err)
	}
	if b.Best[0] != int32(ids[n]) {
		t.Fatalf("the target goes on with token %d, want %v", b.Best[0], ids[n])
	}
	s.d.Features(rows)
	check := func(what string, got, want []float32) {
		t.Helper()
		var diff, size float64
		for i, w := range want {
			diff += float64(got[i]-w) * float64(got[i]-w)
			size += float64(w) * float64(w)
		}
		if e := math.Sqrt(diff / size); floats && !(e < 1e-4) {
			t.Errorf("%s: relative error %.1e, want below 1e-4", what, e)
		}
	}
	features := make([]float32, n*c.Hidden)
	s.d.dev.Read(s.d.feature, n, features)
	check("features", features, g["extend.fc"])

	s.reset()
	for i := range n {
		s.d.Append(0, int32(ids[i+1]), int32(i+1), int32(i))
	}
	s.d.Batch().WantLogits(n - 1)
	s.run()
	states := make([]float32, n*c.Hidden)
	s.d.dev.Read(s.d.output, n, states)
	check("extension", states, g["extend.state"])
	logits := make([]float32, c.DraftVocab)
	s.d.Logits(logits, 1)
	check("logits", logits, g["extend.logits"])
	drafts := g["drafts"]
	from := n - 1
	for i, name := range []string{"draft1", "draft2", "draft3"} {
		if got := s.d.Best(0); got != int32(drafts[i]) {
			t.Fatalf("draft %d is token %d, want %v", i, got, drafts[i])
		}
		s.reset()
		s.d.Batch().WantLogits(s.d.Append(0, s.d.Best(0), int32(n+1+i), ^int32(from)))
		s.run()
		from = 0
		s.d.dev.Read(s.d.output, 1, states)
		check(name, states[:c.Hidden], g[name+".state"])
		s.d.Logits(logits, 1)
		check(name, logits, g[name+".logits"])
	}
	if got := s.d.Best(0); got != int32(drafts[3]) {
		t.Errorf("the last draft is token %d, want %v", got, drafts[3])
	}
}
