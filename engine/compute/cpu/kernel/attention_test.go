package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// cache is a block-paged store of keys or values with a shuffled table.
type cache struct {
	data   []float32 // the whole store, elem bytes an element
	table  []int32
	elem   int
	stride int // bytes
	dim    int
}

// newCache makes a store of the given blocks for dim elements a position, all of it stale: NaN or infinity.
func newCache(r *rand.Rand, elem, blocks, dim int) *cache {
	spare := 3
	c := &cache{elem: elem, dim: dim, stride: 16*dim*elem + 64*r.IntN(3)}
	c.data = slices.Repeat([]float32{math.Float32frombits(0x7e007c00)}, (blocks+spare)*c.stride/4) // float16: Inf, NaN
	for _, b := range r.Perm(blocks + spare)[:blocks] {
		c.table = append(c.table, int32(b))
	}
	return c
}

// at returns the address of block i, offset bytes in.
func (c *cache) at(i, offset int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(ptr(c.data)), int(c.table[i])*c.stride+offset))
}

// fill stores n positions by s's kernels, as keys or as values.
func (c *cache) fill(s *Set, x []float32, n int, keys bool) {
	store, step := s.StoreV16, c.dim*c.elem
	switch {
	case keys && c.elem == 2:
		store, step = s.StoreK16, 2
	case keys:
		store, step = s.StoreK32, 4
	case c.elem == 4:
		store = s.StoreV32
	}
	for t := range n {
		store(c.at(t/16, t%16*step), ptr(x[t*c.dim:]), c.dim)
	}
}

// scores returns queries × blocks·16 scores by the function that serves q queries, between guards.
func (c *cache) scores(t testing.TB, s *Set, q int, query []float32, first, blocks int) []float32 {
	f := s.Scores16[q]
	if c.elem == 4 {
		f = s.Scores32[q]
	}
	lds := blocks*16 + 5
	out := newFenced(slices.Repeat([]float32{fence}, (q-1)*lds+blocks*16), 1)
	f(ptr(out.v), lds, ptr(query), bytesOf(c.data), ptr(c.table[first:]), blocks, c.stride, c.dim)
	out.check(t, "scores")
	return packed(t, out.v, q, lds, blocks*16)
}

// packed drops the gaps between rows and checks that they hold the fence.
func packed(t testing.TB, x []float32, rows, pitch, width int) (y []float32) {
	t.Helper()
	for i, v := range x {
		if i%pitch < width {
			y = append(y, v)
		} else if v != fence {
			t.Fatalf("wrote between rows, %d floats past one", i%pitch-width)
		}
	}
	return y
}

// values returns queries × 16·z sums by the function for (q, z), from slice first on.
func (c *cache) values(t testing.TB, s *Set, q, z int, p []float32, ldp, n, first int) []float32 {
	f := s.Values16[q][z]
	if c.elem == 4 {
		f = s.Values32[q][z]
	}
	ldo := 16*z + 3
	out := newFenced(slices.Repeat([]float32{fence}, (q-1)*ldo+16*z), 2)
	base := (*byte)(unsafe.Add(unsafe.Pointer(ptr(c.data)), 16*first*c.elem)) // the wanted slice
	f(ptr(out.v), ldo, ptr(p), ldp, base, ptr(c.table), n, c.stride, c.dim)
	out.check(t, "values")
	return packed(t, out.v, q, ldo, 16*z)
}

var dims = []int{16, 64, 80, 128, 256}

// TestScores: every function agrees with the oracle and, to the bit, with one query over one block at a time.
func TestScores(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for _, elem := range []int{2, 4} {
			for i, blocks := range []int{1, 2, 3, 5, 7, 8, 12, 15} {
				checkScores(t, s, bits, elem, dims[i%len(dims)], blocks)
			}
		}
	})
}

