"""Attention of one new token a slot over a static cache: rotate, append, attend; in Triton on CUDA, plainly elsewhere."""

import torch

from . import ops

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch comes without Triton
    triton = None

# Cache rows that one turn of the kernel's loop reads; 64 x 64 half-precision keys are 8 KB.
BLOCK = 64


def attend(qkv, keys, values, positions, cos, sin, heads):
    """One step of attention.

    qkv: [slots, (heads + 2 kv_heads) * dim], not rotated. keys, values: [slots, kv_heads, length, dim], written at
    `positions` [slots]. cos, sin: [length, dim/2]. Returns [slots, heads * dim] in qkv's type.
    """
    if qkv.is_cuda:
        return _attend_triton(qkv, keys, values, positions, cos, sin, heads)
    slots, kv_heads, length, dim = keys.shape
    q, k, v = ops.split_rotate(qkv, cos[positions], sin[positions], heads, kv_heads, dim)
    rows = torch.arange(slots, device=qkv.device)
    keys[rows, :, positions] = k
    values[rows, :, positions] = v
    q = q.view(slots, kv_heads, heads // kv_heads, dim).float()
    scores = q @ keys.float().transpose(2, 3) * dim ** -0.5
    hidden = torch.arange(length, device=qkv.device)[None, :] > positions[:, None]
    scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
    return (scores.softmax(-1) @ values.float()).reshape(slots, heads * dim).to(qkv.dtype)


if triton is not None:
    @triton.jit
    def _kernel(qkv, keys, values, positions, cos, sin, out, length, stride,
                HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
        # One program a (slot, key/value head): its GROUP query heads, padded to the 16 rows that tl.dot asks for.
        slot = tl.program_id(0).to(tl.int64)
        head = tl.program_id(1)
        HALF: tl.constexpr = DIM // 2
        at = tl.load(positions + slot).to(tl.int32)
        half = tl.arange(0, HALF)
        rows = tl.arange(0, 16)
        live = rows < GROUP
        c = tl.load(cos + at * HALF + half)
        s = tl.load(sin + at * HALF + half)

        q0 = qkv + slot * stride + (head * GROUP + rows)[:, None] * DIM + half[None, :]
        qa = tl.load(q0, mask=live[:, None], other=0.0).to(tl.float32)
        qb = tl.load(q0 + HALF, mask=live[:, None], other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(DIM * 1.0)
        ra = (qa * c[None, :] - qb * s[None, :]) * scale
        rb = (qb * c[None, :] + qa * s[None, :]) * scale
        k0 = qkv + slot * stride + (HEADS + head) * DIM + half
        ka = tl.load(k0).to(tl.float32)
        kb = tl.load(k0 + HALF).to(tl.float32)
        na = ka * c - kb * s
        nb = kb * c + ka * s
        v0 = qkv + slot * stride + (HEADS + KV + head) * DIM
        dim = tl.arange(0, DIM)
        own = tl.load(v0 + dim)
        base = (slot * KV + head) * length * DIM
        tl.store(keys + base + at * DIM + half, na.to(keys.dtype.element_ty))
        tl.store(keys + base + at * DIM + HALF + half, nb.to(keys.dtype.element_ty))
        tl.store(values + base + at * DIM + dim, own)

        # The new row enters as the start of the running softmax: no program reads back what it has just written.
        top = tl.sum(ra * na[None, :], 1) + tl.sum(rb * nb[None, :], 1)
        total = tl.full([16], 1.0, tl.float32)
        acc = tl.zeros([16, DIM], tl.float32) + own.to(tl.float32)[None, :]
        ha = ra.to(keys.dtype.element_ty)
        hb = rb.to(keys.dtype.element_ty)
        for start in range(0, at, BLOCK):
            pos = start + tl.arange(0, BLOCK)
            seen = pos < at
            line = keys + base + pos[None, :].to(tl.int64) * DIM
            score = tl.dot(ha, tl.load(line + half[:, None], mask=seen[None, :], other=0.0))
            score += tl.dot(hb, tl.load(line + HALF + half[:, None], mask=seen[None, :], other=0.0))
            score = tl.where(seen[None, :], score, float("-inf"))
            new = tl.maximum(top, tl.max(score, 1))
            p = tl.exp(score - new[:, None])
            shrink = tl.exp(top - new)
            total = total * shrink + tl.sum(p, 1)
            val = tl.load(values + base + pos[:, None].to(tl.int64) * DIM + dim[None, :], mask=seen[:, None], other=0.0)
            acc = acc * shrink[:, None] + tl.dot(p.to(values.dtype.element_ty), val)
            top = new
        o0 = out + slot * (HEADS * DIM) + (head * GROUP + rows)[:, None] * DIM + dim[None, :]
        tl.store(o0, (acc / total[:, None]).to(out.dtype.element_ty), mask=live[:, None])


def _attend_triton(qkv, keys, values, positions, cos, sin, heads):
    slots, kv_heads, length, dim = keys.shape
    out = torch.empty(slots, heads * dim, device=qkv.device, dtype=qkv.dtype)
    _kernel[(slots, kv_heads)](qkv, keys, values, positions, cos, sin, out, length, qkv.stride(0),
                               HEADS=heads, KV=kv_heads, DIM=dim, GROUP=heads // kv_heads, BLOCK=BLOCK, num_warps=2)
    return out
