package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"draftlab/lab/load"
	"draftlab/lab/measure"
	"draftlab/lab/stats"
)

const (
	// settled is the difference of the medians of two windows, one after the other, from which a reading counts as steady: a cold
	// server is tens of per cent slower, and two windows of a warm one rarely differ by more.
	settled = 0.05
	// windows bounds the warm-up of a server that never settles.
	windows = 8
	// leastWindow is the number of requests of a window of a single stream.
	leastWindow = 4
	// warmRound is the salt of warm-up prompts, beyond any that a run reaches.
	warmRound = int64(1) << 40
)

// warmUp sends requests that nobody counts: as many as are asked for, or windows of them until the median time for an output token
// of a window differs little from that of the one before. All windows have the same prompts, each with another mark in front: others would be
// drafted better or worse, which is no sign of a cold server.
func (b *bench) warmUp(ctx context.Context) (w measure.Warmup, err error) {
	if b.cfg.Warmups == 0 {
		return w, nil
	}
	begin := time.Now()
	streams := max(b.cfg.Plan.Concurrency, 1)
	last := math.NaN()
	b.note("warming up")
	for range windows {
		n := max(leastWindow, int64(streams))
		if b.cfg.Warmups > 0 {
			n = b.cfg.Warmups
		}
		median, err := b.window(ctx, load.Plan{Concurrency: streams, Requests: n}, w.Requests)
		if err != nil {
			return w, err
		}
		w.Requests += n
		w.Elapsed = time.Since(begin)
		w.Settled = math.Abs(median-last) <= settled*last
		if w.Settled || b.cfg.Warmups > 0 {
			break
		}
		last = median
	}
	if w.Settled {
		b.note(fmt.Sprintf("warm after %d requests and %v", w.Requests, w.Elapsed.Round(100*time.Millisecond)))
	}
	if b.cfg.Warmups < 0 && !w.Settled {
		b.note(fmt.Sprintf("after %d requests of warm-up the time for a token still varies by more than %.0f %%", w.Requests, 100*settled))
	}
	return w, nil
}

// window returns the median time for an output token of some requests, in nanoseconds; NaN if none had any.
func (b *bench) window(ctx context.Context, plan load.Plan, offset int64) (float64, error) {
	var mu sync.Mutex
	var perToken []float64
	load.Run(ctx, plan, func(ctx context.Context, n int64, due time.Time) {
		p := b.cfg.Prompts[n%int64(len(b.cfg.Prompts))]
		s := b.client.Do(ctx, due, b.request(p.Salted(warmRound+offset+n).Text))
		if s.Error != "" || s.OutputTokens == 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		perToken = append(perToken, float64(s.LastNS)/float64(s.OutputTokens))
	})
	return stats.Median(perToken), ctx.Err()
}
