package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"draftlab/engine/quant"
)

// matmulGeneric fills in the oracle's matrix products.
func matmulGeneric(s *Set) {
	for f := range NumFormats {
		for rows := 1; rows <= TileRows; rows++ {
			body := matmulInt
			if f.Float() {
				body = matmulFloat
			}
			s.MatMul[f][rows] = func(w, x *byte, y *float32, blocks, groups, ldy, add int) {
				body(f, rows, w, x, y, blocks, groups, ldy, add != 0)
			}
		}
	}
}

// sums holds one group's output lanes for each row of a tile.
type sums [TileRows][GroupRows]float32

// store writes (or adds) a group's sums to column col of y.
func (s *sums) store(y []float32, rows, ldy, col int, add bool) {
	for r := range rows {
		out := y[r*ldy+col:][:GroupRows]
		for i := range out {
			if add {
				out[i] += s[r][i]
			} else {
				out[i] = s[r][i]
			}
		}
	}
}

// output returns y as a slice that ends with the last row's last lane.
func output(y *float32, rows, groups, ldy int) []float32 {
	return unsafe.Slice(y, (rows-1)*ldy+groups*GroupRows)
}

// matmulInt is MatMulFunc for the integer formats: integer dot products of a block, then
// acc += dot·(d·s) and, where the format has an offset, acc += m·(s·Σ).
func matmulInt(f Format, rows int, w, x *byte, y *float32, blocks, groups, ldy int, add bool) {
	size := GroupBytes(f, blocks*BlockCols)
	weights := unsafe.Slice(w, groups*size)
	acts := unsafe.Slice(x, blocks*rows*IntUnit)
	out := output(y, rows, groups, ldy)
	for g := range groups {
		group := weights[g*size:][:size]
		var acc sums
		for b := range blocks {
			var fac factors
			codes := fac.load(f, group, b)
			for r := range rows {
				unit := acts[(b*rows+r)*IntUnit:][:IntUnit]
				fac.accumulate(&acc[r], f, codes, unit)
			}
		}
		acc.store(out, rows, ldy, g*GroupRows, add)
	}
}

// factors are the 16 rows' factors of one block: weight = d·code + m, or for W6K d for the first
// half of the columns and m (a factor too) for the second.
type factors struct{ d, m [GroupRows]float32 }

// load reads the factors of block b and returns its codes.
func (v *factors) load(f Format, group []byte, b int) (codes []byte) {
	head, sub, at := f.place(b)
	for i := range v.d {
		v.d[i] = halfAt(group[head:], i)
		switch f {
		case W4SM, W8SM:
			v.m[i] = halfAt(group[head:], GroupRows+i)
		case W4K, W8K:
			v.m[i] = -halfAt(group[head:], GroupRows+i) * float32(group[sub+GroupRows+i])
			v.d[i] *= float32(group[sub+i])
		case W6K:
			v.m[i] = v.d[i] * float32(int8(group[sub+GroupRows+i]))
			v.d[i] *= float32(int8(group[sub+i]))
		}
	}
	return group[at:][:shapes[f].codes]
}

// accumulate adds one block's products of one row's unit to its 16 lanes.
func (v *factors) accumulate(acc *[GroupRows]float32, f Format, codes, unit []byte) {
	var a [BlockCols]int64
	sum := int64(0)
	for i := range a {
		a[i] = int64(int8(unit[i]))
		sum += a[i]
	}
	s := math.Float32frombits(binary.LittleEndian.Uint32(unit[32:]))
	sSum := math.Float32frombits(binary.LittleEndian.Uint32(unit[36:]))
	if f == W6K {
		first := int64(0)
		for _, c := range a[:16] {
			first += c
		}
		addDots(acc, codes[:256], a[:16], -32*first, &v.d, s)
		addDots(acc, codes[256:], a[16:], -32*(sum-first), &v.m, s)
		return
	}
	start := -int64(f.zero()) * sum
	if len(codes) == 256 {
		addNibbleDots(acc, codes, a[:], start, &v.d, s)
	} else {
		addDots(acc, codes, a[:], start, &v.d, s)
	}
	if f != W4S && f != W8S {
		for i := range acc {
			acc[i] += float32(v.m[i] * sSum)
		}
	}
}

