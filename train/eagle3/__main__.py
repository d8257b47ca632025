"""Command line: python -m eagle3 synth | levers | train | evaluate | export | golden. --help says what each takes."""

import argparse
import json
import os
import sys

import numpy as np
import torch

from . import evaluate, export, hub, ops, plot, prompts, synth, trainer, vocab
from .batches import Batches
from .target import Target


def _target(args):
    checkpoint = hub.load(args.target)
    cuda = torch.cuda.is_available() and not args.cpu
    ops.use_compiler(cuda)
    target = Target(checkpoint, "cuda" if cuda else "cpu", torch.float16 if cuda else torch.float32)
    return checkpoint, target, torch.bfloat16 if cuda else torch.float32


def _template(checkpoint):
    template = prompts.Template.of(checkpoint)
    return template, lambda s: checkpoint.tokenizer.encode(s, add_special_tokens=False).ids


def _synth(args):
    checkpoint, target, _ = _target(args)
    template, encode = _template(checkpoint)
    limits = synth.Limits(args.total, args.user, args.answer)
    if args.prompts:
        own = prompts.scripts_of(prompts.load_prompts(args.prompts, "heldout"), template, encode)
        slots = min(args.slots, len(own))
        corpus, stats = synth.synthesise(target, template, own, slots, limits, args.seed, log=_quiet)
        corpus.heldout[:] = True
        synth.save(corpus, stats, os.path.join(args.out, "real"))
        print(f"real prompts: {stats['kept']} of {stats['written']} kept, dropped {stats['dropped']}")
    scripts = prompts.build(template, encode, args.conversations, args.seed, args.prompts)
    corpus, stats = synth.synthesise(target, template, scripts, args.slots, limits, args.seed)
    synth.save(corpus, stats, args.out)
    for i in list(np.nonzero(corpus.heldout)[0][:args.show]):
        print("-" * 20, prompts.CATEGORIES[corpus.category[i]], corpus.heat[i])
        tokens = corpus.rows([i])[0][0].tolist()[len(template.prefix):]
        print(checkpoint.tokenizer.decode(tokens, skip_special_tokens=False))


def _quiet(_):
    pass


def _forced(checkpoint):
    """Tokens every draft vocabulary holds: the template's own, end of turn, and line ends."""
    template, encode = _template(checkpoint)
    return {template.end, *template.prefix, *template.middle, *encode("\n\n\n ```python\n**1.")}


def _corpora(folder):
    out = {"self": synth.Corpus.load(os.path.join(folder, "corpus.npz"))}
    real = os.path.join(folder, "real", "corpus.npz")
    if os.path.exists(real):
        out["real"] = synth.Corpus.load(real)
    return out


def _evaluate_all(drafter, words, target, corpora, rows, limit):
    chosen = {"self": evaluate.pick(corpora["self"], limit)}
    if "real" in corpora:
        chosen["real"] = evaluate.pick(corpora["real"])
    words = words.to(target.device)
    return {name: evaluate.table(drafter, words, target, corpora[name], rows_of, rows)
            for name, rows_of in chosen.items() if len(rows_of)}


def _prepare(args):
    checkpoint, target, dtype = _target(args)
    corpora = _corpora(args.corpus)
    train, held = vocab.counts(corpora["self"], target.shape.vocab)
    forced = _forced(checkpoint)
    sizes = vocab.expected(train, held, forced)
    for row in sizes:
        print("vocabulary", json.dumps(row))
    words = lambda size: vocab.DraftVocab.of(vocab.choose(train, min(size, len(train)), forced), target.shape.vocab)
    chosen = np.nonzero(~corpora["self"].heldout)[0]
    return checkpoint, target, dtype, corpora, words, chosen, sizes


def _variants(args, recipes, checkpoint, target, dtype, words):
    return [trainer.Variant(r, target, checkpoint, words(r.draft_vocab), dtype) for r in recipes]


def _levers(args):
    """Compares variants on the same batches: args.recipes is a JSON list of changes to the default recipe."""
    checkpoint, target, dtype, corpora, words, chosen, sizes = _prepare(args)
    recipes = [trainer.Recipe(**r) for r in json.loads(args.recipes)]
    variants = _variants(args, recipes, checkpoint, target, dtype, words)
    batches = Batches(corpora["self"], chosen, args.rows, max(r.steps for r in recipes), target.device, args.seed)
    schedule = trainer.Schedule(steps=args.steps, seconds=args.seconds)
    history = trainer.run(variants, target, batches, schedule, args.every)
    results = {}
    for v in variants:
        results[v.recipe.name] = _evaluate_all(v.drafter, v.vocab, target, corpora, args.rows, args.limit)
        print("==", v.recipe.name)
        print(evaluate.text(results[v.recipe.name]), flush=True)
    _dump(args.out, "levers.json", {"recipes": [vars(r) for r in recipes], "history": history, "results": results,
                                    "vocabulary": sizes})
    for v in variants:
        trainer.save_state(v, os.path.join(args.out, "states", v.recipe.name), args.steps)


def _resumed(folder, size):
    """(parameters, moments or None, draft vocabulary) of a state or an exported drafter."""
    if os.path.exists(os.path.join(folder, "state.json")):
        _, ids, parameters, moments = trainer.load_state(folder)
        return parameters, moments, vocab.DraftVocab.of(ids, size)
    _, parameters, words = export.read(folder)
    return parameters, None, words


