// Package engine turns prompt tokens into output tokens, with or without speculation. [Open] loads a model, and a drafter if
// one is named; [Engine.Submit] hands in a [Request] and returns a [Handle] from which the output is read; [Engine.Run] runs the loop.
// [Engine.Generate] does all of it for one request.
//
// # The loop
//
// One goroutine at a time runs steps; everything else of the engine may be called by any. A step takes what others left in the
// inbox, asks the scheduler (package sched) for a plan, and runs it: the prompt chunks in one target pass, then one cycle of every sequence past its
// prompt in another. A cycle verifies the sequence's candidates (package draft: a tree, a chain, or the root alone), accepts a path of
// them and adds a token of the target's (step.go), makes the drafter's rows of the accepted path from the target's states, and drafts
// the next candidates (drafting.go). Tokens wait in the handle, so a slow reader holds up nobody.
//
// # What holds
//
//   - Speculation changes no output (invariant 1): a choice depends on seed, output position and the row's logits alone, and a draft that
//     equals it is accepted. That is [RuleA]. [RuleB] is opt-in and keeps the distribution only (ruleb.go); simulated acceptance keeps
//     nothing, is for studies of cost, and says so in every [Result] (simulate.go).
//   - A sequence may be preempted, find a prefix in the cache, or share its passes with others: its rows are the same to the bit (invariant 2).
//   - The loop is in exactly one phase at any instant (package ledger).
//   - A step in the steady state allocates nothing on the heap (invariant 6): a sequence has all its room when it starts to run.
//
// Only token ids pass through the engine; the tokenizer that it hands out by [Engine.Tokenizer] is for those who speak text. It reads
// neither flags nor the environment (invariant 8) and has no network.
package engine
