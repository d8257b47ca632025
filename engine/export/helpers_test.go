package export

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// source is a GGUF model in parts, to be changed and written.
type source struct {
	cfg     model.Config
	keys    []weights.KeyValue
	tensors []weights.Tensor
}

// ggufParts maps the name of a GGUF tensor, without its layer, to the checkpoint's.
var ggufParts = map[string]string{
	"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight",
	"attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight",
	"attn_v.weight": "self_attn.v_proj.weight", "attn_output.weight": "self_attn.o_proj.weight", "attn_q.bias": "self_attn.q_proj.bias",
	"attn_k.bias": "self_attn.k_proj.bias", "attn_v.bias": "self_attn.v_proj.bias", "attn_q_norm.weight": "self_attn.q_norm.weight",
	"attn_k_norm.weight": "self_attn.k_norm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
	"ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
}

// ggufToHF translates the name of a tensor.
func ggufToHF(name string) string {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		return "model.layers." + layer + "." + ggufParts[part]
	}
	return ggufParts[name]
}

// metadata returns the GGUF keys of a configuration.
func metadata(c model.Config) []weights.KeyValue {
	a := string(c.Arch) + "."
	return []weights.KeyValue{
		{Key: "general.architecture", Value: string(c.Arch)},
		{Key: a + "block_count", Value: uint32(c.Layers)},
		{Key: a + "context_length", Value: uint32(c.MaxContext)},
		{Key: a + "embedding_length", Value: uint32(c.Hidden)},
		{Key: a + "feed_forward_length", Value: uint32(c.FFN)},
		{Key: a + "attention.head_count", Value: uint32(c.Heads)},
		{Key: a + "attention.head_count_kv", Value: uint32(c.KVHeads)},
		{Key: a + "attention.key_length", Value: uint32(c.HeadDim)},
		{Key: a + "attention.value_length", Value: uint32(c.HeadDim)},
		{Key: a + "attention.layer_norm_rms_epsilon", Value: c.NormEps},
		{Key: a + "rope.freq_base", Value: float32(c.Rope.Theta)},
	}
}

