// Package ledger keeps the time of the engine's loop so that it balances (invariant 3): the loop is in exactly one phase at
// any instant, entering one ends the last, and what a [Record] says of its phases adds up to its wall time in whole
// nanoseconds. A record begins where the one before it ended, so that the records are a partition of the loop's life.
//
// The loop calls [Ledger.Begin] when an iteration of the scheduler starts, [Ledger.Enter] at each change of phase, counts what it runs in
// [Ledger.Work], and ends with [Ledger.Close] and [Ledger.Commit] if something ran, else with [Ledger.Rest]. Readers, on
// any goroutine, call [Ledger.Read] for recent records and [Ledger.Snapshot] for sums since the start; neither holds the loop
// up for longer than copying some dozens of kilobytes takes.
//
// It is pure (invariant 5): it reads no clock but is told the times of boundaries, in nanoseconds since its origin. A device that
// runs behind the host may hand in tickets instead and replace them through [Ledger.Pending] before anything is summed.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"draftlab/engine/draft"
	"draftlab/engine/invariants"
)

// Size is the number of records that an engine keeps: some ten seconds of a small model's cycles, minutes of a large one's, in 3 MB.
const Size = 4096

// mark is a boundary: from its time on the loop was in a phase.
type mark struct {
	phase Phase
	pass  int8 // of the drafter, in Draft: 0 the first; -1 none
}

// Ledger is the books of one loop. Begin to Rest belong to the loop; the other methods may be called by any goroutine.
type Ledger struct {
	// Work is what the iteration in progress has run so far. The loop alone touches it; Commit clears it.
	Work Work

	want     atomic.Bool
	on       bool
	marks    []mark
	times    []int64 // of marks; after Close one more, the end
	resolved int     // times that Pending has handed out

	mu     sync.Mutex
	ring   []Record
	sums   Snapshot
	shapes map[shapeKey]int // index into sums.Shapes
}

// New returns a ledger that keeps size records and whose loop has been at rest since the time at. It is switched on.
func New(size int, at int64) *Ledger {
	l := &Ledger{on: true, ring: make([]Record, size), shapes: map[shapeKey]int{}}
	l.want.Store(true)
	l.sums.Shapes = make([]ShapeTotals, 0, maxShapes)
	l.marks, l.times = make([]mark, 0, 256), make([]int64, 0, 256)
	l.start(idle, at)
	return l
}

// Switch turns the ledger on or off from the next iteration on. The time in between becomes one record of kind Off. It is there for
// measuring what the ledger itself costs, on a clock that hands in no tickets.
func (l *Ledger) Switch(on bool) { l.want.Store(on) }

// Toggles reports whether Begin would switch the ledger on or off.
func (l *Ledger) Toggles() bool { return l.want.Load() != l.on }

// On reports, to the loop, whether boundaries are wanted.
func (l *Ledger) On() bool { return l.on }

// start opens an iteration or a rest.
func (l *Ledger) start(p Phase, at int64) {
	l.marks, l.times, l.resolved = append(l.marks[:0], mark{p, -1}), append(l.times[:0], at), 0
}

// Begin starts an iteration: what the loop does now is Schedule. The time since the last Commit, if any, was Stream's.
func (l *Ledger) Begin(at int64) {
	switch {
	case !l.Toggles():
		if l.on {
			l.Enter(Schedule, at)
		}
	case l.on:
		if l.marks[0].phase == idle {
			l.publish(&Record{Kind: Idle, Start: l.times[0], Wall: at - l.times[0]})
			l.start(off, at)
		} else {
			l.start(off, l.times[0])
		}
		l.on = false
	default:
		l.publish(&Record{Kind: Off, Start: l.times[0], Wall: at - l.times[0]})
		l.start(Schedule, at)
		l.on = true
	}
}

// Enter ends the phase in progress and starts another; it does nothing while the ledger is off.
func (l *Ledger) Enter(p Phase, at int64) { l.enter(mark{p, -1}, at) }

// EnterPass is Enter of Draft for the drafter's pass i, from 0; passes beyond the last that a record tells apart count as that one.
func (l *Ledger) EnterPass(i int, at int64) {
	l.enter(mark{Draft, int8(min(i, MaxDraftPasses-1))}, at)
}

func (l *Ledger) enter(m mark, at int64) {
	if l.on {
		l.marks, l.times = append(l.marks, m), append(l.times, at)
	}
}

// Rest ends an iteration that found nothing to run: it was idle, and so is the loop until the next one that finds something.
func (l *Ledger) Rest() {
	if l.on {
		resolved := min(l.resolved, 1)
		l.start(idle, l.times[0])
		l.resolved = resolved
	}
}

// Here returns the place of the phase in progress, for Since.
func (l *Ledger) Here() int { return len(l.marks) - 1 }

