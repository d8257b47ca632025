package load

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestArrivalsArePoissonAndRepeat(t *testing.T) {
	const n, rate = 20_000, 250.0
	a, b := (&Plan{Rate: rate, Seed: 7}).Arrivals(), (&Plan{Rate: rate, Seed: 7}).Arrivals()
	gaps := make([]float64, n)
	last := time.Duration(0)
	for i := range gaps {
		at := a.Next()
		if at != b.Next() {
			t.Fatal("the same seed gave other times")
		}
		gaps[i] = (at - last).Seconds() * rate
		last = at
	}
	var sum, square float64
	for _, g := range gaps {
		sum, square = sum+g, square+g*g
	}
	mean := sum / n
	// Mean and standard deviation of an exponential distribution are 1; their errors here are 0.7 % and 1 %.
	if sd := math.Sqrt(square/n - mean*mean); math.Abs(mean-1) > .03 || math.Abs(sd-1) > .04 {
		t.Errorf("mean gap %v, standard deviation %v", mean, sd)
	}
	if (&Plan{Rate: rate, Seed: 8}).Arrivals().Next() == (&Plan{Rate: rate, Seed: 7}).Arrivals().Next() {
		t.Error("another seed gave the same time")
	}
}

func TestArrivalsAtEqualIntervals(t *testing.T) {
	a := (&Plan{Rate: 300, Even: true}).Arrivals()
	for i := 1; i <= 3000; i++ {
		if got, want := a.Next(), time.Duration(float64(i)/300*1e9); got != want {
			t.Fatalf("request %d at %v, want %v", i, got, want)
		}
	}
}

// call is one request as a test saw it.
type call struct {
	n          int64
	due, start time.Duration
}

// fakeWait sleeps by Go's timers, whose time a test can fake.
func fakeWait(ctx context.Context, until time.Time) bool {
	select {
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// carry runs a plan against a server that takes a time for each request, in fake time.
func carry(t *testing.T, ctx context.Context, p Plan, takes func(n int64) time.Duration) (calls []call, tally Tally) {
	t.Helper()
	var mu sync.Mutex
	begin := time.Now()
	tally = carryOut(ctx, p, func(_ context.Context, n int64, due time.Time) {
		mu.Lock()
		calls = append(calls, call{n, due.Sub(begin), time.Since(begin)})
		mu.Unlock()
		time.Sleep(takes(n))
	}, fakeWait)
	slices.SortFunc(calls, func(a, b call) int { return int(a.n - b.n) })
	return calls, tally
}

// TestOpenLoopDoesNotWaitForTheServer: each request starts when it is due, however slow the server is.
func TestOpenLoopDoesNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tally := carry(t, t.Context(), Plan{Rate: 100, Requests: 50, Seed: 3}, func(int64) time.Duration { return time.Minute })
		arrivals := (&Plan{Rate: 100, Seed: 3}).Arrivals()
		for _, c := range calls {
			if want := arrivals.Next(); c.due != want || c.start != want {
				t.Fatalf("request %d: due %v, started %v, want %v", c.n, c.due, c.start, want)
			}
		}
		last := calls[49].start
		if want := (Tally{Started: 50, LastStart: last, Elapsed: last + time.Minute, Peak: 50}); tally != want {
			t.Errorf("%+v, want %+v", tally, want)
		}
	})
}

// TestOpenLoopCountsLateStarts: with one place and requests that take longer than the mean gap, lag builds up, and it shows.
func TestOpenLoopCountsLateStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tally := carry(t, t.Context(), Plan{Rate: 100, Requests: 100, Concurrency: 1, Seed: 1}, func(int64) time.Duration { return 20 * time.Millisecond })
		free, late := time.Duration(0), int64(0)
		for _, c := range calls {
			if want := max(c.due, free); c.start != want {
				t.Fatalf("request %d, due %v, started at %v, want %v", c.n, c.due, c.start, want)
			}
			free = c.start + 20*time.Millisecond
			if c.start-c.due > LateAfter {
				late++
			}
		}
		if tally.Late != late || late < 50 || tally.Dropped != 0 || tally.Started != 100 || tally.Peak != 1 {
			t.Errorf("%+v; %d were late", tally, late)
		}
	})
}

