"""Synthesis: the target writes the corpus that its drafter learns from.

All slots of a batch step together; each follows its own script and takes the next one when its conversation ends, so
that the batch stays full. Nothing leaves the device until the end, and on CUDA a step is one captured graph.
"""

import json
import os
import time
from dataclasses import dataclass

import numpy as np
import torch

from . import ops
from .prompts import ANSWER, CATEGORIES, END, USER
from .target import Decoder

DONE, CUT, OVERLONG = 1, 2, 3  # how a conversation ended: eos; answer cut at its limit; a user turn without end

# A user turn is sampled at temperature 1 without tokens under this share of the likeliest one: the tail of a small
# model's distribution is noise, and one such token derails the turn.
MIN_P_USER, MIN_P_ANSWER = 0.05, 0.02


@dataclass
class Limits:
    """Lengths, in tokens: of a whole conversation, of one user turn, of one answer."""
    total: int = 768
    user: int = 256
    answer: int = 384


@ops.fused
def _pick(logits, uniform, temperature, floor):
    """Samples by the Gumbel trick: arg-max of logits/T + noise over tokens with p >= floor * max p; T = 0 is arg-max."""
    hot = temperature[:, None] > 0
    x = logits / torch.where(hot, temperature[:, None], 1.0)
    top = x.max(-1, keepdim=True).values
    x = torch.where(x < top + torch.log(floor)[:, None], float("-inf"), x)
    noise = -torch.log(-torch.log(uniform.clamp(1e-7, 1 - 1e-7)))
    return torch.where(hot, x + noise, logits).argmax(-1)


