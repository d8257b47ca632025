package kernel

import (
	"encoding/binary"
	"fmt"

	"draftlab/engine/quant"
)

// superBlocks is the number of blocks that share the half-precision factors of a K format.
const superBlocks = 8

// shape is how a packed format lies in memory.
type shape struct {
	name  string
	head  int // bytes of factors before each block, or before each superBlocks blocks where sub is not 0
	sub   int // bytes of sub-factors before each block of a K format
	codes int // bytes of codes (float formats: of values) of a block of 16 rows
}

var shapes = [NumFormats]shape{
	W4S:  {"W4S", 32, 0, 256},
	W4SM: {"W4SM", 64, 0, 256},
	W4K:  {"W4K", 64, 32, 256},
	W8S:  {"W8S", 32, 0, 512},
	W8SM: {"W8SM", 64, 0, 512},
	W8K:  {"W8K", 64, 32, 512},
	W6K:  {"W6K", 32, 32, 512},
	F16:  {"F16", 0, 0, 1024},
	BF16: {"BF16", 0, 0, 1024},
	F32:  {"F32", 0, 0, 2048},
}

// String returns the format's name, such as "W4SM".
func (f Format) String() string { return shapes[f].name }

// Float reports whether the format multiplies float32 activations (units of FloatUnit bytes)
// rather than 8-bit codes (units of IntUnit bytes).
func (f Format) Float() bool { return f >= F16 }

// Wide returns the format of 8-bit codes that holds the weights of a format of 4-bit codes; other formats are their own.
func (f Format) Wide() Format {
	switch f {
	case W4S:
		return W8S
	case W4SM:
		return W8SM
	case W4K:
		return W8K
	}
	return f
}

// FormatOf returns the packed format that holds tensors of type t exactly. It panics for a type
// that package quant does not know.
func FormatOf(t quant.Type) Format {
	switch t {
	case quant.F32:
		return F32
	case quant.F16:
		return F16
	case quant.BF16:
		return BF16
	case quant.Q4_0:
		return W4S
	case quant.Q4_1:
		return W4SM
	case quant.Q5_0, quant.Q8_0:
		return W8S
	case quant.Q5_1:
		return W8SM
	case quant.Q4_K:
		return W4K
	case quant.Q5_K:
		return W8K
	case quant.Q6_K:
		return W6K
	}
	panic("kernel: no packed format for " + t.String())
}

// Blocks returns the number of blocks of BlockCols columns that hold cols columns in format f:
// whole super-blocks for the K formats.
func Blocks(f Format, cols int) int {
	blocks := (cols + BlockCols - 1) / BlockCols
	if shapes[f].sub != 0 {
		blocks = (blocks + superBlocks - 1) / superBlocks * superBlocks
	}
	return blocks
}

// GroupBytes returns the bytes of one packed group of GroupRows rows of cols columns.
func GroupBytes(f Format, cols int) int {
	s, blocks := &shapes[f], Blocks(f, cols)
	if s.sub != 0 {
		return blocks/superBlocks*s.head + blocks*(s.sub+s.codes)
	}
	return blocks * (s.head + s.codes)
}

// place returns where the factors, the sub-factors (K formats only) and the codes of a block lie
// in its group.
func (f Format) place(block int) (head, sub, codes int) {
	s := &shapes[f]
	if s.sub == 0 {
		head = block * (s.head + s.codes)
		return head, 0, head + s.head
	}
	head = block / superBlocks * (s.head + superBlocks*(s.sub+s.codes))
	sub = head + s.head + block%superBlocks*(s.sub+s.codes)
	return head, sub, sub + s.sub
}

