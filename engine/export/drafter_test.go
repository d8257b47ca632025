package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/draft/eagle3"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// head is an EAGLE-3 drafter's checkpoint in parts, for the shape tiny as target.
type head struct {
	config  map[string]any
	tensors []weights.Tensor
}

// draftIDs are the target's ids in the draft vocabulary.
var draftIDs = []int64{3, 4, 10, 97, 98, 200, 262, 319}

// newHead makes a random drafter as SGLang's layout has it, in BF16.
func newHead(t *testing.T) *head {
	t.Helper()
	const hidden, ffn, heads, kv, dim, vocab = 256, 320, 4, 2, 64, 320
	h := &head{config: map[string]any{
		"architectures": []string{"LlamaForCausalLMEagle3"}, "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
		"num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "vocab_size": vocab,
		"draft_vocab_size": len(draftIDs), "rms_norm_eps": 1e-5, "rope_theta": 1e4, "rope_scaling": nil, "hidden_act": "silu",
		"max_position_embeddings": 2048, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
		"eagle_aux_hidden_state_layer_ids": []int{0, 1, 3},
	}}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, x := range []struct {
		name  string
		shape []int
	}{
		{"fc.weight", []int{hidden, 3 * hidden}},
		{"midlayer.input_layernorm.weight", []int{hidden}}, {"midlayer.hidden_norm.weight", []int{hidden}},
		{"midlayer.self_attn.q_proj.weight", []int{heads * dim, 2 * hidden}},
		{"midlayer.self_attn.k_proj.weight", []int{kv * dim, 2 * hidden}}, {"midlayer.self_attn.v_proj.weight", []int{kv * dim, 2 * hidden}},
		{"midlayer.self_attn.o_proj.weight", []int{hidden, heads * dim}}, {"midlayer.post_attention_layernorm.weight", []int{hidden}},
		{"midlayer.mlp.gate_proj.weight", []int{ffn, hidden}}, {"midlayer.mlp.up_proj.weight", []int{ffn, hidden}},
		{"midlayer.mlp.down_proj.weight", []int{hidden, ffn}},
		{"norm.weight", []int{hidden}}, {"lm_head.weight", []int{len(draftIDs), hidden}},
	} {
		h.addFloats(t, rng, x.name, x.shape...)
	}
	offsets, drafted := make([]int64, len(draftIDs)), make([]bool, vocab)
	for i, id := range draftIDs {
		offsets[i], drafted[id] = id-int64(i), true
	}
	h.tensors = append(h.tensors, weights.FromInts("d2t", offsets, len(offsets)), weights.FromBools("t2d", drafted, vocab))
	return h
}

func (h *head) addFloats(t *testing.T, rng *rand.Rand, name string, shape ...int) {
	t.Helper()
	v := make([]float32, elements(shape))
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	x, err := weights.FromFloats(name, quant.BF16, v, shape...)
	if err != nil {
		t.Fatal(err)
	}
	h.tensors = append(h.tensors, x)
}

// write writes the drafter and returns its directory.
func (h *head) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	if err := weights.WriteSafetensors(&b, nil, h.tensors); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(h.config)
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o644), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// target writes the model that the drafter is for.
func target(t *testing.T) string {
	t.Helper()
	s := randomSource(t, "tiny-q4_0")
	s.addVocabulary("llama-bpe")
	return s.write(t)
}

// TestDrafterGGUF: every tensor arrives under llama.cpp's name with its values, q and k with neighbours in place of
// halves, d2t as ids, t2d not at all; and the target's tokenizer section as it is.
func TestDrafterGGUF(t *testing.T) {
	t.Parallel()
	dir, target := newHead(t).write(t), target(t)
	for _, typ := range []quant.Type{quant.BF16, quant.F32, quant.F16, quant.Q8_0} {
		out := filepath.Join(t.TempDir(), "d.gguf")
		res, err := DrafterGGUF(t.Context(), dir, target, out, DrafterOptions{Type: typ})
		if err != nil {
			t.Fatal(err)
		}
		src, f := open(t, dir), open(t, out)
		if len(f.Tensors()) != len(src.Tensors())-1 || res.Tensors != len(f.Tensors()) || res.Bytes != f.Size() {
			t.Errorf("%d tensors and %d bytes from %d tensors, result %+v", len(f.Tensors()), f.Size(), len(src.Tensors()), res)
		}
		for plain, name := range drafterNames {
			x, ok := src.Tensor(plain)
			if !ok {
				continue
			}
			want, to := floats(t, src, plain), typ
			if strings.HasSuffix(plain, "q_proj.weight") || strings.HasSuffix(plain, "k_proj.weight") {
				want = interleave(want, x.Shape[0], 64)
			}
			if len(x.Shape) == 1 {
				to = quant.F32
			}
			n, _ := quant.RowBytes(to, len(want)) // rows are whole blocks
			raw := make([]byte, n)
			quant.Encode(to, raw, want)
			got, ok := f.Tensor(name)
			if !ok || got.Type != to || !slices.Equal(got.Shape, x.Shape) || !bytes.Equal(got.Data, raw) {
				t.Errorf("%s as %s: %v %s %v differs", typ, name, ok, got.TypeName(), got.Shape)
			}
		}
		d2t, _ := f.Tensor("d2t")
		if ids, err := d2t.Int64s(); err != nil || d2t.Kind != weights.I64 || !slices.Equal(ids, draftIDs) {
			t.Errorf("d2t is %v, %v; want %v", ids, err, draftIDs)
		}
		checkKeys(t, f, open(t, target))
	}
}

