// Package model turns a file of weights into a forward pass on a device: [Load] reads a GGUF or
// safetensors model of the Llama (Mistral included), Qwen2 or Qwen3 family, [LoadRandom] makes one of a known
// shape, and [Model] runs batches: fill [Model.Batch], call [Model.Forward], read [Model.Logits] and [Model.Tap].
//
// [Config] is the architecture with every hyper-parameter resolved. Reading is strict: a key that could
// change what the model computes is honoured or refused by name, every tensor has the expected shape, and
// none is left over. Cost arithmetic ([Model.WeightBytesPerToken], [Config.MACsPerRow] …) gives the ceilings
// that measurements are printed beside.
//
// The package knows no tokenizer, no sampling and no scheduling; who owns which key/value block is decided
// by the caller, who writes block tables into the batch.
package model
