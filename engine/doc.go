// Package engine turns prompt tokens into output tokens: [Open] loads a model onto a device,
// [Engine.Generate] continues a prompt. It ties model, device and sampling together.
//
// Only token ids pass through it; the tokenizer that it hands out by [Engine.Tokenizer] is for those
// who speak text. It reads neither flags nor the environment (invariant 8) and has no network.
package engine
