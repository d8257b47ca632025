"""Write a random-weight Llama-3.2-1B of 4-bit weights as GGUF: `random_llama.py OUT`.

The shape and formats of draftlab's random:llama-3.2-1b-q4_0: 16 layers, hidden 2048, FFN 8192, 32 heads and
8 key/value heads of 64, a vocabulary of 128256, the head tied to the embedding, every matrix in Q4_0. There is
no tokenizer in it: llama.cpp calls that vocabulary "none". Needs the packages gguf and numpy.
"""

import os
import sys

import gguf
import numpy as np

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 16, 2048, 8192, 32, 8, 64, 128256
BLOCK, BLOCK_BYTES = 32, 18  # Q4_0: a float16 scale and 16 bytes of nibbles
SCALE = 0.005  # nibbles are uniform in -8..7: standard deviation 0.023, about 1/sqrt(HIDDEN), keeps states near 1


def q4_0(rng, rows, columns):
    """Return random Q4_0 rows, uint8 [rows, columns/32*18]."""
    blocks = rng.integers(0, 256, (rows * columns // BLOCK, BLOCK_BYTES), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(SCALE).tobytes(), dtype=np.uint8)
    return blocks.reshape(rows, columns // BLOCK * BLOCK_BYTES)


def rope_factors():
    """Llama 3's frequency factors (factor 32, low 1, high 4, original context 8192) for rope theta 500000."""
    wavelength = 2 * np.pi * 500000.0 ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    smooth = np.clip((8192 / wavelength - 1) / (4 - 1), 0, 1)
    return (1 / ((1 - smooth) / 32 + smooth)).astype(np.float32)


def header(writer):
    """Write the metadata."""
    writer.add_name("random Llama-3.2-1B shape")
    writer.add_context_length(131072)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("none")


def main(out):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out + ".part", "llama", use_temp_file=False)
    header(writer)

    def matrix(name, rows, columns):
        writer.add_tensor(name, q4_0(rng, rows, columns), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def ones(name):
        writer.add_tensor(name, np.ones(HIDDEN, dtype=np.float32))

    matrix("token_embd.weight", VOCAB, HIDDEN)
    ones("output_norm.weight")
    writer.add_tensor("rope_freqs.weight", rope_factors())
    for i in range(LAYERS):
        ones(f"blk.{i}.attn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        ones(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.ffn_gate.weight", FFN, HIDDEN)
        matrix(f"blk.{i}.ffn_up.weight", FFN, HIDDEN)
        matrix(f"blk.{i}.ffn_down.weight", HIDDEN, FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(out + ".part", out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
