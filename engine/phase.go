package engine

import (
	"sync"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/draft"
	"draftlab/engine/ledger"
)

// Stats are an engine's counters since it was opened.
type Stats struct {
	Running, Waiting                 int // sequences now
	Blocks, BlocksUsed, BlocksCached int // key/value blocks now
	Steps                            int64
	PromptTokens, CachedTokens       int64 // prompt tokens taken in, and how many of them the prefix cache gave
	OutputTokens                     int64
	Finished, Cancelled, Failed      int64 // requests that ended
	Preemptions                      int64
	Draft                            draft.Stats  // cycles of sequences that draft
	Time                             ledger.Times // of complete steps
	Idle                             time.Duration
	LastToken                        time.Time // zero before the first
}

// counters are Stats as the loop keeps them, and the ledger of its time.
type counters struct {
	mu    sync.Mutex
	stats Stats

	clock  compute.Clock
	ledger *ledger.Ledger
}

// open starts the books.
func (c *counters) open(clock compute.Clock) {
	c.clock, c.ledger = clock, ledger.New(ledger.Size, clock.Mark())
}

// begin starts an iteration of the scheduler.
func (c *counters) begin() {
	if c.ledger.On() || c.ledger.Toggles() {
		c.ledger.Begin(c.clock.Mark())
	}
}

// enter ends the phase in progress and starts another. It returns the place of that one, for since.
func (c *counters) enter(p ledger.Phase) int {
	if c.ledger.On() {
		c.ledger.Enter(p, c.clock.Mark())
	}
	return c.ledger.Here()
}

// enterPass starts the drafter's pass i of a cycle's draft.
func (c *counters) enterPass(i int) {
	if c.ledger.On() {
		c.ledger.EnterPass(i, c.clock.Mark())
	}
}

// since returns the time of the phases from a place on, without the one in progress. Their work has reached the host.
func (c *counters) since(place int) (t ledger.Times) {
	c.clock.Resolve(c.ledger.Pending())
	c.ledger.Since(place, &t)
	return t
}

// ended ends an iteration that ran something.
func (e *Engine) ended() {
	c := &e.count
	if c.ledger.On() {
		c.ledger.Close(c.clock.Mark())
		c.clock.Resolve(c.ledger.Pending())
		if e.trace != nil {
			e.traceCycle()
		}
	}
	c.ledger.Commit()
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
	s := e.count.stats
	e.count.mu.Unlock()
	var idle int64
	s.Time, idle = e.count.ledger.Times() // read last: a step that is counted has its time
	s.Idle = time.Duration(idle)
	return s
}

// Ledger returns where the loop's time goes. Its readers may be called by any goroutine.
func (e *Engine) Ledger() *ledger.Ledger { return e.count.ledger }
