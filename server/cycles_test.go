package server

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/internal/obs"
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

// TestCycleMetrics compares /metrics with the ledger.
func TestCycleMetrics(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	oneCycle(f.ledger, 1<<20)
	body := call(s.Handler(), "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`sglang:forward_execution_seconds_total{category="target_verify",model_name="fake"} 1e-07`,
		`sglang:forward_execution_seconds_total{category="eagle_draft",model_name="fake"} 3.3e-08`,
		`draftlab:cycle_seconds_bucket{model_name="fake",phase="verify",le="8.192e-06"} 1`,
		`draftlab:cycle_seconds_sum{model_name="fake",phase="wall"} 1.7e-07`,
		`draftlab:cycle_seconds_count{model_name="fake",phase="decode"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

// TestCycleLog writes a line once enough cycles have come, with means since the last one.
func TestCycleLog(t *testing.T) {
	log := &logBuffer{}
	c := cycleLog{log: obs.NewLogger(log, slog.LevelInfo), every: 2}
	l := ledger.New(8, 0)
	for i := range int64(3) {
		oneCycle(l, i*1e6)
		totals := l.Totals()
		c.observe(&totals)
	}
	const want = "Cycle ledger, #cycle: 2, wall (ms): 0.500, draft: 0.000, verify: 0.000, accept: 0.000, draft_extend: 0.000, other: 0.500, accept len: 1.50\n"
	if got := log.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("%q, want one line %q", got, want)
	}
}
