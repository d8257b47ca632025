package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxConfigBytes bounds config.json: real ones measure a few kilobytes.
const maxConfigBytes = 4 << 20

// hfIgnored lists the keys of config.json that cannot change what a forward pass of the known families
// computes: training, generation defaults, provenance, and classes that this package does not build.
var hfIgnored = set(
	"architectures", "auto_map", "attention_dropout", "attn_implementation", "bad_words_ids", "begin_suppress_tokens",
	"chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping",
	"encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
	"forced_eos_token_id", "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_llama_config", "label2id",
	"length_penalty", "max_length", "min_length", "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
	"num_labels", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "pad_token_id",
	"prefix", "pretraining_tp", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
	"return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
	"tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers.js_config",
	"transformers_version", "typical_p", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
)

// hfClasses are the classes of config.json's architectures whose forward pass this package computes.
var hfClasses = set("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// readHF reads config.json, and the end-of-text ids of generation_config.json if there is one, from dir.
func readHF(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := readSmall(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parseHF(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, "generation_config.json")
	data, err = readSmall(path)
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

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(data) > maxConfigBytes {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxConfigBytes)
	}
	return data, err
}

// parseHF resolves the text of a config.json. A key that is neither read nor in hfIgnored is refused
// unless it is null, since it may change what the model computes.
func parseHF(data []byte) (Config, error) {
	o, err := parseObject(data)
	if err != nil {
		return Config{}, err
	}
	c := Config{BOS: -1, NormEps: float32(o.number("rms_norm_eps", 0))}
	modelType := o.text("model_type", "")
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
	c.hfRope(o)
	c.hfWindow(o)
	c.hfSwitches(o, modelType)
	c.hfTokens(o)
	if err := o.finish(hfIgnored); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

func (c *Config) hfSizes(o *object) {
	c.Layers = o.size("num_hidden_layers", 0, maxLayers)
	c.Hidden = o.size("hidden_size", 0, maxWidth)
	c.FFN = o.size("intermediate_size", 0, maxFFN)
	c.Heads = o.size("num_attention_heads", 0, maxHeads)
	c.Vocab = o.size("vocab_size", 0, maxVocab)
	c.MaxContext = o.size("max_position_embeddings", 0, maxContext)
	kv := 0
	if c.Arch == Llama {
		kv = c.Heads // Llama 1 and 2 leave it out
	}
	c.KVHeads = o.size("num_key_value_heads", kv, maxHeads)
	// Qwen3 leaves head_dim out only where it is 128, which its heads of the hidden size need not be: ask for it.
	headDim := 0
	if c.Arch != Qwen3 && c.Heads > 0 && c.Hidden%c.Heads == 0 {
		headDim = c.Hidden / c.Heads
	}
	c.HeadDim = o.size("head_dim", headDim, maxHeadDim)
}

// hfRope reads rope_theta with rope_scaling, or rope_parameters (transformers 5), which holds both.
func (c *Config) hfRope(o *object) {
	const defaultTheta = 10000 // of every known family's configuration class
	c.Rope.Theta = o.number("rope_theta", defaultTheta)
	scaling, params := o.object("rope_scaling"), o.object("rope_parameters")
	o.mustBe("partial_rotary_factor", 1)
	switch {
	case scaling != nil && params != nil:
		o.fail("rope_scaling and rope_parameters are both present: keep one")
		return
	case params != nil:
		theta := params.number("rope_theta", c.Rope.Theta)
		if o.has("rope_theta") && theta != c.Rope.Theta {
			o.fail("rope_theta = %v but rope_parameters.rope_theta = %v", c.Rope.Theta, theta)
		}
		c.Rope.Theta = theta
		scaling = params
	case scaling == nil:
		return
	}
	scaling.mustBe("partial_rotary_factor", 1)
	s := &c.Rope.Scaling
	old := scaling.text("type", "default")
	kind := scaling.text("rope_type", old)
	if scaling.has("type") && old != kind {
		scaling.fail("type = %q but rope_type = %q", old, kind)
	}
	switch kind {
	case "default":
	case string(RopeLinear):
		s.Kind, s.Factor = RopeLinear, scaling.number("factor", 0)
	case string(RopeLlama3):
		s.Kind, s.Factor = RopeLlama3, scaling.number("factor", 0)
		s.LowFreq = scaling.number("low_freq_factor", 0)
		s.HiFreq = scaling.number("high_freq_factor", 0)
		s.Context = scaling.integer("original_max_position_embeddings", 0)
	default:
		scaling.fail("rope_type = %q is not supported (known: default, linear, llama3)", kind)
	}
	o.adopt(scaling)
}

// hfWindow reads the keys of sliding-window attention. Mistral has a window in every layer unless
// sliding_window is null; Qwen only where use_sliding_window is true, from layer max_window_layers on
// or, in newer files, in the layers that layer_types names.
func (c *Config) hfWindow(o *object) {
	window := o.integer("sliding_window", 0)
	qwen := c.Arch != Llama
	use := o.flag("use_sliding_window", !qwen)
	first := o.integer("max_window_layers", 0)
	types := o.texts("layer_types")
	if use && (!qwen || types == nil && first < c.Layers) {
		c.Window = window
	}
	for _, kind := range types {
		switch kind {
		case "full_attention":
		case "sliding_attention":
			if window == 0 {
				o.fail("layer_types names sliding_attention, but sliding_window is missing")
			}
			c.Window = window
		default:
			o.fail("layer_types: %q is not supported (known: full_attention, sliding_attention)", kind)
		}
	}
}

// hfSwitches reads the keys that must have one value, and tie_word_embeddings.
func (c *Config) hfSwitches(o *object, modelType string) {
	classes := o.texts("architectures")
	if len(classes) > 0 && !slices.ContainsFunc(classes, func(s string) bool { return hfClasses[s] }) {
		o.fail("architectures = %q is not supported (known: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)", classes)
	}
	if act := o.text("hidden_act", "silu"); act != "silu" {
		o.fail("hidden_act = %q is not supported (only silu)", act)
	}
	if modelType == "qwen2" {
		o.flag("attention_bias", true) // Qwen2 always has biases on q, k and v and reads no such key
	} else {
		o.mustBeOff("attention_bias")
	}
	for _, key := range []string{
		"mlp_bias", "rope_interleaved", "use_mrope", "is_encoder_decoder", "add_cross_attention", "pruned_heads", "use_qk_norm",
	} {
		o.mustBeOff(key)
	}
	c.TiedHead = o.flag("tie_word_embeddings", false)
}

func (c *Config) hfTokens(o *object) {
	if ids := o.tokens("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	for _, id := range o.tokens("eos_token_id") {
		c.addEOS(id)
	}
}

// addGeneration adds the end-of-text ids of a generation_config.json: chat models often name their
// end-of-turn token only there. Its other keys are sampling defaults and not the model's.
func (c *Config) addGeneration(data []byte) error {
	o, err := parseObject(data)
	if err != nil {
		return err
	}
	for _, id := range o.tokens("eos_token_id") {
		c.addEOS(id)
	}
	if o.err != nil {
		return o.err
	}
	return c.Validate()
}

// object reads the keys of one JSON object. It keeps the first error and every key that was asked for,
// so that reading is straight-line code and finish can refuse what nobody asked for.
type object struct {
	prefix string // "rope_scaling." inside a nested object
	keys   map[string]json.RawMessage
	seen   map[string]bool
	err    error
}

func parseObject(data []byte) (*object, error) {
	o := &object{seen: map[string]bool{}}
	if err := json.Unmarshal(data, &o.keys); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return o, nil
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(o.prefix+format, args...)
	}
}

// has reports whether the key is present and not null, and remembers that it was asked for.
func (o *object) has(key string) bool {
	o.seen[key] = true
	raw, ok := o.keys[key]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// read decodes the key into v and reports whether it was there.
func (o *object) read(key string, v any, want string) bool {
	if !o.has(key) {
		return false
	}
	if err := json.Unmarshal(o.keys[key], v); err != nil {
		o.fail("%s = %.60s: want %s", key, o.keys[key], want)
		return false
	}
	return true
}

func (o *object) text(key, missing string) string {
	v := missing
	o.read(key, &v, "a string")
	return v
}

func (o *object) texts(key string) (v []string) {
	o.read(key, &v, "a list of strings")
	return v
}

func (o *object) flag(key string, missing bool) bool {
	v := missing
	o.read(key, &v, "true or false")
	return v
}

func (o *object) number(key string, missing float64) float64 {
	v := missing
	o.read(key, &v, "a number")
	return v
}

func (o *object) integer(key string, missing int) int {
	v := float64(missing)
	if o.read(key, &v, "a number") && (v != math.Trunc(v) || v < 0 || v > 1<<31-1) {
		o.fail("%s = %s: want a whole number from 0 to 2147483647", key, o.keys[key])
		return missing
	}
	return int(v)
}

// size reads an integer from 1 to hi; if missing is 0 the key must be there.
func (o *object) size(key string, missing, hi int) int {
	v := o.integer(key, missing)
	if v == 0 && missing == 0 {
		o.fail("%s is missing or 0", key)
	}
	if v < 1 || v > hi {
		o.fail("%s = %d: want 1 to %d", key, v, hi)
	}
	return v
}

// tokens reads one id or a list of them.
func (o *object) tokens(key string) []int32 {
	if !o.has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(o.keys[key], &one) == nil {
		return []int32{one}
	}
	var list []int32
	o.read(key, &list, "a token id or a list of them")
	return list
}

func (o *object) mustBe(key string, want float64) {
	if v := o.number(key, want); v != want {
		o.fail("%s = %v is not supported (only %v)", key, v, want)
	}
}

// mustBeOff refuses a key that is anything but absent, null, false or empty.
func (o *object) mustBeOff(key string) {
	if !o.has(key) {
		return
	}
	switch raw := string(o.keys[key]); raw {
	case "false", "{}", "[]":
	default:
		o.fail("%s = %.60s is not supported", key, raw)
	}
}

// object returns a nested object, nil if absent.
func (o *object) object(key string) *object {
	inner := &object{prefix: o.prefix + key + ".", seen: map[string]bool{}}
	if !o.read(key, &inner.keys, "an object") {
		return nil
	}
	return inner
}

// adopt ends the reading of a nested object: its first error becomes o's.
func (o *object) adopt(inner *object) {
	if err := inner.finish(nil); err != nil && o.err == nil {
		o.err = err
	}
}

// finish returns the first error, or one that names a key nobody asked for.
func (o *object) finish(ignored map[string]bool) error {
	if o.err != nil {
		return o.err
	}
	var unknown []string
	for key, raw := range o.keys {
		if !o.seen[key] && !ignored[key] && !strings.HasPrefix(key, "_") && !bytes.Equal(raw, []byte("null")) {
			unknown = append(unknown, o.prefix+key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("unknown key %s: it may change what the model computes, so it is refused", strings.Join(unknown, ", "))
	}
	return nil
}
