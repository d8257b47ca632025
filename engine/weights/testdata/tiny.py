"""Small model files written by the formats' own Python packages, as references for the parsers.

    python tiny.py                       # with gguf 0.19.0, safetensors 0.8.0, numpy 2.4.6

It writes tiny.gguf and tiny.safetensors beside itself; open_test.go knows what they hold.
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.numpy import save_file

here = Path(__file__).parent
ramp = np.arange(128, dtype=np.float32).reshape(2, 64) / 4 - 16

writer = GGUFWriter(here / "tiny.gguf", "llama")
writer.add_uint32("llama.block_count", 7)
writer.add_float32("llama.rope.freq_base", 1e4)
writer.add_bool("tokenizer.ggml.add_bos_token", True)
writer.add_array("tokenizer.ggml.tokens", ["a", "", "né", "Ġthe"])
writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
writer.add_array("tokenizer.ggml.token_type", [1, 3, -2])
writer.add_uint64("test.big", 2**64 - 1)
writer.add_int8("test.small", -5)
writer.add_tensor("matrix", quants.quantize(ramp, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
writer.add_tensor("vector", np.array([1, 2, 3], dtype=np.float32))
writer.add_tensor("half", ramp.astype(np.float16))
writer.add_tensor("index", np.array([5, -6], dtype=np.int64))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

save_file(
    {
        "d2t": np.array([0, 3, -7], dtype=np.int64),
        "t2d": np.array([True, False, True, True]),
        "fc.weight": ramp.astype(np.float16),
        "norm.weight": np.array([1, 2, 3], dtype=np.float32),
        "scalar": np.array(2.5, dtype=np.float32),
    },
    here / "tiny.safetensors",
    metadata={"format": "pt"},
)
