package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
)

// maxCode is the largest code of a format: kernels may rely on it.
var maxCode = [NumFormats]int{W4S: 15, W4SM: 15, W4K: 15, W8S: 255, W8SM: 31, W8K: 31, W6K: 63}

// guarded returns n bytes that start at an odd address between two runs of guard bytes, and a
// function that reports whether these still stand.
func guarded(n int) (p []byte, intact func() bool) {
	const guard, run = 0xa5, 129
	buf := make([]byte, run+n+run)
	for i := range buf {
		buf[i] = guard
	}
	return buf[run : run+n : run+n], func() bool {
		for i, b := range buf {
			if (i < run || i >= run+n) && b != guard {
				return false
			}
		}
		return true
	}
}

// product is one matrix product's arguments.
type product struct {
	f                    Format
	rows, blocks, groups int
	w, x                 []byte
}

// randomProduct makes weights and activations at unaligned addresses. extreme picks only the
// smallest and largest codes.
func randomProduct(r *rand.Rand, f Format, rows, blocks, groups int, extreme bool) *product {
	p := &product{f: f, rows: rows, blocks: blocks, groups: groups}
	p.w, _ = guarded(groups * GroupBytes(f, blocks*BlockCols))
	for g := range groups {
		fillGroup(r, f, p.w[g*len(p.w)/groups:][:len(p.w)/groups], blocks, extreme)
	}
	if f.Float() {
		p.x, _ = guarded(rows * blocks * FloatUnit)
		for i := 0; i < len(p.x); i += 4 {
			binary.LittleEndian.PutUint32(p.x[i:], math.Float32bits(float32(r.NormFloat64())))
		}
		return p
	}
	p.x, _ = guarded(rows * blocks * IntUnit)
	for i := 0; i < len(p.x); i += IntUnit {
		var codes [BlockCols]int8
		for k := range codes {
			codes[k] = int8(r.IntN(255) - 127)
			if extreme {
				codes[k] = []int8{-127, 127}[i/IntUnit%2]
			}
		}
		putUnit(p.x[i:], &codes, float32(r.ExpFloat64()))
	}
	return p
}

