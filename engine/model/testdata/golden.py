#!/usr/bin/env python3
"""Golden values of package model, computed by Hugging Face transformers.

    pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6 jinja2==3.1.6
    python golden.py tiny                    # tiny/*/ and tiny/*.golden.safetensors
    python golden.py real --gguf FILE.gguf   # smollm2.golden.safetensors and smollm2.golden.json

`tiny` makes random checkpoints of every supported family from fixed seeds and stores the logits
and layer inputs that transformers computes on them. `real` dequantises the default target into a
float32 LlamaForCausalLM and stores samples of what that computes on the prompts of prompts.toml.
Everything runs on the CPU, in float32, with eager attention. README.md describes the files.
"""

import argparse
import hashlib
import json
import math
import pathlib
import tomllib

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = "torch 2.15.0, transformers 5.24.0, gguf 0.19.0, CPU, float32, eager attention"

# ---------------------------------------------------------------- tiny families

# Shapes: multiples of 32 where a matrix is read along them, otherwise odd (a vocabulary that no
# vector width divides, six heads over two). Configurations are written by hand in the forms that
# published checkpoints use: rope_theta/rope_scaling (older) and rope_parameters (newer).
TINY = {
    "llama": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=96, intermediate_size=160,
        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=16, rope_theta=10000.0,
        # Wavelengths of 16-wide heads run from 6 to 20000: with these limits the scaling leaves
        # one frequency alone, blends two and divides the rest by the factor.
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=64),
        tie_word_embeddings=False, attention_bias=False, mlp_bias=False, rms_norm_eps=1e-5, torch_dtype="bfloat16"),
    "llama-tied": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rope_theta=100000.0, rope_scaling=None,
        tie_word_embeddings=True, attention_bias=False, mlp_bias=False, rms_norm_eps=1e-5, torch_dtype="float32"),
    "mistral": dict(
        architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32, rope_theta=1000000.0,
        sliding_window=None, tie_word_embeddings=False, rms_norm_eps=1e-5, torch_dtype="float32"),
    "qwen2": dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=96, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, rope_theta=1000000.0,
        use_sliding_window=False, sliding_window=None, max_window_layers=2,
        tie_word_embeddings=True, rms_norm_eps=1e-6, torch_dtype="float32"),
    "qwen3": dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), layer_types=["full_attention"] * 2,
        use_sliding_window=False, sliding_window=None, max_window_layers=2, attention_bias=False,
        tie_word_embeddings=True, rms_norm_eps=1e-6, dtype="float32"),
}
COMMON = dict(vocab_size=131, max_position_embeddings=512, hidden_act="silu", bos_token_id=1, eos_token_id=2)
SHARDED = "qwen2"  # written as two files with an index
LENGTHS = (1, 2, 7, 16, 17, 33, 70)  # around the 16 positions of a key/value block, and past several of them


