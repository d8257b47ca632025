#!/usr/bin/env python3
"""Hold load generators to their own schedule: draftlab bench, AIPerf and GuideLLM against a server whose times are known.

    go build -o bin/draftlab ./cmd/draftlab
    python3 experiments/peers/loadgens.py --draftlab bin/draftlab [--json FILE]

The server is `draftlab bench mock`: it runs no model, answers at known times, and writes down when each request came, by the
kernel's account, and when it really wrote each answer. So two things are measured from outside, the same way for every tool:
  send lag     how long after its due time a request arrived. With arrivals at equal intervals the due times are known up to
               the first one, which is taken from the request that was least late. With Poisson arrivals they are the tool's
               own secret; there the gaps are compared with the exponential distribution (Kolmogorov and Smirnov's distance)
  error        TTFT and TPOT as the tool reports them, less what the server did: medians of all requests, and 99th percentiles
Tools take turns in random order within a repetition. What comes in the first second is left out: tools open connections then.
AIPerf and GuideLLM are installed from PyPI into environments of their own (--dir) when they are not there.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import venv

from llamacpp import cache_dir, table

VERSIONS = {"aiperf": "0.13.0", "guidellm": "0.8.1"}
FIRST_MS, GAP_MS = 50.0, 20.0   # what the mock is asked for
SETTLED = 1.0                   # seconds that are left out

# A tokenizer of one word, which is what the mock writes: the tools count tokens of their own, and would ask a hub for another.
TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
t = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
t.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=t, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def log(text):
    print(text, file=sys.stderr, flush=True)


def install(o):
    """Makes the environments and the tokenizer that are missing."""
    for tool, version in VERSIONS.items():
        home = o.dir / tool
        if not (home / "bin" / tool).exists():
            log(f"installing {tool} {version} into {home}")
            venv.create(home, with_pip=True)
            subprocess.run([home / "bin/pip", "install", "-q", f"{tool}=={version}"], check=True, stdout=sys.stderr)
    if not (o.dir / "tokenizer/tokenizer.json").exists():
        subprocess.run([o.dir / "aiperf/bin/python", "-c", TOKENIZER, o.dir / "tokenizer"], check=True, stdout=sys.stderr)


class Mock:
    """The server of one run, as a context."""

    def __init__(self, o, work):
        self.out = work / "arrivals.jsonl"
        self.command = [o.draftlab, "bench", "mock", "--first", f"{FIRST_MS}ms", "--gap", f"{GAP_MS}ms", "--out", self.out]

    def __enter__(self):
        self.process = subprocess.Popen(list(map(str, self.command)), stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            sys.exit("the mock server did not start")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.process.stdout.close()

    def answers(self):
        """What it wrote down, by arrival."""
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        return sorted(lines, key=lambda a: a["arrived_unix_ns"])


def percentiles(v):
    """The median and the 99th percentile, None without values."""
    if len(v) < 2:
        return None
    cut = statistics.quantiles(v, n=100, method="inclusive")
    return {"p50": cut[49], "p99": cut[98]}


def draftlab(o, url, work, count):
    """Runs draftlab and returns what it reports, in ms."""
    raw = work / "raw.jsonl"
    arrivals = {"constant": "even", "poisson": "poisson"}[o.process]
    call(o, [o.draftlab, "bench", "--base-url", url, "--dataset-name", "jsonl", "--dataset-path", o.prompts, "--request-rate", o.rate, "--arrivals", arrivals,
             "--num-prompts", count, "--output-len", o.tokens, "--num-warmups", 0, "--repeat", "--out", raw, "--json"], work)
    records = [json.loads(line) for line in raw.read_text().splitlines()]
    records = [r for r in records if not r.get("error")]
    ttft = [(r["start_unix_ns"] - r["due_unix_ns"] + r["first_ns"]) / 1e6 for r in records]
    tpot = [(r["last_ns"] - r["first_ns"]) / 1e6 / (r["output_tokens"] - 1) for r in records]
    return {"completed": len(records), "ttft": percentiles(ttft), "tpot": percentiles(tpot)}


def aiperf(o, url, work, count):
    """Runs AIPerf. What it calls inter-token latency is TPOT."""
    out = work / "aiperf"
    call(o, [o.dir / "aiperf/bin/aiperf", "profile", "-m", "mock", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", o.dir / "tokenizer",
             "--use-server-token-count", "--input-file", o.texts, "--custom-dataset-type", "single_turn", "--request-rate", o.rate, "--request-rate-mode", o.process,
             "--request-count", count, "--osl", o.tokens, "--output-artifact-dir", out, "--ui-type", "none",
             "--no-server-metrics", "--no-gpu-telemetry"], work)
    records = [json.loads(line)["metrics"] for line in (out / "profile_export.jsonl").read_text().splitlines()]
    pick = lambda name: percentiles([r[name]["value"] for r in records if name in r])
    return {"completed": len(records), "ttft": pick("time_to_first_token"), "tpot": pick("inter_token_latency")}


def guidellm(o, url, work, count):
    """Runs GuideLLM. What it calls inter-token latency is TPOT; its report keeps percentiles alone, and its p99."""
    out = work / "guidellm.json"
    call(o, [o.dir / "guidellm/bin/guidellm", "run", "--backend", f"kind=openai_http,target={url},model=mock,max_tokens={o.tokens}",
             "--profile", f"kind={o.process},rate={o.rate}", "--constraint", f"kind=max_requests,count={count}", "--data", f"kind=json_file,path={o.prompts}",
             "--tokenizer", f"kind=hf_auto,model={o.dir / 'tokenizer'}", "--output", f"kind=json,path={out}", "--disable-console-interactive"], work)
    metrics = json.loads(out.read_text())["benchmarks"][0]["metrics"]
    pick = lambda name: {p: metrics[name]["successful"]["percentiles"][p] for p in ("p50", "p99")}
    return {"completed": metrics["request_totals"]["successful"], "ttft": pick("time_to_first_token_ms"), "tpot": pick("inter_token_latency_ms")}


TOOLS = {"draftlab": draftlab, "AIPerf": aiperf, "GuideLLM": guidellm}


def call(o, command, work):
    """Runs a tool; its failure ends the program with its last words."""
    with open(work / "log", "w+", errors="replace") as out:
        done = subprocess.run(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, timeout=o.limit)
        if done.returncode:
            out.seek(0)
            sys.exit(f"{command[0]} failed with status {done.returncode}; the end of its output:\n{out.read()[-3000:]}")


def schedule(arrived, rate, process):
    """What arrivals, in seconds, say about the tool that sent them; lags in ms."""
    gaps = [b - a for a, b in zip(arrived, arrived[1:])]
    out = {"rate": len(gaps) / (arrived[-1] - arrived[0]), "gap_sd_over_mean": statistics.pstdev(gaps) / statistics.mean(gaps)}
    if process == "constant":
        late = [a - i / rate for i, a in enumerate(arrived)]
        out["lag"] = percentiles([1e3 * (x - min(late)) for x in late])
    else:
        n, ordered = len(gaps), sorted(gaps)
        cdf = [1 - math.exp(-rate * g) for g in ordered]
        out["ks"] = max(max((i + 1) / n - p, p - i / n) for i, p in enumerate(cdf))
    return out


def measure(o, tool):
    """One tool at one load: its own report, and the server's."""
    count = int(o.rate * o.seconds)
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        with Mock(o, work) as mock:
            reported = TOOLS[tool](o, mock.url, work, count)
        answers = mock.answers()
    begin = answers[0]["arrived_unix_ns"]
    kept = [a for a in answers if a["arrived_unix_ns"] - begin >= SETTLED * 1e9]
    if len(kept) < 10:
        sys.exit(f"{tool} sent {len(answers)} requests, of which {len(kept)} are left to judge: want --rate × --seconds larger")
    truth = {"ttft": percentiles([a["first_ns"] / 1e6 for a in answers]),
             "tpot": percentiles([(a["last_ns"] - a["first_ns"]) / 1e6 / (a["tokens"] - 1) for a in answers if a["tokens"] > 1])}
    return {"tool": tool, "rate": o.rate, "process": o.process, "requests": len(answers), "completed": reported["completed"], "asked": count,
            "schedule": schedule([(a["arrived_unix_ns"] - begin) / 1e9 for a in kept], o.rate, o.process), "truth": truth,
            "reported": {k: reported[k] for k in ("ttft", "tpot")}}


