package sample

import "math"

// digits are the radix digits of cut: 32 key bits from the top in three passes of at most 2048 bins.
var digits = [...]struct{ shift, width uint }{{21, 11}, {10, 11}, {0, 10}}

// maxBins is the most bins of a digit.
const maxBins = 1 << 11

// orderKey maps a value that is not NaN to an integer of the same order; both zeros are equal.
// It has no branch, since the sign of logits is unpredictable.
func orderKey(v float32) uint32 {
	b := math.Float32bits(v + 0) // -0 + 0 is +0
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// cut filters ids, which must ascend, in place: it keeps the entries of highest value, lower ids
// first among equals, until their measures add up to target, and no more. The measure of id is
// measure[id], or 1 each if measure is nil. All measures together must reach target ≥ 1.
//
// It is a radix selection on the values' bits: linear in len(ids) whatever the values, and exact,
// since measures are integers.
func cut(values []float32, ids []int32, measure []uint64, target uint64, bins *[maxBins]uint64) []int32 {
	key := uint32(0)
	for _, d := range digits {
		clear(bins[:1<<d.width])
		for _, id := range ids {
			k := orderKey(values[id])
			if k>>(d.shift+d.width) != key {
				continue
			}
			m := uint64(1)
			if measure != nil {
				m = measure[id]
			}
			bins[k>>d.shift&(1<<d.width-1)] += m
		}
		bin := uint32(1)<<d.width - 1
		for ; target > bins[bin]; bin-- {
			target -= bins[bin]
		}
		key = key<<d.width | bin
		ids = atLeast(values, ids, key<<d.shift)
	}
	// All that is left has this key or a higher one; target is what those of exactly this key must supply.
	kept := ids[:0]
	for _, id := range ids {
		if orderKey(values[id]) == key {
			if target == 0 {
				continue
			}
			m := uint64(1)
			if measure != nil {
				m = measure[id]
			}
			target -= min(target, m)
		}
		kept = append(kept, id)
	}
	return kept
}

// atLeast keeps, in place, the ids whose key is at least floor. It stores each id and then decides
// whether to move on, because a branch on unordered values would be mispredicted half of the time.
func atLeast(values []float32, ids []int32, floor uint32) []int32 {
	n := 0
	for _, id := range ids {
		ids[n] = id
		if orderKey(values[id]) >= floor {
			n++
		}
	}
	return ids[:n]
}
