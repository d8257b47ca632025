"""Attention of the unrolled drafter: real rows before a row, then the row's own chain of draft steps.

At unrolled step s a row attends causally to the keys of step 0 (rows that carry real target features) and to its own
keys of steps 1..s, and to nothing else: what it would see in an engine after s drafts. The causal part is one flash
attention; each own key is one more entry of the softmax, merged by its log-sum-exp. The backward pass hands flash
attention the *merged* output and log-sum-exp, with which its recomputed probabilities and its row sums are those of
the whole softmax, so that the gradient is exact (the idea is that of ring attention).
"""

import torch

from . import ops


@ops.fused
def _merge(out, lse, q, k, v):
    """Adds one own key a row. out, q: [rows, heads, dim]; lse: [rows, heads]; k, v: [rows, kv_heads, dim]."""
    rows, heads, dim = q.shape
    group = heads // k.shape[1]
    kk, vv = k.float().repeat_interleave(group, 1), v.float().repeat_interleave(group, 1)
    score = (q.float() * kk).sum(-1) * dim ** -0.5
    merged = torch.logaddexp(lse, score)
    out = out * torch.exp(lse - merged)[..., None] + vv * torch.exp(score - merged)[..., None]
    return out, merged


@ops.fused
def _merge_backward(grad, delta, lse, q, k, v):
    """The own key's share of the gradient: (dq float32, dk, dv), for the merged lse and delta = sum(grad * out)."""
    rows, heads, dim = q.shape
    kv = k.shape[1]
    group = heads // kv
    kk, vv = k.float().repeat_interleave(group, 1), v.float().repeat_interleave(group, 1)
    qf, g = q.float(), grad.float()
    p = torch.exp((qf * kk).sum(-1) * dim ** -0.5 - lse)
    ds = (p * ((g * vv).sum(-1) - delta) * dim ** -0.5)[..., None]
    dk = (ds * qf).view(rows, kv, group, dim).sum(2).to(k.dtype)
    dv = (p[..., None] * g).view(rows, kv, group, dim).sum(2).to(v.dtype)
    return ds * kk, dk, dv


@ops.fused
def _row_sum(a, b):
    return (a.float() * b.float()).sum(-1)


def _causal(q, k, v):
    """Causal attention with its log-sum-exp, and what its backward needs. q, k, v: [batch, heads, length, dim]."""
    if q.is_cuda:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)


def _causal_backward(grad, q, k, v, out, lse, saved):
    if q.is_cuda:
        cum_q, cum_k, max_q, max_k, seed, offset = saved
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, lse, 0.0, True)


class Unrolled(torch.autograd.Function):
    """out = attention(q; causal k0, v0; own keys). All tensors are [rows, heads or kv_heads, dim], rows = batch * length.

    k0 and v0 have all query heads (the caller repeats them once for all steps); own keys keep the key/value heads.
    """

    @staticmethod
    def forward(ctx, batch, q, k0, v0, *own):
        rows, heads, dim = q.shape
        lay = lambda t: t.view(batch, rows // batch, heads, dim).transpose(1, 2)
        out, lse, *rest = _causal(lay(q), lay(k0), lay(v0))
        ctx.saved = tuple(rest[:6]) if q.is_cuda else ()
        out = out.transpose(1, 2).reshape(rows, heads, dim)
        if own:
            out, lse = out.float(), lse.transpose(1, 2).reshape(rows, heads).float()
            for k, v in zip(own[0::2], own[1::2]):
                out, lse = _merge(out, lse, q, k, v)
            out = out.to(q.dtype)
            lse = lse.view(batch, rows // batch, heads).transpose(1, 2).contiguous()
        ctx.batch = batch
        ctx.save_for_backward(q, k0, v0, out, lse, *own)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k0, v0, out, lse, *own = ctx.saved_tensors
        rows, heads, dim = q.shape
        batch, grad = ctx.batch, grad.contiguous()
        lay = lambda t: t.view(batch, rows // batch, heads, dim).transpose(1, 2)
        flat = lambda t: t.transpose(1, 2).reshape(rows, heads, dim)
        dq, dk0, dv0 = (flat(t) for t in _causal_backward(
            lay(grad), lay(q), lay(k0), lay(v0), lay(out), lse, ctx.saved))
        grads = []
        if own:
            delta = _row_sum(grad, out)
            rowwise = lse.transpose(1, 2).reshape(rows, heads)
            total = dq.float()
            for k, v in zip(own[0::2], own[1::2]):
                part, dk, dv = _merge_backward(grad, delta, rowwise, q, k, v)
                total = total + part
                grads += [dk, dv]
            dq = total.to(q.dtype)
        return (None, dq, dk0, dv0, *grads)
