"""Evaluation on greedy text: accuracies by step, and accept length, simulated cycle by cycle.

The text is what the target wrote at temperature 0, so a draft is accepted exactly when it equals the text. The
unrolled pass says, for every row, how many drafts of a chain would be right; a cycle then jumps over as many.
"""

import numpy as np
import torch

from .batches import Batches
from .prompts import CATEGORIES

DEPTH = 7


@torch.no_grad()
def lead_of(drafter, vocab, target, corpus, chosen, rows, buckets=None):
    """Per conversation, hits [DEPTH, length]: whether draft s + 1 after row t equals the text, given a true chain so far."""
    extra = {"buckets": buckets} if buckets else {}
    batches = Batches(corpus, chosen, rows, DEPTH, target.device, **extra)
    w = drafter.cast()
    hits = {}
    for batch in batches.epoch(whole=True):
        taps, _ = target.forward(batch.tokens)
        flat = torch.cat([batch.tokens.reshape(-1), torch.zeros(DEPTH + 2, dtype=torch.int64, device=taps.device)])
        table = torch.zeros(DEPTH, batch.tokens.numel(), dtype=torch.bool, device=taps.device)
        for s, states in enumerate(drafter.unroll(w, taps, batch.tokens, DEPTH)):
            best = torch.cat([(h @ w["head"].T).argmax(-1) for h in states.index_select(0, batch.index).split(4096)])
            good = (vocab.ids[best] == flat[batch.index + 2 + s]) & (batch.weight[s] > 0)
            table[s][batch.index[good]] = True
        table = table.view(DEPTH, *batch.tokens.shape).cpu().numpy()
        for i, c in enumerate(batch.chosen):
            hits[int(c)] = table[:, i]
    return hits


def simulate(lead, answers, depth):
    """Greedy cycles of up to `depth` drafts over the answers. Returns (cycles, accepted).

    lead[t]: how many drafts after row t are right. answers: (first, last) token positions; the first comes from the
    prompt's pass, and a cycle whose root is token r drafts from row r - 1.
    """
    cycles = accepted = 0
    for first, last in answers:
        root = first
        while root < last:
            n = min(depth, int(lead[root - 1]))
            cycles, accepted, root = cycles + 1, accepted + n, root + n + 1
    return cycles, accepted


def segments(kinds):
    """(first, last) of each run of answer tokens."""
    edge = np.diff(np.concatenate([[0], (kinds == 2).astype(np.int8), [0]]))
    return list(zip(np.nonzero(edge == 1)[0].tolist(), (np.nonzero(edge == -1)[0] - 1).tolist()))


def measure(hits, corpus, chosen):
    """One row of a table: accuracies by step over all rows, and simulated accept lengths for 1 … DEPTH drafts."""
    right, joint, rows = np.zeros(DEPTH), np.zeros(DEPTH), np.zeros(DEPTH)
    totals = np.zeros((DEPTH, 2), dtype=np.int64)
    tokens = 0
    for i, (_, kinds) in zip(chosen, corpus.rows(chosen)):
        h = hits[int(i)][:, :len(kinds)]
        chain = np.logical_and.accumulate(h, axis=0)
        spans = segments(kinds)
        for first, last in spans:
            tokens += last - first + 1
            for s in range(DEPTH):
                part = slice(first - 1, last - 1 - s)
                if last - 1 - s > first - 1:
                    right[s] += h[s, part].sum()
                    joint[s] += chain[s, part].sum()
                    rows[s] += last - s - first
        lead = chain.sum(0)
        for k in range(DEPTH):
            totals[k] += simulate(lead, spans, k + 1)
    rows = np.maximum(rows, 1)
    share = joint / rows
    # Conditional acceptance from joint shares over the same rows: the last rows of an answer have fewer steps, so the
    # ratio is taken between neighbouring steps' shares.
    before = np.concatenate([[1.0], share[:-1]])
    return {"conversations": len(chosen), "answer tokens": int(tokens),
            "accuracy": [round(float(x), 4) for x in right / rows],
            "conditional": [round(float(x), 4) for x in share / np.maximum(before, 1e-9)],
            "accept length": [round(1 + float(a) / max(1, int(c)), 4) for c, a in totals]}


def table(drafter, vocab, target, corpus, chosen, rows, buckets=None):
    """Measures a drafter on conversations: over all of them, and by category."""
    chosen = np.asarray(chosen)
    hits = lead_of(drafter, vocab, target, corpus, chosen, rows, buckets)
    chosen = np.array([c for c in chosen if int(c) in hits])
    out = {"all": measure(hits, corpus, chosen)}
    for i, name in enumerate(CATEGORIES):
        part = chosen[corpus.category[chosen] == i]
        if len(part):
            out[name] = measure(hits, corpus, part)
    return out


def pick(corpus, limit=None, category=None, heldout=True):
    """Held-out conversations whose answers are greedy, the first `limit` of them."""
    good = (corpus.heat == 0) & (corpus.heldout == heldout)
    if category:
        good &= corpus.category == CATEGORIES.index(category)
    return np.nonzero(good)[0][:limit]


def text(results):
    """The tables as text: one line a data set and category."""
    lines = [f"{'data':28s} {'conv':>5s}  {'accuracy by step':34s} {'conditional by step':34s} accept length K=1…{DEPTH}"]
    for name, rows in results.items():
        for category, r in rows.items():
            three = lambda v: " ".join(f"{x:.3f}" for x in v[:5])
            lines.append(f"{name + ' ' + category:28s} {r['conversations']:5d}  {three(r['accuracy']):34s} "
                         f"{three(r['conditional']):34s} {' '.join(f'{x:.2f}' for x in r['accept length'])}")
    return "\n".join(lines)
