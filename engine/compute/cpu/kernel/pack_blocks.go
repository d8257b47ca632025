package kernel

import (
	"encoding/binary"

	"draftlab/engine/quant"
)

// packBlocks repacks one row of a block format. The source layouts are those of GGUF; package
// quant describes them one by one.
func packBlocks(dst []byte, t quant.Type, f Format, lane int, row []byte) {
	size := t.BlockBytes()
	for b := 0; b*size < len(row); b++ {
		src := row[b*size : (b+1)*size]
		switch t {
		case quant.Q4_K, quant.Q5_K:
			packScaleMin(dst, f, b*superBlocks, lane, src)
		case quant.Q6_K:
			packQ6K(dst, b*superBlocks, lane, src)
		default:
			packBlock32(dst, t, f, b, lane, src)
		}
	}
}

// packBlock32 repacks one block of 32 columns: factors first, then the high bits (if any), then codes.
func packBlock32(dst []byte, t quant.Type, f Format, b, lane int, src []byte) {
	head, _, at := f.place(b)
	copy(dst[head+2*lane:], src[:2])
	src = src[2:]
	if t == quant.Q4_1 || t == quant.Q5_1 {
		copy(dst[head+2*GroupRows+2*lane:], src[:2])
		src = src[2:]
	}
	var codes codes32
	switch t {
	case quant.Q8_0:
		for i := range codes {
			codes[i] = binary.LittleEndian.Uint64(src[8*i:]) ^ 0x80*eachByte // two's complement to offset 128
		}
	case quant.Q4_0, quant.Q4_1:
		codes = nibbles(src)
	case quant.Q5_0:
		codes = fiveBits(src)
		for i := range codes {
			codes[i] += (128 - 16) * eachByte // Q5_0's zero is 16, the packed format's 128
		}
	case quant.Q5_1:
		codes = fiveBits(src)
	}
	f.putCodes(dst[at:], lane, &codes)
}

// nibbles spreads 16 bytes: low nibbles are elements 0–15, high ones 16–31.
func nibbles(src []byte) codes32 {
	const low = 15 * eachByte
	a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
	return codes32{a & low, b & low, a >> 4 & low, b >> 4 & low}
}

// fiveBits spreads Q5_0's and Q5_1's codes: 32 fifth bits, then 16 bytes of nibbles.
func fiveBits(src []byte) codes32 {
	codes := nibbles(src[4:])
	for i := range codes {
		codes[i] |= spread(src[i]) << 4
	}
	return codes
}

// spread turns bit i of b into byte i. Each byte of the product keeps one bit of b; adding 127
// carries any of them into the byte's top bit.
func spread(b byte) uint64 {
	const bits = 0x8040201008040201
	return (uint64(b)*eachByte&bits + 0x7f*eachByte) >> 7 & eachByte
}

// scaleMin returns Q4_K's and Q5_K's 6-bit factor and offset of sub-block i from its 12 packed bytes.
func scaleMin(p []byte, i int) (scale, offset byte) {
	if i < 4 {
		return p[i] & 63, p[i+4] & 63
	}
	return p[i+4]&15 | p[i-4]>>6<<4, p[i+4]>>4 | p[i]>>6<<4
}

// packScaleMin repacks a super-block of Q4_K (W4K) or Q5_K (W8K): d, dmin, 12 bytes of factors,
// 32 bytes of fifth bits (Q5_K only), 128 bytes of nibbles.
func packScaleMin(dst []byte, f Format, b0, lane int, src []byte) {
	le := binary.LittleEndian
	head, _, _ := f.place(b0)
	copy(dst[head+2*lane:], src[0:2])
	copy(dst[head+2*GroupRows+2*lane:], src[2:4])
	factors, low := src[4:16], src[16:]
	var fifth []byte
	if f == W8K {
		fifth, low = src[16:48], src[48:]
	}
	for i := range superBlocks {
		_, sub, at := f.place(b0 + i)
		dst[sub+lane], dst[sub+GroupRows+lane] = scaleMin(factors, i)
		var codes codes32
		for w := range codes {
			codes[w] = le.Uint64(low[i/2*32+8*w:]) >> (i % 2 * 4) & (15 * eachByte)
			if fifth != nil {
				codes[w] |= le.Uint64(fifth[8*w:]) >> i & eachByte << 4
			}
		}
		f.putCodes(dst[at:], lane, &codes)
	}
}

// packQ6K repacks a super-block of Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed
// factors of 16 columns each, d. Each half of 128 columns has 64 and 32 of those bytes; its block
// i takes nibble i/2 of bytes i%2·32… and bit pair i.
func packQ6K(dst []byte, b0, lane int, src []byte) {
	le := binary.LittleEndian
	head, _, _ := W6K.place(b0)
	copy(dst[head+2*lane:], src[208:210])
	factors := src[192:208]
	for b := range superBlocks {
		low, high, i := src[b/4*64:], src[128+b/4*32:], b%4
		_, sub, at := W6K.place(b0 + b)
		dst[sub+lane], dst[sub+GroupRows+lane] = factors[2*b], factors[2*b+1]
		var codes codes32
		for w := range codes {
			codes[w] = le.Uint64(low[i%2*32+8*w:])>>(i/2*4)&(15*eachByte) |
				le.Uint64(high[8*w:])>>(2*i)&(3*eachByte)<<4
		}
		W6K.putCodes(dst[at:], lane, &codes)
	}
}
