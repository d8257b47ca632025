"""Training: several variants of the drafter side by side on the same batches, or one alone for long.

The target's pass is shared, so that a comparison of variants costs little more than the variants themselves, and sees
the same data in the same order.
"""

import json
import math
import os
import time
from dataclasses import asdict, dataclass, field

import torch
from safetensors.torch import load_file, save_file

from . import loss, ops
from .drafter import Config, Drafter, initial
from .optim import Optimiser


@dataclass
class Recipe:
    """One variant: what is trained, and how. The defaults are what the comparisons in docs/LOG.md ended with."""
    name: str = "default"
    draft_vocab: int = 8192
    widths: int = 2            # feed-forward width, in widths of the target's
    near_identity: bool = True
    hard: float = 0.3          # share of the one-hot target in the loss
    decay: float = 0.8         # weight of unrolled step s is decay ** s
    steps: int = 6             # unrolled steps
    rate: float = 6e-3         # docs/LOG.md: 1e-3 … 4e-3 learn far slower with Muon, 1.2e-2 and more are worse again
    optimiser: str = "muon"
    seed: int = 0


@dataclass
class Schedule:
    """When to stop, by steps or by seconds, and how the rate moves: warm-up, then a cosine to `floor` of the peak."""
    steps: int = 0
    seconds: float = 0.0
    warmup: float = 0.03
    floor: float = 0.01
    began: float = field(default_factory=time.time)

    def progress(self, step):
        by_steps = step / self.steps if self.steps else 0.0
        by_time = (time.time() - self.began) / self.seconds if self.seconds else 0.0
        return max(by_steps, by_time)

    def factor(self, progress):
        if progress < self.warmup:
            return max(progress, 1e-3) / self.warmup
        rest = min(1.0, (progress - self.warmup) / (1 - self.warmup))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * rest))


class Variant:
    """A drafter in training: parameters, optimiser, draft vocabulary, and sums of metrics since the last report."""

    def __init__(self, recipe, target, checkpoint, vocab, dtype, parameters=None):
        self.recipe, self.target, self.vocab = recipe, target, vocab.to(target.device)
        self.config = Config.of(target.shape, len(vocab.ids), recipe.widths)
        if parameters is None:
            parameters = initial(self.config, recipe.seed, checkpoint if recipe.near_identity else None, vocab.ids)
        self.drafter = Drafter(self.config, parameters, target.embed, dtype)
        self.optimiser = Optimiser(self.drafter, recipe.optimiser)
        # The target's own head, restricted to the draft vocabulary: what the drafter's logits are compared with.
        self.restricted = target.head[self.vocab.ids].contiguous()
        self.reset()

    def reset(self):
        self.sums = torch.zeros(3, self.recipe.steps, device=self.target.device)  # loss, joint hits, rows
        self.right = torch.zeros(self.recipe.steps, device=self.target.device)

    def wanted(self, hidden, label):
        """Training targets for every row of a batch, and `steps` spare rows after the last."""
        draft = self.vocab.back[label]
        parts = [loss.blend(ops.matmul_f32(h, self.restricted), d, self.recipe.hard)
                 for h, d in zip(hidden.split(ops.CHUNK), draft.split(ops.CHUNK))]
        parts.append(torch.zeros(self.recipe.steps, len(self.vocab.ids), dtype=torch.bfloat16, device=hidden.device))
        return torch.cat(parts)

    def train(self, batch, taps, hidden, label, rate):
        """One step on a batch. label: the target's greedy choice after each row, padded like wanted()."""
        r = self.recipe
        wanted = self.wanted(hidden, label[:len(hidden)])
        w = self.drafter.cast()
        total, joint = 0.0, torch.ones(len(batch.index), dtype=torch.bool, device=taps.device)
        for s, states in enumerate(self.drafter.unroll(w, taps, batch.tokens, r.steps)):
            at = batch.index + 1 + s
            truth, weight = label[at], batch.weight[s]
            counted = weight * (self.vocab.back[truth] >= 0)
            rows = counted.sum().clamp(min=1)
            value, best = loss.HeadLoss.apply(states.index_select(0, batch.index), w["head"], wanted[at], counted / rows)
            total = total + r.decay ** s * value
            hit = self.vocab.ids[best] == truth
            joint = joint & hit
            self.sums[:, s] += torch.stack((value.detach(), (joint * weight).sum(), weight.sum()))
            self.right[s] += (hit * weight).sum()
        total.backward()
        self.optimiser.step(rate * r.rate)

    def report(self, steps):
        """Metrics since the last report: per-step accuracy and loss, and accept lengths over all rows."""
        value, joint, rows = self.sums.cpu()
        right = (self.right.cpu() / rows).tolist()
        chain = (joint / rows).tolist()
        self.reset()
        rounded = lambda v: [round(x, 4) for x in v]
        return {"loss": rounded((value / steps).tolist()), "accuracy": rounded(right), "joint": rounded(chain),
                "tau": rounded([1 + sum(chain[:k + 1]) for k in range(len(chain))])}


