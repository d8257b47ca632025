package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// fence is what surrounds every output; a kernel that writes outside its range changes it.
const fence = float32(-12345.5)

// nan and inf are hostile inputs.
var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// fenced is a slice of floats at an odd place in memory, between guards.
type fenced struct{ all, v []float32 }

const margin = 24

// newFenced copies x to offset floats past a 4-byte boundary that is not a vector's.
func newFenced(x []float32, offset int) fenced {
	all := make([]float32, margin+offset+len(x)+margin)
	for i := range all {
		all[i] = fence
	}
	g := fenced{all, all[margin+offset:][:len(x)]}
	copy(g.v, x)
	return g
}

// check fails if anything around the slice was written.
func (g fenced) check(t testing.TB, what string) {
	t.Helper()
	lo := (uintptr(unsafe.Pointer(unsafe.SliceData(g.v))) - uintptr(unsafe.Pointer(unsafe.SliceData(g.all)))) / 4
	for i, x := range g.all {
		if (i < int(lo) || i >= int(lo)+len(g.v)) && x != fence {
			t.Fatalf("%s: wrote at %d of [0, %d)", what, i-int(lo), len(g.v))
		}
	}
}

// ptr returns the first element's address; empty slices have one too.
func ptr[T any](x []T) *T { return unsafe.SliceData(x) }

// bytesOf views floats as bytes.
func bytesOf(x []float32) *byte { return (*byte)(unsafe.Pointer(ptr(x))) }

// normals returns n seeded normal floats times scale.
func normals(seed uint64, n int, scale float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

// hostile is normals with NaN, infinities, zeros, tiny and huge values strewn in.
func hostile(seed uint64, n int) []float32 {
	x := normals(seed, n, 3)
	r := rand.New(rand.NewPCG(seed, 2))
	odd := []float32{nan, inf, -inf, 0, float32(math.Copysign(0, -1)), 1e-42, -1e-42, 3e38, -3e38, 88, -88, 89, -89, 7e4, -7e4}
	for range n/8 + 1 {
		x[r.IntN(n)] = odd[r.IntN(len(odd))]
	}
	return x
}

// sameBits reports whether a and b are the same floats to the bit, any NaN equal to any other.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// near reports whether got lies within tol·max(|want|, unit) of want; NaN and infinities must match.
func near(got, want, tol, unit float32) bool {
	if got == want || got != got && want != want {
		return true
	}
	return float32(math.Abs(float64(got-want))) <= tol*max(float32(math.Abs(float64(want))), unit)
}

// allNear fails where a value is not near.
func allNear(t testing.TB, what string, got, want []float32, tol, unit float32) {
	t.Helper()
	for i := range want {
		if !near(got[i], want[i], tol, unit) {
			t.Fatalf("%s: [%d] = %g, want %g", what, i, got[i], want[i])
		}
	}
}

// eachSet runs f for every assembly set; TestSetsMatchMachine sees to it that none is missing.
func eachSet(t *testing.T, f func(t *testing.T, s *Set)) {
	for _, s := range Sets()[1:] {
		t.Run(s.Name, func(t *testing.T) { f(t, s) })
	}
}

// agree fails unless all assembly sets gave the same bits for one case (K3).
type agree map[string][]float32

func (a agree) check(t *testing.T, key string, got []float32) {
	t.Helper()
	if first, ok := a[key]; !ok {
		a[key] = slices.Clone(got)
	} else if !sameBits(first, got) {
		t.Fatalf("%s: differs from the first assembly set (K3)", key)
	}
}

func TestRMSNorm(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{16, 32, 48, 576, 1040} {
			for off := range 3 {
				key := fmt.Sprintf("n=%d off=%d", n, off)
				x, gain := newFenced(normals(uint64(n), n, 2), off), newFenced(normals(7, n, 1), off+1)
				y, want := newFenced(make([]float32, n), 2*off), make([]float32, n)
				s.RMSNorm(ptr(y.v), ptr(x.v), ptr(gain.v), n, 1e-5)
				rmsNormGeneric(ptr(want), ptr(x.v), ptr(gain.v), n, 1e-5)
				allNear(t, key, y.v, want, 1e-6, 0)
				y.check(t, key)
				bits.check(t, key, y.v)
				if !sameBits(x.v, normals(uint64(n), n, 2)) {
					t.Fatal("input changed")
				}
				s.RMSNorm(ptr(x.v), ptr(x.v), ptr(gain.v), n, 1e-5)
				if !sameBits(x.v, y.v) {
					t.Fatalf("%s: in place differs", key)
				}
			}
		}
		for _, bad := range []float32{nan, inf, 3e38} {
			x, y, want := make([]float32, 32), make([]float32, 32), make([]float32, 32)
			x[19], x[2] = bad, 1
			s.RMSNorm(ptr(y), ptr(x), ptr(x), 32, 1e-5)
			rmsNormGeneric(ptr(want), ptr(x), ptr(x), 32, 1e-5)
			allNear(t, fmt.Sprint(bad), y, want, 1e-6, 0)
		}
	})
}

