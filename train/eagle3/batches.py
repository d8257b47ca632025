"""Batches of whole conversations: every batch has the same number of rows, whatever its (sequences, length)."""

from dataclasses import dataclass

import numpy as np
import torch

from . import ops

# Lengths that divide 24576 rows; a conversation goes into the shortest that holds it.
BUCKETS = (128, 192, 256, 384, 512, 768)


@dataclass
class Batch:
    """tokens [sequences, length] and, on the same device, what the unrolled pass needs to know about them.

    index [n]: rows t whose x[t+1] is an answer token that an engine could draft after (not the last of its answer).
    weight [steps, n]: 1 where x[t+2] … x[t+2+s] all belong to the answer. Padded with row 0 at weight 0.
    """
    tokens: torch.Tensor
    index: torch.Tensor
    weight: torch.Tensor
    chosen: np.ndarray


def masks(kinds, steps):
    """index and weight of a Batch, from kinds [sequences, length] (numpy)."""
    sequences, length = kinds.shape
    answer = np.zeros((sequences, length + steps + 2), dtype=bool)
    answer[:, :length] = kinds == 2
    # A new answer never starts right after another: the template stands between, so runs of answers are one segment.
    live = answer[:, 1:length + 1].copy()
    weight = np.empty((steps, sequences, length), dtype=bool)
    for s in range(steps):
        live &= answer[:, 2 + s:length + 2 + s]
        weight[s] = live
    index = np.nonzero(weight[0].reshape(-1))[0]
    return index, weight.reshape(steps, -1)[:, index]


class Batches:
    """Serves shuffled batches of the chosen conversations, for ever; deterministic from the seed."""

    def __init__(self, corpus, chosen, rows, steps, device, seed=0, buckets=BUCKETS):
        self.rows, self.steps, self.device = rows, steps, device
        self.random = np.random.default_rng(seed)
        sizes = np.diff(corpus.offsets)[chosen]
        self.tables = []
        low = 0
        for length in (b for b in buckets if b <= rows and rows % b == 0):
            members = np.asarray(chosen)[(sizes > low) & (sizes <= length)]
            low = length
            if len(members):
                self.tables.append((length, members, *self._table(corpus, members, length)))

    @staticmethod
    def _table(corpus, members, length):
        tokens = np.zeros((len(members), length), dtype=corpus.tokens.dtype)
        kinds = np.zeros((len(members), length), dtype=np.uint8)
        for i, (t, k) in enumerate(corpus.rows(members)):
            tokens[i, :len(t)], kinds[i, :len(k)] = t, k
        return tokens, kinds

    def epoch(self, whole=False):
        """Yields each full batch once, in random order; `whole` adds the last partial ones, padded with empty rows."""
        plan = []
        for table, (length, members, _, _) in enumerate(self.tables):
            size = self.rows // length
            order = self.random.permutation(len(members))
            stop = len(order) if whole else len(order) // size * size
            plan += [(table, order[i:i + size]) for i in range(0, stop, size)]
        self.random.shuffle(plan)
        for table, picked in plan:
            yield self._batch(table, picked)

    def forever(self):
        while True:
            empty = True
            for batch in self.epoch():
                empty = False
                yield batch
            if empty:
                raise ValueError(f"the corpus does not fill one batch of {self.rows} rows in any bucket")

    def _batch(self, table, picked):
        length, members, tokens, kinds = self.tables[table]
        size = self.rows // length
        t = np.zeros((size, length), dtype=np.int64)
        k = np.zeros((size, length), dtype=np.uint8)
        t[:len(picked)], k[:len(picked)] = tokens[picked], kinds[picked]
        index, weight = masks(k, self.steps)
        pad = -len(index) % ops.CHUNK if self.device.type == "cuda" else 0
        index = np.concatenate([index, np.zeros(pad, dtype=np.int64)])
        weight = np.concatenate([weight, np.zeros((self.steps, pad), dtype=bool)], axis=1)
        move = lambda a: torch.from_numpy(a).pin_memory().to(self.device, non_blocking=True) \
            if self.device.type == "cuda" else torch.from_numpy(a)
        return Batch(move(t), move(index), move(weight).float(), members[picked])
