"""Reads GGUF files: metadata, and tensors dequantised to float32.

Only what a Llama-architecture target needs: F32, F16, BF16, Q4_0, Q4_1, Q8_0. Anything else is an error that names
the tensor. The formats are those of ggml: blocks of 32 weights along a row, a half-precision scale d (and, for Q4_1,
a minimum m) before the codes; in the four-bit formats byte j holds weight j in its low and weight j+16 in its high bits.
"""

import mmap
import struct

import numpy as np

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9

# type id -> (name, weights a block, bytes a block)
_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34),
          30: ("BF16", 1, 2)}


class GGUF:
    """A GGUF file, mapped. `meta` holds the metadata, `tensor(name)` a tensor as float32 [rows, cols]."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self._raw = np.frombuffer(self._map, dtype=np.uint8)
        if self._map[:4] != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file")
        try:
            self._header(path)
        except (struct.error, UnicodeDecodeError, KeyError) as e:
            raise ValueError(f"{path}: broken or cut off in its header, at byte {self._at}; fetch it again") from e

    def _header(self, path):
        self._at = 4
        version, tensors, pairs = self._scalar("<I"), self._scalar("<Q"), self._scalar("<Q")
        if version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {version}; this reader knows 2 and 3")
        self.meta = {}
        for _ in range(pairs):
            key = self._string()
            self.meta[key] = self._value(self._scalar("<I"))
        self._tensors = {}
        for _ in range(tensors):
            name = self._string()
            shape = [self._scalar("<Q") for _ in range(self._scalar("<I"))]
            kind, offset = self._scalar("<I"), self._scalar("<Q")
            self._tensors[name] = (shape, kind, offset)
        align = self.meta.get("general.alignment", 32)
        self._base = (self._at + align - 1) // align * align

    def names(self):
        """The tensors' names, in the file's order."""
        return list(self._tensors)

    def tensor(self, name):
        """The tensor as float32, outermost dimension first: a matrix comes back as [outputs, inputs]."""
        if name not in self._tensors:
            raise KeyError(f"GGUF: no tensor {name!r}")
        shape, kind, offset = self._tensors[name]
        if kind not in _TYPES:
            raise ValueError(f"GGUF: {name} has type {kind}; this reader knows {[t[0] for t in _TYPES.values()]}")
        label, block, size = _TYPES[kind]
        count = int(np.prod(shape))
        start = self._base + offset
        raw = self._raw[start:start + count // block * size]
        if count % block or len(raw) != count // block * size:
            raise ValueError(f"GGUF: {name} is cut off or misshapen ({shape}); fetch the file again")
        return _DECODE[label](raw).reshape(shape[::-1])

    def _scalar(self, fmt):
        value = struct.unpack_from(fmt, self._map, self._at)[0]
        self._at += struct.calcsize(fmt)
        return value

    def _string(self):
        size = self._scalar("<Q")
        text = self._map[self._at:self._at + size].decode("utf-8")
        self._at += size
        return text

    def _value(self, kind):
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(inner) for _ in range(count)]
        return self._scalar(_SCALARS[kind])


def _halves(raw):
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _nibbles(codes):
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32)


def _q4_0(raw):
    b = np.asarray(raw).reshape(-1, 18)
    return _halves(b[:, :2]) * (_nibbles(b[:, 2:]) - 8)


def _q4_1(raw):
    b = np.asarray(raw).reshape(-1, 20)
    scales = _halves(b[:, :4])
    return scales[:, :1] * _nibbles(b[:, 4:]) + scales[:, 1:]


def _q8_0(raw):
    b = np.asarray(raw).reshape(-1, 34)
    return _halves(b[:, :2]) * np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.float32)


def _bf16(raw):
    wide = np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32)


_DECODE = {"F32": lambda r: np.ascontiguousarray(r).view(np.float32).copy(), "F16": _halves, "BF16": _bf16,
           "Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}
