#!/usr/bin/env python3
"""Measure draftlab's server and vLLM's on CPUs, plain and with the same EAGLE-3 drafter, and hold `draftlab bench` to vLLM's own figures.

    go build -o bin/draftlab ./cmd/draftlab
    python3 experiments/peers/vllm.py --draftlab bin/draftlab [--json FILE]

Sets vLLM up first (vllm_setup.py), exports the default target for it, starts all servers, and then asks one at a time:
  speed   held-out chat prompts, greedy, one request at a time, servers in random order: output tokens a second after the first,
          time to the first text, ratios paired by prompt; how many texts of vLLM's drafts differ from its plain ones, and of
          draftlab's float32 path on the same checkpoint from vLLM's
  bench   what `draftlab bench` says of vLLM beside what vLLM's /metrics counted meanwhile, and `vllm bench serve` likewise,
          in turns: single stream, several, an open loop, text completions
The exit status is 1 if a count of `draftlab bench` is not vLLM's own, or a time is off by more than --tolerance. README.md says more.
"""

import argparse
import dataclasses
import json
import pathlib
import time

import build
import vllm_check
import vllm_setup
from llamacpp import GGUF, cache_dir, table
from servers import Reply, Server, deciles, flush, main, measure_speed, numbers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRAFTER = ROOT / "drafters/smollm2-135m-instruct-eagle3"
CONTEXT = 2048  # tokens of one sequence, on all servers
READY = 1800    # seconds that a start may take: vLLM compiles two minutes on idle cores
REST = 1.5      # seconds before a request: vLLM's processes spin for a second behind their last one, which slows the next server down


@dataclasses.dataclass
class Arm:
    """A server and a way of asking it."""

    name: str
    server: Server
    kind: str      # "draftlab" or "vllm"
    depth: int     # drafted tokens, 0 for plain
    base: str      # the arm whose plain text its own must be, "" for none
    extra: dict = dataclasses.field(default_factory=dict)
    replies: dict = dataclasses.field(default_factory=dict)  # (repetition, prompt) -> Reply

    def ask(self, prompt, o):
        """Asks with nothing in a prefix cache; vLLM's are off."""
        if self.kind == "draftlab":
            flush(self.server)
        cycles, accepted = self.counted()
        body = {"model": "m", "messages": [{"role": "user", "content": prompt["text"]}], "temperature": 0, "max_tokens": o.tokens,
                "stream": True, "stream_options": {"include_usage": True}, **self.extra}
        reply = self.server.ask(body, 300)
        after = self.counted()
        reply.drafted, reply.accepted = after[0] - cycles, after[1] - accepted
        return reply

    def counted(self):
        """(cycles, accepted drafts) by the server's counters, zeros without any."""
        m = vllm_check.metrics(self.server.port)
        return tuple(int(m.get(f"{self.kind}:spec_decode_num_{what}_total", 0)) for what in ("drafts", "accepted_tokens"))


def export(o):
    """Writes the default target as checkpoints for vLLM and returns them by type."""
    out = {}
    for kind in {"bf16", "f32"} if o.part != "bench" else {"bf16"}:
        out[kind] = o.dir / f"smollm2-{kind}"
        if not (out[kind] / "config.json").exists():  # it appears whole or not at all
            build.run([o.draftlab, "model", "export", o.model, out[kind], "--dtype", kind])
    return out


def start(o, started):
    """Starts the servers, one after the other since vLLM compiles while it starts, and returns the arms."""
    program = vllm_setup.setup(o.dir)
    models = export(o)

    def up(name, command, env=None):
        started.append(Server(name, command, env))
        began = time.monotonic()
        started[-1].wait(READY)
        build.log(f"{name}: ready after {time.monotonic() - began:.0f} s")
        return started[-1]

    def vllm(name, kind, depth=0):
        speculation = {"method": "eagle3", "model": str(DRAFTER), "num_speculative_tokens": depth}
        return up(name, [program, "serve", models[kind], "--host", "127.0.0.1", "--dtype", {"bf16": "bfloat16", "f32": "float32"}[kind], "--served-model-name", "m",
                         "--max-model-len", CONTEXT, "--max-num-seqs", 16, "--no-enable-prefix-caching",
                         *(["--speculative-config", json.dumps(speculation)] if depth else [])],
                  vllm_setup.environment(program, o.threads, o.dir / "vllm-cache"))

    def draftlab(name, model):
        return up(name, [o.draftlab, "serve", "--model", model, "--drafter", DRAFTER, "--served-model-name", "m", "--threads", o.threads,
                         "--context", CONTEXT, "--steps", max(o.depths), "--draft-tokens", max(o.depths) + 1])

    arms = []
    if o.part != "bench":
        servers = {"draftlab": draftlab("draftlab", o.model), "draftlab bf16": draftlab("draftlab bf16", models["bf16"])}
        for name, server in servers.items():
            for depth in [0, *o.depths]:
                spec = {"drafter": "none"} if depth == 0 else {"drafter": "eagle3", "steps": depth, "topk": 1, "draft_tokens": depth + 1}
                arms.append(Arm(f"{name} {word(depth)}", server, "draftlab", depth, f"{name} plain", {"speculative": spec}))
    for depth in [0, *o.depths]:
        arms.append(Arm(f"vLLM bf16 {word(depth)}", vllm(f"vLLM bf16 {word(depth)}", "bf16", depth), "vllm", depth, "vLLM bf16 plain"))
    if o.part != "bench":
        arms.append(Arm("vLLM f32 plain", vllm("vLLM f32", "f32"), "vllm", 0, ""))
        arms.append(Arm("draftlab f32 plain", draftlab("draftlab f32", models["f32"]), "draftlab", 0, "vLLM f32 plain", {"speculative": {"drafter": "none"}}))
    return arms


