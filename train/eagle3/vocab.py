"""Which tokens a drafter can propose, and how many are worth it.

The head of a drafter for a small target costs more than the rest of it, so most of the vocabulary is left out; a
target token outside counts as a miss. draft ids are sorted by target id; d2t holds offsets (target = draft + d2t).
"""

from dataclasses import dataclass

import numpy as np
import torch

# Milliseconds of one draft step of the default target's drafter by draft vocabulary, and of a plain decode step and
# a verified row beside it: measured on the prototype of the engine on 2 cores at context 512.
STEP_MS = {4096: 0.058, 8192: 0.065, 16384: 0.106, 32768: 0.171}
PLAIN_MS, EXTEND_SHARE, ROW_SHARE = 2.41, 0.11, 0.13


@dataclass
class DraftVocab:
    """ids: target ids of the draft tokens, ascending. back: for each target id its draft id, or -1."""
    ids: torch.Tensor
    back: torch.Tensor

    @classmethod
    def of(cls, ids, size):
        ids = torch.as_tensor(np.sort(np.asarray(ids)), dtype=torch.int64)
        back = torch.full((size,), -1, dtype=torch.int64)
        back[ids] = torch.arange(len(ids))
        return cls(ids, back)

    def to(self, device):
        return DraftVocab(self.ids.to(device), self.back.to(device))

    @property
    def d2t(self):
        return self.ids.cpu() - torch.arange(len(self.ids))

    @property
    def t2d(self):
        return (self.back >= 0).cpu()


def counts(corpus, size):
    """How often each token occurs in the answers of the training part, and in those of the held-out part."""
    row = np.repeat(np.arange(len(corpus)), np.diff(corpus.offsets))
    answer = corpus.kinds == 2
    held = corpus.heldout[row]
    count = lambda mask: np.bincount(corpus.tokens[mask], minlength=size)
    return count(answer & ~held), count(answer & held)


def choose(train, size, forced):
    """The `size` likeliest tokens, the forced ones among them whatever their count."""
    order = np.argsort(-train, kind="stable")
    forced = sorted(set(forced))
    rest = [t for t in order[:size] if t not in set(forced)]
    return np.array(forced + rest[:size - len(forced)])


def expected(train, held, forced, accuracy=0.66, steps=3, sizes=(4096, 8192, 16384, 32768)):
    """For each size: its coverage of held-out answers and the speed-up to expect from it.

    Conditional acceptance is taken as flat, accuracy * coverage: tau = 1 + a + … + a^steps; a cycle costs the
    verification of steps + 1 rows, the extension, and steps - 1 further draft steps (the first draft's head is a
    part of the extension).
    """
    table = []
    for size in (s for s in sizes if s <= len(train)):
        ids = choose(train, size, forced)
        coverage = float(held[ids].sum() / max(1, held.sum()))
        a = accuracy * coverage
        tau = sum(a ** k for k in range(steps + 1))
        cycle = 1 + EXTEND_SHARE + ROW_SHARE * steps + (steps * STEP_MS[size] - STEP_MS[8192]) / PLAIN_MS
        table.append({"draft vocabulary": size, "coverage": round(coverage, 4), "tau": round(tau, 3),
                      "speed-up": round(tau / cycle, 3)})
    return table
