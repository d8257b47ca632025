package quant

import "math"

// F16ToF32 widens an IEEE half, exactly. NaNs keep sign and payload.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, mant := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // zero and denormals count in steps of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(mant)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | mant<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | mant<<13)
}

// F32ToF16 narrows to an IEEE half, to nearest and ties to even. Magnitudes from 65520 up become
// infinite; NaNs stay NaNs and become quiet.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // 65520, half-way between the largest half and 2^16
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: in [0.5, 1) a float32 has steps of 2^-24, a denormal half's
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-(127-15)<<23)>>13)
}

// BF16ToF32 widens a bfloat16, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 narrows to a bfloat16, to nearest and ties to even; NaNs stay NaNs and become quiet.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