func checkScores(t *testing.T, s *Set, bits agree, elem, dim, blocks int) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(dim), uint64(blocks)))
	c := newCache(r, elem, blocks, dim)
	x := normals(1, blocks*16*dim, 1)
	c.fill(s, x, blocks*16, true)
	query := newFenced(normals(2, MaxQueries*dim, 1), 1)
	before := slices.Clone(c.data)
	var want, single []float32
	for q := range MaxQueries {
		row := query.v[q*dim:]
		want = append(want, c.scores(t, generic, 1, row, 0, blocks)...)
		for b := range blocks {
			single = append(single, c.scores(t, s, 1, row, b, 1)...)
		}
	}
	bits.check(t, fmt.Sprint("scores ", elem, dim, blocks), single)
	for q := 1; q <= MaxQueries; q++ {
		if elem == 2 && s.Scores16[q] == nil || elem == 4 && s.Scores32[q] == nil {
			continue
		}
		key := fmt.Sprintf("%d bytes, dim %d, %d blocks, %d queries", elem, dim, blocks, q)
		got := c.scores(t, s, q, query.v, 0, blocks)
		allNear(t, key, got, want[:len(got)], 1e-6, float32(dim))
		if !sameBits(got, single[:len(got)]) {
			t.Fatalf("%s: differs from one query over one block (K1)", key)
		}
	}
	if !sameBits(before, c.data) || !sameBits(query.v, normals(2, MaxQueries*dim, 1)) {
		t.Fatal("inputs changed")
	}
}

// TestValues: every function agrees with the oracle and, to the bit, with one query over one slice; rows from n on are stale.
func TestValues(t *testing.T) {
	bits := agree{}
	eachSet(t, func(t *testing.T, s *Set) {
		for _, elem := range []int{2, 4} {
			for i, n := range []int{1, 3, 4, 15, 16, 17, 35, 100, 257} {
				checkValues(t, s, bits, elem, dims[i%len(dims)], n)
			}
		}
	})
}

func checkValues(t *testing.T, s *Set, bits agree, elem, dim, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(dim), uint64(n)))
	c := newCache(r, elem, (n+15)/16, dim)
	c.fill(s, normals(3, n*dim, 1), n, false)
	ldp := n + 7
	p := newFenced(normals(4, MaxQueries*ldp, 1)[:(MaxQueries-1)*ldp+n], 1)
	before := slices.Clone(c.data)
	for z := range MaxSlices + 1 {
		for first := 0; z > 0 && (first+z)*16 <= dim; first += z {
			var want, single []float32
			for q := range MaxQueries {
				if generic.Values16[1][z] == nil {
					break
				}
				want = append(want, c.values(t, generic, 1, z, p.v[q*ldp:], ldp, n, first)...)
				for j := range z {
					single = append(single, c.values(t, s, 1, 1, p.v[q*ldp:], ldp, n, first+j)...)
				}
			}
			bits.check(t, fmt.Sprint("values ", elem, dim, n, z, first), single)
			for q := 1; q <= MaxQueries; q++ {
				if elem == 2 && s.Values16[q][z] == nil || elem == 4 && s.Values32[q][z] == nil {
					continue
				}
				key := fmt.Sprintf("%d bytes, dim %d, %d positions, %d queries, %d slices", elem, dim, n, q, z)
				got := c.values(t, s, q, z, p.v, ldp, n, first)
				allNear(t, key, got, want[:len(got)], 1e-6, float32(n))
				if !sameBits(got, single[:len(got)]) {
					t.Fatalf("%s: differs from one query over one slice (K1)", key)
				}
			}
		}
	}
	if !sameBits(before, c.data) {
		t.Fatal("inputs changed")
	}
}

