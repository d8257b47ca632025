package ledger

import (
	"math"
	"math/bits"

	"draftlab/engine/draft"
)

// Totals are sums over all records since the ledger's origin.
type Totals struct {
	Seq                                int64 // of the last record
	Wall                               int64 // Idle, Off and Phase add up to it
	Idle, Off                          int64
	Cycles, DecodeCycles, VerifyCycles int64 // all, those with a plain decode pass, those with a verify pass
	Phase                              Times
	DraftPass                          [MaxDraftPasses]int64
	Emitted, Drafted, Accepted         int64
	Drafting                           int64                 // sequences that draft, summed over cycles
	AcceptedBy                         [draft.MaxNodes]int64 // [n] those that accepted n
}

// add counts a record in.
func (t *Totals) add(r *Record) {
	t.Wall += r.Wall
	switch r.Kind {
	case Idle:
		t.Idle += r.Wall
		return
	case Off:
		t.Off += r.Wall
		return
	}
	t.Cycles++
	if r.Phase[Decode] > 0 {
		t.DecodeCycles++
	}
	if r.Phase[Verify] > 0 {
		t.VerifyCycles++
	}
	for p, d := range r.Phase {
		t.Phase[p] += d
	}
	for i, d := range r.DraftPass {
		t.DraftPass[i] += d
	}
	t.Emitted += int64(r.Emitted)
	t.Drafted += int64(r.Drafted)
	t.Accepted += int64(r.Accepted)
	t.Drafting += int64(r.Drafting)
	for n, c := range r.AcceptedBy {
		t.AcceptedBy[n] += int64(c)
	}
}

// maxShapes bounds the shapes and batch sizes that are summed apart, which requests choose; cycles of further ones are in the totals
// alone.
const maxShapes = 256

// ShapeTotals are sums over the cycles of one shape and batch size that had a decode or verify pass.
type ShapeTotals struct {
	Shape draft.Shape
	Batch int
	Mixed bool // the sequences asked for different shapes

	Cycles, Rows, Emitted, Drafted, Accepted, Drafting int64
	Context                                            int64 // summed over sequences and cycles
	Wall                                               int64
	Phase                                              Times
}

// add counts a cycle in.
func (t *ShapeTotals) add(r *Record) {
	t.Cycles++
	t.Rows += int64(r.Rows)
	t.Emitted += int64(r.Emitted)
	t.Drafted += int64(r.Drafted)
	t.Accepted += int64(r.Accepted)
	t.Drafting += int64(r.Drafting)
	t.Context += r.Context
	t.Wall += r.Wall
	for p, d := range r.Phase {
		t.Phase[p] += d
	}
}

// Snapshot is Totals with distributions. Those of phases are over the cycles that had the phase.
type Snapshot struct {
	Totals
	Shapes []ShapeTotals
	Walls  Histogram
	Others Histogram // of the sum of Schedule, Bookkeeping and Stream
	Phases [Schedule]Histogram
}

// add counts a record in.
func (s *Snapshot) add(r *Record) {
	s.Totals.add(r)
	if r.Kind != Cycle {
		return
	}
	s.Walls.add(r.Wall)
	s.Others.add(r.Phase.Other())
	for p := range s.Phases {
		if d := r.Phase[p]; d > 0 {
			s.Phases[p].add(d)
		}
	}
}

// Buckets of a histogram: each doubling is cut into subBuckets equal parts, so that a bucket is at most 1/32 of its lower
// bound wide. Below 64 ns each value has its own. The last doubling ends at 2^43 ns, above two hours.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	maxLog     = 43
	buckets    = (maxLog - subBits) * subBuckets
)

// Histogram counts durations in nanoseconds. The zero Histogram is ready.
type Histogram struct {
	Count, Sum int64
	counts     [buckets + subBuckets]int64
}

// bucket returns the index of the bucket that holds v.
func bucket(v int64) int {
	u := uint64(max(0, v))
	shift := max(0, bits.Len64(u)-subBits-1)
	return min(shift<<subBits+int(u>>shift), buckets+subBuckets-1)
}

// bounds returns the least value of a bucket and the number of values in it.
func bounds(i int) (low, width int64) {
	if i < 2*subBuckets {
		return int64(i), 1
	}
	shift := i>>subBits - 1
	return int64(i-shift<<subBits) << shift, 1 << shift
}

func (h *Histogram) add(v int64) {
	h.Count++
	h.Sum += v
	h.counts[bucket(v)]++
}

// Quantile returns the value of rank ⌈q·Count⌉ with a relative error of at most 1/64: the middle of its bucket. It is 0 where
// there are none.
func (h *Histogram) Quantile(q float64) int64 {
	if h.Count == 0 {
		return 0
	}
	rank := min(h.Count, max(1, int64(math.Ceil(q*float64(h.Count)))))
	for i, c := range h.counts[:] {
		if rank -= c; rank <= 0 {
			low, width := bounds(i)
			return low + width/2
		}
	}
	panic("ledger: a histogram's counts do not add up")
}

// Below returns how many values are less than 2^log nanoseconds, log up to 43.
func (h *Histogram) Below(log int) (n int64) {
	for _, c := range h.counts[:bucket(1<<log)] {
		n += c
	}
	return n
}
