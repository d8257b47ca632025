package eagle3

import (
	"fmt"
	"path/filepath"
	"slices"

	"draftlab/engine/hfconfig"
	"draftlab/engine/model"
)

// taps is the number of hidden states of the target that make a feature.
const taps = 3

// LayerIDs says what a drafter's eagle_aux_hidden_state_layer_ids count. Engines disagree, and a drafter read with the
// wrong convention still drafts, only worse: measure its acceptance under both where its maker does not say.
type LayerIDs uint8

const (
	// InputIDs: id n is the input of layer n (SafeAI, vLLM, speculators; SGLang since mid-2026 for some models).
	InputIDs LayerIDs = iota
	// OutputIDs: id n is the output of layer n, that is the input of layer n+1 (SpecForge and older SGLang).
	OutputIDs
)

// ParseLayerIDs reads "input" or "output".
func ParseLayerIDs(s string) (LayerIDs, error) {
	switch s {
	case "input":
		return InputIDs, nil
	case "output":
		return OutputIDs, nil
	}
	return 0, fmt.Errorf("layer ids %q: want input or output", s)
}

// String returns the convention as ParseLayerIDs reads it.
func (l LayerIDs) String() string { return [...]string{"input", "output"}[l] }

// Config is a drafter's architecture with every hyper-parameter resolved.
type Config struct {
	Hidden       int // width of the drafter's states
	TargetHidden int // width of the target's; another than Hidden needs a drafter with its own embeddings
	FFN          int
	Heads        int
	KVHeads      int
	HeadDim      int
	Vocab        int // the target's
	DraftVocab   int // at most Vocab
	NormEps      float32
	Rope         model.RopeConfig
	MaxContext   int // positions that the drafter was made for; 0 if config.json does not say. It changes nothing that is computed.

	// Layers are the layer ids of config.json in the drafter's own convention; nil for the default, which is the same
	// three states in every convention.
	Layers []int

	NormBeforeResidual bool // the residual starts from the normed state
	NormBeforeFC       bool // an RMS norm over the three states side by side comes before fc (tensor input_norm)
	FCNorm             bool // an RMS norm on each of the three states comes before fc (tensors fc_norm.0 to fc_norm.2)
	NormOutput         bool // drafting goes on from the state after the last norm instead of before it
}

// The largest sizes that are believed, as for models: a hostile file cannot ask for an absurd allocation.
const (
	maxWidth   = 1 << 18
	maxFFN     = 1 << 20
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 10
	maxVocab   = 1 << 22
)

// classes are the architectures of config.json whose forward pass this package computes.
var classes = []string{"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel"}

// ignored are keys of config.json, beside hfconfig.Ignored, that cannot change what the drafter computes.
var ignored = hfconfig.Set(
	"bos_token_id", "eos_token_id", "max_position_embeddings", "max_window_layers", "target_model_type", "modules_to_not_convert",
	"speculators_config", "speculators_version", "has_no_defaults_at_init", "embed_requires_grad", "mask_token_id",
)

// ReadConfig reads the config.json of a drafter in dir, in the layout of SGLang and SpecForge or in that of vLLM's
// speculators. Every key that may change what the drafter computes is honoured, or refused by name. Errors name the file
// and the key.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := hfconfig.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// minLayers is the least depth at which the default's three layers are distinct.
const minLayers = 7

// TapLayers returns the hidden states that a drafter for a target of n layers needs, as model.Options.TapLayers wants
// them: those of config.json, or else the inputs of layers 2, n/2 and n−3.
func (c *Config) TapLayers(n int, ids LayerIDs) ([]int, error) {
	if c.Layers == nil {
		if n < minLayers {
			return nil, fmt.Errorf("a target of %d layers is too shallow for the default hidden states: list three in eagle_aux_hidden_state_layer_ids", n)
		}
		return []int{2, n / 2, n - 3}, nil
	}
	list := slices.Clone(c.Layers)
	for i := range list {
		list[i] += int(ids)
		if list[i] > n {
			return nil, fmt.Errorf("eagle_aux_hidden_state_layer_ids %v (%s ids): the target has %d layers", c.Layers, ids, n)
		}
	}
	return list, nil
}

// ParseConfig resolves the text of a config.json; see ReadConfig.
func ParseConfig(data []byte) (Config, error) {
	o, err := hfconfig.Parse(data)
	if err != nil {
		return Config{}, err
	}
	var c Config
	layer := o // where the decoder layer's keys lie
	speculators := o.Has("speculators_model_type")
	if speculators {
		if t := o.Text("speculators_model_type", ""); t != "eagle3" {
			o.Fail("speculators_model_type = %q is not supported (only eagle3)", t)
		}
		if layer = o.Nested("transformer_layer_config"); layer == nil {
			o.Fail("transformer_layer_config is missing")
			return Config{}, o.Err()
		}
	}
	c.sizes(o, layer)
	c.Rope = model.ReadRope(layer)
	c.MaxContext = layer.Integer("max_position_embeddings", 0)
	switches(o, layer)
	c.layerIDs(o)
	c.norms(o, speculators)
	if speculators {
		o.Adopt(layer, hfconfig.Ignored, ignored)
	}
	if err := o.Finish(hfconfig.Ignored, ignored); err != nil {
		return Config{}, err
	}
	return c, c.validate()
}

