package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/ledger"
)

// books follows an engine's ledger while it runs, as a client of /debug/cycles does.
type books struct {
	l    *ledger.Ledger
	all  []ledger.Record
	stop chan struct{}
	done sync.WaitGroup
}

func follow(l *ledger.Ledger) *books {
	b := &books{l: l, stop: make(chan struct{})}
	b.done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			b.read()
			select {
			case <-tick.C:
			case <-b.stop:
				return
			}
		}
	})
	return b
}

func (b *books) read() { b.all = append(b.all, b.l.Read(int64(len(b.all)), ledger.Size)...) }

// close reads what is left and returns all records.
func (b *books) close() []ledger.Record {
	close(b.stop)
	b.done.Wait()
	b.read()
	return b.all
}

// balance checks invariant 3 over all records of a ledger.
func balance(t *testing.T, l *ledger.Ledger, all []ledger.Record) (sums ledger.Totals) {
	t.Helper()
	next := all[0].Start
	for i := range all {
		r := &all[i]
		if r.Seq != int64(i+1) || r.Start != next || r.Wall < 0 {
			t.Fatalf("record %d: number %d, from %d on for %d; the one before ended at %d", i+1, r.Seq, r.Start, r.Wall, next)
		}
		next = r.Start + r.Wall
		sums.Wall += r.Wall
		if r.Kind == ledger.Idle {
			sums.Idle += r.Wall
			continue
		}
		if got := r.Phase.Sum(); r.Kind != ledger.Cycle || got != r.Wall {
			t.Fatalf("record %d: kind %v, phases %v of sum %d, wall %d", r.Seq, r.Kind, r.Phase, got, r.Wall)
		}
		sums.Cycles++
		sums.Phase.Add(&r.Phase)
		sums.Emitted += int64(r.Emitted)
		sums.Drafting += int64(r.Drafting)
	}
	if got := l.Totals(); got.Wall != sums.Wall || got.Idle != sums.Idle || got.Phase != sums.Phase || got.Cycles != sums.Cycles ||
		got.Emitted != sums.Emitted || got.Drafting != sums.Drafting {
		t.Fatalf("totals %+v, of the records %+v", got, sums)
	}
	if sums.Wall != sums.Idle+sums.Phase.Sum() {
		t.Fatalf("wall %d, idle %d, phases %d", sums.Wall, sums.Idle, sums.Phase.Sum())
	}
	return sums
}

// TestLedgerBalances runs a mixed load, prompts in chunks and batches, preemption, cancellation and rests, and checks
// invariant 3 over every cycle, and the counters of the engine and of each request against it.
func TestLedgerBalances(t *testing.T) {
	rounds, wantCycles := 60, int64(3000)
	if testing.Short() {
		rounds, wantCycles = 6, 200
	}
	if !kernel.Best().Amortises { // the oracle's kernels take some hundred times as long
		rounds, wantCycles = 1, 10
	}
	e := open(t, Options{Context: 400, MaxRunning: 6, MaxWaiting: 64, Blocks: 28, Drafter: RandomDrafter, Limit: specLimit})
	b := follow(e.Ledger())
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { _ = e.Run(ctx) })
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range rounds {
		reqs := cases(14, uint64(round))
		reqs[0].Prompt = prompt(300) // more than one chunk
		var wg sync.WaitGroup
		for i, r := range reqs {
			spec := specs[rng.IntN(len(specs))]
			r.Spec = &spec
			leave := rng.IntN(8) == 0
			wg.Go(func() {
				_, err := e.Generate(ctx, r, func(Token) error {
					if leave {
						return context.Canceled
					}
					return nil
				})
				if err != nil && !leave {
					t.Errorf("round %d, request %d: %v", round, i, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Millisecond) // a rest
	}
	cancel()
	loop.Wait()
	sums := balance(t, e.Ledger(), b.close())
	st := e.Stats()
	if st.Steps != sums.Cycles || st.Draft.Cycles != sums.Drafting || st.Time != sums.Phase {
		t.Errorf("%d steps and %d cycles that draft; the ledger has %d and %d", st.Steps, st.Draft.Cycles, sums.Cycles, sums.Drafting)
	}
	if sums.Cycles < wantCycles || sums.Idle == 0 || st.Preemptions == 0 && rounds > 1 || st.Cancelled == 0 && rounds > 1 {
		t.Errorf("%d cycles, %d ns idle, %d preemptions, %d cancelled: the load is not what the test is for", sums.Cycles, sums.Idle, st.Preemptions, st.Cancelled)
	}
	for p, d := range sums.Phase {
		if d == 0 {
			t.Errorf("nothing of %v", ledger.Phase(p))
		}
	}
	t.Logf("%d cycles, %d ms, %d preemptions, %d cancelled: %v", sums.Cycles, sums.Wall/1e6, st.Preemptions, st.Cancelled, sums.Phase)
}

// TestRequestPhases checks a request that ran alone: its sums are the ledger's, but for what belongs to no pass, and the time in which nobody ran
// steps is idle.
func TestRequestPhases(t *testing.T) {
	e := open(t, Options{Context: 400, Drafter: RandomDrafter, Spec: specs[3]})
	res := generate(t, e, Request{Prompt: prompt(300), MaxTokens: 30})
	got := e.Ledger().Totals()
	want := got.Phase
	want[ledger.Schedule], want[ledger.Bookkeeping] = 0, 0
	want[ledger.Stream] = res.Phases[ledger.Stream] // between steps the caller's callback is in it
	if res.Phases != want || res.Phases[ledger.Verify] == 0 || res.Phases[ledger.Prefill] == 0 || res.Phases[ledger.Stream] > got.Phase[ledger.Stream] {
		t.Errorf("the request's %v, the ledger's %v", res.Phases, got.Phase)
	}
	records := e.Ledger().Read(0, ledger.Size)
	if i := slices.IndexFunc(records, func(r ledger.Record) bool { return r.PrefillRows == 300-prefillRows }); i < 1 || records[i-1].PrefillRows != prefillRows {
		t.Errorf("no prompt of 300 rows in two chunks in %d records", len(records))
	}
	time.Sleep(20 * time.Millisecond)
	generate(t, e, Request{Prompt: prompt(3), MaxTokens: 1})
	if d := e.Ledger().Totals().Idle - got.Idle; d < 2e7 {
		t.Errorf("a rest of 20 ms is %d ns of idle time", d)
	}
}

// TestLedgerOff switches the ledger off and on again: outputs do not change, and the time in between has a record of its own.
func TestLedgerOff(t *testing.T) {
	e := open(t, Options{Context: 200, Drafter: RandomDrafter, Spec: specs[3]})
	req := Request{Prompt: prompt(20), MaxTokens: 30, NoCache: true}
	first := generate(t, e, req)
	want := first.IDs()
	e.Ledger().Switch(false)
	before := e.Ledger().Totals().Cycles
	if second := generate(t, e, req); !slices.Equal(second.IDs(), want) {
		t.Errorf("with the ledger off: %v, want %v", second.IDs(), want)
	}
	if n := e.Ledger().Totals().Cycles - before; n != 0 {
		t.Errorf("%d cycles were recorded", n)
	}
	e.Ledger().Switch(true)
	generate(t, e, req)
	records := e.Ledger().Read(0, ledger.Size)
	offs := 0
	for i, r := range records {
		if i > 0 && r.Start != records[i-1].Start+records[i-1].Wall {
			t.Errorf("a gap before record %d", r.Seq)
		}
		if r.Kind == ledger.Off {
			offs++
		}
	}
	if offs != 1 {
		t.Errorf("%d records of an absent ledger", offs)
	}
}
