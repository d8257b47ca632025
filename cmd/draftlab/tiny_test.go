package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"draftlab/engine/quant"
	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// The tiny model recites the alphabet: whatever the prompt, its next token depends on the last one alone. Its layer's
// weights are zeros, so that a token's embedding reaches the head as it is, and row n of the head is the
// embedding of the token that n follows.

// tinyBytes are the tokens of single bytes; the tiny model's ids run through these, then through tinySpecial.
const tinyBytes = 256

var tinySpecial = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

const (
	tinyHidden  = 64
	tinyContext = 1024          // above what microbench needs
	tinyEnd     = tinyBytes + 2 // <|im_end|>
)

const tinyChat = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// tinyNext returns the token that the tiny model writes after one: the alphabet after a line's end, then the end
// of the turn. Every other token is followed by its neighbour, and what lost its neighbour to the alphabet by what
// that displaced: no two tokens have the same successor.
func tinyNext(id int) int {
	switch id {
	case '\n':
		return 'a'
	case 'a' - 1:
		return '\n' + 1
	case 'z':
		return tinyEnd
	case tinyEnd - 1:
		return 'z' + 1
	case tinyEnd:
		return 0
	}
	return id + 1
}

// tinyGGUF returns the file of the tiny model.
var tinyGGUF = sync.OnceValue(func() []byte { return writeGGUF(tinyKeys(), tinyTensors()) })

// deepGGUF returns the file of a model that writes the same with as many layers as a drafter taps, and more: a client that is kept waiting
// for a processor must not find an answer of 26 letters there as a whole, which would tell it no speed.
var deepGGUF = sync.OnceValue(func() []byte { return layeredGGUF(60) })

// layeredGGUF returns the file of a model that writes the same with so many layers.
func layeredGGUF(layers int) []byte {
	keys, list := tinyKeys(), tinyTensors()
	for i := range keys {
		if keys[i].Key == "llama.block_count" {
			keys[i].Value = uint32(layers)
		}
	}
	for _, t := range list {
		name, ofLayer := strings.CutPrefix(t.Name, "blk.0.")
		for l := 1; l < layers && ofLayer; l++ {
			t.Name = fmt.Sprintf("blk.%d.%s", l, name)
			list = append(list, t)
		}
	}
	return writeGGUF(keys, list)
}

func writeGGUF(keys []weights.KeyValue, tensors []weights.Tensor) []byte {
	var b bytes.Buffer
	if err := weights.WriteGGUF(&b, keys, tensors); err != nil {
		panic("tiny_test: " + err.Error())
	}
	return b.Bytes()
}

func tinyKeys() []weights.KeyValue {
	var tokens []string
	var types []int32
	for b := range tinyBytes {
		tokens, types = append(tokens, byteSymbol(b)), append(types, tokenizer.TypeNormal)
	}
	for _, s := range tinySpecial {
		tokens, types = append(tokens, s), append(types, tokenizer.TypeControl)
	}
	return []weights.KeyValue{
		{Key: "general.architecture", Value: "llama"},
		{Key: "llama.block_count", Value: uint32(1)},
		{Key: "llama.context_length", Value: uint32(tinyContext)},
		{Key: "llama.embedding_length", Value: uint32(tinyHidden)},
		{Key: "llama.feed_forward_length", Value: uint32(96)},
		{Key: "llama.attention.head_count", Value: uint32(4)},
		{Key: "llama.attention.head_count_kv", Value: uint32(2)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "llama.rope.freq_base", Value: float32(10000)},
		{Key: "llama.vocab_size", Value: uint32(len(tokens))},
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: "smollm"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: []string{}},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(tinyEnd)},
		{Key: "tokenizer.chat_template", Value: tinyChat},
	}
}

// byteSymbol returns the character that stands for a byte in a byte-level vocabulary: itself if it can be seen, else
// the next free one from 256 on (GPT-2's rule).
func byteSymbol(b int) string {
	seen := func(b int) bool { return b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad }
	if seen(b) {
		return string(rune(b))
	}
	free := 256
	for c := range b {
		if !seen(c) {
			free++
		}
	}
	return string(rune(free))
}

func tinyTensors() []weights.Tensor {
	rng := rand.New(rand.NewPCG(7, 7))
	vocab := tinyBytes + len(tinySpecial)
	embed, head := make([]float32, vocab*tinyHidden), make([]float32, vocab*tinyHidden)
	for i := range embed {
		embed[i] = float32(rng.IntN(2)*2 - 1)
	}
	for id := range vocab {
		copy(head[tinyNext(id)*tinyHidden:][:tinyHidden], embed[id*tinyHidden:])
	}
	list := []weights.Tensor{
		tinyTensor("token_embd.weight", quant.Q8_0, embed, vocab, tinyHidden),
		tinyTensor("output.weight", quant.Q8_0, head, vocab, tinyHidden),
	}
	for _, name := range []string{"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"} {
		ones := make([]float32, tinyHidden)
		for i := range ones {
			ones[i] = 1
		}
		list = append(list, tinyTensor(name+".weight", quant.F32, ones, tinyHidden))
	}
	for _, m := range []struct {
		name       string
		rows, cols int
	}{
		{"attn_q", 64, tinyHidden}, {"attn_k", 32, tinyHidden}, {"attn_v", 32, tinyHidden}, {"attn_output", tinyHidden, 64},
		{"ffn_gate", 96, tinyHidden}, {"ffn_up", 96, tinyHidden}, {"ffn_down", tinyHidden, 96},
	} {
		list = append(list, tinyTensor(fmt.Sprintf("blk.0.%s.weight", m.name), quant.Q4_1, make([]float32, m.rows*m.cols), m.rows, m.cols))
	}
	return list
}

func tinyTensor(name string, typ quant.Type, values []float32, shape ...int) weights.Tensor {
	t, err := weights.FromFloats(name, typ, values, shape...)
	if err != nil {
		panic("tiny_test: " + err.Error())
	}
	return t
}
