package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// codec decodes and encodes one block: dst and src have a block's elements and a block's bytes.
type codec struct {
	decode func(dst []float32, src []byte)
	encode func(dst []byte, src []float32)
}

// codecs holds the formats of ggml, whose definitions are its dequantize_row functions.
var codecs = map[Type]codec{
	F32:  {decodeF32, encodeF32},
	F16:  {decodeF16, encodeF16},
	BF16: {decodeBF16, encodeBF16},
	Q8_0: {decodeQ8_0, encodeQ8_0},
	Q4_0: {decode32(4, false), encode32(4, false)},
	Q4_1: {decode32(4, true), encode32(4, true)},
	Q5_0: {decode32(5, false), encode32(5, false)},
	Q5_1: {decode32(5, true), encode32(5, true)},
	Q4_K: {decodeK(4), encodeK(4)},
	Q5_K: {decodeK(5), encodeK(5)},
	Q6_K: {decodeQ6K, encodeQ6K},
}

// Decode turns the blocks in src into float32, with each product and sum rounded to float32 by
// itself as the format defines it, so the result is the same on every machine. Any bytes are
// legal blocks: a scale may be denormal, infinite or NaN, and decodes by IEEE rules.
//
// It panics unless the format is known and dst has exactly the elements that src holds.
func Decode(t Type, dst []float32, src []byte) {
	l := t.must()
	checkLengths("Decode", t, l, len(dst), len(src))
	decode := codecs[t].decode
	for len(dst) > 0 {
		decode(dst[:l.elems], src[:l.bytes])
		dst, src = dst[l.elems:], src[l.bytes:]
	}
}

// Encode turns src into blocks. F32 is exact; F16 and BF16 round to nearest, ties to even; Q8_0 and
// the Q4 and Q5 formats give the bytes of ggml's reference quantisers for finite values; the K
// formats are simple encoders of our own, whose error is within a step, not the least possible.
// In the block formats a NaN becomes some finite value and an infinity spoils its block, and a
// block whose scale is beyond an F16's range, 65504, decodes to infinities and NaNs.
//
// It panics unless the format is known and dst has exactly the bytes that src needs.
func Encode(t Type, dst []byte, src []float32) {
	l := t.must()
	checkLengths("Encode", t, l, len(src), len(dst))
	encode := codecs[t].encode
	for len(src) > 0 {
		encode(dst[:l.bytes], src[:l.elems])
		dst, src = dst[l.bytes:], src[l.elems:]
	}
}

func checkLengths(op string, t Type, l layout, elems, bytes int) {
	if elems%l.elems != 0 || elems/l.elems*l.bytes != bytes {
		panic(fmt.Sprintf("quant: %s of %s: %d elements and %d bytes do not match", op, t, elems, bytes))
	}
}

func decodeF32(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
}

func encodeF32(dst []byte, src []float32) {
	binary.LittleEndian.PutUint32(dst, math.Float32bits(src[0]))
}

func decodeF16(dst []float32, src []byte) { dst[0] = f16At(src) }

func encodeF16(dst []byte, src []float32) { putF16(dst, src[0]) }

func decodeBF16(dst []float32, src []byte) { dst[0] = BF16ToF32(binary.LittleEndian.Uint16(src)) }

func encodeBF16(dst []byte, src []float32) { binary.LittleEndian.PutUint16(dst, F32ToBF16(src[0])) }
