"""What a load generator says of a vLLM server, held to what the server's own /metrics counted meanwhile.

The server's clock starts when a request has been read and stops when a token is known, the client's when it sends and when it has
text; so a client's TTFT and end-to-end latency are longer, by the request's way there and back. Time between outputs has no such
way in it. One name differs: vLLM's "inter token latency", in its metrics and in `vllm bench serve`, is the time between two outputs, which with
drafts hold several tokens; draftlab calls that inter-chunk latency (ICL).
"""

import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

import build
import vllm_setup
from llamacpp import table

TOKENS = 64   # most output tokens of a request
WAY_MS = 10   # that a request's way there and back may take

# what is compared -> (key of draftlab bench, key of vllm bench serve)
COUNTS = {
    "requests": ("completed", "completed"), "output tokens": ("total_output_tokens", "total_output_tokens"), "prompt tokens": ("total_input_tokens", None),
    "cycles": ("spec_decode_num_drafts", "spec_decode_num_drafts"), "drafted": ("spec_decode_draft_tokens", "spec_decode_draft_tokens"),
    "accepted": ("spec_decode_accepted_tokens", "spec_decode_accepted_tokens"),
}
TIMES = {"TTFT": ("mean_ttft_ms", "mean_ttft_ms"), "TPOT": ("mean_tpot_ms", "mean_tpot_ms"), "ICL": ("mean_icl_ms", "mean_itl_ms"), "E2E": ("mean_e2el_ms", "mean_e2el_ms")}


