package sample

import "math/bits"

// Philox4x32 constants: the two multipliers and the two key increments (Salmon, Moraes, Dror and
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
	philoxRounds       = 10
)

// philox returns the block of four words that Philox4x32-10 assigns to a counter under a key.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range philoxRounds {
		hi0, lo0 := bits.Mul32(philoxM0, ctr[0])
		hi1, lo1 := bits.Mul32(philoxM1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += philoxW0
		key[1] += philoxW1
	}
	return ctr
}

// Uniform returns the 64 random bits of an output position: the low two words of Philox4x32-10 with
// the seed as key and the position as counter. It has no state: any position, in any order, any
// number of times (invariant 1). Position 0 is the first output token's.
func Uniform(seed uint64, position int) uint64 { return keyed(seed, position, purposeToken, 0) }

// The purposes of random numbers at an output position. Each has its own: a token is distributed as it should be only if the numbers
// that choose it had no part in what it is compared with.
const (
	purposeToken    = iota // the token itself
	purposeDraft           // candidate i, under rule B
	purposeTest            // the test of candidate i, under rule B
	purposeSimulate        // the outcome of a simulated test
)

// keyed returns the i-th 64 random bits of a purpose at an output position.
func keyed(seed uint64, position int, purpose, i uint32) uint64 {
	p := uint64(position)
	w := philox([4]uint32{uint32(p), uint32(p >> 32), purpose, i}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return uint64(w[1])<<32 | uint64(w[0])
}

// Chance reports whether something happens at an output position that does so with probability p: the outcome of a simulated test.
func Chance(seed uint64, position int, p float64) bool {
	return float64(keyed(seed, position, purposeSimulate, 0)>>11)*0x1p-53 < p
}