func fillGroup(r *rand.Rand, f Format, group []byte, blocks int, extreme bool) {
	half := func(p []byte) { // a float16 of about ±0.01 … 2
		binary.LittleEndian.PutUint16(p, uint16(r.IntN(2)<<15|(8+r.IntN(8))<<10|r.IntN(1<<10)))
	}
	if f.Float() {
		for i := 0; i < len(group); i += shapes[f].codes / 512 {
			switch f {
			case F16:
				half(group[i:])
			case BF16:
				binary.LittleEndian.PutUint16(group[i:], uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
			default:
				binary.LittleEndian.PutUint32(group[i:], math.Float32bits(float32(r.NormFloat64())))
			}
		}
		return
	}
	for b := range blocks {
		head, sub, at := f.place(b)
		for i := 0; i < shapes[f].head; i += 2 {
			half(group[head+i:])
		}
		for i := range shapes[f].sub {
			group[sub+i] = byte(r.IntN(256))
		}
		codes := group[at:][:shapes[f].codes]
		for i := range codes {
			pick := func() byte {
				if extreme {
					return byte(b % 2 * maxCode[f])
				}
				return byte(r.IntN(maxCode[f] + 1))
			}
			codes[i] = pick()
			if len(codes) == 256 {
				codes[i] |= pick() << 4
			}
		}
	}
}

// putUnit packs one integer unit.
func putUnit(dst []byte, codes *[BlockCols]int8, s float32) {
	le := binary.LittleEndian
	var sums [2]int32
	for i, c := range codes {
		dst[i] = byte(c)
		sums[i/16] += int32(c)
	}
	sum := sums[0] + sums[1]
	le.PutUint32(dst[32:], math.Float32bits(s))
	le.PutUint32(dst[36:], math.Float32bits(s*float32(sum)))
	for i, v := range []int32{-8 * sum, -128 * sum, -32 * sums[0], -32 * sums[1]} {
		le.PutUint32(dst[40+4*i:], uint32(v))
	}
}

// run computes the product with a set's kernel for the product's rows, into y of ldy columns,
// and checks that nothing but the output changed.
func (p *product) run(t *testing.T, s *Set, ldy int, add bool, before []float32) []float32 {
	t.Helper()
	const sentinel = 12345
	y := make([]float32, 7+p.rows*ldy+40)
	for i := range y {
		y[i] = sentinel
	}
	out := y[7 : 7+p.rows*ldy]
	copy(out, before)
	w, x := string(p.w), string(p.x)
	s.MatMul[p.f][p.rows](&p.w[0], &p.x[0], &out[0], p.blocks, p.groups, ldy, b2i(add))
	if string(p.w) != w || string(p.x) != x {
		t.Fatal("inputs changed")
	}
	for i, v := range y {
		if i < 7 || i >= 7+p.rows*ldy {
			if v != sentinel {
				t.Fatalf("y[%d] outside the output changed", i-7)
			}
		} else if col := (i - 7) % ldy; col >= p.groups*GroupRows && v != sentinel && before == nil {
			t.Fatalf("y[%d] between rows changed", i-7)
		}
	}
	return out
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// exact returns all outputs in float64, [rows][groups·16], and the sums of their terms' magnitudes.
func (p *product) exact() (sums, sizes [][]float64) {
	cols := p.blocks * BlockCols
	weights := make([]float32, cols)
	sums, sizes = make([][]float64, p.rows), make([][]float64, p.rows)
	for col := range p.groups * GroupRows {
		DecodeRow(weights, p.f, p.w[col/GroupRows*len(p.w)/p.groups:], col%GroupRows, cols)
		for row := range p.rows {
			sum, size := p.dot(weights, row)
			sums[row], sizes[row] = append(sums[row], sum), append(sizes[row], size)
		}
	}
	return sums, sizes
}

// dot returns the product of decoded weights with a row of the tile, and the sum of the terms' magnitudes.
func (p *product) dot(weights []float32, row int) (sum, size float64) {
	for k, w := range weights {
		var a float64
		if p.f.Float() {
			unit := p.x[(k/BlockCols*p.rows+row)*FloatUnit:]
			a = float64(math.Float32frombits(binary.LittleEndian.Uint32(unit[k%BlockCols*4:])))
		} else {
			unit := p.x[(k/BlockCols*p.rows+row)*IntUnit:]
			s := math.Float32frombits(binary.LittleEndian.Uint32(unit[atUnitScale:]))
			a = float64(int8(unit[k%BlockCols])) * float64(s)
		}
		sum += float64(w) * a
		size += math.Abs(float64(w) * a)
	}
	return sum, size
}

// shapesToTest lists blocks and groups: odd block counts (K formats: multiples of 8) and group
// counts around those that small tiles of the float formats take at once.
func shapesToTest(f Format) (list [][2]int) {
	blocks := []int{1, 3, 18}
	if shapes[f].sub != 0 {
		blocks = []int{8, 24}
	}
	for _, b := range blocks {
		for _, g := range []int{1, 2, 3, 5} {
			list = append(list, [2]int{b, g})
		}
	}
	return list
}

// everyKernel calls f for each format and number of rows.
func everyKernel(t *testing.T, f func(t *testing.T, r *rand.Rand, format Format, rows int)) {
	for format := range NumFormats {
		for rows := 1; rows <= TileRows; rows++ {
			t.Run(fmt.Sprintf("%v/%d", format, rows), func(t *testing.T) {
				f(t, rand.New(rand.NewPCG(uint64(format), uint64(rows))), format, rows)
			})
		}
	}
}

// TestMatMulAgrees holds every set's kernels to the exact product, and the assembly sets to each
// other bit by bit (K3).
func TestMatMulAgrees(t *testing.T) {
	everyKernel(t, func(t *testing.T, r *rand.Rand, f Format, rows int) {
		for _, shape := range shapesToTest(f) {
			for _, extreme := range []bool{false, true} {
				p := randomProduct(r, f, rows, shape[0], shape[1], extreme)
				checkProduct(t, r, p)
			}
		}
	})
}

func checkProduct(t *testing.T, r *rand.Rand, p *product) {
	t.Helper()
	ldy := p.groups*GroupRows + 5
	before := make([]float32, p.rows*ldy)
	for i := range before {
		before[i] = float32(r.NormFloat64())
	}
	sums, sizes := p.exact()
	var first []float32 // of the assembly sets
	for _, s := range Sets() {
		y := p.run(t, s, ldy, false, nil)
		added := p.run(t, s, ldy, true, before)
		for row := range p.rows {
			for col := range ldy {
				i := row*ldy + col
				if col >= p.groups*GroupRows {
					if added[i] != before[i] {
						t.Fatalf("%s: add changed y[%d][%d] between rows", s.Name, row, col)
					}
					continue
				}
				sum, size := sums[row][col], sizes[row][col]
				if d := math.Abs(float64(y[i]) - sum); !(d <= 1e-5*size+1e-30) {
					t.Fatalf("%s, %d blocks, %d groups: y[%d][%d] = %g, want %g (terms %g)", s.Name, p.blocks, p.groups, row, col, y[i], sum, size)
				}
				if added[i] != before[i]+y[i] {
					t.Fatalf("%s: add gives y[%d][%d] = %g, want %g + %g", s.Name, row, col, added[i], before[i], y[i])
				}
				if first != nil && math.Float32bits(y[i]) != math.Float32bits(first[i]) {
					t.Fatalf("%s: y[%d][%d] = %x, another assembly set has %x", s.Name, row, col, y[i], first[i])
				}
			}
		}
		if s.Amortises && first == nil {
			first = y
		}
	}
}

// TestMatMulRowAlone checks K1: a row of a tile of any size equals the same row computed alone.
func TestMatMulRowAlone(t *testing.T) {
	everyKernel(t, func(t *testing.T, r *rand.Rand, f Format, rows int) {
		const blocks, groups = 16, 5
		p := randomProduct(r, f, rows, blocks, groups, false)
		unit := len(p.x) / (rows * blocks)
		for _, s := range Sets() {
			y := p.run(t, s, groups*GroupRows, false, nil)
			for row := range rows {
				one := *p
				one.rows, one.x = 1, nil
				for b := range blocks {
					one.x = append(one.x, p.x[(b*rows+row)*unit:][:unit]...)
				}
				for col, v := range one.run(t, s, groups*GroupRows, false, nil) {
					if math.Float32bits(v) != math.Float32bits(y[row*groups*GroupRows+col]) {
						t.Fatalf("%s: row %d of %d, column %d is %x, alone %x", s.Name, row, rows, col, y[row*groups*GroupRows+col], v)
					}
				}
			}
		}
	})
}

// TestMatMulNotFinite checks that infinities and NaNs, in factors, weights or activations, reach
// exactly the outputs that read them, whichever set runs.
func TestMatMulNotFinite(t *testing.T) {
	everyKernel(t, func(t *testing.T, r *rand.Rand, f Format, rows int) {
		const blocks, groups, lane = 8, 5, 3
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			p := randomProduct(r, f, rows, blocks, groups, false)
			le := binary.LittleEndian
			switch f { // group 1's row `lane`, block 0
			case F32:
				le.PutUint32(p.w[len(p.w)/groups+4*lane:], math.Float32bits(bad))
			case BF16:
				le.PutUint16(p.w[len(p.w)/groups+2*lane:], uint16(math.Float32bits(bad)>>16))
			default:
				le.PutUint16(p.w[len(p.w)/groups+2*lane:], uint16(0x7c00|math.Float32bits(bad)>>13&0x3ff))
			}
			badRow := r.IntN(rows) // and the activations of one row, block 1
			if f.Float() {
				le.PutUint32(p.x[(rows+badRow)*FloatUnit:], math.Float32bits(bad))
			} else {
				le.PutUint32(p.x[(rows+badRow)*IntUnit+atUnitScale:], math.Float32bits(bad))
			}
			for _, s := range Sets() {
				y := p.run(t, s, groups*GroupRows, false, nil)
				for i, v := range y {
					row, col := i/(groups*GroupRows), i%(groups*GroupRows)
					want := row != badRow && col != GroupRows+lane
					if finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0); finite != want {
						t.Fatalf("%s: y[%d][%d] = %g with %g in row %d and output %d", s.Name, row, col, v, bad, badRow, GroupRows+lane)
					}
				}
			}
		}
	})
}

