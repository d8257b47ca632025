package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"draftlab/engine/quant"
)

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection that turns counters into
// random bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// fillBits fills dst with random bits: word i is mix(key + (i+1)·γ), γ being SplitMix64's increment.
func fillBits(dst []byte, key uint64) {
	const gamma = 0x9e3779b97f4a7c15
	for len(dst) >= 8 {
		key += gamma
		binary.LittleEndian.PutUint64(dst, mix(key))
		dst = dst[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(key+gamma))
	copy(dst, last[:])
}

// uniformStd is the standard deviation of n equally likely consecutive integers.
func uniformStd(n float64) float64 { return math.Sqrt((n*n - 1) / 12) }

// scales are 16 float16 factors around a base, of both signs so that codes whose range is not symmetric give
// weights of mean 0. A second value, offset times the factor, follows where a format has an offset.
type scales struct{ d, m [16]uint16 }

// newScales makes factors whose root mean square is about rms, with offsets of ratio times the factor.
func newScales(rms, ratio float64) *scales {
	s := new(scales)
	for i := range s.d {
		v := rms * (0.75 + 0.5*float64(i%8)/7)
		if i >= 8 {
			v = -v
		}
		s.d[i] = quant.F32ToF16(float32(v))
		s.m[i] = quant.F32ToF16(float32(v * ratio))
	}
	return s
}

// put writes factor i of 16 at p, and with offset the offset behind it.
func (s *scales) put(p []byte, i byte, offset bool) {
	binary.LittleEndian.PutUint16(p, s.d[i&15])
	if offset {
		binary.LittleEndian.PutUint16(p[2:], s.m[i&15])
	}
}

// fillRandom fills dst with whole blocks of the format: uniform codes, scaled so that the decoded weights
// have mean 0 and a standard deviation of about std. It fills everything with random bits, takes codes as
// they come and replaces the scales, and encodes no element: making a gigabyte of weights must not take
// longer than packing it.
func fillRandom(t quant.Type, dst []byte, key uint64, std float64) {
	fillBits(dst, key)
	size := t.BlockBytes()
	switch t {
	case quant.F32:
		toFloats(dst, 0, std)
	case quant.F16, quant.BF16:
		toHalves(t, dst, std)
	case quant.Q4_0, quant.Q5_0, quant.Q8_0: // d, [fifth bits], codes
		levels := map[quant.Type]float64{quant.Q4_0: 16, quant.Q5_0: 32, quant.Q8_0: 256}[t]
		s := newScales(std/uniformStd(levels), 0)
		for ; len(dst) >= size; dst = dst[size:] {
			s.put(dst, dst[0], false)
		}
	case quant.Q4_1, quant.Q5_1: // d, m, [fifth bits], codes
		levels := map[quant.Type]float64{quant.Q4_1: 16, quant.Q5_1: 32}[t]
		s := newScales(std/uniformStd(levels), -(levels-1)/2)
		for ; len(dst) >= size; dst = dst[size:] {
			s.put(dst, dst[0], true)
		}
	case quant.Q4_K:
		toK45(dst, size, 16, std)
	case quant.Q5_K:
		toK45(dst, size, 32, std)
	case quant.Q6_K:
		toK6(dst, size, std)
	default:
		panic(fmt.Sprintf("model: no random weights of type %v", t))
	}
}

// toFloats turns random words into float32 uniform around mean with the standard deviation std.
func toFloats(dst []byte, mean float32, std float64) {
	scale := float32(math.Sqrt(12) * std / (1 << 24))
	for ; len(dst) >= 4; dst = dst[4:] {
		u := int32(binary.LittleEndian.Uint32(dst)>>8) - 1<<23
		binary.LittleEndian.PutUint32(dst, math.Float32bits(mean+float32(float32(u)*scale)))
	}
}

// toHalves turns random words into 2-byte floats, each one of 256 equally spaced values.
func toHalves(t quant.Type, dst []byte, std float64) {
	var values [256]uint16
	for i := range values {
		v := float32((float64(i) - 127.5) * std / uniformStd(256))
		if t == quant.BF16 {
			values[i] = quant.F32ToBF16(v)
		} else {
			values[i] = quant.F32ToF16(v)
		}
	}
	for ; len(dst) >= 2; dst = dst[2:] {
		binary.LittleEndian.PutUint16(dst, values[dst[0]])
	}
}

// toK45 makes blocks of Q4_K (16 levels) and Q5_K (32): d, dmin, eight 6-bit scales and offsets in 12 bytes,
// codes. Each sub-block's offset equals its scale, and dmin is d times half the range of codes, so that
// the mean is 0.
func toK45(dst []byte, size int, levels, std float64) {
	// Sub-block scales are uniform in 32…63; the root of their mean square is 48.4.
	s := newScales(std/uniformStd(levels)/48.4, (levels-1)/2)
	for ; len(dst) >= size; dst = dst[size:] {
		s.put(dst, dst[0], true)
		for j := range 4 {
			lo, hi := dst[4+j]&31|32, dst[8+j]&31|32
			dst[4+j] = lo | hi>>4<<6 // scales 0–3, and the upper bits of 4–7
			dst[8+j] = lo | hi>>4<<6 // offsets likewise
			dst[12+j] = hi&15 | hi<<4
		}
	}
}

// toK6 makes blocks of Q6_K: low bits, high bits, sixteen 8-bit scales of magnitude 64…127 and either sign, d.
func toK6(dst []byte, size int, std float64) {
	// The root of the mean square of the scales is 97.2; they carry the sign.
	s := newScales(std/uniformStd(64)/97.2, 0)
	for ; len(dst) >= size; dst = dst[size:] {
		for j := 192; j < 208; j++ {
			v := int8(dst[j]&63 | 64)
			if dst[j]&128 != 0 {
				v = -v
			}
			dst[j] = byte(v)
		}
		s.put(dst[208:], dst[208]&7, false)
	}
}
