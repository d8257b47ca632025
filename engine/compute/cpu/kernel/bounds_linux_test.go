package kernel

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

// atPageEnd returns a copy of x whose last byte is the last one before a page that may not be touched.
func atPageEnd[T any](t *testing.T, x []T) []T {
	t.Helper()
	page := syscall.Getpagesize()
	size := len(x) * int(unsafe.Sizeof(x[0]))
	pages := (size + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, pages+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	if err := syscall.Mprotect(mem[pages:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	y := unsafe.Slice((*T)(unsafe.Pointer(&mem[pages-size])), len(x))
	copy(y, x)
	return y
}

// TestReadsStayInside runs the kernels on inputs that end where the next byte's access would end the process.
func TestReadsStayInside(t *testing.T) {
	for _, s := range Sets() {
		for n := 1; n < 140; n += 1 + n/20 {
			x := atPageEnd(t, normals(1, n, 1))
			s.ArgMax(ptr(x), n)
			var sum [8]float32
			s.SumOrdered(&sum[0], ptr(x), n, 1, n)
			padded := atPageEnd(t, make([]float32, (n+15)/16*16))
			s.SoftmaxExp(ptr(padded), n, 1)
			s.SumExp(ptr(padded), n, 1)
			attendInside(t, s, n)
		}
		x := atPageEnd(t, normals(1, 5*BlockCols, 1))
		y := atPageEnd(t, make([]float32, 5*IntUnit/4))
		s.Quantize(bytesOf(y), ptr(x), 5, IntUnit)
		y = atPageEnd(t, make([]float32, 5*BlockCols))
		s.CopyUnits(bytesOf(y), ptr(x), 5, FloatUnit)
		s.RMSNorm(ptr(y), ptr(x), ptr(x), len(x), 1)
		s.SwiGLU(ptr(y), ptr(x), ptr(x), len(x))
		s.Add(ptr(y), ptr(x), len(x))
		s.Rope(ptr(x[:16]), ptr(x), ptr(y), 8)
		s.StoreV16(bytesOf(y[len(y)-8:]), ptr(x[len(x)-16:]), 16)
		s.StoreK16(bytesOf(y[len(y)-121:]), ptr(x[len(x)-16:]), 16)
		s.ReadMem(bytesOf(atPageEnd(t, make([]float32, 256))), 1024)
	}
}

// attendInside calls every Scores and Values of float16 storage with all inputs at the end of a page.
func attendInside(t *testing.T, s *Set, n int) {
	const dim = 64
	blocks := (n + 15) / 16
	c := newCache(rand.New(rand.NewPCG(1, 1)), 2, blocks, dim)
	c.stride = 16 * dim * 2
	c.table = nil
	for i := range blocks {
		c.table = append(c.table, int32(i))
	}
	c.table = atPageEnd(t, c.table)
	c.data = atPageEnd(t, make([]float32, blocks*c.stride/4))
	query, p := atPageEnd(t, normals(1, MaxQueries*dim, 1)), atPageEnd(t, normals(2, MaxQueries*n, 1))
	for q := 1; q <= MaxQueries; q++ {
		if s.Scores16[q] != nil {
			c.scores(t, s, q, query[(MaxQueries-q)*dim:], 0, blocks)
		}
		for z := range MaxSlices + 1 {
			if s.Values16[q][z] == nil {
				continue
			}
			got := c.values(t, s, q, z, p[(MaxQueries-q)*n:], n, n, dim/16-z)
			if slices.ContainsFunc(got, func(x float32) bool { return x != 0 }) {
				t.Fatal("a sum over zeros is not 0")
			}
		}
	}
}
