// Package load decides when the requests of a benchmark start: [Run] carries out a [Plan], which is a closed loop (a fixed number of
// requests at any time, each sent when another has ended) or an open one (arrivals of a Poisson process, or at equal intervals, sent when
// they are due whatever the server does). [Arrivals] is the pacer of the latter, pure.
//
// It sends nothing itself and knows no server. It keeps nothing of a request that has ended, so that a run can go on for ever.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"draftlab/lab/clock"
)

// Plan says how many requests start, and when.
type Plan struct {
	Rate        float64       // requests per second of an open loop; 0 is a closed one
	Even        bool          // the requests of an open loop come at equal intervals, not as a Poisson process
	Concurrency int           // requests at a time: of a closed loop, or at most of an open one, where 0 is no limit
	Requests    int64         // start so many; 0 is no limit
	Duration    time.Duration // start none after this time; 0 is no limit
	Spread      time.Duration // of a closed loop: its streams begin at random moments of it, not all at once
	Seed        uint64        // of the arrivals
}

// Check returns an error for a plan that cannot be carried out.
func (p *Plan) Check() error {
	switch {
	case p.Rate < 0 || p.Rate != p.Rate || p.Rate > 1e6:
		return fmt.Errorf("request rate %v: want 0 (a closed loop) to 1000000 per second", p.Rate)
	case p.Concurrency < 0 || p.Rate == 0 && p.Concurrency == 0:
		return fmt.Errorf("concurrency %d: want at least 1", p.Concurrency)
	case p.Requests < 0 || p.Duration < 0 || p.Spread < 0:
		return fmt.Errorf("%d requests for %v, spread over %v: none can be negative", p.Requests, p.Duration, p.Spread)
	case p.Requests == 0 && p.Duration == 0:
		return fmt.Errorf("neither a number of requests nor a duration is given: the run would not end")
	}
	return nil
}

// Arrivals are the times at which the requests of an open loop are due.
type Arrivals struct {
	gap  func() float64 // in mean gaps
	rate float64        // per second
	at   float64        // mean gaps since the start
}

// Arrivals returns the times of an open loop: the same seed gives the same ones.
func (p *Plan) Arrivals() *Arrivals {
	if p.Even {
		return &Arrivals{rate: p.Rate, gap: func() float64 { return 1 }}
	}
	rng := rand.New(rand.NewPCG(p.Seed, 0x6c6f6164)) // the second half only has to be fixed
	return &Arrivals{rate: p.Rate, gap: rng.ExpFloat64}
}

// Next returns the time of the next arrival since the start.
func (a *Arrivals) Next() time.Duration {
	a.at += a.gap()
	return time.Duration(a.at / a.rate * float64(time.Second))
}

// LateAfter is the lag from which a start counts as late. A timer of an idle machine fires within a tenth of it, and
// what people call a latency is longer.
const LateAfter = time.Millisecond

// Tally is what became of the starts of a run.
type Tally struct {
	Started   int64
	Late      int64         // started more than LateAfter after they were due
	Dropped   int64         // due while the run lasted and never started: no place came free, or it was cancelled
	LastStart time.Duration // since the run began: from here on the load falls
	Elapsed   time.Duration // until the last request had ended
	Peak      int64         // requests at a time, at most
}

// Do carries out request n, counted from 0, which was due at a time, and returns when it has ended.
type Do func(ctx context.Context, n int64, due time.Time)

// Run carries out a plan that Check accepts: it calls do for each request, on a goroutine of its own, and returns when all calls
// have. Once ctx has ended nothing starts any more; do sees to it that what runs ends too.
func Run(ctx context.Context, p Plan, do Do) Tally {
	alarm := clock.NewAlarm()
	defer alarm.Close()
	return carryOut(ctx, p, do, alarm.Until)
}

// until sleeps until a time and reports whether ctx lasted; nothing of a run calls it twice at a time.
type until func(ctx context.Context, t time.Time) bool

