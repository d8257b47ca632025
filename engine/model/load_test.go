package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// files holds what a test writes as a model: GGUF keys or config.json keys, and tensors.
type files struct {
	meta    []weights.KeyValue
	config  map[string]any
	tensors []weights.Tensor
}

// tensor returns a tensor to be changed.
func (f *files) tensor(t *testing.T, name string) *weights.Tensor {
	t.Helper()
	for i := range f.tensors {
		if f.tensors[i].Name == name {
			return &f.tensors[i]
		}
	}
	t.Fatalf("no tensor %s", name)
	return nil
}

func (f *files) drop(name string) {
	f.tensors = slices.DeleteFunc(f.tensors, func(t weights.Tensor) bool { return t.Name == name })
	f.meta = slices.DeleteFunc(f.meta, func(kv weights.KeyValue) bool { return kv.Key == name })
}

func (f *files) set(key string, v any) {
	f.drop(key)
	f.meta = append(f.meta, weights.KeyValue{Key: key, Value: v})
}

func (f *files) add(name string, typ quant.Type, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	f.tensors = append(f.tensors, weights.Tensor{Name: name, Type: typ, Shape: shape, Data: make([]byte, n/typ.BlockElems()*typ.BlockBytes())})
}

// makeGGUF lays a random model out as llama.cpp's converter does: its names, and q and k rows of Llama
// interleaved.
func makeGGUF(t testing.TB, name string) *files {
	t.Helper()
	c, typ, err := ParseRandom(name)
	if err != nil {
		t.Fatal(err)
	}
	a := string(c.Arch) + "."
	f := &files{meta: []weights.KeyValue{
		{Key: "general.architecture", Value: string(c.Arch)},
		{Key: a + "block_count", Value: uint32(c.Layers)},
		{Key: a + "context_length", Value: uint32(c.MaxContext)},
		{Key: a + "embedding_length", Value: uint32(c.Hidden)},
		{Key: a + "feed_forward_length", Value: uint32(c.FFN)},
		{Key: a + "attention.head_count", Value: uint32(c.Heads)},
		{Key: a + "attention.head_count_kv", Value: uint32(c.KVHeads)},
		{Key: a + "attention.layer_norm_rms_epsilon", Value: c.NormEps},
		{Key: a + "attention.key_length", Value: uint32(c.HeadDim)},
		{Key: a + "attention.value_length", Value: uint32(c.HeadDim)},
		{Key: a + "rope.dimension_count", Value: uint32(c.HeadDim)},
		{Key: a + "rope.freq_base", Value: float32(c.Rope.Theta)},
		{Key: a + "vocab_size", Value: uint32(c.Vocab)},
	}}
	g := newGenerator(&c, typ, 1)
	put := func(r role, l int) {
		x, _ := g.Tensor(hfNames.name(r, l))
		x.Name = ggufNames.name(r, l)
		if c.Arch == Llama && (r == roleQ || r == roleK) {
			x.Data = interleave(x.Data, x.Shape[0], c.HeadDim)
		}
		f.tensors = append(f.tensors, x)
	}
	for _, r := range c.globalRoles() {
		put(r, 0)
	}
	for l := range c.Layers {
		for _, r := range c.layerRoles() {
			put(r, l)
		}
	}
	return f
}

// interleave does what the converter does to q and k: reshape(heads, 2, half, …), swap the middle axes.
func interleave(data []byte, rows, headDim int) []byte {
	row := len(data) / rows
	out := make([]byte, 0, len(data))
	for h := 0; h < rows; h += headDim {
		for i := range headDim / 2 {
			for _, r := range []int{h + i, h + headDim/2 + i} {
				out = append(out, data[r*row:(r+1)*row]...)
			}
		}
	}
	return out
}

// makeHF lays a random model of a float format out as Hugging Face does.
func makeHF(t *testing.T, name string) *files {
	t.Helper()
	c, typ, err := ParseRandom(name)
	if err != nil {
		t.Fatal(err)
	}
	f := &files{config: map[string]any{
		"model_type": string(c.Arch), "num_hidden_layers": c.Layers, "hidden_size": c.Hidden, "intermediate_size": c.FFN,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim, "vocab_size": c.Vocab,
		"max_position_embeddings": c.MaxContext, "rms_norm_eps": c.NormEps, "rope_theta": c.Rope.Theta,
		"tie_word_embeddings": c.TiedHead,
	}}
	g := newGenerator(&c, typ, 1)
	for _, n := range slices.Sorted(maps.Keys(g.roles)) {
		x, _ := g.Tensor(n)
		f.tensors = append(f.tensors, x)
	}
	return f
}

