"""Reference values for package quant, from the Python package gguf (the ggml project's own).

    python golden.py > golden.txt        # with gguf 0.19.0 and numpy 2.4.6

A line is "decode TYPE BLOCKS VALUES" or "encode TYPE VALUES BLOCKS": BLOCKS are bytes and VALUES
are little-endian float32, both in hexadecimal. Random blocks come with ordinary scales and with
hostile ones (zero, denormal, largest, infinite, NaN, either sign).
"""

from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES

SCALES = {  # byte offsets of the F16 fields of a block
    T.Q8_0: [0], T.Q4_0: [0], T.Q5_0: [0], T.Q4_1: [0, 2], T.Q5_1: [0, 2],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
ORDINARY = [0x2C31, 0xA9F7]
HOSTILE = [0x0000, 0x8001, 0x03FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01]


def bf16(values):
    return quants.quantize(values, T.BF16).view(np.uint8)


def line(verb, name, source, result):
    print(verb, name, source.tobytes().hex(), result.tobytes().hex())


def decode_cases(rng):
    for t, fields in SCALES.items():
        size = GGML_QUANT_SIZES[t][1]
        patterns = ORDINARY + HOSTILE
        step = 1 if size < 100 else 3  # the large blocks take fewer cases
        for i in range(0, len(patterns), step):
            block = rng.integers(0, 256, size, dtype=np.uint8)
            for k, off in enumerate(fields):
                value = patterns[(i + k * 3) % len(patterns)]
                block[off : off + 2] = np.array([value], "<u2").view(np.uint8)
            line("decode", t.name, block, quants.dequantize(block[None, :], t))
    halves = np.concatenate([rng.integers(0, 65536, 48), ORDINARY, HOSTILE]).astype("<u2")
    line("decode", "F16", halves, quants.dequantize(halves, T.F16))
    line("decode", "BF16", halves, quants.dequantize(halves.view(np.uint8), T.BF16))


def edges():
    """float32 values at which rounding to 16 bits turns."""
    bits = [0, 0x80000000, 1, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000]
    for h in [0x0000, 0x0001, 0x0002, 0x03FE, 0x03FF, 0x0400, 0x3C00, 0x3C01, 0x7BFE, 0x7BFF]:
        low = np.array([h], np.uint16).view(np.float16).astype(np.float64)[0]
        step = 32.0 if h >= 0x7BFE else np.array([h + 1], np.uint16).view(np.float16).astype(np.float64)[0] - low
        tie = np.float32(low + step / 2).view(np.uint32)
        bits += [tie - 1, tie, tie + 1] if tie else [tie, tie + 1]
    for top in [0x3F80, 0x3F81, 0x7F7F, 0x0000]:
        bits += [(top << 16) + 0x7FFF, (top << 16) + 0x8000, (top << 16) + 0x8001]
    return np.array(bits, np.uint32).view(np.float32)


def encode_cases(rng):
    rows = [rng.standard_normal(32), rng.uniform(-1, 3, 32) * 1e-3, np.zeros(32), np.full(32, -0.7),
            np.linspace(-1, 1, 32), np.linspace(0, 6e4, 32), rng.standard_normal(32) * 1e-7]
    for row in rows:
        row = row.astype(np.float32)
        for t in [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1]:
            line("encode", t.name, row, quants.quantize(row[None, :], t))
    values = np.concatenate([edges(), rng.standard_normal(16).astype(np.float32)])
    line("encode", "F16", values, quants.quantize(values, T.F16))
    line("encode", "BF16", values, bf16(values))


np.seterr(all="ignore")
print("# Made by golden.py, which says how, with gguf", version("gguf"), "and numpy", np.__version__)
generator = np.random.default_rng(20261129)
decode_cases(generator)
encode_cases(generator)
