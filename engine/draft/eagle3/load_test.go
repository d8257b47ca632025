package eagle3

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// object is a JSON object to be edited.
type object = map[string]any

// specForge returns the config.json of a drafter in the layout of SGLang and SpecForge.
func specForge(c *Config) object {
	o := object{
		"architectures": []string{"LlamaForCausalLMEagle3"}, "model_type": "llama", "bos_token_id": 1, "eos_token_id": 2,
		"hidden_size": c.Hidden, "intermediate_size": c.FFN, "num_hidden_layers": 1, "num_attention_heads": c.Heads,
		"num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim, "vocab_size": c.Vocab, "draft_vocab_size": c.DraftVocab,
		"rms_norm_eps": c.NormEps, "rope_theta": c.Rope.Theta, "rope_scaling": nil, "max_position_embeddings": 64,
		"hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
	}
	if c.Layers != nil {
		o["eagle_config"] = object{"eagle_aux_hidden_state_layer_ids": c.Layers, "use_aux_hidden_state": true}
	}
	return o
}

// speculators returns the same in the layout of vLLM's speculators.
func speculators(c *Config) object {
	layer := specForge(c)
	for _, key := range []string{"architectures", "draft_vocab_size", "eagle_config", "rope_theta", "rope_scaling"} {
		delete(layer, key)
	}
	layer["rope_parameters"] = object{"rope_type": "default", "rope_theta": c.Rope.Theta}
	return object{
		"architectures": []string{"Eagle3Speculator"}, "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
		"speculators_config": object{"algorithm": "eagle3"}, "draft_vocab_size": c.DraftVocab, "target_hidden_size": nil,
		"norm_before_residual": false, "norm_before_fc": false, "eagle_aux_hidden_state_layer_ids": c.Layers,
		"transformer_layer_config": layer, "tie_word_embeddings": false, "torch_dtype": "float32",
	}
}

// writeDrafter writes a drafter's directory.
func writeDrafter(t *testing.T, config object, tensors []weights.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := weights.WriteSafetensors(f, nil, tensors); err != nil {
		t.Fatal(err)
	}
	return dir
}

// renamed returns tensors with other names.
func renamed(list []weights.Tensor, name func(string) string) []weights.Tensor {
	list = slices.Clone(list)
	for i := range list {
		list[i].Name = name(list[i].Name)
	}
	return list
}

// membership makes t2d of a drafter's d2t.
func membership(c *Config, list []weights.Tensor) weights.Tensor {
	in := make([]bool, c.Vocab)
	for _, t := range list {
		if t.Name == "d2t" {
			offsets, _ := t.Int64s()
			for i, off := range offsets {
				in[int(off)+i] = true
			}
		}
	}
	return weights.FromBools("t2d", in, c.Vocab)
}

