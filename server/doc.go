// Package server serves an engine over HTTP: the OpenAI API (/v1/models, /v1/completions, /v1/chat/completions), SGLang's
// /generate and its endpoints and log lines around it, health and metrics, and the engine's ledger: /debug/cycles and traces.
//
// [New] makes a [Server], [Server.Serve] answers on a listener at once, and [Server.Start] gives it the engine when that has loaded.
//
// What it keeps to; code and tests cite the numbers:
//
//   - S1. A request that is not understood is refused by the name of the parameter, with status 4xx; nothing is ignored or
//     rewritten in silence.
//   - S2. A client that is slow or gone costs nobody else anything: outputs wait in the engine's handles, each write has a
//     deadline, and an end of the connection cancels the request.
//   - S3. No text is sent that a stop string could still take back, and what is sent does not depend on how the
//     engine bundles tokens.
//   - S4. /health answers 200 only if the engine has just made a token.
//   - S5. Every goroutine ends with its request, or with Serve.
//   - S6. What only looks on (/metrics, /debug/cycles, the log) never holds the engine's loop up for longer than a copy of some
//     dozens of kilobytes takes; a trace is written after it has ended.
//
// The package does not know how the model runs, reads no environment, and has no TLS: put a proxy in front for that.
package server
