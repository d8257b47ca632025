"""The drafter's loss: cross-entropy against the target's distribution over the draft vocabulary.

A batch has tens of thousands of rows, thousands of draft tokens, and half a dozen unrolled steps, so logits are never
kept: the forward pass goes through chunks of rows, and computes the gradients of the states and of the head at once.
"""

import torch

from . import ops


@ops.fused
def blend(logits, label, hard):
    """Training targets: (1 - hard) * softmax(logits) + hard * one-hot(label), bfloat16; label -1 leaves the softmax.

    logits: [rows, draft vocabulary] float32, the target's own restricted to the draft vocabulary.
    """
    soft = torch.softmax(logits, -1)
    index = torch.arange(logits.shape[1], device=logits.device)
    one = (index[None, :] == label[:, None]).float()
    share = torch.where(label >= 0, hard, 0.0)[:, None]
    return ((1 - share) * soft + share * one).to(torch.bfloat16)


@ops.fused
def _chunk(logits, wanted, weight):
    """Loss of a chunk, its gradient with respect to the logits, and each row's arg-max."""
    x = logits.float()
    lse = torch.logsumexp(x, -1, keepdim=True)
    p = wanted.float()
    loss = ((lse[:, 0] - (p * x).sum(-1)) * weight).sum()
    grad = (torch.exp(x - lse) - p) * weight[:, None]
    return loss, grad.to(logits.dtype), x.argmax(-1)


class HeadLoss(torch.autograd.Function):
    """(states [rows, hidden], head [draft, hidden], wanted [rows, draft], weight [rows]) -> (loss sum, arg-max).

    rows must be a multiple of ops.CHUNK on a GPU, where pieces are compiled for that many rows.
    """

    @staticmethod
    def forward(ctx, states, head, wanted, weight):
        total = torch.zeros((), device=states.device)
        dhead = torch.zeros_like(head, dtype=torch.float32)
        dstates, best = torch.empty_like(states), []
        for i in range(0, len(states), ops.CHUNK):
            part = slice(i, min(i + ops.CHUNK, len(states)))
            loss, grad, top = _chunk(states[part] @ head.T, wanted[part], weight[part])
            total += loss
            dstates[part] = grad @ head
            dhead += (grad.T @ states[part]).float()
            best.append(top)
        best = torch.cat(best)
        ctx.save_for_backward(dstates, dhead.to(head.dtype))
        ctx.mark_non_differentiable(best)
        return total, best

    @staticmethod
    def backward(ctx, grad, _):
        dstates, dhead = ctx.saved_tensors
        return dstates * grad.to(dstates.dtype), dhead * grad.to(dhead.dtype), None, None