// checkKeys compares the metadata of a drafter's GGUF.
func checkKeys(t *testing.T, f, target *weights.File) {
	t.Helper()
	meta, theirs := f.Meta(), target.Meta()
	want := map[string]any{
		"general.architecture": "eagle3", "eagle3.block_count": uint32(1), "eagle3.embedding_length": uint32(256),
		"eagle3.feed_forward_length": uint32(320), "eagle3.attention.head_count": uint32(4), "eagle3.attention.head_count_kv": uint32(2),
		"eagle3.attention.key_length": uint32(64), "eagle3.rope.dimension_count": uint32(64), "eagle3.rope.freq_base": float32(1e4),
		"eagle3.attention.layer_norm_rms_epsilon": float32(1e-5), "eagle3.target_layers": []int32{0, 1, 3}, "eagle3.vocab_size": uint32(320),
		"eagle3.target_hidden_size": uint32(256), "eagle3.context_length": uint32(2048),
		"eagle3.norm_before_residual": false, "eagle3.norm_before_fc": false,
	}
	for _, key := range theirs.Keys() {
		if strings.HasPrefix(key, "tokenizer.") {
			want[key], _ = theirs.Value(key)
		}
	}
	for key, v := range want {
		if got, _ := meta.Value(key); !reflect.DeepEqual(got, v) {
			t.Errorf("%s = %v, want %v", key, got, v)
		}
	}
}

// TestDrafterVariants: the flags that llama.cpp computes become keys and tensors.
func TestDrafterVariants(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.config["norm_before_residual"], h.config["norm_before_fc"] = true, true
	h.config["eagle_aux_hidden_state_layer_ids"] = []int{0, 1, 2}
	h.config["rope_scaling"] = map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 2048}
	rng := rand.New(rand.NewPCG(5, 6))
	h.addFloats(t, rng, "input_norm.weight", 768)
	h.addFloats(t, rng, "embed_tokens.weight", 320, 256)
	for i, x := range h.tensors { // the name of the layer that speculators give
		h.tensors[i].Name = strings.Replace(x.Name, "midlayer.", "layers.0.", 1)
	}
	out := filepath.Join(t.TempDir(), "d.gguf")
	if _, err := DrafterGGUF(t.Context(), h.write(t), target(t), out, DrafterOptions{LayerIDs: eagle3.OutputIDs}); err != nil {
		t.Fatal(err)
	}
	f := open(t, out)
	for _, key := range []string{"eagle3.norm_before_residual", "eagle3.norm_before_fc"} {
		if v, ok := f.Meta().Bool(key); !v || !ok {
			t.Errorf("%s is %v, %v", key, v, ok)
		}
	}
	if ids, _ := f.Meta().Ints("eagle3.target_layers"); !slices.Equal(ids, []int64{1, 2, 3}) {
		t.Errorf("target_layers %v", ids)
	}
	for name, n := range map[string]int{"enc.output_norm.weight": 768, "token_embd.weight": 320 * 256, "rope_freqs.weight": 32} {
		if v := floats(t, f, name); len(v) != n {
			t.Errorf("%s has %d elements", name, len(v))
		}
	}
	if d := floats(t, f, "rope_freqs.weight"); d[0] != 1 || d[31] < 7.9999 || d[31] > 8.0001 {
		t.Errorf("rope_freqs %v", d)
	}
}

// TestDrafterWhole: a drafter that shares the target's vocabulary and head has neither map nor head.
func TestDrafterWhole(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	delete(h.config, "draft_vocab_size")
	h.tensors = slices.DeleteFunc(h.tensors, func(x weights.Tensor) bool {
		return x.Name == "d2t" || x.Name == "t2d" || x.Name == "lm_head.weight"
	})
	out := filepath.Join(t.TempDir(), "d.gguf")
	if _, err := DrafterGGUF(t.Context(), h.write(t), target(t), out, DrafterOptions{}); err != nil {
		t.Fatal(err)
	}
	f := open(t, out)
	for _, name := range []string{"d2t", "output.weight"} {
		if _, ok := f.Tensor(name); ok {
			t.Errorf("%s is there", name)
		}
	}
}