// randomSource returns a model of a shape that draftlab knows by name, its matrices in the shape's format. Where
// the shape's rule for rotary scaling is Llama 3's it has rope_freqs.weight, as llama.cpp's converter writes it.
func randomSource(t *testing.T, shape string) *source {
	t.Helper()
	c, typ, err := model.ParseRandom(shape)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{cfg: c, keys: metadata(c)}
	rng := rand.New(rand.NewPCG(1, 2))
	add := func(name string, typ quant.Type, shape ...int) {
		v := make([]float32, elements(shape))
		for i := range v {
			v[i] = float32(rng.NormFloat64()) / 8
			if len(shape) == 1 {
				v[i] += 0.75
			}
		}
		s.add(t, name, typ, v, shape...)
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add("token_embd.weight", typ, c.Vocab, c.Hidden)
	add("output_norm.weight", quant.F32, c.Hidden)
	if !c.TiedHead {
		add("output.weight", typ, c.Vocab, c.Hidden)
	}
	for l := range c.Layers {
		b := fmt.Sprintf("blk.%d.", l)
		add(b+"attn_norm.weight", quant.F32, c.Hidden)
		add(b+"attn_q.weight", typ, q, c.Hidden)
		add(b+"attn_k.weight", typ, kv, c.Hidden)
		add(b+"attn_v.weight", typ, kv, c.Hidden)
		add(b+"attn_output.weight", typ, c.Hidden, q)
		add(b+"ffn_norm.weight", quant.F32, c.Hidden)
		add(b+"ffn_gate.weight", typ, c.FFN, c.Hidden)
		add(b+"ffn_up.weight", typ, c.FFN, c.Hidden)
		add(b+"ffn_down.weight", typ, c.Hidden, c.FFN)
		if c.QKVBias {
			add(b+"attn_q.bias", quant.F32, q)
			add(b+"attn_k.bias", quant.F32, kv)
			add(b+"attn_v.bias", quant.F32, kv)
		}
		if c.QKNorm {
			add(b+"attn_q_norm.weight", quant.F32, c.HeadDim)
			add(b+"attn_k_norm.weight", quant.F32, c.HeadDim)
		}
	}
	return s
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (s *source) add(t *testing.T, name string, typ quant.Type, v []float32, shape ...int) {
	t.Helper()
	x, err := weights.FromFloats(name, typ, v, shape...)
	if err != nil {
		t.Fatal(err)
	}
	s.tensors = append(s.tensors, x)
}

// addRopeFreqs adds the divisors of the llama3 rule.
func (s *source) addRopeFreqs(t *testing.T, rule model.RopeScaling) {
	t.Helper()
	d := (&model.RopeConfig{Theta: s.cfg.Rope.Theta, Scaling: rule}).FreqDivisors(s.cfg.HeadDim)
	s.add(t, "rope_freqs.weight", quant.F32, d, len(d))
}

// addVocabulary gives the model a byte-level vocabulary of its size, padded at the end as converters do.
func (s *source) addVocabulary(pre string) {
	var tokens []string
	for b := range 256 {
		tokens = append(tokens, byteToken(byte(b)))
	}
	types := slices.Repeat([]int32{tokenizer.TypeNormal}, 256)
	for _, more := range []string{"ab", "abc", "Ġab", byteToken(0xc3) + byteToken(0xa9), byteToken(0xf0) + byteToken(0x9f)} {
		tokens, types = append(tokens, more), append(types, tokenizer.TypeNormal)
	}
	for _, special := range []string{"<|begin|>", "<|im_end|>", "<|endoftext|>"} {
		tokens, types = append(tokens, special), append(types, tokenizer.TypeControl)
	}
	for len(tokens) < s.cfg.Vocab {
		tokens, types = append(tokens, fmt.Sprintf("[PAD%d]", len(tokens))), append(types, tokenizer.TypeUnused)
	}
	s.keys = append(s.keys,
		weights.KeyValue{Key: "tokenizer.ggml.model", Value: "gpt2"},
		weights.KeyValue{Key: "tokenizer.ggml.pre", Value: pre},
		weights.KeyValue{Key: "tokenizer.ggml.tokens", Value: tokens},
		weights.KeyValue{Key: "tokenizer.ggml.token_type", Value: types},
		weights.KeyValue{Key: "tokenizer.ggml.merges", Value: []string{
			"a b", "ab c", "Ġ ab", byteToken(0xc3) + " " + byteToken(0xa9), byteToken(0xf0) + " " + byteToken(0x9f)}},
		weights.KeyValue{Key: "tokenizer.ggml.bos_token_id", Value: uint32(261)},
		weights.KeyValue{Key: "tokenizer.ggml.eos_token_id", Value: uint32(262)},
		weights.KeyValue{Key: "tokenizer.ggml.padding_token_id", Value: uint32(263)},
		weights.KeyValue{Key: "tokenizer.ggml.add_bos_token", Value: true},
		weights.KeyValue{Key: "tokenizer.chat_template", Value: "{{ bos_token }}{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"},
	)
}

// byteToken writes a byte in the alphabet of byte-level vocabularies.
func byteToken(b byte) string {
	next := rune(0x100)
	for c := range 256 {
		printable := c >= '!' && c <= '~' || c >= 0xA1 && c <= 0xAC || c >= 0xAE
		if byte(c) == b {
			if printable {
				return string(rune(c))
			}
			return string(next)
		}
		if !printable {
			next++
		}
	}
	panic("no such byte")
}

// write writes the model and returns its path.
func (s *source) write(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := weights.WriteGGUF(&b, s.keys, s.tensors); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens a model until the test ends.
func open(t *testing.T, path string) *weights.File {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// floats decodes a tensor by name.
func floats(t *testing.T, f *weights.File, name string) []float32 {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s: no tensor %s", f.Path(), name)
	}
	v, err := x.Floats()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sameBits compares floats to the bit.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// logits runs a model's float32 path on a few tokens and returns all logits.
func logits(t *testing.T, path string) []float32 {
	t.Helper()
	dev, err := cpu.New(1, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const n = 24
	m, err := model.Load(dev, path, model.Options{
		Context: n, Blocks: (n + compute.BlockSlots - 1) / compute.BlockSlots, MaxRows: n, MaxSeqs: 1, MaxOut: n, Float32: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := m.Batch()
	b.Reset()
	for i := range m.Options().Blocks {
		b.Blocks[0] = append(b.Blocks[0], int32(i))
	}
	for i := range n {
		b.WantLogits(b.Append(0, int32(i*37%m.Config().Vocab), int32(i)))
	}
	if err := m.Forward(); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, n*m.Config().Vocab)
	m.Logits(out, n)
	return out
}

// list returns the names in a directory, hidden ones too.
func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
