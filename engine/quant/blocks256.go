package quant

// The formats with super-blocks of 256. Q4_K and Q5_K lie as: scale d and minimum dmin of the
// block, 8 pairs of 6-bit scales and minima packed into 12 bytes, [32 bytes of high bits: bit s of
// byte i belongs to element i of sub-block s,] and 128 bytes of nibbles: 32 bytes for each pair of
// sub-blocks, low halves for the first. An element is (d·scale)·q - dmin·minimum.
//
// Q6_K lies as: 128 bytes of low nibbles, 64 of high pairs of bits, 16 signed scales, and d at the
// end. An element is (d·scale)·(q - 32), with a scale for every 16 elements.

const (
	block256 = 256
	sub      = 32 // elements of a sub-block of Q4_K and Q5_K
)

// fields256 cuts a block of Q4_K or Q5_K into its parts; high is nil for 4 bits.
func fields256(b []byte, bits int) (scales, high, low []byte) {
	scales, b = b[4:16], b[16:]
	if bits == 5 {
		high, b = b[:32], b[32:]
	}
	return scales, high, b
}

// scaleMin unpacks the scale and the minimum of sub-block s, 6 bits each. The first four of each
// fill the low bits of bytes 0-3 and 4-7; the last four have their low nibbles in bytes 8-11 and
// their high bits on top of the first four.
func scaleMin(p []byte, s int) (scale, min byte) {
	if s < 4 {
		return p[s] & 63, p[s+4] & 63
	}
	return p[s+4]&15 | p[s-4]>>6<<4, p[s+4]>>4 | p[s]>>6<<4
}

// putScaleMin packs what scaleMin unpacks into bytes that were zero.
func putScaleMin(p []byte, s int, scale, min byte) {
	if s < 4 {
		p[s] |= scale
		p[s+4] |= min
		return
	}
	p[s+4] |= scale&15 | min<<4
	p[s-4] |= scale >> 4 << 6
	p[s] |= min >> 4 << 6
}

// decodeK returns the decoder of Q4_K or Q5_K.
func decodeK(bits int) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		d, dmin := f16At(src), f16At(src[2:])
		scales, high, low := fields256(src, bits)
		for s := range block256 / sub {
			scale, min := scaleMin(scales, s)
			ds, dm := d*float32(scale), dmin*float32(min)
			for i := range sub {
				q := low[s/2*sub+i] >> (s % 2 * 4) & 15
				if bits == 5 {
					q |= high[i] >> s & 1 << 4
				}
				dst[s*sub+i] = float32(ds*float32(q)) - dm
			}
		}
	}
}

// encodeK returns an encoder of Q4_K or Q5_K. Each sub-block gets the scale and minimum that span
// its elements and zero, rounded to 6 bits; there is no search for a smaller squared error.
func encodeK(bits int) func(dst []byte, src []float32) {
	top := float32(int(1)<<bits - 1)
	return func(dst []byte, src []float32) {
		clear(dst)
		var steps, mins [block256 / sub]float32
		var maxStep, maxMin float32
		for s := range steps {
			lo, hi := extent(src[s*sub:][:sub])
			lo, hi = min(lo, 0), max(hi, 0) // a minimum is stored without a sign, as -lo
			steps[s], mins[s] = (hi-lo)/top, -lo
			maxStep, maxMin = max(maxStep, steps[s]), max(maxMin, mins[s])
		}
		putF16(dst, maxStep/63)
		putF16(dst[2:], maxMin/63)
		d, dmin := f16At(dst), f16At(dst[2:])
		scales, high, low := fields256(dst, bits)
		for s := range steps {
			sc := byte(clampRound(steps[s]*inverse(d), 0, 63))
			mn := byte(clampRound(mins[s]*inverse(dmin), 0, 63))
			putScaleMin(scales, s, sc, mn)
			inv, dm := inverse(d*float32(sc)), dmin*float32(mn)
			for i, x := range src[s*sub:][:sub] {
				q := byte(clampRound((x+dm)*inv, 0, int(top)))
				low[s/2*sub+i] |= q & 15 << (s % 2 * 4)
				if bits == 5 {
					high[i] |= q >> 4 << s
				}
			}
		}
	}
}

// fieldsQ6K cuts a block of Q6_K into its parts.
func fieldsQ6K(b []byte) (low, high, scales, d []byte) {
	return b[:128], b[128:192], b[192:208], b[208:]
}

// placeQ6K says where element i lies: its nibble in low[lo]>>loShift, its upper bits in high[hi]>>hiShift.
func placeQ6K(i int) (lo, loShift, hi, hiShift int) {
	half, r := i/128, i%128
	return half*64 + r%64, r / 64 * 4, half*32 + r%32, r / 32 * 2
}

func decodeQ6K(dst []float32, src []byte) {
	low, high, scales, dBytes := fieldsQ6K(src)
	d := f16At(dBytes)
	for i := range dst {
		lo, loShift, hi, hiShift := placeQ6K(i)
		q := low[lo]>>loShift&15 | high[hi]>>hiShift&3<<4
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(q)-32)
	}
}

// encodeQ6K gives each 16 elements the scale that puts their peak at the end of the range.
func encodeQ6K(dst []byte, src []float32) {
	clear(dst)
	low, high, scales, dBytes := fieldsQ6K(dst)
	var scale [block256 / 16]float32
	for s := range scale {
		scale[s] = peak(src[s*16:][:16]) / -32
	}
	putF16(dBytes, peak(scale[:])/-128)
	d := f16At(dBytes)
	for s := range scale {
		sc := int8(clampRound(scale[s]*inverse(d), -128, 127))
		scales[s] = byte(sc)
		inv := inverse(d * float32(sc))
		for i := s * 16; i < s*16+16; i++ {
			q := byte(clampRound(src[i]*inv, -32, 31) + 32)
			lo, loShift, hi, hiShift := placeQ6K(i)
			low[lo] |= q & 15 << loShift
			high[hi] |= q >> 4 << hiShift
		}
	}
}
