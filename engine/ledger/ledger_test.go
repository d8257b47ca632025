package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"

	"draftlab/engine/draft"
)

// drive keeps a ledger through n random iterations, some of which find nothing or are switched off, and returns every record,
// read in between.
func drive(l *Ledger, rng *rand.Rand, n int) (all []Record, end int64) {
	now := int64(1000)
	step := func() int64 { now += rng.Int64N(1 << rng.IntN(24)); return now }
	for range n {
		if rng.IntN(20) == 0 {
			l.Switch(rng.IntN(3) > 0)
		}
		l.Begin(step())
		if rng.IntN(4) == 0 {
			l.Rest()
			continue
		}
		for range 1 + rng.IntN(12) {
			if p := Phase(rng.IntN(int(NumPhases))); p == Draft {
				l.EnterPass(rng.IntN(20), step())
			} else {
				l.Enter(p, step())
			}
		}
		for range rng.IntN(4) {
			l.Work.Sequence(draft.Chain(rng.IntN(3)), 2, 10)
			l.Work.Accept(2, rng.IntN(2) == 0, 3, rng.IntN(3))
		}
		l.Close(step())
		l.Commit()
		end = now
		all = append(all, l.Read(int64(len(all)), 10)...)
	}
	return all, end
}

// TestBalance is invariant 3 over random iterations.
func TestBalance(t *testing.T) {
	l := New(8, 1000)
	all, _ := drive(l, rand.New(rand.NewPCG(1, 2)), 20000)
	kinds := CheckBalance(t, l, all, 1000)
	if kinds[Idle] < 1000 || kinds[Off] < 100 || kinds[Cycle] < 5000 {
		t.Errorf("%v: the test has not seen enough of each kind", kinds)
	}
}

// CheckBalance checks that records partition time from the origin on and that their sums are the ledger's, and counts their kinds.
func CheckBalance(t *testing.T, l *Ledger, all []Record, origin int64) (kinds [3]int) {
	t.Helper()
	var sums Totals
	for i := range all {
		r := &all[i]
		kinds[r.Kind]++
		switch {
		case r.Seq != int64(i+1):
			t.Fatalf("record %d has the number %d", i+1, r.Seq)
		case r.Start != origin:
			t.Fatalf("record %d starts at %d, the one before ended at %d", r.Seq, r.Start, origin)
		case r.Kind == Cycle && r.Phase.Sum() != r.Wall, r.Kind != Cycle && r.Phase != Times{}:
			t.Fatalf("record %d: phases %v sum to %d, wall %d", r.Seq, r.Phase, r.Phase.Sum(), r.Wall)
		}
		var passes int64
		for _, d := range r.DraftPass {
			passes += d
		}
		if passes > r.Phase[Draft] {
			t.Fatalf("record %d: passes of %d ns in %d ns of draft", r.Seq, passes, r.Phase[Draft])
		}
		origin += r.Wall
		sums.add(r)
		sums.Seq = r.Seq
	}
	got := l.Totals()
	if got != sums {
		t.Fatalf("totals %+v, of the records %+v", got, sums)
	}
	if got.Wall != got.Idle+got.Off+got.Phase.Sum() {
		t.Fatalf("wall %d, idle %d, off %d, phases %d", got.Wall, got.Idle, got.Off, got.Phase.Sum())
	}
	return kinds
}

// TestSnapshot compares distributions and shapes with brute force.
func TestSnapshot(t *testing.T) {
	l := New(16, 1000)
	all, _ := drive(l, rand.New(rand.NewPCG(3, 4)), 5000)
	s := l.Snapshot()
	var verify []int64
	byShape := map[shapeKey]ShapeTotals{}
	for i := range all {
		r := &all[i]
		if r.Phase[Verify] > 0 {
			verify = append(verify, r.Phase[Verify])
		}
		if r.Batch > 0 {
			key := shapeKey{r.Shape, int(r.Batch), r.Mixed}
			sums := byShape[key]
			sums.Shape, sums.Batch, sums.Mixed = r.Shape, int(r.Batch), r.Mixed
			sums.add(r)
			byShape[key] = sums
		}
	}
	slices.Sort(verify)
	h := &s.Phases[Verify]
	if h.Count != int64(len(verify)) || h.Sum != s.Phase[Verify] {
		t.Errorf("%d values of sum %d; want %d of %d", h.Count, h.Sum, len(verify), s.Phase[Verify])
	}
	for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
		rank := max(1, int(float64(len(verify))*q+0.9999999))
		want, got := verify[rank-1], h.Quantile(q)
		if diff := got - want; diff > want/64+1 || -diff > want/64+1 {
			t.Errorf("quantile %v is %d, want %d within 1/64", q, got, want)
		}
	}
	for log := range maxLog {
		want, _ := slices.BinarySearch(verify, int64(1)<<log)
		if got := h.Below(log); got != int64(want) {
			t.Errorf("%d values below 2^%d, want %d", got, log, want)
		}
	}
	if len(s.Shapes) != len(byShape) {
		t.Errorf("%d shapes, want %d", len(s.Shapes), len(byShape))
	}
	for _, got := range s.Shapes {
		if want := byShape[shapeKey{got.Shape, got.Batch, got.Mixed}]; got != want {
			t.Errorf("shape %+v, want %+v", got, want)
		}
	}
}

