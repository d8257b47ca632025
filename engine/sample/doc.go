// Package sample turns a row of logits into a token: [Sampler.Sample] applies a request's [Params]
// and the penalties of its [History], and chooses.
//
// A choice is rule A of speculative sampling: it depends on the seed, the output position, the row
// and the history, and on nothing else (invariant 1). A generator keyed by (seed, position) gives one
// number a position, and that number picks from the cumulative distribution in the order of token
// ids. So a verified row yields the token that plain decoding would have drawn there, whatever was
// drafted, and in whatever batch.
//
// The same inputs give the same token on every machine. Probabilities are integers (a weight of
// 2^44 is the best token's), so their sums do not depend on an order of addition; the exponential is
// this package's own, made of correctly rounded operations that no compiler may fuse.
//
// The stages, in order: logit bias; repetition penalty; frequency and presence penalty; temperature;
// top-k; top-p over what top-k left, renormalised; min-p relative to the best token. Of equal logits
// the lower token id ranks first everywhere.
//
// Package sample does not know about tensors, tokenizers, drafts or batches.
package sample