// TestValuesIgnoreZeroWeights: masked positions, of weight +0, leave sums as they are whatever is finite there.
func TestValuesIgnoreZeroWeights(t *testing.T) {
	for _, s := range Sets() {
		r := rand.New(rand.NewPCG(1, 1))
		const n, dim = 40, 16
		x, p := normals(5, n*dim, 1), normals(6, n, 1)
		sum := func(x []float32) []float32 {
			c := newCache(r, 2, 3, dim)
			c.fill(s, x, n, false)
			return c.values(t, s, 1, 1, p, n, n, 0)
		}
		p[7], p[39] = 0, 0
		want := sum(x)
		for d := range dim {
			x[7*dim+d], x[39*dim+d] = []float32{inf, -inf, nan, 1e30}[d%4], -1
		}
		if !sameBits(sum(x), want) {
			t.Errorf("%s: a position of weight 0 changed the sum", s.Name)
		}
	}
}

// TestServed: every set has one query at least, over 1, 2 and 4 slices, and no function where the device would not look.
func TestServed(t *testing.T) {
	for _, s := range Sets() {
		for _, z := range []int{1, 2, 4} {
			if s.Values16[1][z] == nil || s.Values32[1][z] == nil {
				t.Errorf("%s: no Values for 1 query and %d slices", s.Name, z)
			}
		}
		if s.Scores16[1] == nil || s.Scores32[1] == nil || s.Scores16[0] != nil || s.Values16[0][1] != nil || s.Values16[1][0] != nil {
			t.Errorf("%s: served wrongly", s.Name)
		}
	}
}

// storeInputs are floats around every float16: the value, its neighbours and the midpoints, and what is out of range.
func storeInputs() (x []float32) {
	for h := range 0x7c00 {
		v, next := halfValue(uint16(h)), halfValue(uint16(h)+1)
		if h == 0x7bff {
			next = 65536
		}
		mid := (v + next) / 2
		for _, f := range []float32{v, mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, next)} {
			x = append(x, f, -f)
		}
	}
	return append(x, nan, inf, -inf, 65519, 65520, 65536, -65520, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45, 1e-8, 3e-8, -3e-8)
}

func TestStoresMatchOracle(t *testing.T) {
	x := storeInputs()
	for len(x)%16 > 0 {
		x = append(x, 1)
	}
	eachSet(t, func(t *testing.T, s *Set) {
		for i, c := range []struct {
			got, want func(*byte, *float32, int)
			floats    int // room for 16 elements
		}{{s.StoreK16, storeK16Generic, 121}, {s.StoreK32, storeK32Generic, 241}, {s.StoreV16, storeV16Generic, 8}, {s.StoreV32, storeV32Generic, 16}} {
			got, want := newFenced(make([]float32, c.floats), 1), newFenced(make([]float32, c.floats), 1)
			for at := 0; at < len(x); at += 16 {
				c.got(bytesOf(got.v), &x[at], 16)
				c.want(bytesOf(want.v), &x[at], 16)
				if !slices.EqualFunc(got.all, want.all, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
					t.Fatalf("store %d of %g differs from the oracle", i, x[at:at+16])
				}
			}
		}
	})
}

// TestHalf: the oracle's own conversions hold against their definition.
func TestHalf(t *testing.T) {
	for h := range 0x7c00 {
		e, m := h>>10, float64(h&1023)
		want := math.Ldexp(1+m/1024, e-15)
		if e == 0 {
			want = math.Ldexp(m, -24)
		}
		if got := halfValue(uint16(h)); float64(got) != want || halfValue(uint16(h)|0x8000) != -got || halfBits(got) != uint16(h) {
			t.Fatalf("%#04x is %g, want %g", h, got, want)
		}
		if h == 0x7bff {
			continue
		}
		mid := (halfValue(uint16(h)) + halfValue(uint16(h)+1)) / 2 // exact in float32
		if got := halfBits(mid); got != uint16(h+h&1) || halfBits(math.Nextafter32(mid, 0)) != uint16(h) || halfBits(math.Nextafter32(mid, 1e9)) != uint16(h+1) {
			t.Fatalf("rounding beside %#04x is wrong", h)
		}
	}
}
