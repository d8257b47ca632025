package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"draftlab/engine/quant"
)

var packTypes = []quant.Type{
	quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_1,
	quant.Q5_0, quant.Q5_1, quant.Q4_K, quant.Q5_K, quant.Q6_K,
}

// sameFloat reports whether two floats are equal to the bit; any NaN equals any other, since
// which operand's payload survives is the compiler's choice.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// randomRows fills 16 rows with arbitrary bytes; row nilRow, if not negative, is nil.
func randomRows(r *rand.Rand, t quant.Type, cols, nilRow int) (rows [GroupRows][]byte) {
	for i := range rows {
		if i == nilRow {
			continue
		}
		rows[i] = make([]byte, cols/t.BlockElems()*t.BlockBytes())
		for j := range rows[i] {
			rows[i][j] = byte(r.Uint32())
		}
	}
	return rows
}

// TestPackIsExact packs arbitrary bytes, infinite and NaN factors among them, and holds every
// decoded row to quant.Decode; a missing row and the padding must be zero.
func TestPackIsExact(t *testing.T) {
	for _, typ := range packTypes {
		for _, cols := range []int{1, 31, 32, 77, 96, 256, 768} {
			if cols%typ.BlockElems() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%d", typ, cols), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(typ), uint64(cols)))
				for try := range 8 {
					checkPack(t, typ, randomRows(r, typ, cols, try*3-1), cols)
				}
			})
		}
	}
}

func checkPack(t *testing.T, typ quant.Type, rows [GroupRows][]byte, cols int) {
	t.Helper()
	f := FormatOf(typ)
	group, intact := guarded(GroupBytes(f, cols))
	for i := range group {
		group[i] = 0xee // what a reused buffer may hold
	}
	PackGroup(group, typ, &rows, cols)
	if !intact() {
		t.Fatal("PackGroup wrote outside the group")
	}
	padded := Blocks(f, cols) * BlockCols
	want, got := make([]float32, cols), make([]float32, padded)
	for lane, row := range rows {
		clear(want)
		if row != nil {
			quant.Decode(typ, want, row)
		}
		DecodeRow(got, f, group, lane, padded)
		for k, v := range got {
			if k >= cols && v != 0 {
				t.Fatalf("lane %d: padding column %d is %g", lane, k, v)
			}
			if k < cols && !sameFloat(v, want[k]) {
				t.Fatalf("lane %d, column %d: %g (%#x), want %g", lane, k, v, math.Float32bits(v), want[k])
			}
		}
	}
	for b := range Blocks(f, cols) {
		_, _, at := f.place(b)
		for _, c := range group[at:][:shapes[f].codes] {
			if shapes[f].codes == 512 && int(c) > maxCode[f] {
				t.Fatalf("code %d is beyond the largest that kernels allow, %d", c, maxCode[f])
			}
		}
	}
}

// TestPackedProduct follows weights from a file's bytes through packing and every set's kernels.
func TestPackedProduct(t *testing.T) {
	const rows, groups, cols = 3, 2, 512
	for _, typ := range packTypes {
		t.Run(typ.String(), func(t *testing.T) {
			f := FormatOf(typ)
			r := rand.New(rand.NewPCG(7, uint64(typ)))
			p := randomProduct(r, f, rows, cols/BlockCols, groups, false)
			weights := make([][]float32, groups*GroupRows)
			for g := range groups {
				var packed [GroupRows][]byte
				for lane := range packed {
					row := make([]float32, cols)
					for i := range row {
						row[i] = float32(r.NormFloat64())
					}
					packed[lane] = make([]byte, cols/typ.BlockElems()*typ.BlockBytes())
					quant.Encode(typ, packed[lane], row)
					quant.Decode(typ, row, packed[lane])
					weights[g*GroupRows+lane] = row
				}
				PackGroup(p.w[g*len(p.w)/groups:], typ, &packed, cols)
			}
			for _, s := range Sets() {
				y := p.run(t, s, groups*GroupRows, false, nil)
				for i, v := range y {
					row, col := i/(groups*GroupRows), i%(groups*GroupRows)
					sum, size := p.dot(weights[col], row)
					if !(math.Abs(float64(v)-sum) <= 1e-5*size) {
						t.Fatalf("%s: y[%d][%d] = %g, want %g", s.Name, row, col, v, sum)
					}
				}
			}
		})
	}
}

// FuzzPack packs one row of arbitrary bytes and decodes it again.
func FuzzPack(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for i, typ := range packTypes {
		f.Add(uint8(i), randomRows(r, typ, 256, -1)[0])
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		typ := packTypes[int(which)%len(packTypes)]
		blocks := min(len(data)/typ.BlockBytes(), 16)
		if blocks == 0 {
			return
		}
		var rows [GroupRows][]byte
		rows[which%GroupRows] = data[:blocks*typ.BlockBytes()]
		checkPack(t, typ, rows, blocks*typ.BlockElems())
	})
}

func BenchmarkDecodeRow(b *testing.B) {
	for _, typ := range []quant.Type{quant.Q4_1, quant.Q8_0, quant.Q6_K, quant.F16} {
		b.Run(typ.String(), func(b *testing.B) {
			const cols = 768
			rows := randomRows(rand.New(rand.NewPCG(1, 1)), typ, cols, -1)
			group := make([]byte, GroupBytes(FormatOf(typ), cols))
			PackGroup(group, typ, &rows, cols)
			dst := make([]float32, cols)
			for b.Loop() {
				DecodeRow(dst, FormatOf(typ), group, 3, cols)
			}
		})
	}
}

func BenchmarkPackGroup(b *testing.B) {
	for _, typ := range packTypes {
		b.Run(typ.String(), func(b *testing.B) {
			const cols = 2048
			rows := randomRows(rand.New(rand.NewPCG(1, 1)), typ, cols, -1)
			group := make([]byte, GroupBytes(FormatOf(typ), cols))
			b.SetBytes(int64(GroupRows * len(rows[0])))
			for b.Loop() {
				PackGroup(group, typ, &rows, cols)
			}
		})
	}
}