// TestDrafterRefuses: what llama.cpp cannot run, or what does not fit together, is refused by name; nothing is written.
func TestDrafterRefuses(t *testing.T) {
	t.Parallel()
	bare := randomSource(t, "tiny-q4_0").write(t)
	other := randomSource(t, "tiny-qwen2-q4_0")
	other.addVocabulary("qwen2")
	other.cfg.Vocab--
	usual := target(t)
	for name, c := range map[string]struct {
		change func(*head)
		target string
		typ    quant.Type
		want   string
	}{
		"fc_norm":          {change: func(h *head) { h.config["fc_norm"] = true }, want: "fc_norm"},
		"norm_output":      {change: func(h *head) { h.config["norm_output"] = true }, want: "norm_output"},
		"two layers":       {change: func(h *head) { h.config["num_hidden_layers"] = 2 }, want: "num_hidden_layers"},
		"a bias":           {change: func(h *head) { h.config["attention_bias"] = true }, want: "attention_bias"},
		"unknown key":      {change: func(h *head) { h.config["new_trick"] = true }, want: "new_trick"},
		"vocabulary":       {change: func(h *head) { h.config["vocab_size"] = 321; h.drop("t2d") }, want: "vocab_size = 321"},
		"beyond the depth": {change: func(h *head) { h.config["eagle_aux_hidden_state_layer_ids"] = []int{1, 2, 4} }, want: "has 3 layers"},
		"missing tensor":   {change: func(h *head) { h.drop("fc.weight") }, want: "fc.weight is missing"},
		"tensor too many": {change: func(h *head) { h.tensors = append(h.tensors, weights.FromInts("extra", []int64{1}, 1)) },
			want: `"extra"`},
		"d2t outside": {change: func(h *head) {
			h.drop("d2t")
			h.tensors = append(h.tensors, weights.FromInts("d2t", make([]int64, 7), 7))
		},
			want: "d2t has shape [7]"},
		"no tokenizer":  {target: bare, want: "no tokenizer section"},
		"no GGUF":       {target: "../model/testdata/tiny/llama", want: "is no GGUF"},
		"not a drafter": {target: usual, change: func(h *head) { h.config["architectures"] = []string{"BertModel"} }, want: "BertModel"},
		"type":          {typ: quant.Q4_K, want: "Q4_K"},
	} {
		h := newHead(t)
		if c.change != nil {
			c.change(h)
		}
		if c.target == "" {
			c.target = usual
		}
		parent := t.TempDir()
		_, err := DrafterGGUF(t.Context(), h.write(t), c.target, filepath.Join(parent, "d.gguf"), DrafterOptions{Type: c.typ})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if names := list(t, parent); len(names) > 0 {
			t.Errorf("%s: left behind %v", name, names)
		}
	}
}

func (h *head) drop(name string) {
	h.tensors = slices.DeleteFunc(h.tensors, func(x weights.Tensor) bool { return x.Name == name })
}

// TestDrafterPlace: a file is replaced with force only, a source and what is no file never, and an interrupt leaves
// nothing.
func TestDrafterPlace(t *testing.T) {
	t.Parallel()
	dir, target, parent := newHead(t).write(t), target(t), t.TempDir()
	out := filepath.Join(parent, "d.gguf")
	export := func(ctx context.Context, out string, force bool, progress Progress) error {
		_, err := DrafterGGUF(ctx, dir, target, out, DrafterOptions{Force: force, Progress: progress})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := export(ctx, out, false, func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) || len(list(t, parent)) > 0 {
		t.Errorf("interrupted: %v, left behind %v", err, list(t, parent))
	}
	for _, c := range []struct {
		out   string
		force bool
		want  string
	}{
		{out, false, ""}, {out, false, "exists already"}, {out, true, ""},
		{target, true, "one of the sources"}, {filepath.Join(dir, "model.safetensors"), true, "one of the sources"},
		{parent, true, "not a regular file"},
	} {
		err := export(t.Context(), c.out, c.force, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, force %v: %v, want %q", c.out, c.force, err, c.want)
		}
	}
	if names := list(t, parent); !slices.Equal(names, []string{"d.gguf"}) {
		t.Errorf("left over: %v", names)
	}
}

// TestDrafterNames: no two tensors share a name on the other side.
func TestDrafterNames(t *testing.T) {
	names := slices.Sorted(maps.Values(drafterNames))
	if len(slices.Compact(names)) != len(drafterNames) {
		t.Errorf("%v", names)
	}
}
