package model

import (
	"errors"
	"fmt"
	"strings"

	"draftlab/engine/hfconfig"
	"draftlab/engine/weights"
)

// ggufIgnored lists the keys below the architecture's name that cannot change a forward pass: notes on how a
// context was extended, which act only with scaling types that are refused, and on how a file was laid out.
var ggufIgnored = hfconfig.Set(
	"rope.scaling.original_context_length", "rope.scaling.finetuned", "tensor_data_layout", "pooling_type",
)

// ReadConfig resolves the architecture of an open file: from the metadata of GGUF, or from the config.json
// beside safetensors. Errors name the file, the key and its value.
func ReadConfig(f *weights.File) (Config, error) {
	if f.Format() != "gguf" {
		return readHF(f.Dir())
	}
	c, err := readGGUF(f)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", f.Path(), err)
	}
	return c, nil
}

// ggufKeys reads the keys of one architecture, keeping the first error and every key that was asked for.
type ggufKeys struct {
	weights.Metadata
	arch string
	seen map[string]bool
	err  error
}

func (k *ggufKeys) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

func (k *ggufKeys) full(key string) string {
	k.seen[key] = true
	return k.arch + "." + key
}

func (k *ggufKeys) integer(key string, missing int) int {
	v, ok := k.Uint(k.full(key))
	if !ok {
		return missing
	}
	if v > 1<<31-1 {
		k.fail("%s.%s = %d is too large", k.arch, key, v)
		return missing
	}
	return int(v)
}

// size reads an integer from 1 to hi; if missing is 0 the key must be there.
func (k *ggufKeys) size(key string, missing, hi int) int {
	v := k.integer(key, missing)
	if v == 0 && missing == 0 {
		k.fail("%s.%s is missing or 0", k.arch, key)
	}
	if v < 1 || v > hi {
		k.fail("%s.%s = %d: want 1 to %d", k.arch, key, v, hi)
	}
	return v
}

func (k *ggufKeys) number(key string, missing float64) float64 {
	if v, ok := k.Float(k.full(key)); ok {
		return v
	}
	return missing
}

func (k *ggufKeys) text(key, missing string) string {
	if v, ok := k.String(k.full(key)); ok {
		return v
	}
	return missing
}

// mustBe refuses a key whose number, if there is one, differs from the only one that is supported.
func (k *ggufKeys) mustBe(key string, want float64) {
	if v := k.number(key, want); v != want {
		k.fail("%s.%s = %v is not supported (only %v)", k.arch, key, v, want)
	}
}

// finish returns the first error, or one that names a key of the architecture that nobody asked for.
func (k *ggufKeys) finish() error {
	if err := errors.Join(k.err, k.Err()); err != nil {
		return err
	}
	for _, key := range k.Keys() {
		name, ok := strings.CutPrefix(key, k.arch+".")
		if ok && !k.seen[name] && !ggufIgnored[name] {
			return fmt.Errorf("unknown key %s: it may change what the model computes, so it is refused", key)
		}
	}
	return nil
}

// readGGUF resolves the metadata. Keys outside the architecture's name are not hyper-parameters
// (general.*, tokenizer.*, quantize.*) and are left alone, except the token ids.
func readGGUF(f *weights.File) (Config, error) {
	meta := f.Meta()
	arch, _ := meta.String("general.architecture")
	c := Config{Arch: Arch(arch), BOS: -1}
	switch c.Arch {
	case Llama, Qwen2, Qwen3:
	default:
		return c, fmt.Errorf("general.architecture = %q is not supported (known: llama, qwen2, qwen3)", arch)
	}
	k := &ggufKeys{Metadata: meta, arch: arch, seen: map[string]bool{}}
	c.QKVBias, c.QKNorm = c.Arch == Qwen2, c.Arch == Qwen3
	_, untied := f.Tensor(ggufNames[roleHead])
	c.TiedHead = !untied
	c.ggufSizes(k, f)
	c.ggufRope(k)
	c.ggufTokens(k)
	if err := k.finish(); err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	return c, c.ggufDivisors(f)
}