// write stores the files and returns the path to load.
func (f *files) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gguf")
	if f.config != nil {
		text, err := json.Marshal(f.config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "config.json"), text)
		path = filepath.Join(dir, "model.safetensors")
	}
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if f.config != nil {
		err = weights.WriteSafetensors(out, nil, f.tensors)
	} else {
		err = weights.WriteGGUF(out, f.meta, f.tensors)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newCPU returns a CPU device that is closed with the test.
func newCPU(t *testing.T, threads int, set *kernel.Set) *cpu.Device {
	t.Helper()
	dev, err := cpu.New(threads, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

var small = Options{Context: 64, Blocks: 4, MaxRows: 16, MaxSeqs: 1, MaxOut: 16}

// logitsOf runs a prompt of twelve tokens and returns the logits of its last row.
func logitsOf(t *testing.T, m *Model) []float32 {
	t.Helper()
	b := m.Batch()
	b.Reset()
	b.Blocks[0] = []int32{2, 0}
	for i := range int32(12) {
		b.Append(0, i*29%int32(m.cfg.Vocab), i)
	}
	b.WantLogits(11)
	if err := m.Forward(); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, m.cfg.Vocab)
	m.Logits(v, 1)
	return v
}

// TestFilesEqualGenerator: the same weights give the same logits, to the bit, out of the generator, a GGUF
// file with its permuted rows, and a safetensors file.
func TestFilesEqualGenerator(t *testing.T) {
	dev := newCPU(t, 2, kernel.Best())
	for _, name := range []string{"tiny-f32", "tiny-qwen2-bf16", "tiny-qwen3-f16", "tiny-q4_1", "tiny-qwen2-q8_0", "tiny-qwen3-q4_k"} {
		m, err := LoadRandom(dev, name, 1, small)
		if err != nil {
			t.Fatal(err)
		}
		want := logitsOf(t, m)
		sources := map[string]*files{"gguf": makeGGUF(t, name)}
		if quant := strings.Contains(name, "q4") || strings.Contains(name, "q8"); !quant {
			sources["safetensors"] = makeHF(t, name)
		}
		for kind, f := range sources {
			var done, total int64
			opt := small
			opt.Progress = func(d, n int64) { done, total = d, n }
			m, err := Load(dev, f.write(t), opt)
			if err != nil {
				t.Errorf("%s as %s: %v", name, kind, err)
				continue
			}
			if got := logitsOf(t, m); !slices.Equal(got, want) {
				t.Errorf("%s as %s: logits %v…, want %v…", name, kind, got[:4], want[:4])
			}
			if n := m.cfg.ParamCount(); done != n || total != n {
				t.Errorf("%s as %s: progress ended at %d of %d, want %d", name, kind, done, total, n)
			}
		}
	}
}

// TestFloat32Path: the check path differs from the quantised one by the rounding of activations only.
func TestFloat32Path(t *testing.T) {
	dev := newCPU(t, 2, kernel.Best())
	for _, name := range []string{"tiny-q4_0", "tiny-q4_1", "tiny-q5_0", "tiny-q5_1", "tiny-q8_0", "tiny-q4_k", "tiny-q5_k", "tiny-q6_k", "tiny-f16", "tiny-bf16"} {
		fast, err := LoadRandom(dev, name, 1, small)
		if err != nil {
			t.Fatal(err)
		}
		opt := small
		opt.Float32 = true
		exact, err := LoadRandom(dev, name, 1, opt)
		if err != nil {
			t.Fatal(err)
		}
		got, want := logitsOf(t, fast), logitsOf(t, exact)
		var diff, norm float64
		for i := range want {
			d := float64(got[i] - want[i])
			diff += d * d
			norm += float64(want[i]) * float64(want[i])
		}
		limit := 0.05 // 8-bit activations through three layers; a wrong weight or scale gives more than 0.3
		if strings.HasSuffix(name, "f16") {
			limit = 0.002 // float16 keys and values
		}
		if rel := math.Sqrt(diff / norm); !(rel < limit) {
			t.Errorf("%s: logits differ by %.4f of their norm from the float32 path, want less than %v", name, rel, limit)
		}
	}
}

// TestLoadRefuses: each change to a good file is refused with an error that names it.
func TestLoadRefuses(t *testing.T) {
	gguf := func(t *testing.T) *files { return makeGGUF(t, "tiny-q4_0") }
	hf := func(t *testing.T) *files { return makeHF(t, "tiny-bf16") }
	for _, tc := range []struct {
		name   string
		make   func(*testing.T) *files
		change func(*testing.T, *files)
		want   string
	}{
		{"architecture", gguf, func(_ *testing.T, f *files) { f.set("general.architecture", "gemma3") }, `general.architecture = "gemma3"`},
		{"no architecture", gguf, func(_ *testing.T, f *files) { f.drop("general.architecture") }, "general.architecture"},
		{"missing key", gguf, func(_ *testing.T, f *files) { f.drop("llama.embedding_length") }, "llama.embedding_length is missing"},
		{"key of another type", gguf, func(_ *testing.T, f *files) { f.set("llama.block_count", "three") }, "llama.block_count"},
		{"absurd size", gguf, func(_ *testing.T, f *files) { f.set("llama.feed_forward_length", uint64(1)<<60) }, "llama.feed_forward_length"},
		{"absurd layers", gguf, func(_ *testing.T, f *files) { f.set("llama.block_count", uint32(1e9)) }, "llama.block_count = 1000000000"},
		{"partial rotary", gguf, func(_ *testing.T, f *files) { f.set("llama.rope.dimension_count", uint32(32)) }, "llama.rope.dimension_count = 32"},
		{"value heads", gguf, func(_ *testing.T, f *files) { f.set("llama.attention.value_length", uint32(32)) }, "value_length = 32"},
		{"experts", gguf, func(_ *testing.T, f *files) { f.set("llama.expert_count", uint32(8)) }, "llama.expert_count = 8"},
		{"yarn", gguf, func(_ *testing.T, f *files) { f.set("llama.rope.scaling.type", "yarn") }, `"yarn"`},
		{"attention factor", gguf, func(_ *testing.T, f *files) { f.set("llama.rope.scaling.attn_factor", float32(1.2)) }, "attn_factor"},
		{"unknown key", gguf, func(_ *testing.T, f *files) { f.set("llama.logit_scale", float32(2)) }, "llama.logit_scale"},
		{"not causal", gguf, func(_ *testing.T, f *files) { f.set("llama.attention.causal", false) }, "attention.causal"},
		{"vocabulary key", gguf, func(_ *testing.T, f *files) { f.set("llama.vocab_size", uint32(99)) }, "llama.vocab_size = 99"},
		{"token list", gguf, func(_ *testing.T, f *files) { f.set("tokenizer.ggml.tokens", []string{"a"}) }, "tokenizer.ggml.tokens has 1"},
		{"end id", gguf, func(_ *testing.T, f *files) { f.set("tokenizer.ggml.eos_token_id", uint32(320)) }, "end-of-text id = 320"},
		{"window", gguf, func(_ *testing.T, f *files) { f.set("llama.attention.sliding_window", uint32(32)) }, "sliding window = 32"},
		{"no embedding", gguf, func(_ *testing.T, f *files) { f.drop("token_embd.weight") }, "token_embd.weight"},
		{"missing tensor", gguf, func(_ *testing.T, f *files) { f.drop("blk.1.ffn_up.weight") }, "blk.1.ffn_up.weight is missing"},
		{"shape", gguf, func(t *testing.T, f *files) { f.tensor(t, "blk.2.attn_q.weight").Shape = []int{512, 128} }, "blk.2.attn_q.weight has shape [512 128]"},
		{"leftover", gguf, func(_ *testing.T, f *files) { f.add("blk.0.attn_q.bias", quant.F32, 256) }, `"blk.0.attn_q.bias"`},
		{"many leftovers", gguf, func(_ *testing.T, f *files) {
			for i := range 20 {
				f.add("extra."+string(rune('a'+i)), quant.F32, 1)
			}
		}, "and 12 more"},
		{"divisors of another length", gguf, func(_ *testing.T, f *files) { f.add(ropeDivisors, quant.F32, 7) }, ropeDivisors},
		{"divisor 0", gguf, func(_ *testing.T, f *files) { f.add(ropeDivisors, quant.F32, 32) }, "divisor 0 = 0"},

		{"no config", hf, func(_ *testing.T, f *files) { f.config = map[string]any{} }, "model_type"},
		{"missing HF tensor", hf, func(_ *testing.T, f *files) { f.drop("model.norm.weight") }, "model.norm.weight is missing"},
		{"missing HF head", hf, func(_ *testing.T, f *files) { f.config["tie_word_embeddings"] = false }, "lm_head.weight is missing"},
		{"head that differs", hf, func(_ *testing.T, f *files) { f.add("lm_head.weight", quant.BF16, 320, 256) }, `"lm_head.weight"`},
		{"HF leftover", hf, func(_ *testing.T, f *files) { f.add("model.layers.3.mlp.up_proj.weight", quant.BF16, 512, 256) }, "model.layers.3"},
		{"integers", hf, func(_ *testing.T, f *files) {
			f.drop("model.norm.weight")
			f.tensors = append(f.tensors, weights.FromInts("model.norm.weight", make([]int64, 256), 256))
		}, "model.norm.weight holds I64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.make(t)
			tc.change(t, f)
			path := f.write(t)
			dev := &fakeDevice{}
			_, err := Load(dev, path, Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 1})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), filepath.Dir(path)) {
				t.Errorf("error %v does not name the file", err)
			}
			if len(dev.packed) > 0 {
				t.Errorf("%d matrices were packed before the refusal", len(dev.packed))
			}
		})
	}
}