def word(depth):
    return f"chain {depth}" if depth else "plain"


def rested(arm, prompt, o):
    """Asks when the last server's processes are at rest."""
    time.sleep(REST)
    return arm.ask(prompt, o)


def paired(of, a, b):
    """Ratios a/b of a figure of replies to the same prompt in the same repetition."""
    return [of(a.replies[k]) / of(b.replies[k]) for k in a.replies if of(a.replies[k]) and of(b.replies[k])]


def report(arms, o):
    """Prints speeds, ratios and how many texts differ."""
    plain = {a.name: a for a in arms if a.depth == 0}
    print(f"\none request at a time, {o.prompts} prompts × {o.reps}, up to {o.tokens} tokens; median (10 % – 90 %), ratios paired by prompt")
    rows = []
    for a in arms:
        replies = list(a.replies.values())
        cycles = sum(r.drafted for r in replies)
        rows.append([a.name, deciles([r.rate() for r in replies if r.rate()], 1), deciles(paired(Reply.rate, a, plain["vLLM bf16 plain"]), 2),
                     deciles(paired(Reply.rate, a, plain[a.base]), 2) if a.depth else "", deciles([1e3 * r.first for r in replies], 1),
                     f"{1 + sum(r.accepted for r in replies) / cycles:.3f}" if cycles else ""])
    table(["", "tok/s after the first", "× vLLM bf16 plain", "× its own plain", "first text, ms", "accept length"], rows)
    for depth in [0, *o.depths]:
        find = lambda name: next(a for a in arms if a.name == f"{name} {word(depth)}")
        for ours in ("draftlab", "draftlab bf16"):
            print(f"{word(depth)}: {ours} over vLLM bf16: {deciles(paired(Reply.rate, find(ours), find('vLLM bf16')), 2)} times the tokens a second, "
                  f"{deciles(paired(lambda r: r.first, find(ours), find('vLLM bf16')), 2)} of the time to the first text")
    for a in arms:
        if a.base and a.base != a.name:
            differ = sum(r.text != plain[a.base].replies[k].text for k, r in a.replies.items())
            print(f"{a.name}: {differ} of {len(a.replies)} texts differ from those of {a.base}")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draftlab", type=pathlib.Path, required=True, help="draftlab's binary")
    p.add_argument("--dir", type=pathlib.Path, default=cache_dir() / "draftlab" / "peers", help="where vLLM and checkpoints are kept (default: %(default)s)")
    p.add_argument("--model", type=pathlib.Path, default=cache_dir() / "draftlab" / "models" / GGUF, help="the default target's GGUF (default: %(default)s)")
    p.add_argument("--threads", type=int, default=2, help="of every server (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=128, help="most output tokens (default: %(default)s)")
    p.add_argument("--depths", type=numbers, default=[3], help="drafted tokens of a cycle; each is a vLLM server of its own, with 4 GB (default: 3)")
    p.add_argument("--part", choices=["both", "speed", "bench"], default="both")
    p.add_argument("--prompts", type=int, default=12, help="held-out chat prompts of the speed part (default: %(default)s)")
    p.add_argument("--reps", type=int, default=3, help="repetitions of both parts (default: %(default)s)")
    p.add_argument("--requests", type=int, default=24, help="requests of a load of the bench part (default: %(default)s)")
    p.add_argument("--tolerance", type=float, default=0.03, help="relative error that a time may have, beyond 10 ms of a request's way (default: %(default)s)")
    p.add_argument("--setup-only", action="store_true", help="set vLLM up and stop")
    p.add_argument("--json", type=pathlib.Path, help="write every sample here too")
    o = p.parse_args()
    if min(o.threads, o.tokens - 1, o.prompts, o.reps, o.requests) < 1:
        p.error("--tokens must be at least 2, other counts at least 1")
    if not o.model.exists():
        p.error(f"{o.model} is missing: `draftlab pull` fetches it")
    o.dir, o.draftlab = o.dir.resolve(), o.draftlab.resolve()
    return o


def run(o, started):
    if o.setup_only:
        vllm_setup.setup(o.dir)
        return 0
    arms = start(o, started)
    held = [json.loads(line) for line in (ROOT / "lab/prompts/prompts.jsonl").read_text().splitlines()]
    held = [p for p in held if p["split"] == "heldout"]
    document, wrong = {"threads": o.threads, "context": CONTEXT, "tokens": o.tokens, "vllm": vllm_setup.VERSION}, 0
    if o.part != "bench":
        measure_speed(arms, [p for p in held if p["category"] == "chat"][:o.prompts], o, rested)
        report(arms, o)
        document["arms"] = [{"arm": a.name, "command": a.server.command,
                             "replies": [{"repetition": r, "prompt": i, **dataclasses.asdict(x)} for (r, i), x in a.replies.items()]} for a in arms]
    if o.part != "speed":
        checked = [a for a in arms if a.kind == "vllm" and "bf16" in a.name]
        document["bench"], wrong = vllm_check.check(checked, held, o)
    if o.json:
        o.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    main(run, arguments)
