package cpu

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestPoolRunsEveryWorker covers fewer, as many and more workers than cores, with idle spells long
// enough for workers to park.
func TestPoolRunsEveryWorker(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 9} {
		p := newPool(n)
		var calls [9]int
		for job := range 200 {
			p.run(func(id int) {
				calls[id]++
				p.barrier()
				for other := range n {
					if calls[other] != job+1 {
						t.Errorf("%d workers, job %d: worker %d passed the barrier before worker %d arrived", n, job, id, other)
					}
				}
				p.barrier()
			})
			if job%50 == 49 {
				for n > 1 && p.parked.Load() != uint32(n-1) {
					runtime.Gosched()
				}
			}
		}
		p.close()
	}
}

func TestPoolCloseWhileParked(t *testing.T) {
	p := newPool(3)
	for p.parked.Load() != 2 {
		runtime.Gosched()
	}
	p.close()
}

func TestShareCoversAll(t *testing.T) {
	for n := range 40 {
		for workers := 1; workers < 9; workers++ {
			at := 0
			for id := range workers {
				from, to := share(n, id, workers)
				if from != at || to < from {
					t.Fatalf("share(%d, %d, %d) = %d, %d; want from %d", n, id, workers, from, to, at)
				}
				at = to
			}
			if at != n {
				t.Fatalf("%d workers cover %d of %d items", workers, at, n)
			}
		}
	}
}

// BenchmarkBarrier reports the cost of one barrier: a pass of the default target has some 300.
func BenchmarkBarrier(b *testing.B) {
	p := newPool(min(2, runtime.NumCPU()))
	defer p.close()
	var sink atomic.Int64
	p.run(func(int) {
		for range b.N {
			p.barrier()
		}
		sink.Add(1)
	})
}
