"""Pieces of a forward pass that are worth fusing, and the choice of running them compiled or plainly.

Only element-wise pieces are compiled: each sees a fixed number of rows, so that each is compiled once, in a second or
two, whatever the batch's (sequences, length) is. Matrix products and attention stay library calls. On a CPU everything
runs plainly, which is also the reference that the tests compare with.
"""

import functools

import torch
import torch.nn.functional as F

# Rows that one call of a compiled piece sees in the loss. A batch's rows must be a multiple of it on a GPU. At 4096
# launching kernels takes longer than running them (97 against 53 ms a step on an H200 with batches of 24576 rows);
# more only costs memory (a tile of 8192 x 16384 logits is 512 MB in float32).
CHUNK = 8192

_compiled = False


def use_compiler(on):
    """Compiles the pieces from now on (True), or runs them plainly (False, the default)."""
    global _compiled
    _compiled = on
    if on:
        torch._dynamo.config.cache_size_limit = 256
        torch._dynamo.config.accumulated_cache_size_limit = 4096


def fused(fn):
    """Marks an element-wise piece: compiled for CUDA tensors once use_compiler(True) was called."""
    compiled = torch.compile(fn, dynamic=False)

    @functools.wraps(fn)
    def call(*args):
        return compiled(*args) if _compiled else fn(*args)
    return call


def norm(x, weight, eps):
    """RMSNorm in float32, as transformers' Llama computes it."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@fused
def norm_to(x, weight, like, eps):
    """norm(x), in the type of `like`."""
    return norm(x, weight, eps).to(like.dtype)


@fused
def add_norm(x, y, weight, eps):
    """The residual x + y (float32), and its norm in y's type."""
    r = x + y.float()
    return r, norm(r, weight, eps).to(y.dtype)


@fused
def add(x, y):
    """The residual x + y in float32."""
    return x + y.float()


@fused
def swiglu(gate_up):
    """silu(gate) * up, for gate and up side by side in the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotate(x, cos, sin):
    """Rotary embedding in Hugging Face's half-rotating layout. x: [rows, heads, dim]; cos, sin: [rows, dim/2]."""
    a, b = x.float().chunk(2, dim=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)


@fused
def split_rotate(qkv, cos, sin, heads, kv_heads, dim):
    """Splits [rows, (heads + 2 kv_heads) dim] into rotated q, rotated k, and v, each [rows, heads, dim]."""
    rows = qkv.shape[0]
    q, k, v = qkv.split((heads * dim, kv_heads * dim, kv_heads * dim), dim=-1)
    return (rotate(q.reshape(rows, heads, dim), cos, sin), rotate(k.reshape(rows, kv_heads, dim), cos, sin),
            v.reshape(rows, kv_heads, dim).contiguous())


def angles(positions, dim, theta):
    """cos and sin of the rotary angles at the given positions: two [rows, dim/2], float32."""
    inverse = theta ** (-torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim)
    phase = positions.double()[:, None] * inverse
    return phase.cos().float(), phase.sin().float()


def matmul_f32(x, w):
    """x @ w.T with a float32 result, whatever the operands' type: near-ties between logits survive."""
    if x.dtype == torch.float32:
        return x @ w.T
    if x.is_cuda:
        return torch.mm(x, w.T, out_dtype=torch.float32)
    return x.float() @ w.float().T
