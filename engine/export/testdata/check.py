"""Holds what `draftlab model export` writes to Hugging Face's own libraries. Run from the root of the repository:

    pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6 jinja2==3.1.6
    go build -o draftlab ./cmd/draftlab
    python engine/export/testdata/check.py real ./draftlab MODEL.gguf   # the default model: draftlab pull prints its path
    python engine/export/testdata/check.py tiny ./draftlab              # every family

real   Exports the default model and compares, for float32: each tensor with what the package gguf dequantises, to the bit; logits
       in transformers with engine/model/testdata/smollm2.golden.safetensors, which the float32 path of draftlab is held to as
       well; ids and text of the tokenizer with engine/tokenizer/testdata (thousands of hard strings, both ways); and the chat
       template. For bfloat16 and float16 it prints how far the logits are off and how often the most likely token differs,
       which the command's help quotes.
tiny   Lays the random checkpoints of engine/model/testdata/tiny out as llama.cpp's converter does, exports them, and compares
       transformers' logits with the goldens there: biases, norms of heads, llama3 scaling, tied and untied heads, Mistral.

It prints a line a check and ends with status 1 if one fails.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "engine/model/testdata"
TOKENIZER = "engine/tokenizer/testdata"
failed = False


def check(what, good, detail=""):
    global failed
    failed = failed or not good
    print(f"{'ok    ' if good else 'FAILED'} {what}{': ' + detail if detail else ''}", flush=True)


def export(draftlab, source, folder, *flags):
    subprocess.run([draftlab, "model", "export", source, folder, *flags], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager", output_loading_info=True)
    check("transformers finds every tensor and no other", not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")))
    return model.eval()


def halves(x, heads):
    """Undoes the rotary permutation: neighbours become halves."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def hf_name(name):
    if name in GLOBAL:
        return GLOBAL[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def tensors(source, folder):
    reader = gguf.GGUFReader(source)
    field = lambda key: reader.fields[f"llama.attention.{key}"].contents()
    got = load_file(os.path.join(folder, "model.safetensors"))
    same = 0
    for t in reader.tensors:
        want = gguf.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
        if ".attn_q.w" in t.name or ".attn_k.w" in t.name:
            want = halves(want, field("head_count" if ".attn_q." in t.name else "head_count_kv"))
        same += np.array_equal(got[hf_name(t.name)].view(np.uint32), np.ascontiguousarray(want, np.float32).view(np.uint32))
    check("tensors equal the dequantised ones to the bit", same == len(reader.tensors) == len(got), f"{same} of {len(reader.tensors)}")


@torch.no_grad()
def logits(model, ids):
    return model(torch.tensor([ids])).logits[0].float().numpy()


def golden_logits(model, exact):
    g = load_file(f"{MODEL}/smollm2.golden.safetensors")
    starts, tokens = g["starts"].astype(int), g["tokens"].astype(int)
    rows, ids = g["sampled.starts"].astype(int), g["sampled.ids"].astype(int)
    worst, differ, total, wide = 0.0, 0, 0, 0.0
    for i in range(len(starts) - 1):
        out = logits(model, tokens[starts[i]:starts[i + 1]].tolist())
        at = g["sampled.at"].astype(int)[rows[i]:rows[i + 1]]
        off = np.abs(out[at][:, ids] - g["sampled.logits"][rows[i]:rows[i + 1]]).max(1) / g["sampled.max"].reshape(-1)[rows[i]:rows[i + 1]]
        worst = max(worst, off.max())
        wrong = out.argmax(1) != g["argmax"][starts[i]:starts[i + 1]]
        margin = (g["best"] - g["second"])[starts[i]:starts[i + 1]]
        wide = max(wide, margin[wrong].max(initial=0))
        differ, total = differ + wrong.sum(), total + len(wrong)
    detail = f"worst row off by {worst:.1e} of its largest logit, other arg-max at {differ} of {total} (widest margin {wide:.2g})"
    if exact:
        check("logits are those of the goldens", worst < 1e-3 and wide < 1e-3, detail)
    else:
        print(f"note   {model.dtype}: {detail}", flush=True)


def read(name):
    with gzip.open(f"{TOKENIZER}/{name}.json.gz") as f:
        return json.load(f)


def tokenizer(folder):
    t = AutoTokenizer.from_pretrained(folder)
    texts, g = read("strings"), read("default.golden")
    encoded = sum(t(s)["input_ids"] == np.cumsum(d).tolist() for s, d in zip(texts, g["encode"]))
    check(f"{type(t).__name__} encodes the hard strings", encoded == len(texts), f"{encoded} of {len(texts)}")
    decoded = sum(t.decode(ids) == text and t.decode(ids, skip_special_tokens=True) == bare for ids, text, bare in g["decode"])
    check("it decodes", decoded == len(g["decode"]), f"{decoded} of {len(g['decode'])}")
    text = t.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    check("chat template", text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), repr(text[-40:]))
    check("special tokens", (t.bos_token_id, t.eos_token_id, t.pad_token_id, t.unk_token_id) == (1, 2, 2, 0) and len(t) == 49152)


