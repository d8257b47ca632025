package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// eachBench runs f for every set, the generic one included.
func eachBench(b *testing.B, f func(b *testing.B, s *Set)) {
	for _, s := range Sets() {
		b.Run(s.Name, func(b *testing.B) { f(b, s) })
	}
}

// best runs f until the benchmark is done and reports the least time of one call per unit of work beside
// the mean: on a machine that others use, the least is what the kernel takes.
func best(b *testing.B, count int, unit string, f func()) {
	least := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	b.ReportMetric(float64(least.Nanoseconds())/float64(count), "min-ns/"+unit)
}

const benchDim, benchContext = 64, 512

// BenchmarkScores: queries of one KV head over a context of 512, as many at once as the set serves.
func BenchmarkScores(b *testing.B) {
	for _, queries := range []int{3, 6, 9, 12, 24} {
		b.Run(fmt.Sprint(queries), func(b *testing.B) {
			eachBench(b, func(b *testing.B, s *Set) {
				c := newCache(rand.New(rand.NewPCG(1, 1)), 2, benchContext/16, benchDim)
				c.fill(s, normals(1, benchContext*benchDim, 1), benchContext, true)
				query, out := normals(2, queries*benchDim, 1), make([]float32, queries*benchContext)
				best(b, queries, "query", func() {
					for q := 0; q < queries; {
						n := min(queries-q, MaxQueries)
						for s.Scores16[n] == nil {
							n--
						}
						s.Scores16[n](ptr(out[q*benchContext:]), benchContext, ptr(query[q*benchDim:]), bytesOf(c.data), ptr(c.table), benchContext/16, c.stride, benchDim)
						q += n
					}
				})
			})
		})
	}
}

// BenchmarkValues is the same for the weighted sums, two slices of 16 at once, or four.
func BenchmarkValues(b *testing.B) {
	for _, z := range []int{2, 4} {
		for _, queries := range []int{3, 6, 9, 12, 24} {
			b.Run(fmt.Sprintf("%dx%d", queries, z), func(b *testing.B) {
				eachBench(b, func(b *testing.B, s *Set) { benchValues(b, s, queries, z) })
			})
		}
	}
}

func benchValues(b *testing.B, s *Set, queries, z int) {
	c := newCache(rand.New(rand.NewPCG(1, 1)), 2, benchContext/16, benchDim)
	c.fill(s, normals(1, benchContext*benchDim, 1), benchContext, false)
	p, out := normals(2, queries*benchContext, 1), make([]float32, queries*benchDim)
	best(b, queries, "query", func() {
		for slice := 0; slice < benchDim/16; slice += z {
			for q := 0; q < queries; {
				n := min(queries-q, MaxQueries)
				for s.Values16[n][z] == nil {
					n--
				}
				s.Values16[n][z](ptr(out[q*benchDim+slice*16:]), benchDim, ptr(p[q*benchContext:]), benchContext,
					bytesOf(c.data[slice*8:]), ptr(c.table), benchContext, c.stride, benchDim)
				q += n
			}
		}
	})
}

// BenchmarkRow times what a row needs besides: soft-max of its nine heads over a context of 512, and the kernels on its activations.
func BenchmarkRow(b *testing.B) {
	x, y, units := normals(1, 9*benchContext, 1), make([]float32, 9*benchContext), make([]float32, 9*benchContext*2)
	for _, k := range []struct {
		name string
		f    func(s *Set)
	}{
		{"softmax9x512", func(s *Set) {
			for h := range 9 {
				s.SoftmaxExp(ptr(y[h*benchContext:]), benchContext, 0.125)
			}
		}},
		{"sum9x512", func(s *Set) { s.SumOrdered(ptr(units), ptr(y), benchContext, 9, benchContext) }},
		{"sum27x170", func(s *Set) { s.SumOrdered(ptr(units), ptr(y), 170, 27, 170) }},
		{"sumexp4608", func(s *Set) { s.SumExp(ptr(x), len(x), 4) }},
		{"rmsnorm576", func(s *Set) { s.RMSNorm(ptr(y), ptr(x), ptr(x), 576, 1e-5) }},
		{"rmsnorm2048", func(s *Set) { s.RMSNorm(ptr(y), ptr(x), ptr(x), 2048, 1e-5) }},
		{"quantize576", func(s *Set) { s.Quantize(bytesOf(units), ptr(x), 18, IntUnit) }},
		{"swiglu1536", func(s *Set) { s.SwiGLU(ptr(y), ptr(x), ptr(x), 1536) }},
		{"add576", func(s *Set) { s.Add(ptr(y), ptr(units), 576) }},
		{"rope64", func(s *Set) { s.Rope(ptr(y), ptr(units), ptr(units), 32) }},
		{"storeK64", func(s *Set) { s.StoreK16(bytesOf(units), ptr(x), 64) }},
		{"storeV64", func(s *Set) { s.StoreV16(bytesOf(units), ptr(x), 64) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			eachBench(b, func(b *testing.B, s *Set) {
				best(b, 1, "call", func() { k.f(s) })
			})
		})
	}
}

// BenchmarkArgMax is over the default model's vocabulary.
func BenchmarkArgMax(b *testing.B) {
	x := normals(1, 49152, 1)
	eachBench(b, func(b *testing.B, s *Set) {
		b.SetBytes(int64(4 * len(x)))
		for b.Loop() {
			s.ArgMax(ptr(x), len(x))
		}
	})
}

// BenchmarkReadMem reads its way, a MiB a call, through more than a last-level cache is likely to hold.
func BenchmarkReadMem(b *testing.B) {
	const chunk = 1 << 20
	p := make([]byte, 512*chunk)
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
	at := 0
	eachBench(b, func(b *testing.B, s *Set) {
		b.SetBytes(chunk)
		best(b, 1, "MiB", func() {
			s.ReadMem(&p[at], chunk)
			at = (at + chunk) % len(p)
		})
	})
}