class Writer:
    """Follows scripts on the device. Its tables have a row for each conversation and one spare row for idle slots."""

    def __init__(self, target, template, scripts, slots, limits=Limits(), seed=0):
        self.target, self.template, self.limits = target, template, limits
        self.count, self.slots = len(scripts), slots
        dev = target.device
        self.decoder = Decoder(target, slots, limits.total)
        self.generator = torch.Generator(device=dev).manual_seed(seed)
        width = max(len(s.codes) for s in scripts) + 1
        codes = torch.full((self.count + 1, width), END, dtype=torch.int64)
        for i, s in enumerate(scripts):
            codes[i, :len(s.codes)] = torch.tensor(s.codes)
        codes[-1, 0] = template.end
        self.codes = codes.to(dev)
        self.heat = torch.tensor([s.temperature for s in scripts] + [0.0], device=dev)
        self.tokens = torch.zeros(self.count + 1, limits.total, dtype=torch.int32, device=dev)
        self.kinds = torch.zeros(self.count + 1, limits.total, dtype=torch.int8, device=dev)
        self.tokens[:, :len(template.prefix)] = torch.tensor(template.prefix, dtype=torch.int32, device=dev)
        self.lengths = torch.zeros(self.count + 1, dtype=torch.int64, device=dev)
        self.status = torch.zeros(self.count + 1, dtype=torch.int8, device=dev)
        self.start = len(template.prefix) - 1
        filled = lambda v: torch.full((slots,), v, dtype=torch.int64, device=dev)
        self.conv = torch.arange(slots, device=dev).clamp(max=self.count)
        self.ptr, self.pos, self.run = filled(0), filled(self.start), filled(0)
        self.cur = filled(template.prefix[-1])
        self.next = torch.tensor(min(slots, self.count), device=dev)

    def write(self):
        """Runs all scripts to their ends. Returns the number of steps taken."""
        for i, token in enumerate(self.template.prefix[:-1]):
            at = torch.full((self.slots,), i, dtype=torch.int64, device=self.target.device)
            self.decoder.step(torch.full_like(at, token), at)
        advance = self._captured() if self.target.device.type == "cuda" else self._advance
        steps = 0
        while bool((self.conv < self.count).any()):
            for _ in range(32):
                advance()
            steps += 32
        return steps

    def _captured(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self._advance()
        return graph.replay

    @torch.no_grad()
    def _advance(self):
        logits = self.decoder.step(self.cur, self.pos)
        code = self.codes[self.conv, self.ptr]
        forced, user = code >= 0, code == USER
        heat = torch.where(user, 1.0, self.heat[self.conv])
        floor = torch.where(user, MIN_P_USER, MIN_P_ANSWER)
        uniform = torch.rand(logits.shape, device=logits.device, generator=self.generator)
        token = torch.where(forced, code, _pick(logits, uniform, heat, floor))
        active = self.conv < self.count
        pos = self.pos + 1
        self.tokens[self.conv, pos] = token.int()
        self.kinds[self.conv, pos] = torch.where(forced, 0, torch.where(user, 1, 2)).to(torch.int8)
        run = torch.where(forced, 0, self.run + 1)
        ended = ~forced & (token == self.template.end)
        ptr = self.ptr + (forced | ended)
        full = pos >= self.limits.total - 1
        overlong = ~ended & ~forced & user & (run >= self.limits.user) | full & ~ended & (code != ANSWER)
        cut = ~ended & (code == ANSWER) & ((run >= self.limits.answer) | full)
        done = ~overlong & ~cut & ((self.codes[self.conv, ptr.clamp(max=self.codes.shape[1] - 1)] == END) | full)
        finish = (overlong | cut | done) & active
        # A slot that goes on writes into the spare row here: one scatter serves both.
        row = torch.where(finish, self.conv, self.count)
        self.lengths[row] = pos + 1
        self.status[row] = torch.where(overlong, OVERLONG, torch.where(cut, CUT, DONE)).to(torch.int8)
        taken = (self.next + finish.cumsum(0) - 1).clamp(max=self.count)
        fresh = finish | ~active
        self.conv.copy_(torch.where(finish, taken, self.conv))
        self.next.copy_((self.next + finish.sum()).clamp(max=self.count))
        self.ptr.copy_(torch.where(fresh, 0, ptr))
        self.pos.copy_(torch.where(fresh, self.start, pos))
        self.run.copy_(torch.where(fresh | ended, 0, run))
        self.cur.copy_(torch.where(fresh, self.template.prefix[-1], token))


@torch.no_grad()
def loops(tokens, kinds, longest=64, span=48):
    """Which rows contain a loop: a stretch of `span` answer tokens (or two periods) that repeats with some period.

    tokens, kinds: [rows, length]. A stretch that equals itself shifted by p, over max(span, 2 p) tokens, is a loop.
    """
    bad = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    answer = kinds == 2
    index = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.int32)
    for p in range(1, longest + 1):
        same = (tokens[:, p:] == tokens[:, :-p]) & answer[:, p:] & answer[:, :-p]
        # Length of the current run of equals: the distance to the last position that differs.
        last = torch.where(same, -1, index[:same.shape[1]]).cummax(1).values
        bad |= ((index[:same.shape[1]] - last) * same >= max(span, 2 * p)).any(1)
    return bad


@dataclass
class Corpus:
    """Conversations end to end. kinds: 0 template or given text, 1 a user turn by the target, 2 its answer."""
    tokens: np.ndarray      # uint16 or int32, all conversations one after the other
    kinds: np.ndarray       # uint8, beside tokens
    offsets: np.ndarray     # int64 [conversations + 1]
    category: np.ndarray    # uint8, index into CATEGORIES
    heat: np.ndarray        # float32, temperature of the answers
    heldout: np.ndarray     # bool

    def __len__(self):
        return len(self.category)

    def save(self, path):
        np.savez(path, **self.__dict__)

    @classmethod
    def load(cls, path):
        with np.load(path) as z:
            return cls(**{k: z[k] for k in z.files})

    def rows(self, chosen):
        """The conversations with the given indices, as (tokens, kinds) pairs."""
        return [(self.tokens[self.offsets[i]:self.offsets[i + 1]], self.kinds[self.offsets[i]:self.offsets[i + 1]])
                for i in chosen]