def tiny_tensors(c, gen):
    """Random weights of configuration c under their checkpoint names, float32.

    Matrices have standard deviation 1.5/sqrt(columns), so that attention and the MLP move the
    residual stream as much as it is long; gains and biases are far from one and zero.
    """
    def mat(rows, cols, std=None):
        return torch.randn(rows, cols, generator=gen) * (1.5 / math.sqrt(cols) if std is None else std)

    def gain(n):
        return 1 + 0.25 * torch.randn(n, generator=gen)

    h, f = c["hidden_size"], c["intermediate_size"]
    nq, nkv = c["num_attention_heads"], c["num_key_value_heads"]
    hd = c.get("head_dim", h // nq)
    t = {"model.embed_tokens.weight": mat(c["vocab_size"], h, 0.4), "model.norm.weight": gain(h)}
    if not c["tie_word_embeddings"]:
        t["lm_head.weight"] = mat(c["vocab_size"], h, 0.4)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        t[p + "input_layernorm.weight"] = gain(h)
        t[p + "post_attention_layernorm.weight"] = gain(h)
        for name, rows in (("q", nq * hd), ("k", nkv * hd), ("v", nkv * hd)):
            t[p + f"self_attn.{name}_proj.weight"] = mat(rows, h)
            if c["model_type"] == "qwen2":
                t[p + f"self_attn.{name}_proj.bias"] = 0.5 * torch.randn(rows, generator=gen)
        if c["model_type"] == "qwen3":
            t[p + "self_attn.q_norm.weight"] = gain(hd)
            t[p + "self_attn.k_norm.weight"] = gain(hd)
        t[p + "self_attn.o_proj.weight"] = mat(h, nq * hd)
        t[p + "mlp.gate_proj.weight"] = mat(f, h)
        t[p + "mlp.up_proj.weight"] = mat(f, h)
        t[p + "mlp.down_proj.weight"] = mat(h, f)
    return t


def write_checkpoint(folder, config, tensors, sharded):
    """Writes config.json and the weights, in two shards with an index if sharded."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if not sharded:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    halves = [names[: len(names) // 2], names[len(names) // 2:]]
    where = {}
    for i, part in enumerate(halves, 1):
        file = f"model-{i:05d}-of-00002.safetensors"
        save_file({n: tensors[n] for n in part}, folder / file, {"format": "pt"})
        where.update({n: file for n in part})
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def make_tiny(name, seed):
    """Makes one tiny checkpoint and the golden file beside it."""
    from transformers import AutoModelForCausalLM

    gen = torch.Generator().manual_seed(seed)
    config = {**TINY[name], **COMMON}
    kind = getattr(torch, config.get("torch_dtype") or config["dtype"])
    tensors = {n: t.to(kind).contiguous() for n, t in tiny_tensors(config, gen).items()}
    folder = HERE / "tiny" / name
    write_checkpoint(folder, config, tensors, name == SHARDED)

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    layers = config["num_hidden_layers"]
    out = {"tokens": [], "logits": []} | {f"tap.{i}": [] for i in range(layers)}
    for n in LENGTHS:
        ids = torch.randint(0, config["vocab_size"], (n,), generator=gen)
        logits, taps = forward(model, ids.tolist(), range(layers))
        out["tokens"].append(ids.float())
        out["logits"].append(logits)
        for i, tap in taps.items():
            out[f"tap.{i}"].append(tap)
    out = {k: torch.cat(v).contiguous() for k, v in out.items()}
    out["starts"] = torch.tensor(np.concatenate([[0], np.cumsum(LENGTHS)]), dtype=torch.float32)
    save_golden(HERE / "tiny" / f"{name}.golden.safetensors", out, f"golden.py tiny, {name}, seed {seed}")
    print(f"{name}: {sum(LENGTHS)} positions, logits std {out['logits'].std():.2f}, "
          f"largest {out['logits'].abs().max():.1f}, tap rms " +
          " ".join(f"{out[f'tap.{i}'].square().mean().sqrt():.2f}" for i in range(layers)))


def forward(model, ids, layers):
    """Returns logits [len(ids), vocab] and the inputs of the given layers {i: [len(ids), hidden]}."""
    with torch.no_grad():
        r = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return r.logits[0], {i: r.hidden_states[i][0] for i in layers}


def save_golden(path, tensors, recipe):
    """Stores float32 tensors; whole numbers too, which float32 holds exactly below 2^24."""
    assert all(t.dtype == torch.float32 for t in tensors.values())
    save_file(tensors, path, {"recipe": recipe, "versions": VERSIONS})


# ---------------------------------------------------------------- the default target

TAPS = (2, 15, 27)  # the layers whose inputs an EAGLE-3 drafter of this target reads
STRIDE = 8          # every how many positions logits and taps are sampled
SAMPLED_IDS = 48    # logits a sampled position
SAMPLED_DIMS = 24   # tap elements a sampled position
GREEDY_TOKENS = 48

GGUF_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def hf_name(name):
    """The checkpoint name of a GGUF llama tensor."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{GGUF_NAMES[part]}.{suffix}"


def unpermute(w, heads):
    """Undoes GGUF's order of q and k rows: there the two halves of a head's rotary pairs are interleaved."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def load_gguf(path):
    """Dequantises a GGUF llama model into (LlamaForCausalLM, tokenizer)."""
    import gguf
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(path)
    meta = {k: f.contents() for k, f in reader.fields.items()}
    key = lambda s: meta["llama." + s]
    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=key("vocab_size"), hidden_size=key("embedding_length"), intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=key("context_length"), rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_parameters=dict(rope_type="default", rope_theta=key("rope.freq_base")), tie_word_embeddings=True,
        bos_token_id=meta["tokenizer.ggml.bos_token_id"], eos_token_id=meta["tokenizer.ggml.eos_token_id"])
    config._attn_implementation = "eager"
    state = {}
    for t in reader.tensors:
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in t.shape[::-1]])
        if ".attn_q." in t.name or ".attn_k." in t.name:
            w = unpermute(w, heads if ".attn_q." in t.name else kv_heads)
        state[hf_name(t.name)] = torch.from_numpy(np.ascontiguousarray(w))
    model = LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing in ([], ["lm_head.weight"]) and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model, tokenizer_of(meta)


def tokenizer_of(meta):
    """The GGUF's byte-level BPE as a Hugging Face tokenizer (pre-tokenizer `smollm`: single digits, then GPT-2's)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    assert meta["tokenizer.ggml.pre"] == "smollm"
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    control = [s for s, k in zip(tokens, meta["tokenizer.ggml.token_type"]) if k == 3]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in control])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, eos_token=tokens[meta["tokenizer.ggml.eos_token_id"]])
    fast.chat_template = meta["tokenizer.chat_template"]
    return fast


def encode(tok, entry):
    """Token ids of a prompts.toml entry, before cutting or extending."""
    text = entry.get("text")
    if text is None:
        messages = [{"role": r, "content": c} for r, c in entry["messages"]]
        text = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tok.encode(text.removeprefix("\n"), add_special_tokens=False)