def metrics(port):
    """The sums of a server's metrics by name; of histograms also by bucket ("name_bucket 1.0"), of positions by position."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    out = collections.Counter()
    for line in text.splitlines():
        if m := re.match(r"([\w:]+)(?:\{(.*)\})? (\S+)$", line):
            out[m[1]] += float(m[3])
            for label in re.findall(r'\b(?:le|position)="([^"]*)"', m[2] or ""):
                out[f"{m[1]} {label}"] += float(m[3])
    return out


def server_figures(before, after):
    """(counts, mean times in ms) of what a server has done between two readings."""
    grown = lambda name: after[f"vllm:{name}"] - before[f"vllm:{name}"]
    spec = lambda name: int(grown(f"spec_decode_num_{name}_total"))

    def mean(name, least=0):
        n = grown(f"{name}_count") - least
        return 1e3 * grown(f"{name}_sum") / n if n else 0.0

    counts = {"requests": int(grown("request_success_total")), "output tokens": int(grown("generation_tokens_total")), "prompt tokens": int(grown("prompt_tokens_total")),
              "cycles": spec("drafts"), "drafted": spec("draft_tokens"), "accepted": spec("accepted_tokens")}
    for k in range(counts["drafted"] // counts["cycles"] if counts["cycles"] else 0):
        counts[f"accepted at {k}"] = int(grown(f"spec_decode_num_accepted_tokens_per_pos_total {k}"))
    single = grown("request_generation_tokens_bucket 1.0")  # have no time per output token; vLLM counts 0 for them
    return counts, {"TTFT": mean("time_to_first_token_seconds"), "TPOT": mean("request_time_per_output_token_seconds", single),
                    "ICL": mean("inter_token_latency_seconds"), "E2E": mean("e2e_request_latency_seconds")}


def client_counts(said, counts, key):
    """Pairs (client's, server's) of the counts that a tool gives."""
    out = {k: (said.get(keys[key], 0), counts[k]) for k, keys in COUNTS.items() if keys[key]}
    for k, rate in enumerate(said.get("spec_decode_per_position_acceptance_rates") or []):
        out[f"accepted at {k}"] = (round(rate * said["spec_decode_num_drafts"]), counts.get(f"accepted at {k}", 0))
    return out


def loads(one):
    """The loads: name, flags of both tools. The open loop is as fast as one stream was."""
    rate = round(1e3 / one, 3) if one else 1
    return [("one stream", ["--max-concurrency", 1], "chat"), ("four streams", ["--max-concurrency", 4], "chat"),
            (f"open loop, {rate:g}/s", ["--request-rate", rate], "chat"), ("completions", ["--max-concurrency", 2], "completions")]


def draftlab_bench(o, port, flags, api, work):
    done = subprocess.run([str(x) for x in (o.draftlab, "bench", "--json", "--base-url", f"http://127.0.0.1:{port}", "--api", api, "--num-warmups", 0, "--num-prompts", o.requests,
                                            "--output-len", TOKENS, "--dataset-name", "jsonl", "--dataset-path", work / "prompts.jsonl", *flags)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"draftlab bench failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def vllm_bench(o, port, flags, api, work):
    program = vllm_setup.setup(o.dir)
    end = {"chat": ("openai-chat", "/v1/chat/completions"), "completions": ("openai", "/v1/completions")}[api]
    done = subprocess.run([str(x) for x in (program, "bench", "serve", "--backend", end[0], "--endpoint", end[1], "--base-url", f"http://127.0.0.1:{port}", "--model", "m",
                                            "--tokenizer", o.dir / "smollm2-bf16", "--dataset-name", "custom", "--dataset-path", work / "prompts.jsonl", "--custom-output-len", TOKENS,
                                            "--skip-chat-template", "--disable-shuffle", "--num-prompts", o.requests, "--num-warmups", 0, "--ready-check-timeout-sec", 0,
                                            "--temperature", 0, "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--result-filename", work / "vllm.json", *flags)],
                          capture_output=True, text=True, env=vllm_setup.environment(program, o.threads, o.dir / "vllm-cache"))
    if done.returncode:
        sys.exit(f"vllm bench serve failed:\n{done.stderr[-2000:]}")
    return json.loads((work / "vllm.json").read_text())


TOOLS = [("draftlab bench", draftlab_bench, 0), ("vllm bench serve", vllm_bench, 1)]


def measure(arms, o, work):
    """Runs every load on every server with both tools in turns; yields what came of each run."""
    for arm in arms:
        one = 0.0
        for index in range(len(loads(one))):
            name, flags, api = loads(one)[index]
            for rep in range(o.reps):
                for tool, run, key in TOOLS if rep % 2 == 0 else TOOLS[::-1]:
                    before = metrics(arm.server.port)
                    said = run(o, arm.server.port, flags, api, work)
                    counts, times = server_figures(before, metrics(arm.server.port))
                    one = one or said["mean_e2el_ms"]
                    yield {"arm": arm.name, "load": name, "repetition": rep, "tool": tool, "counts": client_counts(said, counts, key),
                           "times": {k: (said[keys[key]], times[k]) for k, keys in TIMES.items()}}
            build.log(f"bench: {arm.name}, {name}: done")


def off(name, client, server, tolerance):
    """Whether a time of a client is not the server's own: TTFT and E2E have the request's way in them."""
    return abs(client - server) > tolerance * server + (WAY_MS if name in ("TTFT", "E2E") else 0)


def check(arms, prompts, o):
    """Measures, prints, and returns the runs and how many figures of `draftlab bench` are wrong."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        work.joinpath("prompts.jsonl").write_text("".join(json.dumps({"prompt": p["text"]}) + "\n" for p in prompts[:: max(1, len(prompts) // o.requests)]))
        runs = list(measure(arms, o, work))
    wrong, rows = 0, []
    for key in dict.fromkeys((r["arm"], r["load"], r["tool"]) for r in runs):
        of = [r for r in runs if (r["arm"], r["load"], r["tool"]) == key]
        counts = [f"{k}: {c} for {s}" for r in of for k, (c, s) in r["counts"].items() if c != s]
        late = [k for r in of for k, (c, s) in r["times"].items() if off(k, c, s, o.tolerance)]
        if key[2] == "draftlab bench":
            wrong += len(counts) + len(late)
        less = lambda k: statistics.median(c - s for r in of for c, s in [r["times"][k]])
        own = lambda k: statistics.median(r["times"][k][1] for r in of)
        rows.append([*key, *(f"{own(k):.2f} {less(k):+.2f}" for k in TIMES), "; ".join(dict.fromkeys(counts)) or "all the server's"])
    print(f"\nmean times as the server has them and what the client says more, ms (medians of {o.reps}); a count that is not the server's")
    table(["server", "load", "client", *TIMES, "counts"], rows)
    print(f"draftlab bench: {wrong} figures are not the server's")
    return runs, wrong
