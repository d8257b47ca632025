package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"draftlab/engine/hfconfig"
)

// hfClasses are the classes of config.json's architectures whose forward pass this package computes.
var hfClasses = hfconfig.Set("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

// readHF reads config.json, and the end-of-text ids of generation_config.json if there is one, from dir.
func readHF(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := hfconfig.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parseHF(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, "generation_config.json")
	data, err = hfconfig.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return Config{}, err
	}
	if err := c.addGeneration(data); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// parseHF resolves the text of a config.json. A key that is neither read nor in hfconfig.Ignored is refused
// unless it is null, since it may change what the model computes.
func parseHF(data []byte) (Config, error) {
	o, err := hfconfig.Parse(data)
	if err != nil {
		return Config{}, err
	}
	c := Config{BOS: -1, NormEps: float32(o.Number("rms_norm_eps", 0))}
	modelType := o.Text("model_type", "")
	switch modelType {
	case "llama", "mistral":
		c.Arch = Llama
	case "qwen2", "qwen3":
		c.Arch = Arch(modelType)
		c.QKVBias, c.QKNorm = modelType == "qwen2", modelType == "qwen3"
	default:
		return Config{}, fmt.Errorf("model_type = %q is not supported (known: llama, mistral, qwen2, qwen3)", modelType)
	}
	c.hfSizes(o)
	c.Rope = ReadRope(o)
	c.hfWindow(o)
	c.hfSwitches(o, modelType)
	c.hfTokens(o)
	if err := o.Finish(hfconfig.Ignored); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

func (c *Config) hfSizes(o *hfconfig.Object) {
	c.Layers = o.Size("num_hidden_layers", 0, maxLayers)
	c.Hidden = o.Size("hidden_size", 0, maxWidth)
	c.FFN = o.Size("intermediate_size", 0, maxFFN)
	c.Heads = o.Size("num_attention_heads", 0, maxHeads)
	c.Vocab = o.Size("vocab_size", 0, maxVocab)
	c.MaxContext = o.Size("max_position_embeddings", 0, maxContext)
	kv := 0
	if c.Arch == Llama {
		kv = c.Heads // Llama 1 and 2 leave it out
	}
	c.KVHeads = o.Size("num_key_value_heads", kv, maxHeads)
	// Qwen3 leaves head_dim out only where it is 128, which its heads of the hidden size need not be: ask for it.
	headDim := 0
	if c.Arch != Qwen3 && c.Heads > 0 && c.Hidden%c.Heads == 0 {
		headDim = c.Hidden / c.Heads
	}
	c.HeadDim = o.Size("head_dim", headDim, maxHeadDim)
}

// ReadRope reads and checks the keys of the rotary embedding, which drafters have too. What is wrong becomes o's error.
func ReadRope(o *hfconfig.Object) RopeConfig {
	c := hfRope(o)
	if err := c.validate(); err != nil {
		o.Fail("%v", err)
	}
	return c
}

// hfRope reads rope_theta with rope_scaling, or rope_parameters (transformers 5), which holds both.
func hfRope(o *hfconfig.Object) (c RopeConfig) {
	const defaultTheta = 10000 // of every known family's configuration class
	c.Theta = o.Number("rope_theta", defaultTheta)
	scaling, params := o.Nested("rope_scaling"), o.Nested("rope_parameters")
	o.MustBe("partial_rotary_factor", 1)
	switch {
	case scaling != nil && params != nil:
		o.Fail("rope_scaling and rope_parameters are both present: keep one")
		return c
	case params != nil:
		theta := params.Number("rope_theta", c.Theta)
		if o.Has("rope_theta") && theta != c.Theta {
			o.Fail("rope_theta = %v but rope_parameters.rope_theta = %v", c.Theta, theta)
		}
		c.Theta = theta
		scaling = params
	case scaling == nil:
		return c
	}
	scaling.MustBe("partial_rotary_factor", 1)
	s := &c.Scaling
	old := scaling.Text("type", "default")
	kind := scaling.Text("rope_type", old)
	if scaling.Has("type") && old != kind {
		scaling.Fail("type = %q but rope_type = %q", old, kind)
	}
	switch kind {
	case "default":
	case string(RopeLinear):
		s.Kind, s.Factor = RopeLinear, scaling.Number("factor", 0)
	case string(RopeLlama3):
		s.Kind, s.Factor = RopeLlama3, scaling.Number("factor", 0)
		s.LowFreq = scaling.Number("low_freq_factor", 0)
		s.HiFreq = scaling.Number("high_freq_factor", 0)
		s.Context = scaling.Integer("original_max_position_embeddings", 0)
	default:
		scaling.Fail("rope_type = %q is not supported (known: default, linear, llama3)", kind)
	}
	o.Adopt(scaling)
	return c
}

// hfWindow reads the keys of sliding-window attention. Mistral has a window in every layer unless
// sliding_window is null; Qwen only where use_sliding_window is true, from layer max_window_layers on
// or, in newer files, in the layers that layer_types names.
func (c *Config) hfWindow(o *hfconfig.Object) {
	window := o.Integer("sliding_window", 0)
	qwen := c.Arch != Llama
	use := o.Flag("use_sliding_window", !qwen)
	first := o.Integer("max_window_layers", 0)
	types := o.Texts("layer_types")
	if use && (!qwen || types == nil && first < c.Layers) {
		c.Window = window
	}
	for _, kind := range types {
		switch kind {
		case "full_attention":
		case "sliding_attention":
			if window == 0 {
				o.Fail("layer_types names sliding_attention, but sliding_window is missing")
			}
			c.Window = window
		default:
			o.Fail("layer_types: %q is not supported (known: full_attention, sliding_attention)", kind)
		}
	}
}

// hfSwitches reads the keys that must have one value, and tie_word_embeddings.
func (c *Config) hfSwitches(o *hfconfig.Object, modelType string) {
	classes := o.Texts("architectures")
	if len(classes) > 0 && !slices.ContainsFunc(classes, func(s string) bool { return hfClasses[s] }) {
		o.Fail("architectures = %q is not supported (known: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)", classes)
	}
	if act := o.Text("hidden_act", "silu"); act != "silu" {
		o.Fail("hidden_act = %q is not supported (only silu)", act)
	}
	if modelType == "qwen2" {
		o.Flag("attention_bias", true) // Qwen2 always has biases on q, k and v and reads no such key
	} else {
		o.MustBeOff("attention_bias")
	}
	for _, key := range []string{
		"mlp_bias", "rope_interleaved", "use_mrope", "is_encoder_decoder", "add_cross_attention", "pruned_heads", "use_qk_norm",
	} {
		o.MustBeOff(key)
	}
	c.TiedHead = o.Flag("tie_word_embeddings", false)
}

func (c *Config) hfTokens(o *hfconfig.Object) {
	if ids := o.Tokens("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	for _, id := range o.Tokens("eos_token_id") {
		c.addEOS(id)
	}
}

// addGeneration adds the end-of-text ids of a generation_config.json: chat models often name their
// end-of-turn token only there. Its other keys are sampling defaults and not the model's.
func (c *Config) addGeneration(data []byte) error {
	o, err := hfconfig.Parse(data)
	if err != nil {
		return err
	}
	for _, id := range o.Tokens("eos_token_id") {
		c.addEOS(id)
	}
	if o.Err() != nil {
		return o.Err()
	}
	return c.Validate()
}
