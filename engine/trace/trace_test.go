package trace

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"draftlab/engine/draft"
	"draftlab/engine/ledger"
)

// TestLanes puts requests that overlap on tracks of their own, and reuses those that are free.
func TestLanes(t *testing.T) {
	tr := New(0, 0, 0)
	for _, r := range [][2]int64{{30, 40}, {0, 10}, {5, 20}, {10, 30}, {12, 50}} {
		tr.Request(Request{ID: r[0], Submitted: r[0], Decoded: r[1]})
	}
	want := map[int64]int{0: 0, 5: 1, 10: 0, 12: 2, 30: 0}
	for i, lane := range tr.lanes() {
		if r := tr.requests[i]; lane != want[r.ID] {
			t.Errorf("the request of %d to %d lies on track %d, want %d", r.Submitted, r.Decoded, lane, want[r.ID])
		}
	}
}

// TestWindow cuts to the window what began before it, and leaves out what ended before.
func TestWindow(t *testing.T) {
	l := ledger.New(8, 0)
	tr := New(1000, 2, 1)
	cycle := func(step, from int64) bool {
		l.Begin(from)
		l.Enter(ledger.Decode, from+10)
		l.Work.Sequence(draft.Shape{}, 1, 5)
		l.Close(from + 100)
		more := tr.Cycle(step, l, nil)
		l.Commit()
		return more
	}
	if !cycle(1, 2000) { // before the first step that is wanted
		t.Fatal("complete before the first cycle")
	}
	tr.Request(Request{ID: 1, Submitted: 1500, Started: 1600, First: 1700, Decoded: 2050})
	tr.Request(Request{ID: 2, Submitted: 1500, Started: 1600, First: 2150, Decoded: 2190})
	if cycle(2, 2100) {
		t.Fatal("not complete after one cycle")
	}
	tr.Finish(2200)
	var out bytes.Buffer
	if err := tr.Write(&out, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		TraceEvents []struct {
			Name, Ph string
			TS, Dur  float64
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string][2]float64{}
	for _, e := range doc.TraceEvents {
		if e.Ph == "X" {
			got[e.Name] = [2]float64{e.TS, e.Dur}
		}
	}
	want := map[string][2]float64{
		"cycle": {0, .1}, "schedule": {0, .01}, "decode": {.05, .04}, "request 2": {0, .09}, "prefill": {0, .05},
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s at %v, want %v", name, got[name], w)
		}
	}
	if _, ok := got["request 1"]; ok {
		t.Error("a request that ended before the window is shown")
	}
	if _, ok := got["queue"]; ok {
		t.Error("a stage that ended before the window is shown")
	}
}