func (c *Config) sizes(o, layer *hfconfig.Object) {
	c.Hidden = layer.Size("hidden_size", 0, maxWidth)
	c.FFN = layer.Size("intermediate_size", 0, maxFFN)
	c.Heads = layer.Size("num_attention_heads", 0, maxHeads)
	c.KVHeads = layer.Size("num_key_value_heads", c.Heads, maxHeads)
	headDim := 0
	if c.Heads > 0 && c.Hidden%c.Heads == 0 {
		headDim = c.Hidden / c.Heads
	}
	c.HeadDim = layer.Size("head_dim", headDim, maxHeadDim)
	c.NormEps = float32(layer.Number("rms_norm_eps", 0))
	c.Vocab = layer.Size("vocab_size", 0, maxVocab)
	c.DraftVocab = o.Size("draft_vocab_size", c.Vocab, maxVocab)
	c.TargetHidden = o.Size("target_hidden_size", c.Hidden, maxWidth)
	layer.MustBe("num_hidden_layers", 1)
	o.MustBe("num_aux_hidden_states", taps)
}

// switches reads the keys that must have one value.
func switches(o, layer *hfconfig.Object) {
	names := o.Texts("architectures")
	if len(names) > 0 && !slices.ContainsFunc(names, func(s string) bool { return slices.Contains(classes, s) }) {
		o.Fail("architectures = %q is not supported (known: %q)", names, classes)
	}
	if t := layer.Text("model_type", "llama"); t != "llama" {
		layer.Fail("model_type = %q is not supported (only llama)", t)
	}
	if act := layer.Text("hidden_act", "silu"); act != "silu" {
		layer.Fail("hidden_act = %q is not supported (only silu)", act)
	}
	for _, key := range []string{"attention_bias", "mlp_bias", "bias", "rope_interleaved", "use_qk_norm", "use_sliding_window"} {
		layer.MustBeOff(key)
	}
	if layer.Has("sliding_window") && !layer.Has("use_sliding_window") {
		layer.Fail("sliding_window is not supported: the drafter attends to everything")
	}
	for _, kind := range layer.Texts("layer_types") {
		if kind != "full_attention" {
			layer.Fail("layer_types: %q is not supported (only full_attention)", kind)
		}
	}
	o.MustBeOff("tie_word_embeddings")
	layer.MustBeOff("tie_word_embeddings")
}

// layerIDs reads eagle_aux_hidden_state_layer_ids, at the top or in eagle_config.
func (c *Config) layerIDs(o *hfconfig.Object) {
	const key = "eagle_aux_hidden_state_layer_ids"
	list := o.Tokens(key)
	if e := o.Nested("eagle_config"); e != nil {
		if inner := e.Tokens(key); list == nil {
			list = inner
		} else if inner != nil && !slices.Equal(list, inner) {
			e.Fail("%s = %v, but %v at the top", key, inner, list)
		}
		e.MustBeOn("use_aux_hidden_state")
		e.MustBeOn("use_input_layernorm_in_first_layer")
		e.MustBeOn("use_last_layernorm")
		e.MustBeOff("use_mtp_layernorm")
		e.Flag("next_layer_regular", true) // of layers after the first, which there are not
		e.MustBe("parallel_draft_step", 1)
		o.Adopt(e)
	}
	if len(list) == 0 {
		return
	}
	if len(list) != taps {
		o.Fail("%s = %v: want three layers", key, list)
		return
	}
	for i, id := range list {
		if id < 0 || id > 1<<20 || i > 0 && id <= list[i-1] {
			o.Fail("%s = %v: want ascending layers from 0", key, list)
		}
		c.Layers = append(c.Layers, int(id))
	}
}

func (c *Config) norms(o *hfconfig.Object, speculators bool) {
	if speculators && !o.Has("norm_before_residual") {
		o.Fail("norm_before_residual is missing: readers of this layout disagree about its default, so say true or false")
	}
	c.NormBeforeResidual = o.Flag("norm_before_residual", false)
	c.NormBeforeFC = o.Flag("norm_before_fc", false)
	c.FCNorm = o.Flag("fc_norm", false)
	c.NormOutput = o.Flag("norm_output", false)
	if c.NormOutput && !c.FCNorm && !speculators {
		o.Fail("norm_output = true is ambiguous: EAGLE-3.1 (which has fc_norm as well) means that drafting goes on from the normed state, " +
			"SpecForge that the norm before lm_head exists; remove the key if the drafter comes from SpecForge")
	}
}

// validate reports the first contradiction.
func (c *Config) validate() error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d attention heads are not a multiple of %d key/value heads", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("head dimension = %d: want an even number", c.HeadDim)
	case c.Heads*c.HeadDim > maxWidth:
		return fmt.Errorf("%d heads of %d are wider than %d", c.Heads, c.HeadDim, maxWidth)
	case c.DraftVocab > c.Vocab:
		return fmt.Errorf("draft_vocab_size = %d is larger than vocab_size = %d", c.DraftVocab, c.Vocab)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("rms_norm_eps = %v: want more than 0 and less than 1", c.NormEps)
	}
	return nil
}

// fits reports why a drafter cannot draft for a target.
func (c *Config) fits(t *model.Model, ids LayerIDs) error {
	m := t.Config()
	want, err := c.TapLayers(m.Layers, ids)
	switch {
	case err != nil:
		return err
	case c.TargetHidden != m.Hidden:
		return fmt.Errorf("the drafter is for a target of hidden size %d, this one has %d", c.TargetHidden, m.Hidden)
	case c.Vocab != m.Vocab:
		return fmt.Errorf("the drafter is for a vocabulary of %d tokens, the target has %d", c.Vocab, m.Vocab)
	case !slices.Equal(t.Options().TapLayers, want):
		return fmt.Errorf("the target was loaded with hidden states %v, the drafter needs %v", t.Options().TapLayers, want)
	}
	return nil
}
