"""Loads a target by path or name: its shape, its weights, its tokenizer and its chat template.

A path to a .gguf file or to a Hugging Face directory (config.json, *.safetensors, tokenizer.json) is read as it is;
any other name goes to the Hugging Face hub through huggingface_hub, if that is installed.
"""

import json
import os
from dataclasses import dataclass, field

import torch

from .gguf import GGUF


@dataclass
class Shape:
    """Dimensions of a Llama-architecture model."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    eps: float
    context: int
    bos: int
    eos: int

    @property
    def taps(self):
        """The layers whose input residual stream the drafter sees: what engines use when a config names none."""
        return (2, self.layers // 2, self.layers - 3)


@dataclass
class Checkpoint:
    """A target as read from disk: `weights` are float32, named as in Hugging Face's Llama, without "model."."""
    name: str
    shape: Shape
    weights: dict
    tokenizer: object = None
    chat_template: str = ""
    extra: dict = field(default_factory=dict)


def load(name):
    """Loads a target. Raises ValueError with the remedy when it is not a plain Llama."""
    if name.endswith(".gguf"):
        return _from_gguf(name)
    if not os.path.isdir(name):
        from huggingface_hub import snapshot_download
        name = snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja"])
    return _from_directory(name)


def _from_gguf(path):
    g = GGUF(path)
    m = g.meta
    if m.get("general.architecture") != "llama":
        raise ValueError(f"{path}: architecture {m.get('general.architecture')!r}; only llama is supported")
    if any(k.startswith("llama.rope.scaling") for k in m):
        raise ValueError(f"{path}: scaled rotary embeddings are not supported")
    heads, hidden = m["llama.attention.head_count"], m["llama.embedding_length"]
    shape = Shape(
        layers=m["llama.block_count"], hidden=hidden, heads=heads,
        kv_heads=m.get("llama.attention.head_count_kv", heads),
        head_dim=m.get("llama.rope.dimension_count", hidden // heads), ffn=m["llama.feed_forward_length"],
        vocab=len(m["tokenizer.ggml.tokens"]), rope_theta=float(m.get("llama.rope.freq_base", 10000.0)),
        eps=float(m["llama.attention.layer_norm_rms_epsilon"]), context=m["llama.context_length"],
        bos=m["tokenizer.ggml.bos_token_id"], eos=m["tokenizer.ggml.eos_token_id"])
    w = {"embed_tokens.weight": g.tensor("token_embd.weight"), "norm.weight": g.tensor("output_norm.weight")}
    if "output.weight" in g.names():
        w["lm_head.weight"] = g.tensor("output.weight")
    pieces = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
              "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
              "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for i in range(shape.layers):
        for ours, theirs in pieces.items():
            t = g.tensor(f"blk.{i}.{ours}.weight")
            if ours in ("attn_q", "attn_k"):
                t = _unpermute(t, shape.heads if ours == "attn_q" else shape.kv_heads)
            w[f"layers.{i}.{theirs}.weight"] = t
    if "rope_freqs.weight" in g.names():
        raise ValueError(f"{path}: rope_freqs.weight (scaled rotary embeddings) is not supported")
    weights = {k: torch.from_numpy(v) for k, v in w.items()}
    return Checkpoint(os.path.basename(path), shape, weights, _gguf_tokenizer(m), m.get("tokenizer.chat_template", ""))


def _unpermute(w, heads):
    """GGUF stores q and k rows for rotation of neighbouring pairs; Hugging Face rotates halves. Undoes that."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def _gguf_tokenizer(m):
    """Byte-level BPE from a GGUF's tokens and merges, for the pre-tokenizers whose rule we know."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    if m.get("tokenizer.ggml.model") != "gpt2" or m.get("tokenizer.ggml.pre") not in ("smollm", "gpt-2", "default"):
        raise ValueError(f"GGUF tokenizer {m.get('tokenizer.ggml.model')}/{m.get('tokenizer.ggml.pre')} is not known: "
                         "pass a Hugging Face directory with its tokenizer.json")
    vocab = {t: i for i, t in enumerate(m["tokenizer.ggml.tokens"])}
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(p.split(" ")) for p in m["tokenizer.ggml.merges"]]))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if m["tokenizer.ggml.pre"] == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"]) if kind == 3]
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tok


def _from_directory(path):
    from safetensors import safe_open
    with open(os.path.join(path, "config.json")) as f:
        c = json.load(f)
    if c.get("model_type") != "llama" or c.get("attention_bias") or c.get("mlp_bias"):
        raise ValueError(f"{path}: not a plain Llama without biases (model_type {c.get('model_type')!r})")
    rope = c.get("rope_parameters") or {}
    if c.get("rope_scaling") or rope.get("rope_type", "default") != "default":
        raise ValueError(f"{path}: scaled rotary embeddings are not supported")
    eos = c.get("eos_token_id")
    shape = Shape(
        layers=c["num_hidden_layers"], hidden=c["hidden_size"], heads=c["num_attention_heads"],
        kv_heads=c.get("num_key_value_heads") or c["num_attention_heads"],
        head_dim=c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"], ffn=c["intermediate_size"],
        vocab=c["vocab_size"], rope_theta=float(c.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        eps=float(c["rms_norm_eps"]), context=c["max_position_embeddings"],
        bos=c.get("bos_token_id"), eos=eos[0] if isinstance(eos, list) else eos)
    weights = {}
    for file in sorted(f for f in os.listdir(path) if f.endswith(".safetensors")):
        with safe_open(os.path.join(path, file), "pt") as s:
            for key in s.keys():
                weights[key.removeprefix("model.")] = s.get_tensor(key).float()
    if c.get("tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)
    tokenizer = None
    if os.path.exists(os.path.join(path, "tokenizer.json")):
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    return Checkpoint(os.path.basename(os.path.normpath(path)), shape, weights, tokenizer, _template(path))


def _template(path):
    for file in ("chat_template.jinja", "tokenizer_config.json"):
        full = os.path.join(path, file)
        if os.path.exists(full):
            with open(full) as f:
                text = f.read()
            text = text if file.endswith(".jinja") else json.loads(text).get("chat_template")
            if text:
                return text
    return ""
