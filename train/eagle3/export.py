"""The drafter's checkpoint as SGLang, vLLM and draftlab load it, and golden tensors for the Go engine's tests."""

import json
import os

import torch
from safetensors.torch import load_file, save_file

from .drafter import Config, Drafter, shapes
from .vocab import DraftVocab


def config_json(config, shape):
    """config.json. It names no taps: every engine's default is what was trained (see hub.Shape.taps)."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": config.hidden,
        "intermediate_size": config.ffn, "num_hidden_layers": 1, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim, "vocab_size": config.vocab,
        "draft_vocab_size": config.draft_vocab, "rms_norm_eps": round(config.eps, 9), "rope_theta": config.rope_theta,
        "rope_scaling": None, "max_position_embeddings": shape.context, "hidden_act": "silu", "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": shape.bos, "eos_token_id": shape.eos,
        "torch_dtype": "bfloat16"}


def write(folder, config, shape, weights, vocab):
    """Writes config.json and model.safetensors (bfloat16; d2t int64 offsets; t2d bool)."""
    os.makedirs(folder, exist_ok=True)
    want = shapes(config)
    if {n: tuple(t.shape) for n, t in weights.items()} != want:
        raise ValueError("export: the weights are not those that the configuration asks for")
    tensors = {n: t.detach().to(torch.bfloat16).contiguous().cpu() for n, t in weights.items()}
    tensors["d2t"], tensors["t2d"] = vocab.d2t.contiguous(), vocab.t2d.contiguous()
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config_json(config, shape), f, indent=2)
        f.write("\n")


def read(folder):
    """(Config, weights by name, DraftVocab) of a checkpoint that write() made. Strict: nothing missing, nothing over."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    if c.get("architectures") != ["LlamaForCausalLMEagle3"]:
        raise ValueError(f"{folder}: architectures {c.get('architectures')}, not LlamaForCausalLMEagle3")
    config = Config(c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"],
                    c["intermediate_size"], c["vocab_size"], c["draft_vocab_size"], c["rope_theta"], c["rms_norm_eps"])
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    ids = tensors.pop("d2t") + torch.arange(config.draft_vocab)
    vocab = DraftVocab.of(ids, config.vocab)
    if not torch.equal(vocab.t2d, tensors.pop("t2d")):
        raise ValueError(f"{folder}: t2d does not name the tokens that d2t maps to")
    if {n: tuple(t.shape) for n, t in tensors.items()} != shapes(config):
        raise ValueError(f"{folder}: tensors missing, left over or misshapen")
    return config, tensors, vocab


def golden(target, config, weights, vocab, prompt, drafts, path):
    """Writes tensors of one extension and `drafts` further draft steps, computed in float32, to a safetensors file.

    prompt: token ids; the target's own greedy choice follows them. Row t of the extension takes token t + 1 and the
    features at t. Names: extend.* and draft<i>.* with, in each, what Drafter.trace returns; `taps` [rows, 3 * hidden];
    `tokens` the prompt and the first emitted token; `drafts` the drafts by target id. The embedding and every weight
    are as the file on disk holds them, widened to float32.
    """
    drafter = Drafter(config, weights, target.embed.float(), torch.float32)
    tokens = torch.tensor([prompt])
    taps, hidden = target.forward(tokens)
    first = target.argmax(hidden[-1:])
    fed = torch.cat([tokens[0, 1:], first])
    out = drafter.trace(taps, fed, torch.arange(len(fed)))
    tensors = {"tokens": torch.cat([tokens[0], first]), "taps": taps, "target_hidden": hidden}
    tensors.update({f"extend.{n}": t for n, t in out.items() if n not in ("cache", "logits", "fc")})
    tensors["extend.fc"], tensors["extend.logits"] = out["fc"], out["logits"][-4:]
    chosen = [vocab.ids[out["logits"][-1].argmax()]]
    state = out["prenorm"][-1:]
    for i in range(1, drafts + 1):
        position = torch.tensor([len(fed) - 1 + i])
        out = drafter.trace(None, chosen[-1].reshape(1), position, state, out["cache"])
        tensors.update({f"draft{i}.{n}": t for n, t in out.items() if n != "cache"})
        chosen.append(vocab.ids[out["logits"][-1].argmax()])
        state = out["prenorm"]
    tensors["drafts"] = torch.stack(chosen)
    save_file({n: t.contiguous() for n, t in tensors.items()}, path)
    return tensors
