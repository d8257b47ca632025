package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/quant"
)

// fakeDevice computes nothing: it notes what was packed and recorded.
type fakeDevice struct {
	packed [][]compute.Part // of each matrix, without data
	ops    []string
	runs   int
	fail   string // name of a part that NewMatrix refuses
}

type fakeMatrix struct {
	rows, cols int
	bytes      int64
	input      compute.Input
	name       string
}

func (m *fakeMatrix) Rows() int            { return m.rows }
func (m *fakeMatrix) Cols() int            { return m.cols }
func (m *fakeMatrix) Bytes() int64         { return m.bytes }
func (m *fakeMatrix) Input() compute.Input { return m.input }

type fakeVector []float32

func (v fakeVector) Len() int { return len(v) }

type fakeBuffer struct {
	rows, cols int
	input      compute.Input
}

func (b *fakeBuffer) Cols() int { return b.cols }

type fakeKV struct{ compute.KVSpec }

func (k fakeKV) Blocks() int  { return k.KVSpec.Blocks }
func (k fakeKV) Bytes() int64 { return 0 }

func (d *fakeDevice) Info() compute.Info { return compute.Info{Name: "fake"} }
func (d *fakeDevice) NewMatrix(parts ...compute.Part) (compute.Matrix, error) {
	m := &fakeMatrix{cols: parts[0].Cols, input: compute.Int8}
	var names []string
	for i, p := range parts {
		if p.Name == d.fail {
			return nil, fmt.Errorf("no room for %s", p.Name)
		}
		m.rows += p.Rows
		m.bytes += int64(len(p.Data))
		names = append(names, strings.TrimSuffix(p.Name, ".weight"))
		if quant.Type(p.Type).BlockElems() == 1 {
			m.input = compute.Float32
		}
		parts[i].Data = nil
	}
	m.name = strings.Join(names, "+")
	d.packed = append(d.packed, parts)
	return m, nil
}
func (d *fakeDevice) NewVector(v []float32) compute.Vector { return fakeVector(v) }
func (d *fakeDevice) NewTensor(rows, cols int) compute.Tensor {
	return &fakeBuffer{rows: rows, cols: cols}
}
func (d *fakeDevice) NewOperand(rows, cols int, in compute.Input) compute.Operand {
	return &fakeBuffer{rows: rows, cols: cols, input: in}
}
func (d *fakeDevice) NewKV(s compute.KVSpec) (compute.KV, error) { return fakeKV{s}, nil }
func (d *fakeDevice) Record(_ *compute.Batch, f func(compute.Recorder)) compute.Program {
	f(d)
	return nil
}
func (d *fakeDevice) Run(compute.Program)                              { d.runs++ }
func (d *fakeDevice) CopyKV(compute.KV, []int32, []int32, []int32)     {}
func (d *fakeDevice) CopyRow(compute.Tensor, int, compute.Tensor, int) {}
func (d *fakeDevice) Read(compute.Tensor, int, []float32)              {}
func (d *fakeDevice) ReadRow(compute.Tensor, int, []float32)           {}

func (d *fakeDevice) ReadWeights(int) (int64, time.Duration)           { return 0, 0 }
func (d *fakeDevice) Clock() compute.Clock                             { return compute.NewHostClock() }
func (d *fakeDevice) Profile(bool) (t [compute.NumKinds]time.Duration) { return t }
func (d *fakeDevice) Close() error                                     { return nil }

func (d *fakeDevice) note(format string, args ...any) {
	d.ops = append(d.ops, fmt.Sprintf(format, args...))
}
func name(m compute.Matrix) string { return m.(*fakeMatrix).name }

