"""A tiny random target with a byte-level tokenizer, as a Hugging Face directory on disk."""

import json
import os

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
            "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
            "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def write(folder, layers=8, hidden=64, heads=4, kv_heads=2, ffn=96, seed=0):
    """Writes the target. Weights are large enough that its next token depends visibly on the last ones."""
    os.makedirs(folder, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok = Tokenizer(models.BPE(vocab={t: i + 3 for i, t in enumerate(alphabet)} | {
        "<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.save(os.path.join(folder, "tokenizer.json"))
    vocab, dim = len(alphabet) + 3, hidden // heads
    g = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(shape, generator=g) * shape[-1] ** -0.5
    w = {"model.embed_tokens.weight": torch.randn(vocab, hidden, generator=g), "model.norm.weight": torch.ones(hidden),
         "lm_head.weight": random(vocab, hidden) * 3}
    for i in range(layers):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        w |= {p + "input_layernorm.weight": torch.ones(hidden), p + "post_attention_layernorm.weight": torch.ones(hidden),
              a + "q_proj.weight": random(heads * dim, hidden), a + "k_proj.weight": random(kv_heads * dim, hidden),
              a + "v_proj.weight": random(kv_heads * dim, hidden), a + "o_proj.weight": random(hidden, heads * dim),
              p + "mlp.gate_proj.weight": random(ffn, hidden), p + "mlp.up_proj.weight": random(ffn, hidden),
              p + "mlp.down_proj.weight": random(hidden, ffn)}
    save_file(w, os.path.join(folder, "model.safetensors"))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "vocab_size": vocab, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"chat_template": TEMPLATE}, f)
    return folder
