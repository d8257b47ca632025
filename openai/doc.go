// Package openai has the wire types of the OpenAI HTTP API and of SGLang's /generate, and the framing of their streams, for a server and for a client
// of any server that speaks it. [Decode] reads a request strictly: what the types do not know is refused by name.
// [AppendEvent] and [Reader] write and read server-sent events.
//
// Beside OpenAI's own parameters the requests have those that open servers added (top_k, min_p, repetition_penalty,
// ignore_eos, …) and one of ours, "speculative". The package knows no model, no limits and no HTTP.
package openai
