"""The target: a plain Llama that runs as transformers' does, over whole sequences or one token at a time.

Weights are float16 on a GPU, so that the dequantised values keep 11 bits (bfloat16 would round them to 8 and move
near-ties away from what the engine computes); the residual stream is float32.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from . import decode, ops


@dataclass
class Layer:
    """One layer's weights; qkv and gate_up are stacked along their outputs."""
    norm1: torch.Tensor
    qkv: torch.Tensor
    o: torch.Tensor
    norm2: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Target:
    """A target on a device. `embed` and `head` are [vocab, hidden]; they are one tensor when tied."""

    def __init__(self, checkpoint, device="cpu", dtype=torch.float32):
        w = {k: v.to(device) for k, v in checkpoint.weights.items()}
        self.shape, self.device, self.dtype = checkpoint.shape, torch.device(device), dtype
        self.embed = w["embed_tokens.weight"].to(dtype)
        self.head = w["lm_head.weight"].to(dtype) if "lm_head.weight" in w else self.embed
        self.norm = w["norm.weight"].float()
        self.layers = []
        for i in range(self.shape.layers):
            get = lambda name: w[f"layers.{i}.{name}.weight"]
            stack = lambda *names: torch.cat([get(n) for n in names]).to(dtype)
            self.layers.append(Layer(
                get("input_layernorm").float(), stack("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                stack("self_attn.o_proj"), get("post_attention_layernorm").float(),
                stack("mlp.gate_proj", "mlp.up_proj"), stack("mlp.down_proj")))

    @torch.no_grad()
    def forward(self, tokens):
        """Runs whole sequences: tokens [batch, length], causal, positions from 0.

        Returns (taps, hidden): the residual streams at the inputs of shape.taps side by side, [batch * length,
        3 * hidden] float32, and the normed final state that the head multiplies, [batch * length, hidden].
        """
        s, (batch, length) = self.shape, tokens.shape
        positions = torch.arange(length, device=tokens.device).repeat(batch)
        cos, sin = ops.angles(positions, s.head_dim, s.rope_theta)
        x = self.embed[tokens.reshape(-1)].float()
        h = ops.norm_to(x, self.layers[0].norm1, self.embed, s.eps)
        taps = []
        for i, layer in enumerate(self.layers):
            if i in s.taps:
                taps.append(x)
            q, k, v = ops.split_rotate(h @ layer.qkv.T, cos, sin, s.heads, s.kv_heads, s.head_dim)
            q, k, v = (t.view(batch, length, -1, s.head_dim).transpose(1, 2) for t in (q, k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            a = a.transpose(1, 2).reshape(batch * length, -1)
            x, h = ops.add_norm(x, a @ layer.o.T, layer.norm2, s.eps)
            m = ops.swiglu(h @ layer.gate_up.T) @ layer.down.T
            following = self.layers[i + 1].norm1 if i + 1 < s.layers else self.norm
            x, h = ops.add_norm(x, m, following, s.eps)
        return torch.cat([taps[sorted(s.taps).index(t)] for t in s.taps], dim=-1), h

    @torch.no_grad()
    def argmax(self, hidden):
        """The target's greedy choice for each row of normed hidden states."""
        return torch.cat([ops.matmul_f32(h, self.head).argmax(-1) for h in hidden.split(ops.CHUNK)])


class Decoder:
    """Decodes many sequences in lockstep, one token each a step, with a static cache that CUDA graphs can capture."""

    def __init__(self, target, slots, length):
        s = target.shape
        self.target, self.length = target, length
        shape = (s.layers, slots, s.kv_heads, length, s.head_dim)
        self.keys = torch.zeros(shape, device=target.device, dtype=target.dtype)
        self.values = torch.zeros(shape, device=target.device, dtype=target.dtype)
        self.cos, self.sin = ops.angles(torch.arange(length, device=target.device), s.head_dim, s.rope_theta)

    @torch.no_grad()
    def step(self, tokens, positions):
        """Appends one token a slot at the given positions and returns the logits after it, [slots, vocab] float32.

        A slot sees the cache rows below its position and nothing else, so a slot starts anew by going back.
        """
        t, s = self.target, self.target.shape
        x = t.embed[tokens].float()
        h = ops.norm_to(x, t.layers[0].norm1, t.embed, s.eps)
        for i, layer in enumerate(t.layers):
            a = decode.attend(h @ layer.qkv.T, self.keys[i], self.values[i], positions, self.cos, self.sin, s.heads)
            x, h = ops.add_norm(x, a @ layer.o.T, layer.norm2, s.eps)
            m = ops.swiglu(h @ layer.gate_up.T) @ layer.down.T
            following = t.layers[i + 1].norm1 if i + 1 < s.layers else t.norm
            x, h = ops.add_norm(x, m, following, s.eps)
        return ops.matmul_f32(h, t.head)