@torch.no_grad()
def features(target, batch, steps):
    """(taps, hidden, label) of a batch; label is padded by `steps` + 1 entries."""
    taps, hidden = target.forward(batch.tokens)
    label = torch.cat([target.argmax(hidden), torch.zeros(steps + 1, dtype=torch.int64, device=taps.device)])
    return taps, hidden, label


def run(variants, target, batches, schedule, every=100, log=print, at_report=None):
    """Trains the variants until the schedule ends. Returns the reports, one row a variant and report."""
    steps = max(v.recipe.steps for v in variants)
    history, since, began, seen = [], 0, time.time(), 0
    for step, batch in enumerate(batches.forever()):
        progress = schedule.progress(step)
        if progress >= 1:
            break
        taps, hidden, label = features(target, batch, steps)
        for v in variants:
            v.train(batch, taps, hidden, label, schedule.factor(progress))
        since, seen = since + 1, seen + batch.tokens.numel()
        if since == every:
            for v in variants:
                row = {"variant": v.recipe.name, "step": step + 1, "rows": seen,
                       "seconds": round(time.time() - began, 1), **v.report(since)}
                history.append(row)
                log(f"{row['seconds']:7.1f} s  step {row['step']:6d}  {v.recipe.name:14s} loss {row['loss'][0]:.3f}  "
                    f"acc {' '.join(f'{a:.3f}' for a in row['accuracy'])}  tau3 {row['tau'][min(2, steps - 1)]:.3f}")
            if at_report:
                at_report(step + 1, history)
            since = 0
    for v in variants:
        if since:
            history.append({"variant": v.recipe.name, "step": step, "rows": seen,
                            "seconds": round(time.time() - began, 1), **v.report(since)})
    return history


def save_state(variant, folder, step):
    """Writes what a later run resumes from: state.safetensors (bfloat16 weights and moments) and state.json."""
    os.makedirs(folder, exist_ok=True)
    weights = variant.drafter.weights()
    tensors = {f"weight/{n}": w.detach().to(torch.bfloat16) for n, w in weights.items()}
    tensors.update(variant.optimiser.state(list(weights)))
    tensors["draft_ids"] = variant.vocab.ids
    save_file({n: t.contiguous().cpu() for n, t in tensors.items()}, os.path.join(folder, "state.safetensors"))
    with open(os.path.join(folder, "state.json"), "w") as f:
        json.dump({"step": step, "recipe": asdict(variant.recipe)}, f, indent=1)


def load_state(folder):
    """What save_state wrote: (recipe fields, draft ids, weights by name, moments by name)."""
    tensors = load_file(os.path.join(folder, "state.safetensors"))
    with open(os.path.join(folder, "state.json")) as f:
        recipe = json.load(f)["recipe"]
    weights = {n.removeprefix("weight/"): t for n, t in tensors.items() if n.startswith("weight/")}
    ids = tensors.pop("draft_ids")
    moments = {n: t for n, t in tensors.items() if not n.startswith("weight/")}
    return recipe, ids, weights, moments