def _train(args):
    """Trains one recipe, from the start or from a state or a checkpoint, and exports it."""
    checkpoint, target, dtype, corpora, words, chosen, sizes = _prepare(args)
    recipe = trainer.Recipe(**json.loads(args.recipe))
    parameters = moments = None
    if args.resume:
        parameters, moments, ids = _resumed(args.resume, target.shape.vocab)
        recipe.widths = parameters["midlayer.mlp.gate_proj.weight"].shape[0] // target.shape.ffn
    else:
        ids = words(recipe.draft_vocab)
    variant = trainer.Variant(recipe, target, checkpoint, ids, dtype, parameters)
    if moments:
        variant.optimiser.restore(list(variant.drafter.weights()), moments)
    batches = Batches(corpora["self"], chosen, args.rows, recipe.steps, target.device, args.seed)
    schedule = trainer.Schedule(steps=args.steps, seconds=args.seconds)
    curve = []

    def keep(step):
        weights = variant.drafter.weights()
        trainer.save_state(variant, os.path.join(args.out, "state"), step)
        export.write(os.path.join(args.out, "drafter"), variant.config, target.shape, weights, variant.vocab)

    def checkpointed(step, history):
        if args.save_every and step % args.save_every == 0:
            keep(step)
            small = _evaluate_all(variant.drafter, variant.vocab, target, corpora, args.rows, 300)
            print(evaluate.text({n: {"all": t["all"]} for n, t in small.items()}), flush=True)
            curve.append({"step": step, "rows": history[-1]["rows"], **{n: t["all"] for n, t in small.items()}})

    history = trainer.run([variant], target, batches, schedule, args.every, at_report=checkpointed)
    keep(history[-1]["step"] if history else 0)
    results = _evaluate_all(variant.drafter, variant.vocab, target, corpora, args.rows, args.limit)
    print(evaluate.text(results))
    _dump(args.out, "train.json", {"recipe": vars(recipe), "history": history, "curve": curve, "results": results,
                                   "vocabulary": sizes})


def _eval(args):
    from .drafter import Drafter
    _, target, dtype = _target(args)
    config, weights, words = export.read(args.drafter)
    drafter = Drafter(config, weights, target.embed, dtype)
    results = _evaluate_all(drafter, words, target, _corpora(args.corpus), args.rows, args.limit)
    print(evaluate.text(results))
    _dump(args.out, "evaluation.json", results)


def _golden(args):
    args.cpu = True
    checkpoint, target, _ = _target(args)
    template, encode = _template(checkpoint)
    config, weights, words = export.read(args.drafter)
    prompt = template.prefix + encode(args.text) + [template.end] + template.middle
    os.makedirs(os.path.dirname(args.file) or ".", exist_ok=True)
    tensors = export.golden(target, config, weights, words, prompt, args.drafts, args.file)
    print(f"{args.file}: {len(tensors)} tensors, {len(prompt)} prompt tokens, drafts {tensors['drafts'].tolist()}")


def _plot(args):
    with open(args.data) as f:
        data = json.load(f)
    plot.draw(args.file, data["history"], data["results"], args.title)


def _dump(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m eagle3", description=__doc__)
    sub = parser.add_subparsers(dest="command", required=True)

    def command(name, run, help, *groups):
        p = sub.add_parser(name, help=help)
        p.set_defaults(run=run)
        for flags in groups:
            for flag, options in flags.items():
                p.add_argument("--" + flag, **options)
        return p

    target = {"target": dict(required=True, help="GGUF file, Hugging Face directory, or a name on the hub"),
              "cpu": dict(action="store_true", help="stay on the CPU")}
    corpus = {"corpus": dict(required=True, help="folder that synth wrote"),
              "rows": dict(type=int, default=49152, help="token rows a batch; on a GPU a multiple of 8192"),
              "limit": dict(type=int, default=1500, help="held-out conversations to evaluate on"),
              "out": dict(required=True, help="folder for the results")}
    training = {"steps": dict(type=int, default=0, help="optimiser steps, or"),
                "seconds": dict(type=float, default=0.0, help="seconds to train"),
                "every": dict(type=int, default=100, help="steps between reports"), "seed": dict(type=int, default=0)}
    command("synth", _synth, "the target writes a corpus", target, {
        "out": dict(required=True), "conversations": dict(type=int, default=200000), "slots": dict(type=int, default=4096),
        "prompts": dict(help="prompt file whose training half is used and whose other half is answered for evaluation"),
        "total": dict(type=int, default=768), "user": dict(type=int, default=256), "answer": dict(type=int, default=384),
        "seed": dict(type=int, default=0), "show": dict(type=int, default=0, help="held-out conversations to print")})
    command("levers", _levers, "compare recipes on equal batches", target, corpus, training,
            {"recipes": dict(required=True, help="JSON list of recipes")})
    command("train", _train, "train one recipe and export it", target, corpus, training, {
        "recipe": dict(default="{}", help="JSON object of changes to the default recipe"),
        "resume": dict(help="folder with a state, or an exported drafter"),
        "save-every": dict(type=int, default=0, help="steps between checkpoints (a multiple of --every)")})
    command("evaluate", _eval, "measure an exported drafter", target, corpus, {"drafter": dict(required=True)})
    command("golden", _golden, "write golden tensors for the engine's tests", target, {
        "drafter": dict(required=True), "file": dict(required=True), "drafts": dict(type=int, default=3),
        "text": dict(default="What is the capital of France?")})
    command("plot", _plot, "draw train.json", {
        "data": dict(required=True), "file": dict(required=True), "title": dict(default="")})
    args = parser.parse_args(argv)
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