// Since adds to the sums the phases from the one at a place on, all but the one in progress.
func (l *Ledger) Since(place int, sums *Times) {
	for i := max(0, place); i+1 < len(l.times); i++ {
		if p := l.marks[i].phase; p < NumPhases {
			sums[p] += l.times[i+1] - l.times[i]
		}
	}
}

// Pending returns the times of boundaries that came since the last call, for a device that has handed in tickets to put the
// times in their place. They must not fall.
func (l *Ledger) Pending() []int64 {
	p := l.times[l.resolved:]
	l.resolved = len(l.times)
	return p
}

// Close ends the last phase of an iteration that ran something.
func (l *Ledger) Close(at int64) {
	if l.on {
		l.times = append(l.times, at)
	}
}

// Spans calls f with each phase of the closed iteration in order. pass is the drafter's pass, or -1.
func (l *Ledger) Spans(f func(p Phase, pass int, from, to int64)) {
	for i, m := range l.marks {
		if m.phase < NumPhases {
			f(m.phase, int(m.pass), l.times[i], l.times[i+1])
		}
	}
}

// Commit writes the record of a closed iteration, and before it that of the rest which it ended. The next record begins where this
// one ends.
func (l *Ledger) Commit() {
	if !l.on {
		l.Work = Work{}
		return
	}
	first, end := 0, l.times[len(l.times)-1]
	if l.marks[0].phase == idle {
		first = 1
		l.publish(&Record{Kind: Idle, Start: l.times[0], Wall: l.times[1] - l.times[0]})
	}
	r := Record{Kind: Cycle, Start: l.times[first], Wall: end - l.times[first], Work: l.Work}
	for i := first; i < len(l.marks); i++ {
		m, d := l.marks[i], l.times[i+1]-l.times[i]
		r.Phase[m.phase] += d
		if m.pass >= 0 {
			r.DraftPass[m.pass] += d
			r.DraftPasses = max(r.DraftPasses, m.pass+1)
		}
	}
	l.publish(&r)
	l.Work = Work{}
	l.start(Stream, end)
	l.resolved = 1 // the end was
}

// publish puts a record into the ring and the sums.
func (l *Ledger) publish(r *Record) {
	if invariants.Enabled && (r.Wall < 0 || r.Kind == Cycle && r.Phase.Sum() != r.Wall) {
		panic(fmt.Sprintf("ledger: phases %v sum to %d ns, wall time is %d", r.Phase, r.Phase.Sum(), r.Wall))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.Seq++
	r.Seq = l.sums.Seq
	l.ring[int(r.Seq)%len(l.ring)] = *r
	l.sums.add(r)
	if r.Kind == Cycle && r.Batch > 0 {
		l.addShape(r)
	}
}

// addShape counts a cycle in the sums of its shape, as long as there is room for new ones.
func (l *Ledger) addShape(r *Record) {
	key := shapeKey{r.Shape, int(r.Batch), r.Mixed}
	i, ok := l.shapes[key]
	if !ok {
		if len(l.sums.Shapes) == maxShapes {
			return
		}
		i = len(l.sums.Shapes)
		l.shapes[key] = i
		l.sums.Shapes = append(l.sums.Shapes, ShapeTotals{Shape: r.Shape, Batch: int(r.Batch), Mixed: r.Mixed})
	}
	l.sums.Shapes[i].add(r)
}

// Times returns the phases' sums over all records, and that of idle time.
func (l *Ledger) Times() (t Times, idle int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums.Phase, l.sums.Idle
}

// Totals returns the sums over all records.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums.Totals
}

// Snapshot returns the sums over all records with their distributions and shapes. It is a copy.
func (l *Ledger) Snapshot() *Snapshot {
	s := new(Snapshot)
	l.mu.Lock()
	defer l.mu.Unlock()
	*s = l.sums
	s.Shapes = slices.Clone(l.sums.Shapes)
	return s
}

// readAtOnce is how many records Read copies under one lock: some 40 kB, which takes microseconds.
const readAtOnce = 64

// Read returns records in order: the first ones after the number since, at most limit, of those that are still kept. A negative
// since asks for the last ones.
func (l *Ledger) Read(since int64, limit int) []Record {
	var out []Record
	for first := true; len(out) < limit; first = false {
		n := len(out)
		l.mu.Lock()
		last := l.sums.Seq
		if first && since < 0 {
			since = last - int64(limit)
		}
		since = max(since, last-int64(len(l.ring)), 0) // what has been overwritten is gone
		for ; since < last && len(out) < min(limit, n+readAtOnce); since++ {
			out = append(out, l.ring[int(since+1)%len(l.ring)])
		}
		l.mu.Unlock()
		if len(out) == n {
			break
		}
	}
	return out
}

// shapeKey tells apart what Snapshot.Shapes lists.
type shapeKey struct {
	shape draft.Shape
	batch int
	mixed bool
}
