package kernel

import (
	"encoding/binary"
	"math"

	"draftlab/engine/quant"
)

// DecodeRow writes row lane of a packed group as cols float32, equal to the bit to quant.Decode
// of the row that was packed (embedding look-ups in a tied head read it). It touches only the
// lane's bytes.
func DecodeRow(dst []float32, f Format, group []byte, lane, cols int) {
	dst = dst[:cols]
	if f.Float() {
		decodeFloats(dst, f, group, lane)
		return
	}
	for b := 0; b*BlockCols < cols; b++ {
		head, sub, at := f.place(b)
		codes := f.getCodes(group[at:], lane)
		decodeBlock(dst[b*BlockCols:min(cols, (b+1)*BlockCols)], f, group[head:], group[sub:], lane, &codes)
	}
}

// decodeBlock turns the codes of one block into floats. Products of a factor and codes are exact
// in float32 (11 bits of a float16 by at most 13), so only the sum with an offset rounds.
func decodeBlock(dst []float32, f Format, head, sub []byte, lane int, codes *codes32) {
	d := halfAt(head, lane)
	switch f {
	case W4S, W8S:
		zero := int(f.zero())
		for i := range dst {
			dst[i] = d * float32(int(codes.code(i))-zero)
		}
	case W4SM, W8SM:
		m := halfAt(head, GroupRows+lane)
		for i := range dst {
			dst[i] = float32(d*float32(codes.code(i))) + m
		}
	case W4K, W8K:
		s := d * float32(sub[lane])
		m := halfAt(head, GroupRows+lane) * float32(sub[GroupRows+lane])
		for i := range dst {
			dst[i] = float32(s*float32(codes.code(i))) - m
		}
	case W6K:
		for i := range dst {
			s := d * float32(int8(sub[i/16*GroupRows+lane]))
			dst[i] = s * float32(int(codes.code(i))-32)
		}
	}
}

// code returns the code of column i.
func (c *codes32) code(i int) byte { return byte(c[i/8] >> (i % 8 * 8)) }

func decodeFloats(dst []float32, f Format, group []byte, lane int) {
	le := binary.LittleEndian
	for k := range dst {
		i := k*GroupRows + lane
		switch f {
		case F16:
			dst[k] = halfAt(group, i)
		case BF16:
			dst[k] = quant.BF16ToF32(le.Uint16(group[2*i:]))
		default:
			dst[k] = math.Float32frombits(le.Uint32(group[4*i:]))
		}
	}
}

// halfAt returns the i-th float16 of p as float32, exactly.
func halfAt(p []byte, i int) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(p[2*i:])) }
