"""Muon for the drafter's matrices, AdamW for its norms and its head."""

import torch


def _orthogonal(m, rounds=5):
    """The nearest semi-orthogonal matrix, roughly: a quintic Newton-Schulz iteration on singular values in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m.to(torch.bfloat16)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        g = x @ x.T
        x = a * x + (b * g + c * g @ g) @ x
    return (x.T if tall else x).to(m.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised. An update has the root mean square of an AdamW update, so both share a rate."""

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"].mul_(group["momentum"]).add_(p.grad)
                update = _orthogonal(p.grad + group["momentum"] * m)
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


class Optimiser:
    """Both optimisers of one drafter behind one face; the rate is set before each step."""

    def __init__(self, drafter, kind="muon"):
        weights = drafter.weights()
        matrices = [w for n, w in weights.items() if w.dim() == 2 and n != "lm_head.weight"] if kind == "muon" else []
        rest = [w for w in weights.values() if not any(w is m for m in matrices)]
        self.parameters = list(weights.values())
        fused = self.parameters[0].is_cuda
        self.parts = [torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)]
        if matrices:
            self.parts.append(Muon(matrices, lr=0.0))

    def step(self, rate, clip=1.0):
        torch.nn.utils.clip_grad_norm_(self.parameters, clip)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self, names):
        """Moments in bfloat16, by "<moment>/<parameter>"; counts as they are."""
        out = {}
        for name, p in zip(names, self.parameters):
            for part in self.parts:
                for key, value in part.state.get(p, {}).items():
                    out[f"{key}/{name}"] = value.to(torch.bfloat16) if value.dim() else value.reshape(1)
        return out

    def restore(self, names, saved):
        """Puts back what state() gave; parameters without saved moments start anew."""
        for name, p in zip(names, self.parameters):
            for part in self.parts:
                if not any(q is p for group in part.param_groups for q in group["params"]):
                    continue
                keys = ("momentum",) if isinstance(part, Muon) else ("exp_avg", "exp_avg_sq", "step")
                if all(f"{k}/{name}" in saved for k in keys):
                    for k in keys:
                        value = saved[f"{k}/{name}"].to(p.device)
                        part.state[p][k] = value.reshape(()).float() if k == "step" else value.float()
