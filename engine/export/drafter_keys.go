package export

import (
	"fmt"
	"path/filepath"
	"strings"

	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// fileTypes are GGUF's general.file_type of each type that matrices are written in.
var fileTypes = map[quant.Type]uint32{quant.F32: 0, quant.F16: 1, quant.Q8_0: 7, quant.BF16: 32}

// drafterKeys returns the metadata: the drafter's hyper-parameters, as llama.cpp's loader of the architecture eagle3
// reads them, and the target's tokenizer section.
func drafterKeys(d *eagle3.Checkpoint, target *weights.File, o DrafterOptions) ([]weights.KeyValue, error) {
	cfg, err := model.ReadConfig(target)
	if err != nil {
		return nil, err
	}
	c := &d.Config
	if err := runnable(c, cfg, target.Path()); err != nil {
		return nil, err
	}
	taps, err := c.TapLayers(cfg.Layers, o.LayerIDs)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Abs(d.File().Dir())
	if err != nil {
		return nil, err
	}
	var keys []weights.KeyValue
	add := func(key string, v any) { keys = append(keys, weights.KeyValue{Key: key, Value: v}) }
	add("general.architecture", "eagle3")
	add("general.type", "model")
	add("general.name", strings.ToValidUTF8(filepath.Base(name), "_"))
	add("general.file_type", fileTypes[o.Type])
	add("general.quantization_version", uint32(2)) // of ggml's block formats
	for _, f := range []struct {
		key string
		v   int
	}{
		{"vocab_size", c.Vocab},
		{"context_length", cfg.MaxContext}, // the drafter follows its target to the end
		{"embedding_length", c.Hidden},
		{"block_count", 1},
		{"feed_forward_length", c.FFN},
		{"attention.head_count", c.Heads},
		{"attention.head_count_kv", c.KVHeads},
		{"attention.key_length", c.HeadDim},
		{"attention.value_length", c.HeadDim},
		{"rope.dimension_count", c.HeadDim},
		{"target_hidden_size", c.TargetHidden},
	} {
		add("eagle3."+f.key, uint32(f.v))
	}
	layers := make([]int32, len(taps))
	for i, l := range taps {
		layers[i] = int32(l)
	}
	add("eagle3.target_layers", layers)
	add("eagle3.attention.layer_norm_rms_epsilon", c.NormEps)
	add("eagle3.rope.freq_base", float32(c.Rope.Theta))
	add("eagle3.norm_before_residual", c.NormBeforeResidual)
	add("eagle3.norm_before_fc", c.NormBeforeFC)
	if c.Rope.Scaling.Kind == model.RopeLinear {
		add("eagle3.rope.scaling.type", "linear")
		add("eagle3.rope.scaling.factor", float32(c.Rope.Scaling.Factor))
	}
	return appendTokenizer(keys, target)
}

// runnable reports why llama.cpp cannot run the drafter for the target.
func runnable(c *eagle3.Config, target model.Config, path string) error {
	switch {
	case c.FCNorm:
		return fmt.Errorf("fc_norm = true: llama.cpp does not run it")
	case c.NormOutput:
		return fmt.Errorf("norm_output = true: llama.cpp does not run it")
	case c.Vocab != target.Vocab:
		return fmt.Errorf("vocab_size = %d, but the target %s has %d", c.Vocab, path, target.Vocab)
	case c.TargetHidden != target.Hidden:
		return fmt.Errorf("the drafter reads hidden states of width %d, but those of the target %s have %d", c.TargetHidden, path, target.Hidden)
	}
	return nil
}

// appendTokenizer copies every key of the target's tokenizer section.
func appendTokenizer(keys []weights.KeyValue, target *weights.File) ([]weights.KeyValue, error) {
	if !hasVocabulary(target) {
		return nil, fmt.Errorf("the target %s has no tokenizer section", target.Path())
	}
	meta := target.Meta()
	for _, key := range meta.Keys() {
		if strings.HasPrefix(key, "tokenizer.") {
			v, _ := meta.Value(key) // it is one of Keys
			keys = append(keys, weights.KeyValue{Key: key, Value: v})
		}
	}
	return keys, nil
}
