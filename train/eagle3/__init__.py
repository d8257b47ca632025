"""Training of EAGLE-3 drafters for Llama-architecture targets.

The path through the package is the path of the data:

    gguf, hub   a target's weights and tokenizer, from a GGUF file or a Hugging Face directory
    target      the target itself: a training forward pass with taps, and a batched decoder
    prompts     scripts of conversations to be written (tokens, and holes that the target fills)
    synth       the corpus: the target fills the holes; filters, split, statistics
    vocab       which tokens the drafter can propose
    drafter     the drafter, and its unrolled pass ("training-time test")
    trainer     optimisers, schedules, checkpoints; several variants side by side on the same batches
    evaluate    accept length, simulated exactly against greedy text
    export      the checkpoint that SGLang, vLLM and draftlab load; golden tensors

Nothing here serves a model: the engine that does is written in Go and reads what export writes.
"""
