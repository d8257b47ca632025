package model

import (
	"fmt"
	"strings"
)

// role is a tensor's part in the model. Files name roles differently; see ggufNames and hfNames.
type role uint8

const (
	roleEmbed    role = iota // [Vocab, Hidden]
	roleHead                 // [Vocab, Hidden]; absent if tied
	roleOutNorm              // [Hidden]
	roleAttnNorm             // [Hidden], as all below in each layer
	roleQ                    // [Heads·HeadDim, Hidden]
	roleK                    // [KVHeads·HeadDim, Hidden]
	roleV                    // [KVHeads·HeadDim, Hidden]
	roleO                    // [Hidden, Heads·HeadDim]
	roleQBias                // [Heads·HeadDim]
	roleKBias                // [KVHeads·HeadDim]
	roleVBias                // [KVHeads·HeadDim]
	roleQNorm                // [HeadDim]
	roleKNorm                // [HeadDim]
	roleFFNNorm              // [Hidden]
	roleGate                 // [FFN, Hidden]
	roleUp                   // [FFN, Hidden]
	roleDown                 // [Hidden, FFN]
	numRoles
)

// naming maps roles to the tensor names of a file format; "*" stands for the layer's number.
type naming [numRoles]string

var ggufNames = naming{
	roleEmbed:    "token_embd.weight",
	roleHead:     "output.weight",
	roleOutNorm:  "output_norm.weight",
	roleAttnNorm: "blk.*.attn_norm.weight",
	roleQ:        "blk.*.attn_q.weight",
	roleK:        "blk.*.attn_k.weight",
	roleV:        "blk.*.attn_v.weight",
	roleO:        "blk.*.attn_output.weight",
	roleQBias:    "blk.*.attn_q.bias",
	roleKBias:    "blk.*.attn_k.bias",
	roleVBias:    "blk.*.attn_v.bias",
	roleQNorm:    "blk.*.attn_q_norm.weight",
	roleKNorm:    "blk.*.attn_k_norm.weight",
	roleFFNNorm:  "blk.*.ffn_norm.weight",
	roleGate:     "blk.*.ffn_gate.weight",
	roleUp:       "blk.*.ffn_up.weight",
	roleDown:     "blk.*.ffn_down.weight",
}

var hfNames = naming{
	roleEmbed:    "model.embed_tokens.weight",
	roleHead:     "lm_head.weight",
	roleOutNorm:  "model.norm.weight",
	roleAttnNorm: "model.layers.*.input_layernorm.weight",
	roleQ:        "model.layers.*.self_attn.q_proj.weight",
	roleK:        "model.layers.*.self_attn.k_proj.weight",
	roleV:        "model.layers.*.self_attn.v_proj.weight",
	roleO:        "model.layers.*.self_attn.o_proj.weight",
	roleQBias:    "model.layers.*.self_attn.q_proj.bias",
	roleKBias:    "model.layers.*.self_attn.k_proj.bias",
	roleVBias:    "model.layers.*.self_attn.v_proj.bias",
	roleQNorm:    "model.layers.*.self_attn.q_norm.weight",
	roleKNorm:    "model.layers.*.self_attn.k_norm.weight",
	roleFFNNorm:  "model.layers.*.post_attention_layernorm.weight",
	roleGate:     "model.layers.*.mlp.gate_proj.weight",
	roleUp:       "model.layers.*.mlp.up_proj.weight",
	roleDown:     "model.layers.*.mlp.down_proj.weight",
}

// ropeDivisors is the GGUF tensor that holds RopeScaling.Divisors.
const ropeDivisors = "rope_freqs.weight"

// name returns the name of a role's tensor in layer l (ignored by the three that belong to no layer).
func (n *naming) name(r role, l int) string {
	return strings.Replace(n[r], "*", fmt.Sprint(l), 1)
}

// harmless reports whether a tensor that nothing asks for may lie in a file all the same: tables of
// rotary frequencies, which old exports carry and which follow from the configuration.
func harmless(name string) bool {
	for _, p := range [][2]string{
		{"model.layers.", ".self_attn.rotary_emb.inv_freq"},
		{"blk.", ".attn_rot_embd.weight"},
	} {
		if strings.HasPrefix(name, p[0]) && strings.HasSuffix(name, p[1]) {
			return true
		}
	}
	return name == "model.rotary_emb.inv_freq"
}

// shape returns the sizes of a role's tensor: [rows, cols], or [n] for a vector.
func (c *Config) shape(r role) []int {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	switch r {
	case roleEmbed, roleHead:
		return []int{c.Vocab, c.Hidden}
	case roleOutNorm, roleAttnNorm, roleFFNNorm:
		return []int{c.Hidden}
	case roleQ:
		return []int{q, c.Hidden}
	case roleK, roleV:
		return []int{kv, c.Hidden}
	case roleO:
		return []int{c.Hidden, q}
	case roleQBias:
		return []int{q}
	case roleKBias, roleVBias:
		return []int{kv}
	case roleQNorm, roleKNorm:
		return []int{c.HeadDim}
	case roleGate, roleUp:
		return []int{c.FFN, c.Hidden}
	case roleDown:
		return []int{c.Hidden, c.FFN}
	}
	panic(fmt.Sprintf("model: no shape for role %d", r))
}

// globalRoles and layerRoles list the tensors that a model of this configuration consists of.
func (c *Config) globalRoles() []role {
	if c.TiedHead {
		return []role{roleEmbed, roleOutNorm}
	}
	return []role{roleEmbed, roleOutNorm, roleHead}
}

func (c *Config) layerRoles() []role {
	rs := []role{roleAttnNorm, roleQ, roleK, roleV, roleO, roleFFNNorm, roleGate, roleUp, roleDown}
	if c.QKVBias {
		rs = append(rs, roleQBias, roleKBias, roleVBias)
	}
	if c.QKNorm {
		rs = append(rs, roleQNorm, roleKNorm)
	}
	return rs
}

// interleaved returns the row order that undoes GGUF's rotary permutation of a Llama q or k matrix: rows
// of each head lie there as the pairs (x₀, x_half), (x₁, x_half+1) …, since llama.cpp rotates neighbours,
// and the device rotates halves.
func interleaved(heads, headDim int) []int32 {
	half := headDim / 2
	order := make([]int32, heads*headDim)
	for r := range order {
		h, in := r/headDim, r%headDim
		order[r] = int32(h*headDim + 2*(in%half) + in/half)
	}
	return order
}