// TestBuckets checks that the buckets are a partition, each at most 1/32 of its lower bound wide.
func TestBuckets(t *testing.T) {
	next := int64(0)
	for i := range buckets + subBuckets {
		low, width := bounds(i)
		if low != next || bucket(low) != i || bucket(low+width-1) != i || low >= subBuckets && width > low/subBuckets {
			t.Fatalf("bucket %d: %d values from %d on; want it to begin at %d", i, width, low, next)
		}
		next = low + width
	}
	if next != 1<<maxLog || bucket(next) != buckets+subBuckets-1 || bucket(-5) != 0 {
		t.Errorf("the buckets end at %d", next)
	}
}

// TestRead asks for records that are gone, that are to come, and for the last ones.
func TestRead(t *testing.T) {
	l := New(100, 0)
	if got := l.Read(-1, 10); len(got) != 0 {
		t.Errorf("%d records of an empty ledger", len(got))
	}
	for i := range int64(500) {
		l.Begin(2*i + 1)
		l.Close(2*i + 2)
		l.Commit()
	}
	for _, c := range []struct {
		since       int64
		limit       int
		first, last int64
	}{{-1, 3, 499, 501}, {0, 1000, 402, 501}, {450, 10, 451, 460}, {495, 100, 496, 501}, {-1, 90, 412, 501}} {
		got := l.Read(c.since, c.limit)
		if len(got) == 0 || got[0].Seq != c.first || got[len(got)-1].Seq != c.last || len(got) != int(c.last-c.first+1) {
			t.Errorf("since %d, %d: %d records, want %d to %d", c.since, c.limit, len(got), c.first, c.last)
		}
	}
	if got := l.Read(501, 10); len(got) != 0 {
		t.Errorf("%d records after the last one", len(got))
	}
}

// TestLedgerDoesNotAllocate covers a whole iteration (invariant 6).
func TestLedgerDoesNotAllocate(t *testing.T) {
	l := New(8, 0)
	now := int64(0)
	iteration := func() {
		now += 10
		l.Begin(now)
		for p := range NumPhases {
			l.Enter(p, now+int64(p))
		}
		l.Work.Sequence(draft.Chain(3), 4, 100)
		l.Close(now + 10)
		l.Commit()
	}
	iteration()
	if n := testing.AllocsPerRun(100, iteration); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
}

// TestPending hands out each boundary once, and sums what was put in its place.
func TestPending(t *testing.T) {
	l := New(8, 0)
	resolve := func() {
		for i, p := 0, l.Pending(); i < len(p); i++ {
			p[i] *= 10
		}
	}
	l.Begin(1)
	l.Enter(Verify, 2)
	place := l.Here()
	l.Enter(Accept, 5)
	l.Enter(Bookkeeping, 6)
	resolve()
	var got Times
	if l.Since(place, &got); got[Verify] != 30 || got[Accept] != 10 || got.Sum() != 40 {
		t.Errorf("%v so far", got)
	}
	l.Close(9)
	resolve()
	l.Commit()
	if r := l.Read(-1, 1)[0]; r.Start != 10 || r.Wall != 80 || r.Phase[Verify] != 30 || r.Phase[Bookkeeping] != 30 {
		t.Errorf("%+v", r)
	}
	l.Begin(10)
	l.Rest()
	l.Begin(11)
	l.Close(12)
	resolve()
	l.Commit()
	if r := l.Read(-1, 2); r[0].Kind != Idle || r[0].Start != 90 || r[0].Wall != 20 || r[1].Wall != 10 {
		t.Errorf("%+v", r)
	}
}

// BenchmarkCycle is what a cycle of a chain of three costs in books, without reading the clock.
func BenchmarkCycle(b *testing.B) {
	l := New(Size, 0)
	now := int64(0)
	for b.Loop() {
		now += 1000
		l.Begin(now)
		for _, p := range []Phase{Verify, Accept, Stream, Accept, DraftExtend, Draft} {
			l.Enter(p, now)
		}
		l.EnterPass(0, now)
		l.EnterPass(1, now)
		l.Enter(Draft, now)
		l.Enter(Bookkeeping, now)
		l.Work.Sequence(draft.Chain(3), 4, 100)
		l.Work.Accept(2, true, 3, 1)
		l.Close(now)
		l.Commit()
	}
}