func TestSwiGLU(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for i, gate := range [][]float32{normals(1, 1536, 4), normals(2, 48, 40), hostile(3, 2048), ramp(-100, 100, 8192)} {
			n := len(gate)
			g, up := newFenced(gate, 1), newFenced(normals(9, n, 1), 2)
			y, want := newFenced(make([]float32, n), 3), make([]float32, n)
			s.SwiGLU(ptr(y.v), ptr(g.v), ptr(up.v), n)
			swiGLUGeneric(ptr(want), ptr(g.v), ptr(up.v), n)
			allNear(t, fmt.Sprint(i), y.v, want, 6e-7, 1e-37)
			y.check(t, "y")
			bits.check(t, fmt.Sprint(i), y.v)
			if !sameBits(g.v, gate) || !sameBits(up.v, normals(9, n, 1)) {
				t.Fatal("input changed")
			}
			s.SwiGLU(ptr(g.v), ptr(g.v), ptr(up.v), n)
			s.SwiGLU(ptr(up.v), ptr(newFenced(gate, 0).v), ptr(up.v), n)
			if !sameBits(g.v, y.v) || !sameBits(up.v, y.v) {
				t.Fatal("in place differs")
			}
		}
		g := []float32{inf, -inf, nan, -89, 3e38, -3e38, 0, 89, 0, 0, 0, 0, 0, 0, 0, 0}
		want := []float32{inf, 0, nan, 0, 3e38, 0, 0, 89, 0, 0, 0, 0, 0, 0, 0, 0}
		y := make([]float32, 16)
		s.SwiGLU(ptr(y), ptr(g), ptr(slices.Repeat([]float32{1}, 16)), 16)
		allNear(t, "limits", y, want, 0, 0)
	})
}

// ramp returns n values from lo to hi.
func ramp(lo, hi float64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(lo + (hi-lo)*float64(i)/float64(n-1))
	}
	return x
}

func TestAddScale(t *testing.T) {
	eachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{16, 48, 576} {
			x, y := newFenced(hostile(1, n), 1), newFenced(hostile(2, n), 2)
			want := slices.Clone(y.v)
			s.Add(ptr(y.v), ptr(x.v), n)
			addGeneric(ptr(want), ptr(x.v), n)
			if !sameBits(y.v, want) || !sameBits(x.v, hostile(1, n)) {
				t.Fatalf("Add %d differs", n)
			}
			s.Scale(ptr(y.v), n, 0.37)
			scaleGeneric(ptr(want), n, 0.37)
			if !sameBits(y.v, want) {
				t.Fatalf("Scale %d differs", n)
			}
			y.check(t, "y")
		}
	})
}

func TestRope(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for _, half := range []int{8, 24, 32, 40, 128} {
			key := fmt.Sprint("half=", half)
			x, angle := newFenced(normals(1, 2*half, 2), half%3), normals(2, half, 1)
			c, sn := newFenced(angle, 1), newFenced(angle, 2)
			for i, a := range angle {
				c.v[i], sn.v[i] = float32(math.Cos(float64(a))), float32(math.Sin(float64(a)))
			}
			want := slices.Clone(x.v)
			s.Rope(ptr(x.v), ptr(c.v), ptr(sn.v), half)
			ropeGeneric(ptr(want), ptr(c.v), ptr(sn.v), half)
			allNear(t, key, x.v, want, 3e-7, 4)
			x.check(t, key)
			bits.check(t, key, x.v)
		}
	})
}

