package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// The shape of the model that exportFiles writes.
const (
	exportLayers, exportHidden, exportHeads, exportKV, exportDim = 7, 32, 2, 1, 16
	exportVocab                                                  = 264 // 256 bytes, four tokens, padding
)

// exportFiles writes a whole tiny model and an EAGLE-3 drafter for it, all of zeros: exportfiles MODEL.gguf DRAFTER_DIR.
func exportFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: exportfiles MODEL.gguf DRAFTER_DIR")
	}
	ts.Check(writeExportFiles(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

func writeExportFiles(model, drafter string) error {
	var target, draft bytes.Buffer
	config := fmt.Appendf(nil, `{"architectures": ["LlamaForCausalLMEagle3"],
"model_type": "llama", "hidden_size": %d, "intermediate_size": %[1]d, "num_hidden_layers": 1, "num_attention_heads": %d,
"num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, "draft_vocab_size": 2, "rms_norm_eps": 1e-5}`,
		exportHidden, exportHeads, exportKV, exportDim, exportVocab)
	return firstError(weights.WriteGGUF(&target, exportKeys(), exportTensors()), weights.WriteSafetensors(&draft, nil, exportDrafter()), os.MkdirAll(drafter, 0o755),
		os.WriteFile(model, target.Bytes(), 0o644), os.WriteFile(filepath.Join(drafter, "model.safetensors"), draft.Bytes(), 0o644),
		os.WriteFile(filepath.Join(drafter, "config.json"), config, 0o644))
}

// zeroTensor returns a tensor of zeros.
func zeroTensor(name string, typ quant.Type, shape ...int) weights.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return weights.Tensor{Name: name, Type: typ, Shape: shape, Data: make([]byte, n/typ.BlockElems()*typ.BlockBytes())}
}

func exportKeys() []weights.KeyValue {
	var tokens []string
	for b := range exportVocab { // bytes in the alphabet of byte-level vocabularies, whatever their order
		switch {
		case b < 94:
			tokens = append(tokens, string(rune('!'+b)))
		case b < 256:
			tokens = append(tokens, string(rune(0xa1+b-94+(b-94)/12)))
		default:
			tokens = append(tokens, fmt.Sprintf("[PAD%d]", b))
		}
	}
	types := bytes.Repeat([]byte{1}, 256)
	types = append(types, bytes.Repeat([]byte{5}, exportVocab-256)...)
	tokens[256], types[256] = "<|endoftext|>", 3
	return []weights.KeyValue{
		{Key: "general.architecture", Value: "llama"},
		{Key: "llama.block_count", Value: uint32(exportLayers)},
		{Key: "llama.context_length", Value: uint32(128)},
		{Key: "llama.embedding_length", Value: uint32(exportHidden)},
		{Key: "llama.feed_forward_length", Value: uint32(exportHidden)},
		{Key: "llama.attention.head_count", Value: uint32(exportHeads)},
		{Key: "llama.attention.head_count_kv", Value: uint32(exportKV)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: "gpt-2"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: []string{}},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(256)},
		{Key: "tokenizer.chat_template", Value: "{{ messages[0]['content'] }}"},
	}
}

func exportTensors() []weights.Tensor {
	const h, q, kv = exportHidden, exportHeads * exportDim, exportKV * exportDim
	list := []weights.Tensor{zeroTensor("token_embd.weight", quant.Q8_0, exportVocab, h), zeroTensor("output_norm.weight", quant.F32, h)}
	for l := range exportLayers {
		b := fmt.Sprintf("blk.%d.", l)
		list = append(list,
			zeroTensor(b+"attn_norm.weight", quant.F32, h), zeroTensor(b+"attn_q.weight", quant.Q4_1, q, h),
			zeroTensor(b+"attn_k.weight", quant.Q4_1, kv, h), zeroTensor(b+"attn_v.weight", quant.Q4_1, kv, h),
			zeroTensor(b+"attn_output.weight", quant.Q4_1, h, q), zeroTensor(b+"ffn_norm.weight", quant.F32, h),
			zeroTensor(b+"ffn_gate.weight", quant.Q4_1, h, h), zeroTensor(b+"ffn_up.weight", quant.Q4_1, h, h),
			zeroTensor(b+"ffn_down.weight", quant.Q4_1, h, h))
	}
	return list
}

func exportDrafter() []weights.Tensor {
	const h, q, kv = exportHidden, exportHeads * exportDim, exportKV * exportDim
	const layer, attn, mlp = "midlayer.", "midlayer.self_attn.", "midlayer.mlp."
	return []weights.Tensor{
		zeroTensor("fc.weight", quant.BF16, h, 3*h),
		zeroTensor(layer+"input_layernorm.weight", quant.BF16, h), zeroTensor(layer+"hidden_norm.weight", quant.BF16, h),
		zeroTensor(layer+"post_attention_layernorm.weight", quant.BF16, h), zeroTensor("norm.weight", quant.BF16, h),
		zeroTensor(attn+"q_proj.weight", quant.BF16, q, 2*h), zeroTensor(attn+"k_proj.weight", quant.BF16, kv, 2*h),
		zeroTensor(attn+"v_proj.weight", quant.BF16, kv, 2*h), zeroTensor(attn+"o_proj.weight", quant.BF16, h, q),
		zeroTensor(mlp+"gate_proj.weight", quant.BF16, h, h), zeroTensor(mlp+"up_proj.weight", quant.BF16, h, h),
		zeroTensor(mlp+"down_proj.weight", quant.BF16, h, h), zeroTensor("lm_head.weight", quant.BF16, 2, h),
		weights.FromInts("d2t", []int64{5, 100}, 2),
	}
}