// TestOpenLoopCountsDroppedStarts: what was due within the time and found no place until its end is dropped, not forgotten.
func TestOpenLoopCountsDroppedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tally := carry(t, t.Context(), Plan{Rate: 100, Duration: time.Second, Concurrency: 2, Seed: 1}, func(int64) time.Duration { return 10 * time.Second })
		due := int64(0)
		for a := (&Plan{Rate: 100, Seed: 1}).Arrivals(); a.Next() <= time.Second; {
			due++
		}
		if len(calls) != 2 || tally.Started != 2 || tally.Dropped != due-2 {
			t.Errorf("%d calls, %+v; %d were due", len(calls), tally, due)
		}
	})
}

func TestOpenLoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		calls, tally := carry(t, ctx, Plan{Rate: 100, Requests: 1000, Seed: 1}, func(int64) time.Duration { return 0 })
		if n := int64(len(calls)); n != tally.Started || n < 20 || n > 100 || tally.Elapsed != 500*time.Millisecond || tally.Dropped != 0 {
			t.Errorf("%d calls, %+v", n, tally)
		}
	})
}

func TestClosedLoopKeepsItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tally := carry(t, t.Context(), Plan{Requests: 10, Concurrency: 3}, func(int64) time.Duration { return time.Second })
		for i, c := range calls {
			if want := time.Duration(i/3) * time.Second; c.start != want || c.due != want {
				t.Errorf("request %d: due %v, started %v, want %v", i, c.due, c.start, want)
			}
		}
		if want := (Tally{Started: 10, LastStart: 3 * time.Second, Elapsed: 4 * time.Second, Peak: 3}); tally != want {
			t.Errorf("%+v, want %+v", tally, want)
		}
	})
}

func TestClosedLoopEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tally := carry(t, t.Context(), Plan{Duration: 2500 * time.Millisecond, Concurrency: 2}, func(int64) time.Duration { return time.Second })
		if len(calls) != 6 || tally.Elapsed != 3*time.Second {
			t.Errorf("%d calls, %+v", len(calls), tally)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if calls, _ := carry(t, ctx, Plan{Requests: 100, Concurrency: 1}, func(int64) time.Duration { return time.Second }); len(calls) != 2 {
			t.Errorf("%d calls after the context's end", len(calls))
		}
	})
}

// TestClosedLoopSpreadsItsBeginnings: over the time given, by the seed, and then each stream goes on by itself.
func TestClosedLoopSpreadsItsBeginnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Requests: 200, Concurrency: 100, Spread: time.Second, Seed: 5}
		calls, _ := carry(t, t.Context(), p, func(int64) time.Duration { return 10 * time.Second })
		for i, c := range calls[:100] {
			if c.start > time.Second || i > 0 && c.start < calls[i-1].start || calls[100+i].start != c.start+10*time.Second {
				t.Fatalf("request %d began at %v, the stream's next at %v", i, c.start, calls[100+i].start)
			}
		}
		if first, last := calls[0].start, calls[99].start; first > 200*time.Millisecond || last < 800*time.Millisecond {
			t.Errorf("the streams began from %v to %v", first, last)
		}
		if again, _ := carry(t, t.Context(), p, func(int64) time.Duration { return 10 * time.Second }); again[50].start != calls[50].start {
			t.Error("the same seed gave another time")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if calls, _ := carry(t, ctx, p, func(int64) time.Duration { return 0 }); len(calls) == 0 {
			t.Error("nothing began before the context's end")
		}
	})
}

// TestRunSleepsInRealTime: what the tests above do in fake time.
func TestRunSleepsInRealTime(t *testing.T) {
	var mu sync.Mutex
	var early int
	tally := Run(t.Context(), Plan{Rate: 1000, Requests: 100, Seed: 1}, func(_ context.Context, _ int64, due time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if time.Until(due) > 0 {
			early++
		}
	})
	if tally.Started != 100 || early > 0 {
		t.Errorf("%+v, %d too early", tally, early)
	}
}

func TestCheck(t *testing.T) {
	for _, p := range []Plan{{}, {Rate: -1, Requests: 1}, {Rate: math.NaN(), Requests: 1}, {Requests: 1}, {Concurrency: 1}, {Rate: 1}, {Concurrency: 1, Requests: -1}} {
		if p.Check() == nil {
			t.Errorf("%+v passed", p)
		}
	}
	if err := (&Plan{Rate: 1, Requests: 1}).Check(); err != nil {
		t.Error(err)
	}
}