// atUnitScale is where an integer unit holds its scale.
const atUnitScale = 32

// TestSetsMatchMachine fails where the processor has an instruction set whose kernels Sets lacks:
// a test that never ran the assembly would prove nothing.
func TestSetsMatchMachine(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || runtime.GOARCH != "amd64" || noAssembly {
		t.Skip("no amd64 processor description, or built without assembly")
	}
	flags := strings.Fields(string(info))
	has := func(want ...string) bool {
		for _, w := range want {
			found := false
			for _, f := range flags {
				found = found || f == w
			}
			if !found {
				return false
			}
		}
		return true
	}
	want := map[string]bool{
		"generic":    true,
		"avx2":       has("avx2", "fma", "f16c"),
		"avx2vnni":   has("avx2", "fma", "f16c", "avx_vnni"),
		"avx512vnni": has("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
	}
	got := map[string]bool{}
	for _, s := range Sets() {
		got[s.Name] = true
		for f := range NumFormats {
			for rows := 1; rows <= TileRows; rows++ {
				if s.MatMul[f][rows] == nil {
					t.Errorf("%s has no kernel for %v and %d rows", s.Name, f, rows)
				}
			}
		}
	}
	for name, should := range want {
		if got[name] != should {
			t.Errorf("set %s: listed %v, processor has it %v", name, got[name], should)
		}
	}
}