def real(draftlab, source):
    for kind in ("f32", "bf16", "f16"):
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(tmp, "out")
            export(draftlab, source, folder, "--dtype", kind)
            model = load(folder)
            if kind == "f32":
                tensors(source, folder)
                tokenizer(folder)
                ends = model.generation_config.eos_token_id
                check("generation ends at", ends == [2, 0], str(ends))
            golden_logits(model, kind == "f32")


def neighbours(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def divisors(c, dim):
    """What llama.cpp's converter stores for the llama3 rule."""
    r = c["rope_scaling"]
    freq = 1 / c["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    turns = r["original_max_position_embeddings"] * freq / (2 * np.pi)
    s = (turns - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
    return (1 / ((1 - np.clip(s, 0, 1)) / r["factor"] + np.clip(s, 0, 1))).astype(np.float32)


def write_gguf(folder, path):
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    arch = "llama" if c["model_type"] == "mistral" else c["model_type"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // heads
    rope = c.get("rope_parameters") or c
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    back = {v: k for k, v in NAMES.items()}
    from safetensors.torch import load_file as load_torch
    for shard in sorted(n for n in os.listdir(folder) if n.endswith(".safetensors")):
        for name, t in load_torch(os.path.join(folder, shard)).items():
            x = t.float().numpy()
            if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
                x = neighbours(x, heads if "q_proj" in name else kv)
            if name.startswith("model.layers."):
                _, _, layer, part = name.split(".", 3)
                part, kind = part.rsplit(".", 1)
                name = f"blk.{layer}.{back[part]}.{kind}"
            else:
                name = {v: k for k, v in GLOBAL.items()}[name]
            w.add_tensor(name, np.ascontiguousarray(x))
    if (c.get("rope_scaling") or {}).get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", divisors(c, dim))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tiny(draftlab):
    for family in ("llama", "llama-tied", "mistral", "qwen2", "qwen3"):
        with tempfile.TemporaryDirectory() as tmp:
            source, folder = os.path.join(tmp, "m.gguf"), os.path.join(tmp, "out")
            write_gguf(f"{MODEL}/tiny/{family}", source)
            export(draftlab, source, folder)
            model = load(folder)
            g = load_file(f"{MODEL}/tiny/{family}.golden.safetensors")
            starts, tokens = g["starts"].astype(int), g["tokens"].astype(int)
            out = np.concatenate([logits(model, tokens[a:b].tolist()) for a, b in zip(starts, starts[1:])])
            off = (np.abs(out - g["logits"]).max(1) / np.abs(g["logits"]).max(1)).max()
            check(f"{family} as {type(model).__name__}", off < 1e-4, f"worst row off by {off:.1e} of its largest logit")


if __name__ == "__main__":
    {"real": real, "tiny": tiny}[sys.argv[1]](*sys.argv[2:])
    sys.exit(failed)