def greedy(model, ids, n):
    """n greedy tokens after ids, and the margin of each over the second best."""
    out, margins, cache, feed = [], [], None, ids
    with torch.no_grad():
        for _ in range(n):
            r = model(torch.tensor([feed]), cache=cache, use_cache=True)
            cache, top = r.cache, r.logits[0, -1].topk(2)
            out.append(top.indices[0].item())
            margins.append((top.values[0] - top.values[1]).item())
            feed = out[-1:]
            if out[-1] == model.config.eos_token_id:
                break
    return out, margins


def prompt_ids(model, tok, entry):
    """The token ids of one prompt, cut or extended as its entry says."""
    ids, want = encode(tok, entry), entry.get("tokens")
    while entry.get("extend") and len(ids) < want:
        ids += greedy(model, ids, want - len(ids))[0]
        if len(ids) < want and ids[-1] == model.config.eos_token_id:
            ids += tok.encode("\n<|im_start|>user\nPlease go on.<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    return ids[:want]


def sample(model, ids, vocab_ids, dims):
    """What the golden file keeps of one prompt (see README.md)."""
    logits, taps = forward(model, ids, TAPS)
    top = logits.topk(2, dim=1)
    following = torch.tensor(ids[1:])
    at = sorted(set(range(0, len(ids), STRIDE)) | {len(ids) - 1})
    out = {
        "tokens": torch.tensor(ids), "argmax": top.indices[:, 0], "best": top.values[:, 0], "second": top.values[:, 1],
        "logsumexp": logits.logsumexp(1),
        # The last position has no next token; its own best stands there so that the arrays line up.
        "next": torch.cat([logits[:-1].gather(1, following[:, None])[:, 0], top.values[-1:, 0]]),
        "sampled.at": torch.tensor(at), "sampled.logits": logits[at][:, vocab_ids], "sampled.max": logits[at].abs().amax(1),
    }
    for i, tap in taps.items():
        out[f"sampled.tap.{i}"] = tap[at][:, dims]
        out[f"sampled.tap.{i}.rms"] = tap[at].square().mean(1).sqrt()
    return {k: v.float() for k, v in out.items()}


def make_real(gguf_path):
    """Makes smollm2.golden.safetensors and smollm2.golden.json."""
    model, tok = load_gguf(gguf_path)
    spec = tomllib.loads((HERE / "prompts.toml").read_text())
    vocab, hidden = model.config.vocab_size, model.config.hidden_size
    # Spread over the vocabulary, with an odd step so that all residues modulo 16 occur.
    vocab_ids = torch.tensor([i * (vocab // SAMPLED_IDS | 1) % vocab for i in range(SAMPLED_IDS - 1)] + [vocab - 1])
    dims = torch.tensor([i * (hidden // SAMPLED_DIMS | 1) % hidden for i in range(SAMPLED_DIMS)])
    parts, names, starts = [], [], [0]
    for entry in spec["prompt"]:
        ids = prompt_ids(model, tok, entry)
        parts.append(sample(model, ids, vocab_ids, dims))
        names.append(f"{entry['kind']}/{entry['name']}")
        starts.append(starts[-1] + len(ids))
        p = parts[-1]
        nll = (p["logsumexp"] - p["next"])[:-1]
        print(f"{names[-1]:28s} {len(ids):4d} tokens, perplexity {nll.mean().exp() if len(nll) else math.nan:8.2f}")
    sampled = np.cumsum([0] + [len(p["sampled.at"]) for p in parts])
    out = {k: torch.cat([p[k] for p in parts]).contiguous() for k in parts[0]}
    out |= {"starts": torch.tensor(starts).float(), "sampled.starts": torch.tensor(sampled).float(),
            "sampled.ids": vocab_ids.float(), "sampled.dims": dims.float()}
    sha = hashlib.sha256(pathlib.Path(gguf_path).read_bytes()).hexdigest()
    recipe = f"golden.py real, {pathlib.Path(gguf_path).name}, SHA-256 {sha}"
    save_golden(HERE / "smollm2.golden.safetensors", out, recipe)
    doc = {"recipe": recipe, "versions": VERSIONS, "prompts": names, "greedy": greedy_cases(model, tok, spec)}
    (HERE / "smollm2.golden.json").write_text(json.dumps(doc, indent=1, ensure_ascii=False) + "\n")


def greedy_cases(model, tok, spec):
    """Greedy continuations of the prompts marked for it."""
    cases = []
    for entry in [p for p in spec["prompt"] if p.get("greedy")] + spec["greedy"]:
        ids = encode(tok, entry)
        out, margins = greedy(model, ids, GREEDY_TOKENS)
        cases.append({"name": entry["name"], "prompt_ids": ids, "token_ids": out,
                      "margins": [round(m, 4) for m in margins], "text": tok.decode(out)})
        print(f"--- {entry['name']}\n{cases[-1]['text']}")
    return cases


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=("tiny", "real"))
    a.add_argument("--gguf", help="the default target, SmolLM2-135M-Instruct.Q4_1.gguf")
    args = a.parse_args()
    if args.what == "tiny":
        for seed, name in enumerate(TINY, 1):
            make_tiny(name, seed)
    elif args.gguf:
        make_real(args.gguf)
    else:
        a.error("real needs --gguf FILE")


if __name__ == "__main__":
    main()
