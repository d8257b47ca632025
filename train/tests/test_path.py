"""The whole path on a tiny random target: synthesis, training, export, reload, resumption."""

import json
import os

import numpy as np
import pytest
import tiny
import torch

from eagle3 import __main__ as command
from eagle3 import export, hub, prompts, synth
from eagle3.target import Target


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("path")


@pytest.fixture(scope="module")
def target(place):
    return tiny.write(str(place / "target"))


@pytest.fixture(scope="module")
def prompt_file(place):
    rows = [{"id": f"{c}-{i}", "category": c, "split": ("train", "heldout")[i % 2], "text": f"Say {c} {i}."}
            for c in prompts.CATEGORIES for i in range(4)]
    (place / "prompts.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    return str(place / "prompts.jsonl")


@pytest.fixture(scope="module")
def corpus(place, target, prompt_file):
    folder = str(place / "corpus")
    command.main(["synth", "--cpu", "--target", target, "--out", folder, "--conversations", "160", "--slots", "40",
                  "--total", "192", "--user", "48", "--answer", "40", "--prompts", prompt_file])
    return folder


def _train(target, corpus, out, *more):
    command.main(["train", "--cpu", "--target", target, "--corpus", corpus, "--out", out, "--rows", "768", "--every", "6",
                  "--limit", "8", *more])
    with open(os.path.join(out, "train.json")) as f:
        return json.load(f)


RECIPE = json.dumps({"draft_vocab": 160, "steps": 3, "widths": 1, "rate": 0.01})


def test_corpus(corpus, target):
    made = synth.Corpus.load(os.path.join(corpus, "corpus.npz"))
    template = prompts.Template.of(hub.load(target))
    texts = set()
    for tokens, kinds in made.rows(range(len(made))):
        assert tokens[:len(template.prefix)].tolist() == template.prefix
        assert kinds[len(template.prefix):].max() == 2 and (kinds == 2).sum() <= 80
        begin = int(np.argmax(kinds == 2))
        assert tokens[begin - len(template.middle):begin].tolist() == template.middle
        assert tokens[begin - len(template.middle) - 1] == template.end
        texts.add(tokens.tobytes())
    assert len(texts) == len(made), "duplicates survived"
    with open(os.path.join(corpus, "corpus.json")) as f:
        stats = json.load(f)
    assert stats["written"] == 160 == stats["kept"] + sum(stats["dropped"].values())


def test_greedy_answers_are_the_targets_own(corpus, target):
    made = synth.Corpus.load(os.path.join(corpus, "real", "corpus.npz"))
    model = Target(hub.load(target))
    assert len(made) > 0 and (made.heat == 0).all()
    for tokens, kinds in made.rows(range(min(4, len(made)))):
        best = model.argmax(model.forward(torch.tensor(tokens[None].astype(np.int64)))[1])
        at = np.nonzero(kinds == 2)[0]
        assert best[at - 1].tolist() == tokens[at].tolist()


def test_loops_are_found():
    tokens = torch.randint(0, 1000, (3, 200), generator=torch.Generator().manual_seed(0))
    tokens[1, 100:180] = torch.arange(80) % 7
    tokens[2, 100:140] = 5
    kinds = torch.full((3, 200), 2)
    assert synth.loops(tokens, kinds).tolist() == [False, True, False]
    kinds[1, :150] = 0
    assert synth.loops(tokens, kinds).tolist() == [False, False, False]


def test_scripts_are_reproducible(target, prompt_file):
    checkpoint = hub.load(target)
    template = prompts.Template.of(checkpoint)
    encode = lambda s: checkpoint.tokenizer.encode(s).ids
    a, b, c = (prompts.build(template, encode, 300, seed, prompt_file) for seed in (1, 1, 2))
    assert a == b and a != c
    assert {s.category for s in a} == set(prompts.CATEGORIES)
    assert 0.3 < np.mean([s.temperature == 0 for s in a]) < 0.7
    held = {tuple(encode(p["text"])) for p in prompts.load_prompts(prompt_file, "heldout")}
    assert not any(tuple(s.codes[:len(h)]) == h for s in a for h in held)


def test_training_export_and_resumption(place, corpus, target):
    first = str(place / "first")
    data = _train(target, corpus, first, "--steps", "30", "--recipe", RECIPE)
    losses = [row["loss"][0] for row in data["history"]]
    assert losses[-1] < losses[0] - 0.3, losses
    config, weights, vocab = export.read(os.path.join(first, "drafter"))
    assert config.draft_vocab == 160 and {1, 2} <= set(vocab.ids.tolist())
    assert all(w.dtype == torch.bfloat16 for w in weights.values())
    with open(os.path.join(first, "drafter", "config.json")) as f:
        assert "eagle_config" not in json.load(f)
    for source in ("state", "drafter"):
        again = _train(target, corpus, str(place / source), "--steps", "8", "--recipe", RECIPE, "--resume",
                       os.path.join(first, source))
        assert again["history"][0]["loss"][0] < losses[0] - 0.3


def test_golden(place, corpus, target):
    folder = str(place / "first" / "drafter")
    path = str(place / "golden.safetensors")
    command.main(["golden", "--target", target, "--drafter", folder, "--file", path, "--drafts", "2"])
    from safetensors.torch import load_file
    t = load_file(path)
    rows, hidden = t["extend.prenorm"].shape
    assert t["taps"].shape == (rows, 3 * hidden) and t["tokens"].shape == (rows + 1,)
    assert t["draft2.logits"].shape == (1, 160) and t["drafts"].shape == (3,)


def test_a_checkpoint_with_a_leftover_is_refused(place, corpus, target, tmp_path):
    from safetensors.torch import load_file, save_file
    folder = str(place / "first" / "drafter")
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    save_file(tensors | {"extra": torch.zeros(1)}, str(tmp_path / "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as f:
        (tmp_path / "config.json").write_text(f.read())
    with pytest.raises(ValueError, match="left over"):
        export.read(str(tmp_path))
