package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// benchProduct is a product over weights of about size bytes, walked in calls of callBytes as a
// device's worker does.
type benchProduct struct {
	product
	y         []float32
	callBytes int
}

func newBenchProduct(b *testing.B, f Format, cols, size, rows int) *benchProduct {
	group := GroupBytes(f, cols)
	p := &benchProduct{callBytes: 128 << 10}
	p.f, p.blocks, p.groups = f, Blocks(f, cols), max(1, size/group)
	p.w = hugeMemory(b, p.groups*group)
	r := rand.New(rand.NewPCG(1, 2))
	fillGroup(r, f, p.w[:group], p.blocks, false)
	for g := 1; g < p.groups; g++ {
		copy(p.w[g*group:], p.w[:group])
	}
	p.setRows(rows)
	p.y = make([]float32, TileRows*p.groups*GroupRows)
	return p
}

func (p *benchProduct) setRows(rows int) {
	r := rand.New(rand.NewPCG(1, 2))
	x := randomProduct(r, p.f, rows, p.blocks, 1, false).x
	p.x = append(make([]byte, 0, len(x)+64), x...)
	p.rows = rows
}

func (p *benchProduct) pass(s *Set) {
	group := len(p.w) / p.groups
	step := max(1, p.callBytes/group)
	for g := 0; g < p.groups; g += step {
		n := min(step, p.groups-g)
		s.MatMul[p.f][p.rows](&p.w[g*group], &p.x[0], &p.y[g*GroupRows], p.blocks, n, p.groups*GroupRows, 0)
	}
}

// BenchmarkMatMul measures each format and tile size of the fastest set, on weights streamed from
// memory and on weights in the second-level cache.
func BenchmarkMatMul(b *testing.B) {
	for _, set := range Sets()[1:] {
		for _, where := range []struct {
			name string
			size int
		}{{"memory", 1 << 30}, {"L2", 512 << 10}} {
			for _, cols := range []int{576, 2048} {
				for f := range NumFormats {
					if shapes[f].sub != 0 && cols%256 != 0 {
						continue
					}
					for _, rows := range []int{1, 2, 4, 8} {
						b.Run(fmt.Sprintf("%s/%s/K%d/%v/%d", set.Name, where.name, cols, f, rows), func(b *testing.B) {
							benchMatMul(b, set, newBenchProduct(b, f, cols, where.size, rows))
						})
					}
				}
			}
		}
	}
}

func benchMatMul(b *testing.B, s *Set, p *benchProduct) {
	p.pass(s)
	b.SetBytes(int64(len(p.w)))
	for b.Loop() {
		p.pass(s)
	}
	macs := float64(b.N) * float64(p.groups*GroupRows) * float64(p.blocks*BlockCols) * float64(p.rows)
	b.ReportMetric(macs/float64(b.Elapsed().Nanoseconds()), "GMAC/s")
}

// BenchmarkMatMulRows measures what decides speculation: the time of 2, 4 and 8 rows over that of
// one, on weights streamed from memory. Bandwidth moves from second to second and other processes
// take their turns, so the row counts alternate from one slice of the weights to the next, and the
// medians over slices are reported.
func BenchmarkMatMulRows(b *testing.B) {
	for _, set := range Sets()[1:] {
		for _, cols := range []int{576, 2048} {
			for f := range NumFormats {
				if shapes[f].sub != 0 && cols%256 != 0 {
					continue
				}
				b.Run(fmt.Sprintf("%s/K%d/%v", set.Name, cols, f), func(b *testing.B) { benchRows(b, set, f, cols) })
			}
		}
	}
}

func benchRows(b *testing.B, s *Set, f Format, cols int) {
	const sliceBytes = 512 << 10 // some 50 µs
	counts := []int{1, 2, 4, 8}
	all := newBenchProduct(b, f, cols, 1<<30, 1)
	group := GroupBytes(f, cols)
	step := sliceBytes / group
	products := make([]benchProduct, len(counts))
	for i, rows := range counts {
		products[i] = *all
		products[i].groups = step
		products[i].setRows(rows)
	}
	times := make([][]time.Duration, len(counts))
	g := 0
	for b.Loop() {
		for i := range products {
			p := &products[i]
			p.w = all.w[g*group:][:step*group]
			if g += step; g+step > all.groups {
				g = 0
			}
			start := time.Now()
			p.pass(s)
			times[i] = append(times[i], time.Since(start))
		}
	}
	for i, t := range times {
		slices.Sort(t)
		median := float64(t[len(t)/2])
		if i == 0 {
			b.ReportMetric(float64(step*group)/median, "GB/s")
			continue
		}
		b.ReportMetric(median/float64(times[0][len(times[0])/2]), fmt.Sprintf("x%d", counts[i]))
	}
}
