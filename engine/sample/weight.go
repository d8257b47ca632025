package sample

import "math"

// weightBits scales weights: the best token's is 1<<weightBits. A vocabulary of up to 2^20 tokens
// cannot overflow a sum in 64 bits. Tokens below 2^-45 of the best one get no weight: all of a
// vocabulary of 2^18 of them would hold less than 10^-8 of the mass.
const weightBits = 44

// maxVocab is the largest vocabulary whose weights sum without overflow: 2^20 weights of 2^44 would
// reach 2^64.
const maxVocab = 1<<(64-weightBits) - 1

// tableBits sets the size of the exponential's table: 8 KiB, a quarter of a small L1 cache. One bit
// less would cost a factor of 8 in the accuracy of the remainder's polynomial.
const tableBits = 10

// powers[i] is 2^(i/1024).
var powers = makePowers()

// makePowers multiplies square roots of 2, so that each entry is the same on every machine: Sqrt
// and the product are correctly rounded, whereas math.Exp2 differs between architectures.
func makePowers() (t [1 << tableBits]float64) {
	var roots [tableBits]float64 // 2^(1/2), 2^(1/4), …
	r := 2.0
	for i := range roots {
		r = math.Sqrt(r)
		roots[i] = r
	}
	for i := range t {
		t[i] = 1
		for j, root := range roots {
			if i>>(tableBits-1-j)&1 == 1 {
				t[i] *= root
			}
		}
	}
	return t
}

// weight returns 2^(y/1024) in units of 2^-weightBits, rounded, for y ≤ 0; its relative error is below
// 10^-10 before the rounding. -Inf gives 0. The conversions around products keep compilers from
// fusing them into multiply-adds, which would change results between architectures.
func weight(y float64) uint64 {
	if !(y >= -(weightBits+1)<<tableBits) {
		return 0
	}
	k := int64(y)
	r := y - float64(k) // in (-1, 0]
	const c1 = math.Ln2 / (1 << tableBits)
	const c2 = c1 * c1 / 2
	m := float64(powers[k&(1<<tableBits-1)] * (1 + float64(r*(c1+float64(r*c2)))))
	// m is about 1 to 2: adding to its exponent multiplies it by 2^(weightBits + floor(y/1024)) ≥ 2^-1.
	scaled := math.Float64frombits(math.Float64bits(m) + uint64(weightBits+k>>tableBits)<<52)
	return uint64(int64(scaled + 0.5))
}

// weightScale returns the factor that turns a logit's distance to the best one into weight's
// argument. A temperature so small that the factor overflows behaves as the limit does: only ties
// with the best logit keep a weight.
func weightScale(temperature float64) float64 {
	return min(math.Log2E*(1<<tableBits)/temperature, math.MaxFloat64)
}
