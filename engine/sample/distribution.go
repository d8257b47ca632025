package sample

import (
	"math/bits"
	"slices"
)

// Distribution is what a row's logits leave after bias, penalties, temperature and filters: token
// IDs[i] has probability Weights[IDs[i]] / Total. It is a view of its Sampler's scratch, good until
// the Sampler's next call.
type Distribution struct {
	// IDs are the tokens that the filters kept, ascending; nil stands for the whole vocabulary.
	IDs []int32
	// Weights is indexed by token id, [vocabulary]; entries of ids that are not in IDs mean nothing.
	Weights []uint64
	// Total is the sum over IDs, at least 1.
	Total uint64

	sums []uint64 // with nil IDs: Weights summed over each block of the vocabulary
}

// Draw returns the token that 64 random bits choose: the first, in the order of ids, at which the
// cumulative probability exceeds random/2^64. Rounding shifts each probability by less than 2^-64.
func (d *Distribution) Draw(random uint64) int32 {
	at, _ := bits.Mul64(random, d.Total)
	if d.IDs == nil {
		return d.drawAll(at)
	}
	for _, id := range d.IDs {
		w := d.Weights[id]
		if at < w {
			return id
		}
		at -= w
	}
	panic("sample: Draw past the end: Total is not the sum of the weights")
}

// drawAll is Draw over the whole vocabulary: blocks first, since it would otherwise read half of
// all weights on average.
func (d *Distribution) drawAll(at uint64) int32 {
	for b, sum := range d.sums {
		if at >= sum {
			at -= sum
			continue
		}
		for i, w := range d.Weights[b*blockLen:] {
			if at < w {
				return int32(b*blockLen + i)
			}
			at -= w
		}
	}
	panic("sample: Draw past the end: Total is not the sum of the weights")
}

// Weight returns the weight of a token, 0 if the filters dropped it.
func (d *Distribution) Weight(id int32) uint64 {
	if d.IDs == nil {
		return d.Weights[id]
	}
	if _, ok := slices.BinarySearch(d.IDs, id); ok {
		return d.Weights[id]
	}
	return 0
}
