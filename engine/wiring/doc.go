// Package wiring finds out by measurement how a drafter was wired to its target when it was trained: which hidden states it takes and in which
// order, whether drafting goes on from the normed state, how its vocabulary map is to be read, which norms and which rotary embedding it has.
// [Examine] does it all and returns a [Result], whose Verdict says in a word what acceptance supports and whose Fixes name what to change.
//
// The target writes greedy answers to prompts. One pass over them gives the states of all layers at every position, and then a drafter's wiring
// costs no more than the drafter: at each position of the answers it drafts a chain under the wiring, and each draft is held against what the target
// wrote. Along an accepted chain the drafts are the target's own tokens, so that chains from all positions run in one pass.
//
// Wirings are chosen on some of the texts and judged on the others, which the choice has not seen. A position's neighbours are alike, so
// intervals treat a text, not a position, as the unit.
//
// The package knows no tokenizer and no server, and says nothing about speed.
package wiring
