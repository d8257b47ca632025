"""Keeps what the test compares of the trainer's golden tensors: python trim.py FULL.safetensors OUT.safetensors"""

import sys

from safetensors.torch import load_file, save_file

t = load_file(sys.argv[1])
drafts = [n.removesuffix(".prenorm") for n in t if n.startswith("draft") and n.endswith(".prenorm")]
out = {"tokens": t["tokens"].float(), "drafts": t["drafts"].float(), "extend.fc": t["extend.fc"], "extend.state": t["extend.prenorm"],
       "extend.logits": t["extend.logits"][-1:]}
for n in drafts:
    out |= {f"{n}.state": t[f"{n}.prenorm"], f"{n}.logits": t[f"{n}.logits"]}
save_file({n: x.contiguous() for n, x in out.items()}, sys.argv[2], metadata={"format": "pt"})
