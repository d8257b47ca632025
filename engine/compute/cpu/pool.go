package cpu

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"draftlab/engine/invariants"
)

// Spinning limits, in polls of a flag (about a nanosecond each on a current processor).
const (
	// spinBarrier polls come before a waiting worker yields its processor: long enough for any
	// imbalance between workers that own a core each, short enough not to starve a worker that was
	// descheduled when there are more workers than cores.
	spinBarrier = 100_000
	// spinIdle polls come before an idle worker parks: about the time in which a server streams a
	// token and starts the next pass. Larger keeps a core busy after the last request; smaller pays
	// a wake-up of some 50 µs in the first step of most passes.
	spinIdle = 1_000_000
)

// polls returns a spinning limit for this build: under the race detector, which switches the self-checks on as well, a
// poll takes some fifty times as long, and with more workers than cores every barrier would take milliseconds.
func polls(limit int) int {
	if invariants.Enabled {
		return limit / 64
	}
	return limit
}

// padded is an atomic on a cache line of its own.
type padded struct {
	atomic.Uint32
	_ [cacheLine - 4]byte
}

// pool runs one function on all workers at once. Worker 0 is the caller of run; the others are
// goroutines locked to threads, which spin between jobs and park when idle.
type pool struct {
	n       int
	arrived padded // workers that reached the barrier
	phase   padded // completed barriers
	job     padded // jobs started
	parked  padded // workers that wait on wake
	quit    atomic.Bool
	mu      sync.Mutex
	wake    *sync.Cond
	do      func(worker int)
	done    sync.WaitGroup
}

func newPool(n int) *pool {
	p := &pool{n: n}
	p.wake = sync.NewCond(&p.mu)
	for id := 1; id < n; id++ {
		p.done.Add(1)
		go p.work(id)
	}
	return p
}

// run calls do(0) … do(n−1), each on its own worker, and returns when all are done.
func (p *pool) run(do func(worker int)) {
	if p.n == 1 {
		do(0)
		return
	}
	p.do = do
	p.job.Add(1)
	p.wakeParked()
	do(0)
	p.barrier()
}

// read is run for a do that reads memory-mapped files. A page that cannot be read panics on the caller's goroutine, which may
// expect that (Guard of engine/weights does); on a worker's it would end the program.
func (p *pool) read(do func(worker int)) {
	var fault atomic.Pointer[any]
	p.run(func(id int) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if r := recover(); r != nil {
				fault.Store(&r)
			}
		}()
		do(id)
	})
	if r := fault.Load(); r != nil {
		panic(*r)
	}
}

// work is the life of worker id.
func (p *pool) work(id int) {
	defer p.done.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for seen := uint32(0); ; seen++ {
		if !p.await(seen) {
			return
		}
		p.do(id)
		p.barrier()
	}
}

// await returns true once a job after the seen ones has started, false when the pool closes.
func (p *pool) await(seen uint32) bool {
	for range polls(spinIdle) {
		if p.job.Load() != seen {
			return true
		}
		if p.quit.Load() {
			return false
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked.Add(1)
	for p.job.Load() == seen && !p.quit.Load() {
		p.wake.Wait()
	}
	p.parked.Add(^uint32(0))
	return !p.quit.Load()
}

// wakeParked rouses workers that stopped spinning. A worker that is about to park holds the lock
// from counting itself until it waits, and looks at job after counting, so none is missed.
func (p *pool) wakeParked() {
	if p.parked.Load() != 0 {
		p.mu.Lock()
		p.wake.Broadcast()
		p.mu.Unlock()
	}
}

// barrier returns when all workers have called it.
func (p *pool) barrier() {
	if p.n == 1 {
		return
	}
	ph := p.phase.Load()
	if p.arrived.Add(1) == uint32(p.n) {
		p.arrived.Store(0)
		p.phase.Store(ph + 1)
		return
	}
	for i := 0; p.phase.Load() == ph; i++ {
		if i >= polls(spinBarrier) {
			runtime.Gosched()
		}
	}
}

// close ends the workers and waits for them. No job may be running.
func (p *pool) close() {
	p.quit.Store(true)
	p.mu.Lock()
	p.wake.Broadcast()
	p.mu.Unlock()
	p.done.Wait()
}

// share returns worker id's part [from, to) of n items; parts differ by at most one item.
func share(n, id, workers int) (from, to int) { return n * id / workers, n * (id + 1) / workers }
