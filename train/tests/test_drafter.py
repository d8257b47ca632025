"""The drafter's unrolled pass against an engine's way of running it; attention and loss against plain autograd."""

import numpy as np
import pytest
import tiny
import torch

from eagle3 import evaluate, hub, loss, synth
from eagle3.attention import Unrolled
from eagle3.batches import masks
from eagle3.drafter import Config, Drafter, initial
from eagle3.target import Target
from eagle3.vocab import DraftVocab, choose


def _reference(batch, q, k0, v0, *own):
    rows, heads, dim = q.shape
    length, group = rows // batch, heads // own[0].shape[1] if own else 1
    lay = lambda t: t.view(batch, length, -1, dim).transpose(1, 2)
    scores = lay(q) @ lay(k0).transpose(2, 3) * dim ** -0.5
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
    wide = [lay(t.repeat_interleave(group, 1)) for t in own]
    extra = [(lay(q) * k).sum(-1, keepdim=True) * dim ** -0.5 for k in wide[0::2]]
    p = torch.cat([scores, *extra], -1).softmax(-1)
    out = p[..., :length] @ lay(v0)
    for j, v in enumerate(wide[1::2]):
        out = out + p[..., length + j, None] * v
    return out.transpose(1, 2).reshape(rows, heads, dim)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_unrolled_attention_and_its_gradient(steps):
    g = torch.Generator().manual_seed(steps)
    random = lambda *s: torch.randn(s, generator=g, requires_grad=True)
    inputs = [random(22, 4, 16) for _ in range(3)] + [random(22, 2, 16) for _ in range(2 * steps)]
    got, want = Unrolled.apply(2, *inputs), _reference(2, *inputs)
    grad = torch.randn(got.shape, generator=g)
    assert torch.allclose(got, want, atol=1e-5)
    for a, b in zip(torch.autograd.grad(got, inputs, grad), torch.autograd.grad(want, inputs, grad)):
        assert torch.allclose(a, b, atol=1e-5)


def test_head_loss_is_cross_entropy():
    g = torch.Generator().manual_seed(0)
    states = torch.randn(30, 8, generator=g, requires_grad=True)
    head = torch.randn(20, 8, generator=g, requires_grad=True)
    wanted = loss.blend(torch.randn(30, 20, generator=g) * 3, torch.randint(-1, 20, (30,), generator=g), 0.3)
    assert torch.allclose(wanted.float().sum(-1), torch.ones(30), atol=2e-2)
    weight = torch.rand(30, generator=g)
    value, best = loss.HeadLoss.apply(states, head, wanted, weight)
    logits = states @ head.T
    want = (weight * (wanted.float().sum(-1) * logits.logsumexp(-1) - (wanted.float() * logits).sum(-1))).sum()
    assert torch.allclose(value, want, rtol=2e-2)
    assert torch.equal(best, logits.argmax(-1))
    # bfloat16 targets do not sum to one exactly, hence the tolerance.
    for a, b in zip(torch.autograd.grad(value, (states, head)), torch.autograd.grad(want, (states, head))):
        assert (a - b).norm() / b.norm() < 2e-2


def test_masks_count_what_an_engine_drafts():
    kinds = np.array([[0, 0, 2, 2, 2, 2, 0, 0, 2, 2]], dtype=np.uint8)
    index, weight = masks(kinds, 3)
    # Row t drafts after root t + 1: roots 2, 3, 4 and 8; the last token of an answer is nobody's root.
    assert index.tolist() == [1, 2, 3, 7]
    assert weight.astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    assert evaluate.segments(kinds[0]) == [(2, 5), (8, 9)]


def test_simulated_cycles():
    # Roots: 1 (2 right, depth 2) -> 4 (none right) -> 5 (1 right, up to the last token) -> end.
    lead = np.array([3, 9, 9, 0, 1, 0, 0, 0])
    assert evaluate.simulate(lead, [(1, 7)], 2) == (3, 3)
    assert evaluate.simulate(lead, [(1, 1)], 2) == (0, 0)


def test_draft_vocabulary():
    vocab = DraftVocab.of(choose(np.array([5, 0, 9, 7, 1, 0]), 3, {5}), 6)
    assert vocab.ids.tolist() == [2, 3, 5]
    assert vocab.d2t.tolist() == [2, 2, 3]
    assert vocab.back.tolist() == [-1, -1, 0, 1, -1, 2]
    assert vocab.t2d.tolist() == [False, False, True, True, False, True]


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    checkpoint = hub.load(tiny.write(str(tmp_path_factory.mktemp("target"))))
    target = Target(checkpoint)
    vocab = DraftVocab.of(np.arange(3, 259, 2), target.shape.vocab)
    config = Config.of(target.shape, len(vocab.ids), 2)
    return target, vocab, Drafter(config, initial(config, 3, checkpoint, vocab.ids), target.embed)


def _engine(drafter, vocab, taps, text, first, last, depth):
    """Runs cycles as an engine does: extend by verified rows, draft row by row, drop the drafts, jump."""
    cycles, accepted, root, real, cache = 0, 0, first, 0, None
    while root < last:
        out = drafter.trace(taps[real:root], text[real + 1:root + 1], torch.arange(real, root), cache=cache)
        cache, real, n = out["cache"], root, 0
        temporary = cache
        while n < depth and root + n < last:
            token = vocab.ids[out["logits"][-1].argmax()]
            if token != text[root + n + 1]:
                break
            n += 1
            out = drafter.trace(None, token.reshape(1), torch.tensor([root - 1 + n]), out["prenorm"][-1:], temporary)
            temporary = out["cache"]
        cycles, accepted, root = cycles + 1, accepted + n, root + n + 1
    return cycles, accepted


def test_the_unrolled_pass_simulates_an_engine(setting):
    """The text follows the drafter's own proposals for stretches, so that chains of every length occur."""
    target, vocab, drafter = setting
    g = torch.Generator().manual_seed(5)
    text = torch.randint(3, 250, (1, 40), generator=g)
    for t in range(8, 40):
        # The last draft of a chain of t % 5 steps that starts at row t - 2 - t % 5 becomes the text.
        s = t % 5
        states = list(drafter.unroll(drafter.cast(), target.forward(text)[0], text, s + 1))[s]
        if t % 7:
            text[0, t] = vocab.ids[(states[t - 2 - s] @ drafter.cast()["head"].T).argmax()]
    kinds = np.full(40, 2, np.uint8)
    kinds[:5] = 0
    corpus = synth.Corpus(text[0].numpy().astype(np.uint16), kinds, np.array([0, 40]), np.zeros(1, np.uint8),
                          np.zeros(1, np.float32), np.ones(1, bool))
    hits = evaluate.lead_of(drafter, vocab, target, corpus, np.array([0]), 80, buckets=(40,))[0]
    lead = np.logical_and.accumulate(hits, axis=0).sum(0)
    taps = target.forward(text)[0]
    seen = set()
    for depth in (1, 3, 7):
        want = _engine(drafter, vocab, taps, text[0], 5, 39, depth)
        assert evaluate.simulate(lead, [(5, 39)], depth) == want
        seen.add(want)
    assert len(seen) > 1, "the text has no accepted drafts: the test shows nothing"