func (d *fakeDevice) EmbedRows(x compute.Tensor, table compute.Matrix) {
	d.note("embed %s", name(table))
}
func (d *fakeDevice) Norm(compute.Operand, compute.Tensor, compute.Vector, float32) {
	d.note("norm")
}
func (d *fakeDevice) Convert(compute.Operand, compute.Tensor) { d.note("convert") }
func (d *fakeDevice) NormInto(compute.Tensor, int, compute.Tensor, compute.Vector, float32) {
	d.note("norm into")
}
func (d *fakeDevice) Gather(compute.Tensor, int, compute.Tensor, compute.Tensor) { d.note("gather") }
func (d *fakeDevice) TopK(compute.Tensor)                                        { d.note("top-k") }
func (d *fakeDevice) MatMul(_ compute.Tensor, w compute.Matrix, _ compute.Operand, ep compute.Epilogue) {
	d.note("%s %s", [...]string{"store", "add"}[ep], name(w))
}
func (d *fakeDevice) SwiGLU(_ compute.Operand, gate, up compute.Matrix, _ compute.Operand) {
	d.note("swiglu %s %s", name(gate), name(up))
}
func (d *fakeDevice) RopeAppend(_ compute.Tensor, _ compute.KV, s *compute.AttentionSpec) {
	d.note("rope %d", s.Layer)
}
func (d *fakeDevice) Attention(_ compute.Operand, _ compute.Tensor, _ compute.KV, s *compute.AttentionSpec) {
	d.note("attention %d", s.Layer)
}
func (d *fakeDevice) CopyRows(compute.Tensor, compute.Tensor)  { d.note("tap") }
func (d *fakeDevice) SelectOut(compute.Tensor, compute.Tensor) { d.note("select") }
func (d *fakeDevice) Head(_ compute.Tensor, w compute.Matrix, _ compute.Operand) {
	d.note("head %s", name(w))
}

// TestPassOrder checks the whole pass of a model with one tap before and one after its layers.
func TestPassOrder(t *testing.T) {
	dev := &fakeDevice{}
	opt := Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 2, TapLayers: []int{3, 1}}
	if _, err := LoadRandom(dev, "tiny-q4_0", 1, opt); err != nil {
		t.Fatal(err)
	}
	want := []string{"embed model.embed_tokens"}
	for l := range 3 {
		p := fmt.Sprintf("model.layers.%d.", l)
		if l == 1 {
			want = append(want, "tap")
		}
		want = append(want,
			"norm",
			fmt.Sprintf("store %sself_attn.q_proj+%sself_attn.k_proj+%sself_attn.v_proj", p, p, p),
			fmt.Sprintf("rope %d", l), fmt.Sprintf("attention %d", l),
			"add "+p+"self_attn.o_proj",
			"norm", "swiglu "+p+"mlp.gate_proj "+p+"mlp.up_proj",
			"add "+p+"mlp.down_proj")
	}
	want = append(want, "tap", "select", "norm", "head model.embed_tokens")
	if !slices.Equal(dev.ops, want) {
		t.Errorf("pass:\n%s\nwant:\n%s", strings.Join(dev.ops, "\n"), strings.Join(want, "\n"))
	}
}