func TestQuantizeIsExact(t *testing.T) {
	special := make([]float32, 12*BlockCols)
	copy(special, hostile(5, 4*BlockCols)) // NaN and infinities
	for b, m := range []float32{0, 0x1p-119, 0x1.fffffep-120, 1e-42, math.MaxFloat32, 127, 1} {
		copy(special[(4+b)*BlockCols:], []float32{-m, m / 2, m / 254, m / 127 * 2.5, m * 0.999})
	}
	copy(special[11*BlockCols:], ramp(-127, 127, BlockCols))
	eachSet(t, func(t *testing.T, s *Set) {
		for i, in := range [][]float32{normals(1, 576, 1), normals(2, BlockCols, 1e-20), special} {
			x := newFenced(in, 1+i)
			for _, stride := range []int{64, 192} {
				blocks := len(in) / BlockCols
				got, want := newFenced(make([]float32, blocks*stride/4), 1), newFenced(make([]float32, blocks*stride/4), 1)
				s.Quantize(bytesOf(got.v), ptr(x.v), blocks, stride)
				quantizeGeneric(bytesOf(want.v), ptr(x.v), blocks, stride)
				for j := range got.v {
					if g, w := math.Float32bits(got.v[j]), math.Float32bits(want.v[j]); g != w && !(j%(stride/4) < 10 && got.v[j] != got.v[j] && want.v[j] != want.v[j]) {
						t.Fatalf("input %d: word %d of unit %d = %#x, want %#x", i, j%(stride/4), j/(stride/4), g, w)
					}
				}
				got.check(t, "units")
			}
			if !sameBits(x.v, in) {
				t.Fatal("input changed")
			}
		}
	})
}

// TestResidual checks that what the codes leave is exact to a rounding, and that two terms carry 15 bits and more.
func TestResidual(t *testing.T) {
	eachSet(t, func(t *testing.T, s *Set) {
		for _, stride := range []int{64, 192} {
			in := normals(3, 7*BlockCols, 1)
			x := newFenced(in, 3)
			units := newFenced(make([]float32, 7*stride/4), 1)
			s.Quantize(bytesOf(units.v), ptr(x.v), 7, stride)
			got, want := newFenced(make([]float32, len(in)), 5), make([]float32, len(in))
			s.Residual(ptr(got.v), ptr(x.v), bytesOf(units.v), 7, stride)
			residualGeneric(ptr(want), ptr(x.v), bytesOf(units.v), 7, stride)
			if !sameBits(got.v, want) || !sameBits(x.v, in) {
				t.Fatal("differs from the oracle, or the input changed")
			}
			for b := range 7 {
				top := float32(0)
				for _, v := range in[b*BlockCols:][:BlockCols] {
					top = max(top, v, -v)
				}
				for i, v := range got.v[b*BlockCols:][:BlockCols] {
					if max(v, -v) > top/250 {
						t.Fatalf("column %d: %g is left of a block with maximum %g", b*BlockCols+i, v, top)
					}
				}
			}
			got.check(t, "residual")
		}
	})
}

func TestCopyUnits(t *testing.T) {
	eachSet(t, func(t *testing.T, s *Set) {
		x, stride := newFenced(hostile(1, 5*BlockCols), 1), 3*FloatUnit
		got, want := newFenced(make([]float32, 5*stride/4), 1), newFenced(make([]float32, 5*stride/4), 1)
		s.CopyUnits(bytesOf(got.v), ptr(x.v), 5, stride)
		copyUnitsGeneric(bytesOf(want.v), ptr(x.v), 5, stride)
		if got.check(t, "units"); !sameBits(got.v, want.v) {
			t.Fatal("differs")
		}
	})
}

func TestSoftmaxExp(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for n := 1; n < 200; n++ {
			x := normals(uint64(n), (n+15)/16*16, 20)
			for i := range x[n:] {
				x[n+i] = nan // whatever a whole tile of scores left there
			}
			if n > 2 {
				x[n/2], x[n-1] = -inf, -inf
			}
			checkSoftmaxExp(t, s, bits, fmt.Sprint("n=", n), x, n, 0.125)
		}
		checkSoftmaxExp(t, s, bits, "all masked", slices.Repeat([]float32{-inf}, 32), 20, 1)
		checkSoftmaxExp(t, s, bits, "nan", append(slices.Repeat([]float32{1, 2, nan, 3}, 8), inf), 30, 1)
		checkSoftmaxExp(t, s, bits, "inf", slices.Repeat([]float32{1, inf, 0, -inf}, 8), 30, 1)
		checkSoftmaxExp(t, s, bits, "ramp", ramp(-90, 0, 1<<16), 1<<16, 1)
	})
}

func TestSumExp(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for n := 1; n < 200; n++ {
			x := normals(uint64(n), (n+15)/16*16, 20)
			top := slices.Max(x[:n])
			for i := range x[n:] {
				x[n+i] = nan // whatever lies behind a row
			}
			if n > 2 {
				x[n/2] = -inf
			}
			checkSumExp(t, s, bits, fmt.Sprint("n=", n), x, n, top)
		}
		checkSumExp(t, s, bits, "nan", slices.Repeat([]float32{1, nan, 0, 2}, 8), 30, 2)
		checkSumExp(t, s, bits, "inf", slices.Repeat([]float32{1, inf, 0, 2}, 8), 32, inf)
		checkSumExp(t, s, bits, "lowest", slices.Repeat([]float32{-inf}, 16), 9, -inf)
		checkSumExp(t, s, bits, "vocabulary", normals(3, 8192, 2), 8192, 8)
	})
}

