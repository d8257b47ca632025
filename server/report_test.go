package server

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"draftlab/engine"
	"draftlab/engine/ledger"
	"draftlab/internal/obs"
)

// TestReport checks the lines against the expressions with which tools read SGLang's log.
func TestReport(t *testing.T) {
	log := &logBuffer{}
	r := newReporter(obs.NewLogger(log, slog.LevelInfo), 40)
	now := time.Unix(0, 0)
	var st engine.Stats
	st.Blocks = 10
	r.reset(now, st)
	now = now.Add(time.Hour) // of rest, which counts for nothing
	r.resume(now)
	st.PromptTokens, st.CachedTokens, st.Running, st.Waiting, st.BlocksUsed = 100, 36, 2, 1, 5
	st.Time[ledger.Prefill] = 1e8                      // nanoseconds
	r.observe(now.Add(50*time.Millisecond), st, false) // the pass runs
	if log.String() != "" {
		t.Errorf("a line before the pass has ended: %s", log)
	}
	st.Steps = 1
	r.observe(now.Add(100*time.Millisecond), st, false)
	for range 40 {
		st.Draft.Record(3, 3, 1)
	}
	st.Steps, st.OutputTokens = 39, 78
	r.observe(now.Add(900*time.Millisecond), st, false)
	st.Steps, st.OutputTokens = 40, 80
	r.observe(now.Add(time.Second), st, false)
	st.Steps, st.OutputTokens, st.Running = 80, 120, 1
	r.observe(now.Add(2*time.Second), st, true)
	want := []string{
		"Prefill batch, #new-seq: 2, #new-token: 64, #cached-token: 36, token usage: 0.50, #running-req: 2, #queue-req: 1, cuda graph: False, input throughput (token/s): 640.00",
		"Decode batch, #running-req: 2, #token: 80, token usage: 0.50, accept len: 2.00, accept rate: 0.33, cuda graph: False, gen throughput (token/s): 80.00, #queue-req: 1",
		"Decode batch, #running-req: 1, #token: 80, token usage: 0.50, cuda graph: False, gen throughput (token/s): 40.00, #queue-req: 1",
	}
	line := regexp.MustCompile(`^(?:\(\S+ pid=\d+(?:, ip=[\d.]+)?\)\s*)?\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)((?: [A-Z]+\d+)*)\]\s+(Decode|Prefill) batch(?:\.| \[(\d+)\],|,)\s+(.*)$`)
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), log)
	}
	for i, l := range got {
		if m := line.FindStringSubmatch(l); m == nil || m[3]+" batch, "+m[5] != want[i] {
			t.Errorf("line %q; want %q", l, want[i])
		}
	}
	if r.throughput() != 40 || r.acceptLength() != 0 {
		t.Errorf("throughput %v, accept length %v", r.throughput(), r.acceptLength())
	}
}

// TestSamples checks the acceptance by position: cycles that accepted more than i drafts.
func TestSamples(t *testing.T) {
	var st engine.Stats
	for _, n := range []int{0, 1, 1, 3} {
		st.Draft.Record(3, 3, n)
	}
	got := map[string]float64{}
	for _, s := range samples(&st, newReporter(slog.New(slog.DiscardHandler), 0)) {
		if s.Metric == mAcceptedAt {
			got[s.Label] = s.Value
		}
	}
	if len(got) != 3 || got["0"] != 3 || got["1"] != 1 || got["2"] != 1 {
		t.Errorf("%v", got)
	}
}
