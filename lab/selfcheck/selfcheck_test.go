package selfcheck

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"draftlab/lab/client"
	"draftlab/lab/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var timing = Timing{First: 5 * time.Millisecond, Gap: 2 * time.Millisecond, Tokens: 5}

func TestTheMockKeepsItsTimes(t *testing.T) {
	m, err := NewMock(timing)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := &client.Client{Base: m.URL, HTTP: client.NewHTTP(1, time.Second)}
	defer c.HTTP.CloseIdleConnections()
	s := c.Do(t.Context(), time.Now(), &client.Request{API: client.Completion, Prompt: "p"})
	truth, known := m.take("p")
	if s.Error != "" || !known || s.OutputTokens != 5 || len(s.Chunks) == 0 {
		t.Fatalf("%+v, known %v", s, known)
	}
	// Nothing comes early, on either side of the wire.
	if truth.first < 5e6 || truth.last < 13e6 || s.FirstNS < truth.first || s.LastNS < truth.last {
		t.Errorf("sent at %d and %d, read at %d and %d", truth.first, truth.last, s.FirstNS, s.LastNS)
	}
	if _, again := m.take("p"); again {
		t.Error("the mock does not forget")
	}
}

func TestMeasure(t *testing.T) {
	for _, plan := range []load.Plan{{Rate: 100, Requests: 20, Seed: 1}, {Concurrency: 4, Requests: 20}} {
		r, err := measure(t.Context(), plan, timing)
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != 20 || r.Failed != 0 || r.Achieved <= 0 || r.TokS <= 0 || r.TTFTError.Median <= 0 || r.TTFTError.Median > r.TTFTError.P99 || r.MockError.Median <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestHolds(t *testing.T) {
	good := Reading{Rate: 100, Achieved: 99}
	for name, spoil := range map[string]func(*Reading){
		"ttft": func(r *Reading) { r.TTFTError.Median = .3 }, "tpot": func(r *Reading) { r.TPOTError.Median = .3 }, "lag": func(r *Reading) { r.Lag.Median = 2 },
		"failed": func(r *Reading) { r.Failed = 1 }, "rate": func(r *Reading) { r.Achieved = 80 },
	} {
		bad := good
		spoil(&bad)
		if !good.Holds() || bad.Holds() {
			t.Errorf("%s: %v, %v", name, good.Holds(), bad.Holds())
		}
	}
}

func TestRunFindsWhereItEnds(t *testing.T) {
	var notes []string
	slow := Timing{First: 10 * time.Millisecond, Gap: 10 * time.Millisecond, Tokens: 2}
	// So many requests that hardly any machine stands it: the first load is the last.
	r, err := Run(t.Context(), load.Plan{Rate: 1e6, Requests: 2000, Seed: 1}, slow, func(s string) { notes = append(notes, s) })
	if err != nil {
		t.Fatal(err)
	}
	if !r.Reached || r.Knee != 0 || len(r.Rungs) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "1e+06 requests/s") {
		t.Errorf("%+v, notes %q", r, notes)
	}
	if _, err := Run(t.Context(), load.Plan{Concurrency: 1, Requests: 1}, Timing{Tokens: 1}, func(string) {}); err == nil {
		t.Error("one token has a time between tokens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, load.Plan{Concurrency: 1, Requests: 1}, timing, func(string) {}); err == nil {
		t.Error("went on after its context's end")
	}
	if p := doubled(load.Plan{Rate: 5, Requests: 1}); p.Rate != 10 || p.Requests != 0 || p.Duration != rungTime {
		t.Errorf("%+v", p)
	}
	if p := doubled(load.Plan{Concurrency: 5}); p.Concurrency != 10 {
		t.Errorf("%+v", p)
	}
}

func TestExpected(t *testing.T) {
	for plan, want := range map[load.Plan]int{{Concurrency: 7}: 7, {Rate: 1000}: 1 + 13 + 14, {Rate: 1e6}: maxConns, {Rate: 1e6, Requests: 20}: 20} {
		if got := expected(plan, timing); got != want {
			t.Errorf("%+v: %d, want %d", plan, got, want)
		}
	}
}