func checkSumExp(t *testing.T, s *Set, bits agree, key string, x []float32, n int, top float32) {
	t.Helper()
	in := newFenced(x, n%5)
	got, want := s.SumExp(ptr(in.v), n, top), sumExpGeneric(ptr(x), n, top)
	if !near(got, want, 1e-6, 0x1p-126) {
		t.Errorf("%s: %g, want %g", key, got, want)
	}
	in.check(t, key)
	bits.check(t, key, []float32{got})
}

func checkSoftmaxExp(t *testing.T, s *Set, bits agree, key string, x []float32, n int, scale float32) {
	t.Helper()
	padded := (n + 15) / 16 * 16
	got, want := newFenced(x[:padded], n%5), slices.Clone(x[:padded])
	s.SoftmaxExp(ptr(got.v), n, scale)
	softmaxExpGeneric(ptr(want), n, scale)
	allNear(t, key, got.v, want, 2.0/(1<<23), 0x1p-126)
	got.check(t, key)
	bits.check(t, key, got.v)
	for i, v := range got.v {
		if v == 0 && math.Float32bits(v) != 0 || i >= n && v != 0 {
			t.Fatalf("%s: [%d] = %g is not +0", key, i, v)
		}
		if x[i] < 0 && math.IsInf(float64(x[i]), -1) && v == v && v != 0 {
			t.Fatalf("%s: a masked position has weight %g", key, v)
		}
	}
}

func TestSumOrderedIsExact(t *testing.T) {
	eachSet(t, func(t *testing.T, s *Set) {
		for queries := 1; queries <= 19; queries++ {
			for _, n := range []int{1, 3, 4, 5, 16, 37, 512} {
				lds := n + queries%4
				x := newFenced(normals(uint64(n), lds*queries, 1)[:lds*(queries-1)+n], queries%3)
				out, want := newFenced(make([]float32, queries), 1), make([]float32, queries)
				s.SumOrdered(ptr(out.v), ptr(x.v), lds, queries, n)
				sumOrderedGeneric(ptr(want), ptr(x.v), lds, queries, n)
				if out.check(t, "sums"); !sameBits(out.v, want) {
					t.Fatalf("%d queries, %d positions: %v, want %v", queries, n, out.v, want)
				}
			}
		}
	})
}

func TestArgMax(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	eachSet(t, func(t *testing.T, s *Set) {
		for n := 1; n < 300; n++ {
			for seed := range uint64(4) {
				x := newFenced(hostile(seed, n), int(seed))
				if seed%2 == 1 { // many equals
					for i := range x.v {
						x.v[i] = float32(int(x.v[i])%3) * 0.5
					}
				}
				if got, want := s.ArgMax(ptr(x.v), n), argMaxGeneric(ptr(x.v), n); got != want {
					t.Fatalf("n %d seed %d: %d, want %d", n, seed, got, want)
				}
			}
			for at := range n {
				x := slices.Repeat([]float32{-2}, n)
				if x[at] = -1; s.ArgMax(ptr(x), n) != at {
					t.Fatalf("n %d: missed %d", n, at)
				}
				for i := at + 1; i < n; i++ {
					x[i] = nan // later in the same lane, it must not displace the maximum
				}
				if s.ArgMax(ptr(x), n) != at {
					t.Fatalf("n %d: NaN displaced %d", n, at)
				}
			}
		}
		for _, c := range []struct {
			x    []float32
			want int
		}{
			{[]float32{nan, nan, nan}, 0}, {[]float32{nan, -inf, -inf}, 1}, {slices.Repeat([]float32{nan}, 33), 0},
			{[]float32{negative, 0}, 0}, {[]float32{-1, 0, negative}, 1}, {append(slices.Repeat([]float32{nan}, 70), -inf, 1, nan, 1), 71},
		} {
			if got := s.ArgMax(ptr(c.x), len(c.x)); got != c.want {
				t.Fatalf("%v: %d, want %d", c.x, got, c.want)
			}
			if got := argMaxGeneric(ptr(c.x), len(c.x)); got != c.want {
				t.Fatalf("generic %v: %d, want %d", c.x, got, c.want)
			}
		}
	})
}

func TestReadMemReturns(t *testing.T) {
	p := make([]byte, 8192)
	for _, s := range Sets() {
		s.ReadMem(ptr(p), 1024)
		s.ReadMem(ptr(p), len(p))
	}
}