// TestLoadAccepts: what may differ without meaning anything.
func TestLoadAccepts(t *testing.T) {
	f := makeGGUF(t, "tiny-q4_0")
	f.set("llama.rope.scaling.original_context_length", uint32(2048))
	f.set("llama.rope.scaling.factor", float32(2))
	f.set("general.name", "x")
	f.set("tokenizer.ggml.bos_token_id", uint32(1))
	f.set("tokenizer.ggml.eos_token_id", uint32(2))
	f.set("tokenizer.ggml.eot_token_id", uint32(3))
	f.set("tokenizer.ggml.eom_token_id", uint32(2))
	f.drop("llama.attention.key_length")
	f.drop("llama.vocab_size")
	f.add(ropeDivisors, quant.F32, 32)
	divisors := f.tensor(t, ropeDivisors).Data
	for i := range 32 {
		binary.LittleEndian.PutUint32(divisors[4*i:], math.Float32bits(float32(1+i)))
	}
	m, err := Load(&fakeDevice{}, f.write(t), Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := m.Config()
	if s := c.Rope.Scaling; s.Kind != RopeLinear || s.Factor != 2 || s.Divisors[31] != 32 {
		t.Errorf("rope scaling %+v", s)
	}
	if c.BOS != 1 || !slices.Equal(c.EOS, []int32{2, 3}) || c.HeadDim != 64 || c.Vocab != 320 {
		t.Errorf("configuration %+v", c)
	}

	h := makeHF(t, "tiny-bf16")
	h.add("model.layers.0.self_attn.rotary_emb.inv_freq", quant.F32, 32)
	head := *h.tensor(t, "model.embed_tokens.weight")
	head.Name = "lm_head.weight"
	h.tensors = append(h.tensors, head)
	if m, err = Load(&fakeDevice{}, h.write(t), Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 1}); err != nil {
		t.Fatal(err)
	}
	if m.head != m.embed {
		t.Error("a tied model has two matrices for embedding and head")
	}
}