// pairMask keeps the same byte of two neighbouring lanes of a 64-bit word. One multiplication then
// serves both lanes: the word's halves are two exact int32 sums, the upper one short of the borrow of a
// negative lower one, which split undoes.
const pairMask = 0xff<<32 | 0xff

func split(sum, start int64) (low, high float32) {
	l := int32(sum)
	h := (sum - int64(l)) >> 32
	return float32(int64(l) + start), float32(h + start)
}

// addDots adds d·s·(start + Σ code·a) for 8-bit codes of len(a) columns.
func addDots(acc *[GroupRows]float32, codes []byte, a []int64, start int64, d *[GroupRows]float32, s float32) {
	for lane := 0; lane < GroupRows; lane += 2 {
		sum := int64(0)
		for k := 0; k+4 <= len(a); k += 4 {
			v := binary.LittleEndian.Uint64(codes[k*GroupRows+lane*4:])
			sum += int64(v&pairMask)*a[k] + int64(v>>8&pairMask)*a[k+1] +
				int64(v>>16&pairMask)*a[k+2] + int64(v>>24&pairMask)*a[k+3]
		}
		p, q := split(sum, start)
		acc[lane] += float32(p * float32(d[lane]*s))
		acc[lane+1] += float32(q * float32(d[lane+1]*s))
	}
}

// addNibbleDots is addDots for 4-bit codes.
func addNibbleDots(acc *[GroupRows]float32, codes []byte, a []int64, start int64, d *[GroupRows]float32, s float32) {
	const mask = pairMask & (0x0f<<32 | 0x0f)
	for lane := 0; lane < GroupRows; lane += 2 {
		sum := int64(0)
		for k := 0; k+8 <= len(a); k += 8 {
			v := binary.LittleEndian.Uint64(codes[k*GroupRows/2+lane*4:])
			sum += int64(v&mask)*a[k] + int64(v>>4&mask)*a[k+4] +
				int64(v>>8&mask)*a[k+1] + int64(v>>12&mask)*a[k+5] +
				int64(v>>16&mask)*a[k+2] + int64(v>>20&mask)*a[k+6] +
				int64(v>>24&mask)*a[k+3] + int64(v>>28&mask)*a[k+7]
		}
		p, q := split(sum, start)
		acc[lane] += float32(p * float32(d[lane]*s))
		acc[lane+1] += float32(q * float32(d[lane+1]*s))
	}
}

// matmulFloat is MatMulFunc for the float formats: per lane one chain over the columns.
func matmulFloat(f Format, rows int, w, x *byte, y *float32, blocks, groups, ldy int, add bool) {
	cols := blocks * BlockCols
	size := GroupBytes(f, cols)
	weights := unsafe.Slice(w, groups*size)
	acts := unsafe.Slice(x, blocks*rows*FloatUnit)
	out := output(y, rows, groups, ldy)
	for g := range groups {
		group := weights[g*size:][:size]
		var acc sums
		var lanes [GroupRows]float32
		for k := range cols {
			column(&lanes, f, group, k)
			for r := range rows {
				at := (k/BlockCols*rows+r)*FloatUnit + k%BlockCols*4
				a := math.Float32frombits(binary.LittleEndian.Uint32(acts[at:]))
				for i, v := range lanes {
					acc[r][i] += float32(v * a)
				}
			}
		}
		acc.store(out, rows, ldy, g*GroupRows, add)
	}
}

// column reads the 16 weights of column k.
func column(lanes *[GroupRows]float32, f Format, group []byte, k int) {
	le := binary.LittleEndian
	switch f {
	case F16:
		p := group[k*32:][:32]
		for i := range lanes {
			lanes[i] = halfAt(p, i)
		}
	case BF16:
		p := group[k*32:][:32]
		for i := range lanes {
			lanes[i] = quant.BF16ToF32(le.Uint16(p[2*i:]))
		}
	default:
		p := group[k*64:][:64]
		for i := range lanes {
			lanes[i] = math.Float32frombits(le.Uint32(p[4*i:]))
		}
	}
}
