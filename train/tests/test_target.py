"""The target against Hugging Face transformers, its decoder against its own forward pass, and the GGUF formats."""

import struct

import numpy as np
import pytest
import tiny
import torch

from eagle3 import decode, gguf, hub, ops
from eagle3.target import Decoder, Target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write(str(tmp_path_factory.mktemp("target")))


def test_forward_is_that_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    target = Target(hub.load(folder))
    tokens = torch.randint(3, 250, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = reference(tokens, output_hidden_states=True)
    taps, hidden = target.forward(tokens)
    wanted = torch.cat([want.hidden_states[i] for i in target.shape.taps], -1).flatten(0, 1)
    assert torch.allclose(taps, wanted, atol=1e-4)
    assert torch.allclose(hidden @ target.head.T, want.logits.flatten(0, 1), atol=1e-4)
    assert torch.equal(target.argmax(hidden), want.logits.flatten(0, 1).argmax(-1))


def test_decoder_equals_forward(folder):
    target = Target(hub.load(folder))
    tokens = torch.randint(3, 250, (3, 17), generator=torch.Generator().manual_seed(2))
    want = (target.forward(tokens)[1] @ target.head.T).view(3, 17, -1)
    decoder = Decoder(target, 3, 32)
    # The first turn writes other text into the cache: a slot that goes back must not see it.
    for text in (tokens.flip(1), tokens):
        for i in range(17):
            logits = decoder.step(text[:, i], torch.full((3,), i))
    assert torch.allclose(logits, want[:, -1], atol=1e-4)


def test_slots_decode_at_their_own_positions():
    slots, heads, kv, dim, length = 4, 4, 2, 16, 12
    g = torch.Generator().manual_seed(0)
    qkv = torch.randn(slots, (heads + 2 * kv) * dim, generator=g)
    keys, values = torch.randn(2, slots, kv, length, dim, generator=g)
    positions = torch.tensor([0, 3, 7, 11])
    cos, sin = ops.angles(torch.arange(length), dim, 1e4)
    together = decode.attend(qkv, keys.clone(), values.clone(), positions, cos, sin, heads)
    for i in range(slots):
        part = slice(i, i + 1)
        alone = decode.attend(qkv[part], keys[part].clone(), values[part].clone(), positions[part], cos, sin, heads)
        assert torch.allclose(together[part], alone, atol=1e-6)
    # At position 0 a slot sees its own value row alone.
    own = qkv[0, (heads + kv) * dim:].view(kv, dim).repeat_interleave(heads // kv, 0).reshape(-1)
    assert torch.allclose(together[0], own, atol=1e-6)


def _string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def test_gguf_formats(tmp_path):
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, 32)
    packed = bytes((codes[:16] | codes[16:] << 4).astype(np.uint8))
    halves = lambda *v: np.array(v, dtype=np.float16).tobytes()
    signed = random.integers(-127, 128, 32).astype(np.int8)
    data = {"a": (3, halves(0.5, -2.0) + packed, codes * 0.5 - 2.0), "b": (2, halves(0.25) + packed, (codes - 8) * 0.25),
            "c": (8, halves(0.125) + signed.tobytes(), signed * 0.125)}
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(data), 2), b""
    head += _string("general.architecture") + struct.pack("<I", 8) + _string("llama")
    head += _string("n") + struct.pack("<IIQ", 9, 4, 3) + struct.pack("<III", 1, 2, 3)
    for name, (kind, raw, _) in data.items():
        head += _string(name) + struct.pack("<IQIQ", 1, 32, kind, len(body))
        body += raw + b"\0" * (-len(raw) % 32)
    path = tmp_path / "x.gguf"
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    file = gguf.GGUF(str(path))
    assert file.meta == {"general.architecture": "llama", "n": [1, 2, 3]}
    for name, (_, _, want) in data.items():
        assert np.array_equal(file.tensor(name), want.astype(np.float32)), name
    for cut, message in ((len(head) - 9, "cut off in its header"), (len(head) + 40, "is cut off or misshapen")):
        path.write_bytes((head + b"\0" * (-len(head) % 32) + body)[:cut])
        with pytest.raises(ValueError, match=message):
            gguf.GGUF(str(path)).tensor("c")
    path.write_bytes(b"GGML" + head[4:])
    with pytest.raises(ValueError, match="not a GGUF"):
        gguf.GGUF(str(path))


def test_unpermute_undoes_the_conversion():
    # What a converter does: rows of each head, split into halves, are interleaved.
    w = np.arange(2 * 8 * 3).reshape(16, 3)
    permuted = w.reshape(2, 2, 4, 3).swapaxes(1, 2).reshape(16, 3)
    assert np.array_equal(hub._unpermute(permuted, 2), w)
