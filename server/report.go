package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"draftlab/engine"
	"draftlab/engine/ledger"
)

// reporter writes SGLang's "Prefill batch" and "Decode batch" lines from differences of the engine's counters. Where SGLang
// writes a prefill line for each batch, this one may join those of one tick.
type reporter struct {
	log      *slog.Logger
	interval int64         // decode steps between lines; 0 writes none
	wake     chan struct{} // has a value when a request has come

	mu      sync.Mutex
	seen    engine.Stats  // at the last prefill line, or the last tick without one due
	taken   int64         // steps when prompt tokens were first seen that have no line yet; -1 if all have
	line    engine.Stats  // at the last decode line
	mark    time.Time     // of the last tick
	elapsed time.Duration // since the last decode line, idle time left out: else the first rate after a rest means nothing
	gen     float64       // output tokens a second, of the last line
	accept  float64       // accept length of the last line, 0 without cycles
	base    engine.Stats  // at the last flush
}

// reportTick is how often the counters are read while requests run. A tick costs a microsecond; with a longer one, lines
// of a fast model come late.
const reportTick = 25 * time.Millisecond

// quietInterval is the interval of rates in metrics where no lines are wanted; it is SGLang's default for lines.
const quietInterval = 40

func newReporter(log *slog.Logger, interval int) *reporter {
	r := &reporter{log: log, interval: int64(interval), wake: make(chan struct{}, 1)}
	if interval == 0 {
		r.log, r.interval = slog.New(slog.DiscardHandler), quietInterval
	}
	return r
}

// wakeUp tells that there is something to report.
func (r *reporter) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// runReport reports until ctx ends; while no request runs it sleeps.
func (s *Server) runReport(ctx context.Context) {
	r := s.report
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		e := s.engine.Load()
		if e == nil {
			continue
		}
		r.resume(time.Now())
		tick := time.NewTicker(reportTick)
		for busy := true; busy; {
			select {
			case <-ctx.Done():
				busy = false
			case <-tick.C:
				busy = s.busy() > 0
			}
			r.observe(time.Now(), (*e).Stats(), !busy)
			totals := (*e).Ledger().Totals()
			s.cycleLog.observe(&totals)
		}
		tick.Stop()
	}
}

// reset takes counters as the beginning of everything.
func (r *reporter) reset(now time.Time, st engine.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.line, r.base, r.mark, r.elapsed, r.taken = st, st, st, now, 0, -1
}

// resume tells that a rest ends.
func (r *reporter) resume(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark = now
}

// observe takes the counters of a tick and writes the lines that are due; last says that a rest follows.
func (r *reporter) observe(now time.Time, st engine.Stats, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elapsed += now.Sub(r.mark)
	r.mark = now
	switch {
	case st.PromptTokens == r.seen.PromptTokens:
		r.seen = st
	case r.taken < 0 && !last:
		r.taken = st.Steps // the pass over them may still run: the line waits for the end of the step
	case last || st.Steps > r.taken:
		r.prefillLine(st)
		r.seen, r.taken = st, -1
	}
	if st.Steps-r.line.Steps >= r.interval && st.OutputTokens > r.line.OutputTokens {
		r.decodeLine(st)
	}
}

// prefillLine writes what has been taken in since the last one. The spelling is SGLang's (0.5.9).
func (r *reporter) prefillLine(st engine.Stats) {
	ended := func(s *engine.Stats) int64 { return int64(s.Running) + s.Finished + s.Cancelled + s.Failed }
	cached := st.CachedTokens - r.seen.CachedTokens
	fresh := st.PromptTokens - r.seen.PromptTokens - cached
	r.log.Info(fmt.Sprintf("Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: %d, token usage: %.2f, #running-req: %d, #queue-req: %d, cuda graph: False, input throughput (token/s): %.2f",
		max(1, ended(&st)-ended(&r.seen)), fresh, cached, usageOf(&st), st.Running, st.Waiting,
		ratio(float64(fresh), float64(st.Time[ledger.Prefill]-r.seen.Time[ledger.Prefill])/1e9)))
}

// decodeLine writes what has been written since the last one.
func (r *reporter) decodeLine(st engine.Stats) {
	r.gen = ratio(float64(st.OutputTokens-r.line.OutputTokens), r.elapsed.Seconds())
	cycles, drafted, accepted := st.Draft.Cycles-r.line.Draft.Cycles, st.Draft.Drafted-r.line.Draft.Drafted, st.Draft.Accepted-r.line.Draft.Accepted
	var b strings.Builder
	fmt.Fprintf(&b, "Decode batch, #running-req: %d, #token: %d, token usage: %.2f, ", st.Running, st.BlocksUsed*blockSlots, usageOf(&st))
	r.accept = 0
	if cycles > 0 {
		r.accept = 1 + float64(accepted)/float64(cycles)
		fmt.Fprintf(&b, "accept len: %.2f, accept rate: %.2f, ", r.accept, ratio(float64(accepted), float64(drafted)))
	}
	fmt.Fprintf(&b, "cuda graph: False, gen throughput (token/s): %.2f, #queue-req: %d", r.gen, st.Waiting)
	r.log.Info(b.String())
	r.line, r.elapsed = st, 0
}

// usageOf is the share of the key/value blocks in use.
func usageOf(st *engine.Stats) float64 { return ratio(float64(st.BlocksUsed), float64(st.Blocks)) }

// throughput is the output rate of the last decode line.
func (r *reporter) throughput() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gen
}

// acceptLength is the accept length of the last decode line, 0 without cycles.
func (r *reporter) acceptLength() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accept
}

// flushed starts the average of acceptSinceFlush anew, as SGLang does.
func (r *reporter) flushed(st engine.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base = st
}

// acceptSinceFlush is the accept length since the last flush; false without cycles.
func (r *reporter) acceptSinceFlush(st engine.Stats) (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cycles := st.Draft.Cycles - r.base.Draft.Cycles
	if cycles <= 0 {
		return 0, false
	}
	return 1 + float64(st.Draft.Accepted-r.base.Draft.Accepted)/float64(cycles), true
}