def collect(writer, scripts, heldout_share=0.015, keep_all=False):
    """Filters what a Writer wrote and splits it. Returns (Corpus, statistics).

    Dropped: user turns without end or with fewer than 3 tokens, answers with fewer than 4, loops, and conversations
    that repeat one already kept, token for token. The split goes by a hash of the first user turn, so that two
    conversations with the same question are on one side.
    """
    n = writer.count
    looping = torch.cat([loops(t, k) for t, k in zip(writer.tokens[:n].split(16384), writer.kinds[:n].split(16384))])
    tokens, kinds = writer.tokens[:n].cpu().numpy(), writer.kinds[:n].cpu().numpy()
    lengths, status, looping = writer.lengths[:n].cpu().numpy(), writer.status[:n].cpu().numpy(), looping.cpu().numpy()
    drops = {"overlong user turn": 0, "empty turn": 0, "loop": 0, "duplicate": 0}
    seen, keep, held = set(), [], []
    begin = len(writer.template.prefix)
    for i in range(n):
        row, kind = tokens[i, :lengths[i]], kinds[i, :lengths[i]]
        first = int(np.argmax(kind == 2))
        reason = None
        if status[i] == OVERLONG:
            reason = "overlong user turn"
        elif (kind == 2).sum() < 4 or first - begin - len(writer.template.middle) < 3:
            reason = "empty turn"
        elif looping[i]:
            reason = "loop"
        elif row.tobytes() in seen:
            reason = "duplicate"
        if reason and not keep_all:
            drops[reason] += 1
            continue
        seen.add(row.tobytes())
        keep.append(i)
        held.append(_share(row[begin:first].tobytes()) < heldout_share)
    small = np.uint16 if writer.target.shape.vocab <= 65536 else np.int32
    parts = lambda table, kind: np.concatenate([table[i, :lengths[i]].astype(kind) for i in keep])
    corpus = Corpus(
        parts(tokens, small), parts(kinds, np.uint8), np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64),
        np.array([CATEGORIES.index(scripts[i].category) for i in keep], dtype=np.uint8),
        np.array([scripts[i].temperature for i in keep], dtype=np.float32), np.array(held, dtype=bool))
    return corpus, statistics(corpus, n, drops, looping, status, scripts)


def _share(key):
    """A number in [0, 1) that depends on the key alone."""
    import hashlib
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") / 2.0 ** 64


def statistics(corpus, written, drops, looping, status, scripts):
    """What the corpus holds, and what was dropped on the way, as plain numbers."""
    size = np.diff(corpus.offsets)
    answers = np.add.reduceat((corpus.kinds == 2).astype(np.int64), corpus.offsets[:-1])
    quantiles = lambda v: [int(q) for q in np.percentile(v, (5, 25, 50, 75, 95))]
    greedy = np.array([s.temperature == 0 for s in scripts])
    return {
        "written": written, "kept": len(corpus), "dropped": drops, "held out": int(corpus.heldout.sum()),
        "loop rate": {"greedy": float(looping[greedy].mean()) if greedy.any() else 0.0,
                      "sampled": float(looping[~greedy].mean()) if (~greedy).any() else 0.0},
        "answers cut at the limit": float((status == CUT).mean()), "greedy share": float((corpus.heat == 0).mean()),
        "tokens": int(size.sum()), "answer tokens": int(answers.sum()),
        "training answer tokens": int(answers[~corpus.heldout].sum()),
        "length quantiles 5/25/50/75/95": quantiles(size), "answer quantiles 5/25/50/75/95": quantiles(answers),
        "by category": {c: int((corpus.category == i).sum()) for i, c in enumerate(CATEGORIES)}}


def synthesise(target, template, scripts, slots, limits=Limits(), seed=0, keep_all=False, log=print):
    """Writes and filters a corpus; logs its speed and its statistics."""
    began = time.time()
    writer = Writer(target, template, scripts, slots, limits, seed)
    steps = writer.write()
    wrote = time.time()
    corpus, stats = collect(writer, scripts, keep_all=keep_all)
    stats["seconds"] = {"writing": round(wrote - began, 1), "filtering": round(time.time() - wrote, 1)}
    stats["steps"] = steps
    log(json.dumps(stats, indent=1))
    return corpus, stats


def save(corpus, stats, folder):
    """Writes corpus.npz and corpus.json into a folder."""
    os.makedirs(folder, exist_ok=True)
    corpus.save(os.path.join(folder, "corpus.npz"))
    with open(os.path.join(folder, "corpus.json"), "w") as f:
        json.dump(stats, f, indent=1)
