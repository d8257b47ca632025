package server

import (
	"encoding/json"
	"testing"

	"draftlab/engine/draft"
	"draftlab/engine/ledger"
)

// oneCycle writes a rest and a verify cycle of two sequences that draft.
func oneCycle(l *ledger.Ledger, from int64) {
	l.Begin(from + 10)
	l.Enter(ledger.Verify, from+15)
	l.Enter(ledger.Accept, from+115)
	l.Enter(ledger.DraftExtend, from+120)
	l.Enter(ledger.Draft, from+140)
	l.EnterPass(0, from+141)
	l.Enter(ledger.Draft, from+171)
	l.Enter(ledger.Bookkeeping, from+173)
	for i := range 2 {
		l.Work.Sequence(draft.Chain(2), 3, 40)
		l.Work.Accept(i+1, true, 2, i)
	}
	l.Close(from + 180)
	l.Commit()
}

func TestCycles(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	oneCycle(f.ledger, 0)
	oneCycle(f.ledger, 200)
	w := call(s.Handler(), "GET", "/debug/cycles?since=1&limit=1", "")
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var doc struct {
		Phases []string
		Totals struct {
			Seq            int64            `json:"seq"`
			Wall           int64            `json:"wall_ns"`
			Idle           int64            `json:"idle_ns"`
			Verify         int64            `json:"verify_cycles"`
			Phase          map[string]int64 `json:"phase_ns"`
			Other          map[string]int64 `json:"other_ns"`
			Emitted        int64            `json:"emitted"`
			SequenceCycles int64            `json:"sequence_cycles"`
			Histogram      []int64          `json:"accept_histogram"`
			ByShape        []map[string]any `json:"by_shape"`
		}
		Percentiles map[string]map[string]int64
		Cycles      []map[string]any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	d := &doc.Totals
	sum := d.Idle
	for _, name := range doc.Phases {
		sum += d.Phase[name]
	}
	// The second cycle begins where the first ended: the 30 ns up to its Begin are Stream's.
	if d.Seq != 3 || d.Wall != 380 || sum != 380 || d.Idle != 10 || d.Phase["verify"] != 200 || d.Verify != 2 || d.Other["stream"] != 30 || d.Other["bookkeeping"] != 14 {
		t.Errorf("totals %+v", *d)
	}
	if d.Emitted != 6 || d.SequenceCycles != 4 || len(d.Histogram) != 2 || d.Histogram[1] != 2 || len(d.ByShape) != 1 || d.ByShape[0]["rows"] != 12.0 {
		t.Errorf("totals %+v", *d)
	}
	if p := doc.Percentiles["verify"]["p50"]; p < 99 || p > 101 {
		t.Errorf("the median of verify is %d", p)
	}
	if len(doc.Cycles) != 1 || doc.Cycles[0]["seq"] != 2.0 || doc.Cycles[0]["kind"] != "cycle" || doc.Cycles[0]["steps"] != 2.0 ||
		doc.Cycles[0]["draft_step_ns"].([]any)[0] != 30.0 {
		t.Errorf("records %v", doc.Cycles)
	}
}

func TestCyclesRefuses(t *testing.T) {
	s, _ := started(t, newFake(t), Config{})
	for _, q := range []string{"limit=-1", "limit=a", "since=1&since=2", "limit=9999999", "depth=3"} {
		if w := call(s.Handler(), "GET", "/debug/cycles?"+q, ""); w.Code != 400 {
			t.Errorf("%s: %d %s", q, w.Code, w.Body)
		}
	}
	if w := call(New(Config{}).Handler(), "GET", "/debug/cycles", ""); w.Code != 503 {
		t.Errorf("while loading: %d", w.Code)
	}
}