// carryOut is Run with sleeps of the caller's.
func carryOut(ctx context.Context, p Plan, do Do, wait until) Tally {
	if err := p.Check(); err != nil {
		panic("load: " + err.Error())
	}
	r := &run{plan: p, do: do, wait: wait, begin: time.Now()}
	if p.Rate > 0 {
		r.open(ctx)
	} else {
		r.closed(ctx)
	}
	r.wg.Wait()
	r.tally.Elapsed = time.Since(r.begin)
	r.tally.Peak = r.peak.Load()
	return r.tally
}

// run is a plan that is being carried out.
type run struct {
	plan  Plan
	do    Do
	wait  until
	begin time.Time
	wg    sync.WaitGroup

	running, peak atomic.Int64

	mu    sync.Mutex // guards what follows
	next  int64
	tally Tally
}

// open starts requests when they are due.
func (r *run) open(ctx context.Context) {
	var places chan struct{}
	if r.plan.Concurrency > 0 {
		places = make(chan struct{}, r.plan.Concurrency)
	}
	var end <-chan time.Time // nil: never
	if r.plan.Duration > 0 {
		t := time.NewTimer(r.plan.Duration)
		defer t.Stop()
		end = t.C
	}
	arrivals := r.plan.Arrivals()
	at := arrivals.Next()
	for ; r.within(r.next, at); at = arrivals.Next() {
		due := r.begin.Add(at)
		if !r.wait(ctx, due) {
			return // it was not due yet
		}
		if places != nil && !take(ctx, end, places) {
			break
		}
		n := r.start(due)
		r.wg.Go(func() {
			r.call(ctx, n, due)
			if places != nil {
				<-places
			}
		})
	}
	r.drop(arrivals, at)
}

// drop counts the arrivals from one on that were due by now and within the plan.
func (r *run) drop(arrivals *Arrivals, at time.Duration) {
	elapsed := time.Since(r.begin)
	for n := r.next; r.within(n, at) && at <= elapsed; n++ {
		r.tally.Dropped++
		at = arrivals.Next()
	}
}

// within reports whether request n, due at a time, belongs to the plan.
func (r *run) within(n int64, at time.Duration) bool {
	return (r.plan.Requests == 0 || n < r.plan.Requests) && (r.plan.Duration == 0 || at <= r.plan.Duration)
}

// closed has each of so many goroutines carry out one request after another.
func (r *run) closed(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.plan.Seed, 0x737072656164))
	begins := make([]time.Duration, r.plan.Concurrency)
	for i := range begins {
		begins[i] = time.Duration(rng.Float64() * float64(r.plan.Spread))
	}
	slices.Sort(begins)
	for _, at := range begins {
		if at > 0 && !r.wait(ctx, r.begin.Add(at)) {
			return
		}
		r.wg.Go(func() {
			for ctx.Err() == nil {
				r.mu.Lock()
				if !r.within(r.next, time.Since(r.begin)) {
					r.mu.Unlock()
					return
				}
				due := time.Now()
				n := r.startLocked(due)
				r.mu.Unlock()
				r.call(ctx, n, due)
			}
		})
	}
}

func (r *run) start(due time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.startLocked(due)
}

// startLocked counts a start and returns its number.
func (r *run) startLocked(due time.Time) int64 {
	n := r.next
	r.next++
	r.tally.Started++
	now := time.Now()
	r.tally.LastStart = now.Sub(r.begin)
	if now.Sub(due) > LateAfter {
		r.tally.Late++
	}
	return n
}

// call carries out one request.
func (r *run) call(ctx context.Context, n int64, due time.Time) {
	now := r.running.Add(1)
	defer r.running.Add(-1)
	for old := r.peak.Load(); now > old && !r.peak.CompareAndSwap(old, now); old = r.peak.Load() {
	}
	r.do(ctx, n, due)
}

// take waits for a place and reports whether one came free before the end.
func take(ctx context.Context, end <-chan time.Time, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-end:
		return false
	case <-ctx.Done():
		return false
	}
}