func (c *Config) ggufSizes(k *ggufKeys, f *weights.File) {
	c.Layers = k.size("block_count", 0, maxLayers)
	c.Hidden = k.size("embedding_length", 0, maxWidth)
	c.FFN = k.size("feed_forward_length", 0, maxFFN)
	c.Heads = k.size("attention.head_count", 0, maxHeads)
	c.KVHeads = k.size("attention.head_count_kv", c.Heads, maxHeads)
	c.MaxContext = k.size("context_length", 0, maxContext)
	c.Window = k.integer("attention.sliding_window", 0)
	c.NormEps = float32(k.number("attention.layer_norm_rms_epsilon", 0))
	if c.Heads > 0 && c.Hidden%c.Heads == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	c.HeadDim = k.size("attention.key_length", c.HeadDim, maxHeadDim)
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if n := k.integer(key, c.HeadDim); n != c.HeadDim {
			k.fail("%s.%s = %d is not supported: the head dimension is %d", k.arch, key, n, c.HeadDim)
		}
	}
	for _, key := range []string{"expert_count", "expert_used_count"} {
		if n := k.integer(key, 0); n != 0 {
			k.fail("%s.%s = %d: mixtures of experts are not supported", k.arch, key, n)
		}
	}
	if causal, ok := k.Bool(k.full("attention.causal")); ok && !causal {
		k.fail("%s.attention.causal = false is not supported", k.arch)
	}
	c.ggufVocab(k, f)
}

// ggufVocab takes the vocabulary's size from the embedding, which is what ids index, and wants the two keys
// that repeat it to agree.
func (c *Config) ggufVocab(k *ggufKeys, f *weights.File) {
	if t, ok := f.Tensor(ggufNames[roleEmbed]); ok && len(t.Shape) == 2 {
		c.Vocab = t.Shape[0]
	} else {
		k.fail("tensor %s of shape [vocabulary, hidden size] is missing", ggufNames[roleEmbed])
	}
	if n := k.integer("vocab_size", c.Vocab); n != c.Vocab {
		k.fail("%s.vocab_size = %d, but %s has %d rows", k.arch, n, ggufNames[roleEmbed], c.Vocab)
	}
	if tokens, ok := k.Strings("tokenizer.ggml.tokens"); ok && len(tokens) != c.Vocab {
		k.fail("tokenizer.ggml.tokens has %d tokens, but %s has %d rows", len(tokens), ggufNames[roleEmbed], c.Vocab)
	}
}

// ggufRope reads the rotary keys. llama.cpp writes Llama 3's rule as a tensor, so the types are only none and
// linear; a factor without a type is linear.
func (c *Config) ggufRope(k *ggufKeys) {
	c.Rope.Theta = k.number("rope.freq_base", 10000) // llama.cpp's default
	kind := k.text("rope.scaling.type", "")
	factor := k.number("rope.scaling.factor", k.number("rope.scale_linear", 1))
	if factor == 0 { // written for "no scaling"
		factor = 1
	}
	k.mustBe("rope.scaling.attn_factor", 1)
	switch kind {
	case "none":
	case "", "linear":
		if factor != 1 {
			c.Rope.Scaling = RopeScaling{Kind: RopeLinear, Factor: factor}
		}
	default:
		k.fail("%s.rope.scaling.type = %q is not supported (known: none, linear)", k.arch, kind)
	}
}

// ggufDivisors reads rope_freqs.weight.
func (c *Config) ggufDivisors(f *weights.File) error {
	t, ok := f.Tensor(ropeDivisors)
	if !ok {
		return nil
	}
	v, err := decodeVector(t, c.HeadDim/2)
	if err != nil {
		return err
	}
	for i, d := range v {
		if !(d >= 1e-6 && d <= 1e6) {
			return fmt.Errorf("tensor %s: divisor %d = %v: want 1e-6 to 1e6", t.Name, i, d)
		}
	}
	c.Rope.Scaling.Divisors = v
	return nil
}

func (c *Config) ggufTokens(k *ggufKeys) {
	if id, ok := k.Uint("tokenizer.ggml.bos_token_id"); ok {
		c.BOS = int32(min(id, 1<<31-1))
	}
	// eot is the end of a turn and eom the end of a message that wants a tool's answer.
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id, ok := k.Uint("tokenizer.ggml." + key); ok {
			c.addEOS(int32(min(id, 1<<31-1)))
		}
	}
}
