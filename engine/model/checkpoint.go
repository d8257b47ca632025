package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"draftlab/engine/weights"
)

// CheckpointTensor is one tensor of a model as a Hugging Face checkpoint names and orders it.
type CheckpointTensor struct {
	Name   string         // the checkpoint's
	Source weights.Tensor // where its values lie; the shape is the same
	// RowOrder, if not nil, is the row of Source from which each row comes: it undoes the rotary permutation of
	// a Llama GGUF's q and k.
	RowOrder []int32
}

// CheckpointTensors lists the tensors of a GGUF model, of which c is the configuration, as a Hugging Face checkpoint
// has them: global ones first, then layer by layer. A head that is tied to the embedding is not among them. The
// checks are those of [Load]: every tensor there, in its shape, and none left over.
func CheckpointTensors(f *weights.File, c Config) ([]CheckpointTensor, error) {
	if f.Format() != "gguf" {
		return nil, fmt.Errorf("%s: the model is a Hugging Face checkpoint already", f.Path())
	}
	if err := checkTensors(f, &c, &ggufNames); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	order := map[role][]int32{}
	if c.Arch == Llama {
		order[roleQ] = interleaved(c.Heads, c.HeadDim)
		order[roleK] = interleaved(c.KVHeads, c.HeadDim)
	}
	var list []CheckpointTensor
	add := func(r role, l int) {
		t, _ := f.Tensor(ggufNames.name(r, l)) // checkTensors has seen it
		list = append(list, CheckpointTensor{Name: hfNames.name(r, l), Source: t, RowOrder: order[r]})
	}
	for _, r := range c.globalRoles() {
		add(r, 0)
	}
	for l := range c.Layers {
		for _, r := range c.layerRoles() {
			add(r, l)
		}
	}
	return list, nil
}

// CheckpointConfig returns the text of the config.json that describes c, for weights of the given torch type
// ("float32", "bfloat16", "float16"). Reading it back gives c, but for rotary divisors, which become the llama3
// rule that they were made by. It is an error, which names the hyper-parameter, if config.json has no way to say it.
func (c Config) CheckpointConfig(torchType string) ([]byte, error) {
	rope, err := c.checkpointRope()
	if err != nil {
		return nil, err
	}
	if c.Window > 0 && c.Arch != Llama {
		return nil, fmt.Errorf("attention.sliding_window = %d: a %s GGUF does not say which layers have the window, which config.json must", c.Window, c.Arch)
	}
	modelType, class := string(c.Arch), map[Arch]string{Llama: "LlamaForCausalLM", Qwen2: "Qwen2ForCausalLM", Qwen3: "Qwen3ForCausalLM"}[c.Arch]
	if c.Window > 0 { // Llama with a window in every layer is Mistral
		modelType, class = "mistral", "MistralForCausalLM"
	}
	var o orderedObject
	o.add("architectures", []string{class})
	o.add("model_type", modelType)
	o.add("hidden_size", c.Hidden)
	o.add("intermediate_size", c.FFN)
	o.add("num_hidden_layers", c.Layers)
	o.add("num_attention_heads", c.Heads)
	o.add("num_key_value_heads", c.KVHeads)
	o.add("head_dim", c.HeadDim)
	o.add("vocab_size", c.Vocab)
	o.add("max_position_embeddings", c.MaxContext)
	o.add("hidden_act", "silu")
	o.add("rms_norm_eps", json.RawMessage(strconv.FormatFloat(float64(c.NormEps), 'g', -1, 32)))
	o.add("rope_theta", float(c.Rope.Theta))
	o.add("rope_scaling", rope)
	if modelType != "qwen2" {
		o.add("attention_bias", false)
	}
	switch modelType {
	case "llama":
		o.add("mlp_bias", false)
	case "mistral":
		o.add("sliding_window", c.Window)
	default:
		o.add("use_sliding_window", false)
	}
	o.add("tie_word_embeddings", c.TiedHead)
	if c.BOS >= 0 {
		o.add("bos_token_id", c.BOS)
	}
	switch len(c.EOS) {
	case 0:
	case 1:
		o.add("eos_token_id", c.EOS[0])
	default:
		o.add("eos_token_id", c.EOS)
	}
	o.add("torch_dtype", torchType)
	return o.text(), nil
}

// float is a number that JSON shows to be one: transformers refuses a whole number where it wants a float.
type float float64

// MarshalJSON writes 8 as 8.0.
func (f float) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat(nil, float64(f), 'g', -1, 64)
	if !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b, nil
}

// orderedObject is a JSON object whose members keep their order, for files that people read.
type orderedObject struct{ members bytes.Buffer }

func (o *orderedObject) add(key string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("model: " + err.Error()) // plain data
	}
	if o.members.Len() > 0 {
		o.members.WriteString(",\n")
	}
	fmt.Fprintf(&o.members, "  %q: %s", key, text)
}

func (o *orderedObject) text() []byte { return []byte("{\n" + o.members.String() + "\n}\n") }