def error(run, metric, p):
    """What a tool reports less what the server did."""
    return run["reported"][metric][p] - run["truth"][metric][p]


def report(runs):
    """One line for each load and tool: medians over repetitions."""
    rows = []
    for key in dict.fromkeys((r["process"], r["rate"]) for r in runs):
        for tool in TOOLS:
            of = [r for r in runs if (r["process"], r["rate"], r["tool"]) == (*key, tool)]
            if not of:
                continue
            mid = lambda pick, digits: f"{statistics.median(map(pick, of)):.{digits}f}"
            lag = [mid(lambda r, p=p: r["schedule"]["lag"][p], 3) for p in ("p50", "p99")] if key[0] == "constant" else ["–", "–"]
            ks = "–" if key[0] == "constant" else mid(lambda r: r["schedule"]["ks"], 3)
            rows.append([f"{key[0]} {key[1]:g}/s", tool, len(of), mid(lambda r: r["completed"], 0), mid(lambda r: r["schedule"]["rate"], 2), *lag, ks,
                         *(mid(lambda r, m=m, p=p: error(r, m, p), 3) for m in ("ttft", "tpot") for p in ("p50", "p99"))])
    table(["load", "tool", "runs", "requests", "rate, /s", "lag p50, ms", "lag p99", "KS", "TTFT error p50", "p99", "TPOT error p50", "p99"], rows)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draftlab", type=pathlib.Path, required=True, help="draftlab's binary")
    p.add_argument("--dir", type=pathlib.Path, default=cache_dir() / "draftlab/peers/loadgens", help="where the tools are kept (default: %(default)s)")
    p.add_argument("--rates", default="50,200", help="requests a second (default: %(default)s)")
    p.add_argument("--processes", default="constant,poisson", help="arrivals (default: %(default)s)")
    p.add_argument("--tools", default=",".join(TOOLS), help="(default: %(default)s)")
    p.add_argument("--seconds", type=float, default=10, help="length of a run's load (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=8, help="of an answer (default: %(default)s)")
    p.add_argument("--reps", type=int, default=3, help="repetitions (default: %(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the order (default: %(default)s)")
    p.add_argument("--limit", type=float, default=300, help="seconds within which a run must end (default: %(default)s)")
    p.add_argument("--json", type=pathlib.Path, help="write every run here too, after each")
    o = p.parse_args()
    if not re.fullmatch(r"\d+(\.\d+)?(,\d+(\.\d+)?)*", o.rates):
        p.error(f"--rates {o.rates}: want numbers, as in 50,200")
    if bad := set(o.processes.split(",")) - {"constant", "poisson"}:
        p.error(f"--processes: no {bad.pop()!r}")
    if bad := set(o.tools.split(",")) - set(TOOLS):
        p.error(f"--tools: no {bad.pop()!r}")
    if o.tokens < 2 or o.reps < 1:
        p.error("--tokens must be at least 2, --reps at least 1")
    o.dir, o.draftlab = o.dir.resolve(), o.draftlab.resolve()
    return o


def main():
    o = arguments()
    install(o)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng, runs = random.Random(o.seed), []
    with tempfile.TemporaryDirectory() as tmp:
        o.prompts, o.texts = pathlib.Path(tmp) / "prompts.jsonl", pathlib.Path(tmp) / "texts.jsonl"
        questions = [f"Tell me something about the number {i}." for i in range(20000)]
        o.prompts.write_text("".join(json.dumps({"prompt": q}) + "\n" for q in questions))
        o.texts.write_text("".join(json.dumps({"text": q}) + "\n" for q in questions[:1000]))
        for rep in range(o.reps):
            for o.process in o.processes.split(","):
                for o.rate in map(float, o.rates.split(",")):
                    tools = o.tools.split(",")
                    for tool in rng.sample(tools, len(tools)):
                        runs.append(run := measure(o, tool))
                        log(f"repetition {rep + 1} of {o.reps}, {o.process} {o.rate:g}/s, {tool}: {run['schedule']}")
                        if o.json:
                            o.json.write_text(json.dumps({"versions": VERSIONS, "runs": runs}, indent=1) + "\n")
    report(runs)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