// TestLayouts: the same weights compute the same in both layouts, with and without a prefix, and in every order of files.
func TestLayouts(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	list := randomTensors(&c, 3)
	s := benchOf(t, m, build(t, dev, m, c, list, Options{}))
	want := s.whole()
	list = append(list, membership(&c, list))
	vllm := func(name string) string { return strings.Replace(name, "midlayer.", "layers.0.", 1) }
	for name, dir := range map[string]string{
		"SpecForge":   writeDrafter(t, specForge(&c), list),
		"speculators": writeDrafter(t, speculators(&c), renamed(list, vllm)),
		"prefixed":    writeDrafter(t, specForge(&c), renamed(list, func(n string) string { return "model." + n })),
	} {
		d, err := Load(dev, dir, m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range benchOf(t, m, d).whole() {
			s.same(fmt.Sprint(name, ", row ", i), got, want[i])
		}
	}
}

// TestFormats: every format of the weights gives about what the file's own gives.
func TestFormats(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	var want []result
	for _, f := range []Format{Stored, Q8, Q4} {
		d := build(t, dev, m, c, randomTensors(&c, 3), Options{Format: f})
		got := benchOf(t, m, d).whole()
		if want == nil {
			want = got
		}
		var diff, size float64
		for i := range got {
			for j, x := range want[i].logits {
				e := float64(got[i].logits[j] - x)
				diff, size = diff+e*e, size+float64(x)*float64(x)
			}
		}
		t.Logf("%s: %d bytes a pass, relative square error %.1e", f, d.WeightBytesPerPass(), diff/size)
		if limit := map[Format]float64{Stored: 0, Q8: 1e-3, Q4: 0.1}[f]; diff > limit*size {
			t.Errorf("%s: relative square error %g", f, diff/size)
		}
		if parsed, err := ParseFormat(f.String()); parsed != f || err != nil {
			t.Errorf("%s is parsed as %v, %v", f, parsed, err)
		}
	}
	if _, err := ParseFormat("q5"); err == nil {
		t.Error("format q5 is taken")
	}
}

// TestOwnEmbedding: a drafter of another width than its target has its own embeddings, and one of the same width may.
func TestOwnEmbedding(t *testing.T) {
	dev, m := tinyTarget(t, 1, true)
	c := tinyConfig(t, m)
	c.Hidden, c.Heads = 128, 2
	list := randomTensors(&c, 3)
	config := specForge(&c)
	config["target_hidden_size"] = c.TargetHidden
	dir := writeDrafter(t, config, list)
	d, err := Load(dev, dir, m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := benchOf(t, m, d)
	ref := newReference(c, list, nil)
	ref.embed = func(id int32) []float64 { return ref.w["embed_tokens.weight"][int(id)*c.Hidden:][:c.Hidden] }
	var sees []int
	for i, got := range s.whole() {
		at, out, logits := ref.row(s.token(i+1), i, ref.feature(s.tapped(i)), sees)
		s.near(fmt.Sprint("row ", i), got, out, logits)
		sees = append(sees, at)
	}
	list = slices.DeleteFunc(list, func(t weights.Tensor) bool { return t.Name == "embed_tokens.weight" })
	dir = writeDrafter(t, config, list)
	if _, err := Load(dev, dir, m, Options{}); err == nil || !strings.Contains(err.Error(), "embed_tokens.weight is missing") {
		t.Errorf("error %v, want one that names the embedding", err)
	}
}

// TestTargetHead: a drafter of the whole vocabulary may use the target's head.
func TestTargetHead(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	c.DraftVocab = c.Vocab
	list := slices.DeleteFunc(randomTensors(&c, 3), func(t weights.Tensor) bool { return t.Name == "lm_head.weight" })
	d, err := Load(dev, writeDrafter(t, specForge(&c), list), m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.head != m.Head() || d.ids[319] != 319 {
		t.Errorf("head %v, last id %d; want the target's head and vocabulary", d.head, d.ids[319])
	}
}

// TestRefusals: whatever is wrong with a drafter is an error that names it.
func TestRefusals(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	type files struct {
		config  object
		tensors []weights.Tensor
	}
	at := func(f *files, name string) *weights.Tensor {
		return &f.tensors[slices.IndexFunc(f.tensors, func(t weights.Tensor) bool { return t.Name == name })]
	}
	set := func(key string, value any) func(*files) { return func(f *files) { f.config[key] = value } }
	offset := func(i int, v int64) func(*files) {
		return func(f *files) {
			offsets, _ := at(f, "d2t").Int64s()
			offsets[i] = v
			*at(f, "d2t") = weights.FromInts("d2t", offsets, len(offsets))
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*files)
		want   string
	}{
		{"key", set("new_trick", true), "unknown key new_trick"},
		{"class", set("architectures", []string{"Eagle3DeepseekV2ForCausalLM"}), "Eagle3DeepseekV2ForCausalLM"},
		{"family", set("model_type", "deepseek_v3"), "deepseek_v3"},
		{"layers", set("num_hidden_layers", 2), "num_hidden_layers = 2 is not supported"},
		{"states", set("num_aux_hidden_states", 4), "num_aux_hidden_states = 4"},
		{"bias", set("attention_bias", true), "attention_bias"},
		{"mlp bias", set("mlp_bias", true), "mlp_bias"},
		{"fc bias", set("bias", true), "bias = true"},
		{"tied", set("tie_word_embeddings", true), "tie_word_embeddings"},
		{"activation", set("hidden_act", "gelu"), "hidden_act"},
		{"rope", set("rope_scaling", object{"rope_type": "yarn", "factor": 4}), `rope_scaling.rope_type = "yarn"`},
		{"theta", set("rope_theta", 0.5), "rope theta = 0.5"},
		{"window", set("sliding_window", 512), "sliding_window"},
		{"kind of layer", set("layer_types", []string{"sliding_attention"}), "sliding_attention"},
		{"norm_output", set("norm_output", true), "norm_output = true is ambiguous"},
		{"norm_before_fc", set("norm_before_fc", true), "input_norm.weight is missing"},
		{"fc_norm", set("fc_norm", true), "fc_norm.0.weight is missing"},
		{"epsilon", set("rms_norm_eps", 0), "rms_norm_eps = 0"},
		{"heads", set("num_key_value_heads", 3), "not a multiple of 3"},
		{"head dimension", set("head_dim", 33), "head dimension = 33"},
		{"draft vocabulary", set("draft_vocab_size", 400), "draft_vocab_size = 400 is larger"},
		{"vocabulary", set("vocab_size", 321), "a vocabulary of 321 tokens, the target has 320"},
		{"hidden size of the target", set("target_hidden_size", 512), "hidden size 512, this one has 256"},
		{"aux off", set("eagle_config", object{"use_aux_hidden_state": false}), "use_aux_hidden_state = false"},
		{"eagle_config", set("eagle_config", object{"new": 1}), "unknown key eagle_config.new"},
		{"contradicting ids", set("eagle_aux_hidden_state_layer_ids", []int{0, 1, 2}), "but [0 1 2] at the top"},
		{"two ids", set("eagle_config", object{"eagle_aux_hidden_state_layer_ids": []int{0, 1}}), "want three layers"},
		{"descending ids", set("eagle_config", object{"eagle_aux_hidden_state_layer_ids": []int{2, 1, 0}}), "want ascending layers"},
		{"deep ids", set("eagle_config", object{"eagle_aux_hidden_state_layer_ids": []int{2, 3, 4}}), "the target has 3 layers"},
		{"other ids", set("eagle_config", object{"eagle_aux_hidden_state_layer_ids": []int{1, 2, 3}}), "hidden states [0 1 3], the drafter needs [1 2 3]"},
		{"no ids", set("eagle_config", nil), "too shallow for the default hidden states"},
		{"speculators type", set("speculators_model_type", "mtp"), `speculators_model_type = "mtp"`},
		{"speculators without a layer", set("speculators_model_type", "eagle3"), "transformer_layer_config is missing"},

		{"missing tensor", func(f *files) { at(f, "norm.weight").Name = "norm.w" }, "tensor norm.weight is missing"},
		{"left over", func(f *files) { at(f, "t2d").Name = "hidden.bias" }, `no use for: "hidden.bias"`},
		{"twice", func(f *files) {
			x := *at(f, "norm.weight")
			x.Name = "model.norm.weight"
			f.tensors = append(f.tensors, x)
		}, "is there twice"},
		{"shape", func(f *files) {
			x := at(f, "fc.weight")
			x.Shape = []int{x.Shape[1], x.Shape[0]}
		}, "tensor fc.weight has shape"},
		{"kind", func(f *files) {
			*at(f, "d2t") = weights.Tensor{Name: "d2t", Type: quant.F32, Shape: []int{c.DraftVocab}, Data: make([]byte, 4*c.DraftVocab)}
		}, "tensor d2t holds F32, want I64"},
		{"no map", func(f *files) {
			f.tensors = slices.DeleteFunc(f.tensors, func(t weights.Tensor) bool { return t.Name == "d2t" })
		}, "tensor d2t is missing"},
		{"absolute ids", func(f *files) {
			offsets, _ := at(f, "d2t").Int64s()
			for i := range offsets {
				offsets[i] += int64(i)
			}
			*at(f, "d2t") = weights.FromInts("d2t", offsets, len(offsets))
		}, "elements are offsets"},
		{"negative offset", offset(5, -1), "draft id 5 plus -1 is outside"},
		{"huge offset", offset(5, 1<<62), "outside the vocabulary"},
		{"descending map", offset(5, 0), "want ascending tokens"},
		{"t2d", func(f *files) { at(f, "t2d").Data[7] ^= 1 }, "of token 7, d2t says"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := files{specForge(&c), randomTensors(&c, 3)}
			f.tensors = append(f.tensors, membership(&c, f.tensors))
			tc.change(&f)
			_, err := Load(dev, writeDrafter(t, f.config, f.tensors), m, Options{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	for _, o := range []Options{{MaxRows: -1}, {MaxSeqs: 1 << 17}, {MaxTop: -1}} {
		if _, err := Random(dev, m, 1, 64, o); err == nil {
			t.Errorf("options %+v are taken", o)
		}
	}
	if _, err := Random(dev, m, 1, 321, Options{}); err == nil {
		t.Error("a draft vocabulary larger than the target's is taken")
	}
	d, err := Random(dev, m, 1, 0, Options{})
	if err != nil || d.Config().DraftVocab != 320 {
		t.Errorf("random drafter: %v", err)
	}
}

func TestNoWeights(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	dir := writeDrafter(t, specForge(&c), randomTensors(&c, 1))
	if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "pytorch_model.bin")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dev, dir, m, Options{}); err == nil || !strings.Contains(err.Error(), "convert it") {
		t.Errorf("error %v, want the remedy", err)
	}
	if _, err := Load(dev, t.TempDir(), m, Options{}); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("error %v, want one that names config.json", err)
	}
}

func TestTapLayers(t *testing.T) {
	for _, tc := range []struct {
		layers []int
		n      int
		ids    LayerIDs
		want   string
	}{
		{nil, 30, InputIDs, "[2 15 27]"},
		{nil, 30, OutputIDs, "[2 15 27]"}, // the default is the same states in either convention
		{nil, 61, InputIDs, "[2 30 58]"},
		{nil, 6, InputIDs, "too shallow"},
		{[]int{1, 14, 26}, 30, OutputIDs, "[2 15 27]"},
		{[]int{1, 14, 26}, 30, InputIDs, "[1 14 26]"},
		{[]int{24, 30, 36}, 36, InputIDs, "[24 30 36]"},
		{[]int{24, 30, 36}, 36, OutputIDs, "the target has 36 layers"},
	} {
		c := Config{Layers: tc.layers}
		list, err := c.TapLayers(tc.n, tc.ids)
		if got := fmt.Sprint(list, err); !strings.Contains(got, tc.want) || (err == nil) != (tc.want[0] == '[') {
			t.Errorf("%v of %d layers, %s ids: %s, want %s", tc.layers, tc.n, tc.ids, got, tc.want)
		}
	}
	for _, ids := range []LayerIDs{InputIDs, OutputIDs} {
		if got, err := ParseLayerIDs(ids.String()); got != ids || err != nil {
			t.Errorf("%s is parsed as %v, %v", ids, got, err)
		}
	}
	if _, err := ParseLayerIDs("hidden"); err == nil {
		t.Error("a third convention is taken")
	}
}

// TestSwitchesAreRead: every switch that a file may set arrives in the configuration.
func TestSwitchesAreRead(t *testing.T) {
	_, m := tinyTarget(t, 1, false)
	base := tinyConfig(t, m)
	base.MaxContext = 64 // as the file has it
	for _, tc := range []struct {
		keys object
		want func(*Config)
	}{
		{object{}, func(*Config) {}},
		{object{"norm_before_residual": true}, func(c *Config) { c.NormBeforeResidual = true }},
		{object{"max_position_embeddings": nil}, func(c *Config) { c.MaxContext = 0 }},
		{object{"norm_before_fc": true}, func(c *Config) { c.NormBeforeFC = true }},
		{object{"fc_norm": true, "norm_output": true}, func(c *Config) { c.FCNorm, c.NormOutput = true, true }},
		{object{"norm_output": false}, func(*Config) {}},
		{object{"target_hidden_size": 96}, func(c *Config) { c.TargetHidden = 96 }},
		{object{"head_dim": nil, "num_attention_heads": 8}, func(c *Config) { c.Heads, c.HeadDim = 8, 32 }},
		{object{"rope_theta": nil}, func(c *Config) { c.Rope.Theta = 10000 }},
		{object{"draft_vocab_size": nil}, func(c *Config) { c.DraftVocab = c.Vocab }},
	} {
		config, want := specForge(&base), base
		maps.Copy(config, tc.keys)
		tc.want(&want)
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseConfig(text); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v: %+v, %v; want %+v", tc.keys, got, err, want)
		}
	}
	config := speculators(&base)
	delete(config, "norm_before_residual")
	text, _ := json.Marshal(config)
	if _, err := ParseConfig(text); err == nil || !strings.Contains(err.Error(), "norm_before_residual is missing") {
		t.Errorf("error %v, want one that asks for norm_before_residual", err)
	}
}

// FuzzParseConfig: no text panics, and what is accepted is within bounds.
func FuzzParseConfig(f *testing.F) {
	c := Config{Hidden: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 50, DraftVocab: 20, NormEps: 1e-5, Layers: []int{0, 1, 2}}
	c.Rope.Theta = 1e4
	for _, o := range []object{specForge(&c), speculators(&c), {}} {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		if c.DraftVocab > c.Vocab || c.Heads*c.HeadDim > maxWidth || c.Layers != nil && len(c.Layers) != taps {
			t.Errorf("accepted: %+v", c)
		}
		_, _ = c.TapLayers(30, InputIDs)
	})
}
