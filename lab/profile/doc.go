// Package profile shows where a running server's time goes: [Attach] recognises the server behind an address, the
// [Source] that it returns is polled while the server works, and its [Report] says what was seen since, with the conclusions of
// [WhatIf]. Every engine gives the same report; what an engine does not tell is left out of it and named in Missing.
//
// draftlab's own server has a ledger of cycles, so that its report has times by phase with percentiles. SGLang has sums by
// phase if it was told to, vLLM and llama.cpp's server have none at all. The package only asks; it sends no load, and
// the one thing that it changes on a server is to have it record a trace.
package profile
