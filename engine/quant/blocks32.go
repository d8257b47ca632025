package quant

import (
	"encoding/binary"
	"math"
)

// The formats with blocks of 32. Q4 and Q5 lie as: scale d, [minimum m,] [high bits, a little-endian
// word with bit i for element i,] low nibbles (element i in the low half of byte i, element i+16 in
// its high half). With a minimum an element is d·q + m; without, it is d·(q - half the range).
// Their rounding, which truncates x/d + ½, is that of ggml's reference quantisers.

func f16At(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func putF16(b []byte, f float32) { binary.LittleEndian.PutUint16(b, F32ToF16(f)) }

// fields32 cuts a block of Q4 or Q5 into its parts; high is nil for 4 bits, min for no minimum.
func fields32(b []byte, bits int, hasMin bool) (scale, min, high, low []byte) {
	scale, b = b[:2], b[2:]
	if hasMin {
		min, b = b[:2], b[2:]
	}
	if bits == 5 {
		high, b = b[:4], b[4:]
	}
	return scale, min, high, b
}

// decode32 returns the decoder of Q4_0, Q4_1, Q5_0 or Q5_1.
func decode32(bits int, hasMin bool) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		scale, min, high, low := fields32(src, bits, hasMin)
		d := f16At(scale)
		var word uint32
		if bits == 5 {
			word = binary.LittleEndian.Uint32(high)
		}
		for i := range dst {
			q := low[i%16] >> (i / 16 * 4) & 15
			q |= byte(word>>i&1) << 4
			if hasMin {
				// The conversion keeps product and sum apart: fused they would round once.
				dst[i] = float32(d*float32(q)) + f16At(min)
			} else {
				dst[i] = d * float32(int(q)-1<<(bits-1))
			}
		}
	}
}

// encode32 returns the encoder of Q4_0, Q4_1, Q5_0 or Q5_1.
func encode32(bits int, hasMin bool) func(dst []byte, src []float32) {
	top := float32(int(1)<<bits - 1)
	half := float32(int(1) << (bits - 1))
	return func(dst []byte, src []float32) {
		scale, min, high, low := fields32(dst, bits, hasMin)
		var d, base, round float32
		if hasMin {
			lo, hi := extent(src)
			d, base, round = (hi-lo)/top, lo, 0.5
			putF16(min, lo)
		} else {
			// The largest magnitude takes the end of the range that has one step more.
			d, round = peak(src)/-half, half+0.5
		}
		putF16(scale, d)
		inv := inverse(d)
		clear(low)
		var word uint32
		for i, x := range src {
			q := clampDown(float32((x-base)*inv)+round, top)
			low[i%16] |= q & 15 << (i / 16 * 4)
			word |= uint32(q>>4) << i
		}
		if bits == 5 {
			binary.LittleEndian.PutUint32(high, word)
		}
	}
}

// decodeQ8_0 decodes a scale and 32 signed bytes.
func decodeQ8_0(dst []float32, src []byte) {
	d := f16At(src)
	for i := range dst {
		dst[i] = float32(int8(src[2+i])) * d
	}
}

func encodeQ8_0(dst []byte, src []float32) {
	d := float32(math.Abs(float64(peak(src)))) / 127
	putF16(dst, d)
	inv := inverse(d)
	for i, x := range src {
		dst[2+i] = byte(clampRound(x*inv, -128, 127))
	}
}

// extent returns the least and the greatest element; NaNs are passed over.
func extent(x []float32) (lo, hi float32) {
	lo, hi = float32(math.Inf(1)), float32(math.Inf(-1))
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	if lo > hi { // nothing but NaNs
		return 0, 0
	}
	return lo, hi
}

// peak returns the first element of the largest magnitude, with its sign; NaNs are passed over.
func peak(x []float32) (p float32) {
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(float64(p)) {
			p = v
		}
	}
	return p
}

// inverse returns 1/d, and 0 for 0: all elements are then the block's constant.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// clampDown truncates v into 0…top; NaN gives 0.
func clampDown(v, top float32) byte {
	switch {
	case v >= top:
		return byte(top)
	case v > 0:
		return byte(v)
	}
	return 0
}

// clampRound rounds v, half away from zero, into lo…hi; NaN gives 0.
func clampRound(v float32, lo, hi int) int {
	r := math.Round(float64(v))
	switch {
	case r >= float64(hi):
		return hi
	case r <= float64(lo):
		return lo
	case r != r:
		return 0
	}
	return int(r)
}
