"""The drafter: EAGLE-3's single layer, and its unrolled pass over whole sequences.

Row t of a sequence x takes the token x[t+1] and the target's features at t, and predicts x[t+2]. Step s of the
unrolled pass takes x[t+1+s] and the row's own state from the step before, and predicts x[t+2+s]. As a draft is
accepted only while all before it were right, teacher forcing shows exactly the tokens of an accepted chain; so the
same pass trains the drafter and, in evaluate, simulates it.
"""

from dataclasses import dataclass, asdict

import torch
from torch import nn

from . import ops
from .attention import Unrolled


@dataclass
class Config:
    """Shape of a drafter. `ffn` counts inner features; everything else follows the target."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    draft_vocab: int
    rope_theta: float
    eps: float

    @classmethod
    def of(cls, shape, draft_vocab, widths=1):
        return cls(shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn * widths, shape.vocab,
                   draft_vocab, shape.rope_theta, shape.eps)

    def asdict(self):
        return asdict(self)


def shapes(c):
    """Parameter names (those of the checkpoint) and shapes."""
    layer = "midlayer."
    return {
        "fc.weight": (c.hidden, 3 * c.hidden),
        layer + "input_layernorm.weight": (c.hidden,), layer + "hidden_norm.weight": (c.hidden,),
        layer + "self_attn.q_proj.weight": (c.heads * c.head_dim, 2 * c.hidden),
        layer + "self_attn.k_proj.weight": (c.kv_heads * c.head_dim, 2 * c.hidden),
        layer + "self_attn.v_proj.weight": (c.kv_heads * c.head_dim, 2 * c.hidden),
        layer + "self_attn.o_proj.weight": (c.hidden, c.heads * c.head_dim),
        layer + "post_attention_layernorm.weight": (c.hidden,),
        layer + "mlp.gate_proj.weight": (c.ffn, c.hidden), layer + "mlp.up_proj.weight": (c.ffn, c.hidden),
        layer + "mlp.down_proj.weight": (c.hidden, c.ffn),
        "norm.weight": (c.hidden,), "lm_head.weight": (c.draft_vocab, c.hidden)}


def initial(c, seed, checkpoint=None, ids=None):
    """Initial parameters: normal(0.02); or, with the target's checkpoint, near the identity.

    Near the identity: fc passes the high tap on, attention and feed-forward come from the target's last layers (one
    for each width of the feed-forward layer), the norm and the head's rows from the target's end. The drafter then
    starts as a short cut through the target's end, in the target's own basis.
    """
    g = torch.Generator().manual_seed(seed)
    p = {n: torch.ones(s) if len(s) == 1 else torch.randn(s, generator=g) * 0.02 for n, s in shapes(c).items()}
    if checkpoint is None:
        return p
    w, s = checkpoint.weights, checkpoint.shape
    last = lambda name, back=1: w[f"layers.{s.layers - back}.{name}.weight"].float()
    h = c.hidden
    p["fc.weight"][:, 2 * h:] += torch.eye(h)
    p["fc.weight"] *= torch.tensor([0.1] * (2 * h) + [1.0] * h)
    for name in ("q_proj", "k_proj", "v_proj"):
        p[f"midlayer.self_attn.{name}.weight"][:, h:] = last(f"self_attn.{name}")
    p["midlayer.self_attn.o_proj.weight"] = last("self_attn.o_proj")
    p["midlayer.hidden_norm.weight"] = last("input_layernorm")
    p["midlayer.post_attention_layernorm.weight"] = last("post_attention_layernorm")
    widths = c.ffn // s.ffn
    for name, dim in (("gate_proj", 0), ("up_proj", 0), ("down_proj", 1)):
        p[f"midlayer.mlp.{name}.weight"] = torch.cat([last(f"mlp.{name}", b) for b in range(1, widths + 1)], dim)
    p["norm.weight"] = w["norm.weight"].float()
    p["lm_head.weight"] = w.get("lm_head.weight", w["embed_tokens.weight"])[ids].float()
    return {n: t.clone() for n, t in p.items()}


class Drafter(nn.Module):
    """The drafter's parameters (float32) and its passes. `dtype` is the type that matrix products run in."""

    def __init__(self, config, parameters, embed, dtype=torch.float32):
        super().__init__()
        self.config, self.dtype = config, dtype
        self.names = {n: n.replace(".", "_") for n in shapes(config)}
        for name, attr in self.names.items():
            self.register_parameter(attr, nn.Parameter(parameters[name].float().to(embed.device)))
        self.embed = embed

    def weights(self):
        """Parameters by checkpoint name."""
        return {n: getattr(self, a) for n, a in self.names.items()}

    def cast(self):
        """The matrices in the working type, q, k, v and gate, up stacked; norms stay float32. Made once a step."""
        p = {n: (w.to(self.dtype) if w.dim() == 2 else w) for n, w in self.weights().items()}
        a, m = "midlayer.self_attn.", "midlayer.mlp."
        return {
            "fc": p["fc.weight"], "qkv": torch.cat([p[a + f"{x}_proj.weight"] for x in "qkv"]),
            "o": p[a + "o_proj.weight"], "gate_up": torch.cat([p[m + "gate_proj.weight"], p[m + "up_proj.weight"]]),
            "down": p[m + "down_proj.weight"], "head": p["lm_head.weight"], "norm": p["norm.weight"],
            "norm_e": p["midlayer.input_layernorm.weight"], "norm_s": p["midlayer.hidden_norm.weight"],
            "norm_m": p["midlayer.post_attention_layernorm.weight"]}

    def unroll(self, w, taps, tokens, steps):
        """Yields, for each step, the normed states [rows, hidden] that the head multiplies.

        w: from cast(). taps: [batch * length, 3 * hidden]. tokens: [batch, length], padded with anything.
        """
        c, (batch, length) = self.config, tokens.shape
        like = torch.empty(0, dtype=self.dtype, device=taps.device)
        positions = torch.arange(length, device=taps.device).repeat(batch)
        state = (taps.to(self.dtype) @ w["fc"].T).float()
        own = []
        for s in range(steps):
            shifted = torch.zeros_like(tokens)
            shifted[:, :length - 1 - s] = tokens[:, 1 + s:]
            e = ops.norm_to(self.embed[shifted.reshape(-1)], w["norm_e"], like, c.eps)
            h = ops.norm_to(state, w["norm_s"], like, c.eps)
            cos, sin = ops.angles(positions + s, c.head_dim, c.rope_theta)
            q, k, v = ops.split_rotate(torch.cat((e, h), -1) @ w["qkv"].T, cos, sin, c.heads, c.kv_heads, c.head_dim)
            if s == 0:
                group = c.heads // c.kv_heads
                k0, v0 = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            else:
                own += [k, v]
            a = Unrolled.apply(batch, q, k0, v0, *own).reshape(batch * length, -1)
            r, m = ops.add_norm(state, a @ w["o"].T, w["norm_m"], c.eps)
            state = ops.add(r, ops.swiglu(m @ w["gate_up"].T) @ w["down"].T)
            yield ops.norm_to(state, w["norm"], like, c.eps)

    @torch.no_grad()
    def trace(self, taps, tokens, positions, state=None, cache=None):
        """One plain pass over consecutive rows, as an engine runs it, with every intermediate tensor.

        Give taps [rows, 3 * hidden] to extend, or `state` [rows, hidden] to draft. tokens, positions: [rows].
        cache: (k, v) of the rows before, or None. Returns a dict of tensors; "cache" is the new cache.
        """
        c, w = self.config, self.cast()
        out = {}
        if state is None:
            state = (taps.to(self.dtype) @ w["fc"].T).float()
            out["fc"] = state
        e = ops.norm(self.embed[tokens], w["norm_e"], c.eps).to(self.dtype)
        h = ops.norm(state, w["norm_s"], c.eps).to(self.dtype)
        cos, sin = ops.angles(positions, c.head_dim, c.rope_theta)
        q, k, v = ops.split_rotate(torch.cat((e, h), -1) @ w["qkv"].T, cos, sin, c.heads, c.kv_heads, c.head_dim)
        keys = k if cache is None else torch.cat((cache[0], k))
        values = v if cache is None else torch.cat((cache[1], v))
        group, past = c.heads // c.kv_heads, len(keys) - len(k)
        scores = torch.einsum("qhd,khd->hqk", q.float(), keys.float().repeat_interleave(group, 1)) * c.head_dim ** -0.5
        unseen = torch.arange(len(keys), device=q.device)[None, :] > past + torch.arange(len(q), device=q.device)[:, None]
        p = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        a = torch.einsum("hqk,khd->qhd", p, values.float().repeat_interleave(group, 1)).reshape(len(q), -1)
        r, m = ops.add_norm(state, a.to(self.dtype) @ w["o"].T, w["norm_m"], c.eps)
        pre = ops.add(r, ops.swiglu(m @ w["gate_up"].T) @ w["down"].T)
        logits = ops.matmul_f32(ops.norm(pre, w["norm"], c.eps).to(self.dtype), w["head"])
        out.update(embed_norm=e, hidden_norm=h, q=q, k=k, v=v, attention=a, residual=r, prenorm=pre, logits=logits)
        out["cache"] = (keys, values)
        return out
