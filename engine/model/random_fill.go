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

// bits64 yields the random words of one tensor: word i is mix(key + i·γ), γ being SplitMix64's increment.
type bits64 uint64

func (b *bits64) next() uint64 {
	*b += 0x9e3779b97f4a7c15
	return mix(uint64(*b))
}

// bytes fills p, 8 bytes a word.
func (b *bits64) bytes(p []byte) {
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, b.next())
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], b.next())
		copy(p, last[:])
	}
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

// fillRandom fills dst with whole blocks of the format: uniform codes, scaled so that the decoded weights have mean 0
// and a standard deviation of about std. It draws codes and scales as bits and encodes no element, because
// making a gigabyte of weights must not take longer than packing it.
func fillRandom(t quant.Type, dst []byte, key uint64, std float64) {
	b := bits64(key)
	size := t.BlockBytes()
	switch t {
	case quant.F32:
		fillFloats(dst, key, 0, float32(std))
	case quant.F16, quant.BF16:
		fillHalves(t, dst, &b, std)
	case quant.Q4_0, quant.Q5_0, quant.Q8_0: // d, [fifth bits], codes
		levels := map[quant.Type]float64{quant.Q4_0: 16, quant.Q5_0: 32, quant.Q8_0: 256}[t]
		s := newScales(std/uniformStd(levels), 0)
		for ; len(dst) >= size; dst = dst[size:] {
			binary.LittleEndian.PutUint16(dst, s.d[b.next()>>60])
			b.bytes(dst[2:size])
		}
	case quant.Q4_1, quant.Q5_1: // d, m, [fifth bits], codes
		levels := map[quant.Type]float64{quant.Q4_1: 16, quant.Q5_1: 32}[t]
		s := newScales(std/uniformStd(levels), -(levels-1)/2)
		for ; len(dst) >= size; dst = dst[size:] {
			i := b.next() >> 60
			binary.LittleEndian.PutUint16(dst, s.d[i])
			binary.LittleEndian.PutUint16(dst[2:], s.m[i])
			b.bytes(dst[4:size])
		}
	case quant.Q4_K, quant.Q5_K:
		fillK45(t, dst, &b, std)
	case quant.Q6_K:
		fillK6(dst, &b, std)
	default:
		panic(fmt.Sprintf("model: no random weights of type %v", t))
	}
}

// fillFloats writes float32 uniform around mean with the standard deviation std.
func fillFloats(dst []byte, key uint64, mean, std float32) {
	b := bits64(key)
	scale := float32(math.Sqrt(12)) * std / (1 << 24)
	put := func(p []byte, u uint32) {
		v := mean + float32(float32(int32(u>>8)-1<<23)*scale)
		binary.LittleEndian.PutUint32(p, math.Float32bits(v))
	}
	for ; len(dst) >= 8; dst = dst[8:] {
		u := b.next()
		put(dst, uint32(u))
		put(dst[4:], uint32(u>>32))
	}
	if len(dst) >= 4 {
		put(dst, uint32(b.next()))
	}
}

// fillHalves writes 2-byte floats, each one of 256 equally spaced values.
func fillHalves(t quant.Type, dst []byte, b *bits64, std float64) {
	var values [256]uint16
	for i := range values {
		v := float32((float64(i) - 127.5) * std / uniformStd(256))
		if t == quant.BF16 {
			values[i] = uint16(math.Float32bits(v) >> 16)
		} else {
			values[i] = quant.F32ToF16(v)
		}
	}
	var u uint64
	for i := 0; len(dst) >= 2; i++ {
		if u >>= 8; i%8 == 0 {
			u = b.next()
		}
		binary.LittleEndian.PutUint16(dst, values[uint8(u)])
		dst = dst[2:]
	}
}

// fillK45 writes blocks of Q4_K and Q5_K: d, dmin, eight 6-bit scales and offsets in 12 bytes, codes. Each
// sub-block's offset equals its scale, and dmin is d times half the range of codes, so that the mean is 0.
func fillK45(t quant.Type, dst []byte, b *bits64, std float64) {
	levels := 16.0
	if t == quant.Q5_K {
		levels = 32
	}
	// Sub-block scales are uniform in 32…63; the root of their mean square is 48.4.
	s := newScales(std/uniformStd(levels)/48.4, (levels-1)/2)
	for size := t.BlockBytes(); len(dst) >= size; dst = dst[size:] {
		i := b.next() >> 60
		binary.LittleEndian.PutUint16(dst, s.d[i])
		binary.LittleEndian.PutUint16(dst[2:], s.m[i])
		var sub [8]byte
		binary.LittleEndian.PutUint64(sub[:], b.next())
		for j := range sub {
			sub[j] = sub[j]&31 | 32
		}
		for j := range 4 {
			lo, hi := sub[j], sub[j+4]
			dst[4+j] = lo | hi>>4<<6 // scales 0–3, and the upper bits of 4–7
			dst[8+j] = lo | hi>>4<<6 // offsets likewise
			dst[12+j] = hi&15 | hi<<4
		}
		b.bytes(dst[16:size])
	}
}

// fillK6 writes blocks of Q6_K: low bits, high bits, sixteen 8-bit scales of magnitude 64…127 and either sign, d.
func fillK6(dst []byte, b *bits64, std float64) {
	// The root of the mean square of the scales is 97.2.
	s := newScales(std/uniformStd(64)/97.2, 0)
	for size := quant.Q6_K.BlockBytes(); len(dst) >= size; dst = dst[size:] {
		b.bytes(dst[:208])
		for j := 192; j < 208; j++ {
			v := int8(dst[j]&63 | 64)
			if dst[j]&128 != 0 {
				v = -v
			}
			dst[j] = byte(v)
		}
		binary.LittleEndian.PutUint16(dst[208:], s.d[b.next()>>60&7])
	}
}