// FuzzReadConfig: no GGUF metadata panics, and what is accepted is within bounds.
func FuzzReadConfig(f *testing.F) {
	for _, name := range []string{"tiny-f32", "tiny-qwen2-f32", "tiny-qwen3-f32"} {
		model := makeGGUF(f, name)
		model.set("llama.rope.scaling.type", "linear")
		model.set("llama.rope.scaling.factor", float32(4))
		model.set("tokenizer.ggml.eos_token_id", uint32(2))
		model.tensors = nil
		model.add("token_embd.weight", quant.F32, 320, 1)
		model.add(ropeDivisors, quant.F32, 32)
		var seed bytes.Buffer
		if err := weights.WriteGGUF(&seed, model.meta, model.tensors); err != nil {
			f.Fatal(err)
		}
		f.Add(seed.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := weights.ParseGGUF("fuzz", data)
		if err != nil {
			return
		}
		c, err := ReadConfig(file)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		_ = checkTensors(file, &c, &ggufNames)
	})
}

// TestInterleavedOrder inverts the converter's permutation and is only handed to q and k of Llama GGUF files.
func TestInterleavedOrder(t *testing.T) {
	rows := make([]byte, 8) // two heads of four one-byte rows
	for i := range rows {
		rows[i] = byte(i)
	}
	file := interleave(rows, 8, 4)
	if want := []byte{0, 2, 1, 3, 4, 6, 5, 7}; !slices.Equal(file, want) {
		t.Fatalf("file order %v, want %v", file, want)
	}
	for r, at := range interleaved(2, 4) {
		if file[at] != rows[r] {
			t.Errorf("row %d reads row %d of the file, which is row %d", r, at, file[at])
		}
	}
	for _, tc := range []struct {
		f    *files
		want bool
	}{{makeGGUF(t, "tiny-q4_0"), true}, {makeGGUF(t, "tiny-qwen2-q4_0"), false}, {makeHF(t, "tiny-bf16"), false}} {
		dev := &fakeDevice{}
		if _, err := Load(dev, tc.f.write(t), Options{Blocks: 4, MaxRows: 4, MaxSeqs: 1, MaxOut: 1}); err != nil {
			t.Fatal(err)
		}
		ordered := 0
		for _, p := range slices.Concat(dev.packed...) {
			if p.RowOrder != nil {
				ordered++
			}
		}
		if want := map[bool]int{true: 6}[tc.want]; ordered != want {
			t.Errorf("%d tensors are reordered, want %d", ordered, want)
		}
	}
}

var _ compute.Device = (*fakeDevice)(nil)
