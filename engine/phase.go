package engine

import (
	"sync"
	"time"

	"draftlab/engine/draft"
)

// Phase is what the engine's loop is doing. It is in exactly one at any instant (invariant 3).
type Phase uint8

// The phases of a step (design: the speculative cycle).
const (
	PhaseIdle         Phase = iota // nothing to do
	PhasePrefill                   // target pass over prompt rows
	PhasePrefillDraft              // the drafter's part of it
	PhaseDecode                    // target pass without draft rows
	PhaseVerify                    // target pass with draft rows
	PhaseAccept                    // sampling, walk, cache moves
	PhaseDraftExtend               // drafter pass over the verified rows, first draft included
	PhaseDraft                     // drafter passes 2…K and the tree
	PhaseOther                     // scheduling, bookkeeping, delivery
	NumPhases
)

var phaseNames = [NumPhases]string{"idle", "prefill", "prefill.draft", "decode", "verify", "accept", "draft_extend", "draft", "other"}

// String returns the phase's name in logs and metrics.
func (p Phase) String() string { return phaseNames[p] }

// Stats are an engine's counters since it was opened.
type Stats struct {
	Running, Waiting                 int // sequences now
	Blocks, BlocksUsed, BlocksCached int // key/value blocks now
	Steps                            int64
	PromptTokens, CachedTokens       int64 // prompt tokens taken in, and how many of them the prefix cache gave
	OutputTokens                     int64
	Finished, Cancelled, Failed      int64 // requests that ended
	Preemptions                      int64
	Draft                            draft.Stats // cycles of sequences that draft
	Time                             [NumPhases]time.Duration
	LastToken                        time.Time // zero before the first
}

// counters are Stats as the loop keeps them, and the stopwatch.
type counters struct {
	mu    sync.Mutex
	stats Stats

	phase Phase
	since time.Time
}

// enter ends the phase in progress and starts another.
func (c *counters) enter(p Phase) {
	now := time.Now()
	c.mu.Lock()
	c.stats.Time[c.phase] += now.Sub(c.since)
	c.mu.Unlock()
	c.phase, c.since = p, now
}

// update changes the counters.
func (c *counters) update(f func(*Stats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// Stats returns the counters. It may be called by any goroutine.
func (e *Engine) Stats() Stats {
	e.count.mu.Lock()
	defer e.count.mu.Unlock()
	return e.count.stats
}