// PackGroup repacks 16 rows of a tensor of type t into one group, exactly: dst holds
// GroupBytes(FormatOf(t), cols) bytes, rows[i] is a row of cols elements as it lies in a file. A nil row
// becomes a row of zeros; so do the columns past cols that fill the last block. cols is a
// multiple of t.BlockElems(). Any bytes will do: a factor that is infinite or not a number is
// kept as it is.
func PackGroup(dst []byte, t quant.Type, rows *[GroupRows][]byte, cols int) {
	f := FormatOf(t)
	size, rowBytes := GroupBytes(f, cols), cols/t.BlockElems()*t.BlockBytes()
	if cols <= 0 || cols%t.BlockElems() != 0 || len(dst) < size {
		panic(fmt.Sprintf("kernel: PackGroup of %d columns of %v into %d bytes, %d needed", cols, t, len(dst), size))
	}
	for _, row := range rows {
		if row != nil && len(row) < rowBytes {
			panic(fmt.Sprintf("kernel: PackGroup row of %d bytes, %d needed", len(row), rowBytes))
		}
	}
	dst = dst[:size]
	clear(dst)
	if f.Float() {
		packFloats(dst, t, rows, cols)
		return
	}
	for lane, row := range rows {
		if row == nil {
			zeroCodes(dst, f, lane, cols)
		} else {
			packBlocks(dst, t, f, lane, row[:rowBytes])
		}
	}
}

// zeroCodes writes codes that mean zero, so that a row without data is exactly zero whatever its
// factors (which are zero as well) are multiplied with.
func zeroCodes(dst []byte, f Format, lane, cols int) {
	zero := uint64(f.zero()) * eachByte
	if zero == 0 {
		return
	}
	codes := codes32{zero, zero, zero, zero}
	for b := range Blocks(f, cols) {
		_, _, at := f.place(b)
		f.putCodes(dst[at:], lane, &codes)
	}
}

// zero returns the code that means zero: what a kernel subtracts from every code.
func (f Format) zero() byte {
	switch f {
	case W4S:
		return 8
	case W8S:
		return 128
	case W6K:
		return 32
	}
	return 0
}

// codes32 holds a row's 32 codes of one block, one a byte, column 0 lowest.
type codes32 [BlockCols / 8]uint64

// eachByte times a byte is that byte eight times over.
const eachByte = 0x0101010101010101

// putCodes scatters a row's codes of one block into the lane's bytes of the 16-row block.
func (f Format) putCodes(block []byte, lane int, codes *codes32) {
	le := binary.LittleEndian
	block = block[lane*4:]
	if shapes[f].codes == 512 {
		for i, c := range codes {
			le.PutUint32(block[i*128:], uint32(c))
			le.PutUint32(block[i*128+64:], uint32(c>>32))
		}
		return
	}
	for i, c := range codes {
		le.PutUint32(block[i*64:], uint32(c|c>>32<<4))
	}
}

// getCodes is the inverse of putCodes.
func (f Format) getCodes(block []byte, lane int) (codes codes32) {
	le := binary.LittleEndian
	block = block[lane*4:]
	for i := range codes {
		if shapes[f].codes == 512 {
			codes[i] = uint64(le.Uint32(block[i*128:])) | uint64(le.Uint32(block[i*128+64:]))<<32
			continue
		}
		v := uint64(le.Uint32(block[i*64:]))
		codes[i] = (v | v>>4<<32) & (15 * eachByte)
	}
	return codes
}

// packFloats transposes rows of floats: column k of the group holds its 16 rows side by side. It
// goes by blocks of columns, so that what is written stays in the cache until all rows were there.
func packFloats(dst []byte, t quant.Type, rows *[GroupRows][]byte, cols int) {
	le := binary.LittleEndian
	for from := 0; from < cols; from += BlockCols {
		to := min(cols, from+BlockCols)
		for lane, row := range rows {
			if row == nil {
				continue
			}
			if t == quant.F32 {
				for k := from; k < to; k++ {
					le.PutUint32(dst[(k*GroupRows+lane)*4:], le.Uint32(row[k*4:]))
				}
				continue
			}
			for k := from; k < to; k++ {
				le.PutUint16(dst[(k*GroupRows+lane)*2:], le.Uint16(row[k*2:]))
			}
		}
	}
}