func TestUntiedHead(t *testing.T) {
	dev := &fakeDevice{}
	m, err := LoadRandom(dev, "tiny-qwen3-q4_0", 1, Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := dev.ops[len(dev.ops)-1]; got != "head lm_head" {
		t.Errorf("last operation %q, want the untied head", got)
	}
	if d := m.WeightBytes() - m.WeightBytesPerToken(); d != m.embed.Bytes() {
		t.Errorf("weights beyond those of a pass: %d bytes, want the embedding's %d", d, m.embed.Bytes())
	}
}

func TestFloat32Parts(t *testing.T) {
	dev := &fakeDevice{}
	m, err := LoadRandom(dev, "tiny-q5_k", 1, Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 2, Float32: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range dev.packed {
		for _, p := range parts {
			if quant.Type(p.Type) != quant.F32 {
				t.Errorf("%s is packed as %v, want F32", p.Name, quant.Type(p.Type))
			}
		}
	}
	if !m.kv.(fakeKV).Float32 {
		t.Error("keys and values are float16, want float32")
	}
	if in := m.xn.(*fakeBuffer).input; in != compute.Float32 {
		t.Errorf("operand of kind %d, want float32 alone", in)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 2}
	for _, tc := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Context = 2049 }, "context = 2049: the model's limit is 2048"},
		{func(o *Options) { o.Context = -1 }, "context = -1"},
		{func(o *Options) { o.Blocks = 0 }, "blocks = 0"},
		{func(o *Options) { o.MaxRows = 0 }, "rows of a batch = 0"},
		{func(o *Options) { o.MaxSeqs = 1 << 20 }, "sequences of a batch"},
		{func(o *Options) { o.MaxOut = 0 }, "output rows"},
		{func(o *Options) { o.TapLayers = []int{4} }, "tap layer 4: want 0 to 3"},
		{func(o *Options) { o.TapLayers = []int{1, 1} }, "tap layer 1 is listed twice"},
	} {
		o := good
		tc.change(&o)
		if _, err := LoadRandom(&fakeDevice{}, "tiny-q4_0", 1, o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
	c := baseConfig(Llama)
	c.Window = 32
	o := good
	if err := o.check(&c); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("error %v, want one that names the window", err)
	}
	if o.Context = 32; o.check(&c) != nil {
		t.Error("a context that the window covers is refused")
	}
	dev := &fakeDevice{fail: "model.layers.1.mlp.up_proj.weight"}
	if _, err := LoadRandom(dev, "tiny-q4_0", 1, good); err == nil || !strings.Contains(err.Error(), dev.fail) {
		t.Errorf("error %v, want the device's", err)
	}
}

// TestForwardChecks: what comes from a prompt is an error; a broken batch panics; neither runs anything.
func TestForwardChecks(t *testing.T) {
	dev := &fakeDevice{}
	m, err := LoadRandom(dev, "tiny-q4_0", 1, Options{Context: 40, Blocks: 4, MaxRows: 4, MaxSeqs: 2, MaxOut: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*compute.Batch)
		want   string // "" runs; "panic: …" panics
	}{
		{"good", func(*compute.Batch) {}, ""},
		{"token", func(b *compute.Batch) { b.Token[1] = 320 }, "token id 320: the vocabulary has 320"},
		{"negative token", func(b *compute.Batch) { b.Token[0] = -1 }, "token id -1"},
		{"position", func(b *compute.Batch) { b.Pos[1] = 40 }, "position 40 is beyond the context of 40"},
		{"no rows", func(b *compute.Batch) { b.Rows = 0 }, "panic: model: batch of 0 rows"},
		{"slot", func(b *compute.Batch) { b.Slot[1] = 32 }, "panic: model: row 1 writes slot 32"},
		{"tail", func(b *compute.Batch) { b.Tail[1] = 33 }, "panic: model: row 1"},
		{"mask", func(b *compute.Batch) { b.Mask[1] = 1 << 63 }, "panic: model: row 1"},
		{"sequence", func(b *compute.Batch) { b.Seq[1] = 2 }, "panic: model: row 1 belongs to sequence 2"},
		{"order of sequences", func(b *compute.Batch) { b.Seq[0] = 1; b.Blocks[1] = b.Blocks[0] }, "panic: model: row 1"},
		{"block", func(b *compute.Batch) { b.Blocks[0] = []int32{0, 4} }, "panic: model: block 4 of 4"},
		{"output row", func(b *compute.Batch) { b.Out[0] = 2 }, "panic: model: output row 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := m.Batch()
			b.Reset()
			b.Blocks[0], b.Blocks[1] = []int32{0, 3}, nil
			b.Append(0, 5, 30)
			b.WantLogits(b.Append(0, 6, 31))
			tc.change(b)
			runs := dev.runs
			got := func() (s string) {
				defer func() {
					if p := recover(); p != nil {
						s = fmt.Sprint("panic: ", p)
					}
				}()
				if err := m.Forward(); err != nil {
					return err.Error()
				}
				return ""
			}()
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if ran := dev.runs > runs; ran != (tc.want == "") {
				t.Errorf("ran: %v", ran)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() {
		b := m.Batch()
		b.Reset()
		b.Append(0, 5, 30)
		_ = m.Forward()
	}); n != 0 {
		t.Errorf("a pass allocates %v times, want 0 (invariant 6)", n)
	}
}
