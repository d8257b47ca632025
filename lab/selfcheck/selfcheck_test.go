package selfcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"draftlab/lab/client"
	"draftlab/lab/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var timing = Timing{First: 5 * time.Millisecond, Gap: 2 * time.Millisecond, Tokens: 5}

// mock starts a mock and collects what it tells.
func mock(t *testing.T) (*Mock, func() []Answer) {
	t.Helper()
	var mu sync.Mutex
	var told []Answer
	m, err := NewMock("127.0.0.1:0", timing, func(a Answer) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, a)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, func() []Answer {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
}

func TestTheMockKeepsItsTimes(t *testing.T) {
	m, told := mock(t)
	c := &client.Client{Base: m.URL, HTTP: client.NewHTTP(1, time.Minute)}
	defer c.HTTP.CloseIdleConnections()
	for i, api := range []client.API{client.Completion, client.Chat} {
		s := c.Do(t.Context(), time.Time{}, &client.Request{API: api, Prompt: "p" + string(api)})
		if s.Error != "" || s.OutputTokens != 5 || s.Text != " a a a a a" || s.Finish != "length" || s.PromptTokens != 1 {
			t.Fatalf("%+v", s)
		}
		a := told()
		if len(a) != i+1 || a[i].Prompt != "p"+string(api) || a[i].Tokens != 5 {
			t.Fatalf("told %+v", a)
		}
		// Nothing comes early, on either side of the wire: but for two clocks that are compared.
		truth, apart := a[i], int64(time.Millisecond)
		if truth.First < 5*time.Millisecond || truth.Last < 13*time.Millisecond || s.FirstNS < truth.First.Nanoseconds()-apart || s.LastNS < truth.Last.Nanoseconds()-apart {
			t.Errorf("sent at %d and %d, read at %d and %d", truth.First, truth.Last, s.FirstNS, s.LastNS)
		}
	}
	if s := c.Do(t.Context(), time.Time{}, &client.Request{API: client.Completion, MaxTokens: 2}); s.OutputTokens != 2 {
		t.Errorf("asked for two tokens: %+v", s)
	}
}

// TestTheMockAnswersOthers: what other load generators ask before and beside streams.
func TestTheMockAnswersOthers(t *testing.T) {
	m, told := mock(t)
	defer http.DefaultClient.CloseIdleConnections()
	ask := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, m.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/models", "", 200, `"id":"mock"`},
		{"GET", "/health", "", 200, "{}"},
		{"GET", "/metrics", "", 404, "{}"},
		{"POST", "/v1/completions", "[", 400, "error"},
		{"POST", "/v1/chat/completions", "{}", 400, "error"},
		{"POST", "/v1/completions", `{"prompt":"x","max_tokens":4611686018427387904}`, 400, "at most 1048576"},
		{"POST", "/v1/completions", `{"prompt":"x","max_tokens":3}`, 200, `"text":" a a a"`},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_completion_tokens":2}`, 200, `"content":" a a"`},
	} {
		status, text := ask(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(text, c.want) || !json.Valid([]byte(text)) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, text)
		}
	}
	if a := told(); len(a) != 2 || a[0].Tokens != 3 || a[0].First < 9*time.Millisecond {
		t.Errorf("%+v", a)
	}
}

// TestTheMockLeavesAClientThatIsGone: others get their answers.
func TestTheMockLeavesAClientThatIsGone(t *testing.T) {
	m, told := mock(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"prompt":"gone","stream":true}`
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
	c := &client.Client{Base: m.URL, HTTP: client.NewHTTP(1, time.Minute)}
	defer c.HTTP.CloseIdleConnections()
	if s := c.Do(t.Context(), time.Time{}, &client.Request{API: client.Completion, Prompt: "p"}); s.Error != "" {
		t.Error(s.Error)
	}
	if a := told(); len(a) == 0 || a[len(a)-1].Prompt != "p" {
		t.Errorf("%+v", a)
	}
}

func TestMeasure(t *testing.T) {
	for _, plan := range []load.Plan{{Rate: 100, Requests: 20, Seed: 1}, {Concurrency: 4, Requests: 20}} {
		r, err := measure(t.Context(), plan, timing)
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != 20 || r.Failed != 0 || r.Achieved <= 0 || r.TokS <= 0 || r.TTFTError.Median <= 0 || r.TTFTError.Median > r.TTFTError.P99 || r.MockError.Median <= 0 ||
			r.TTFTInjected.Median <= 0 || r.TPOTInjected.Median <= 0 || (r.Lag.Median > 0) != (plan.Rate > 0) {
			t.Errorf("%+v", r)
		}
	}
}

// TestTheClientReadsRightly: to the accuracy that is claimed, on a machine that does other things meanwhile, too, since the kernel notes
// when bytes come. (How late the mock is depends on the machine.) A program that has to wait for a processor right between looking at its clock
// and writing is charged with the wait, so that on a crowded machine each load has some tries.
func TestTheClientReadsRightly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux notes when bytes come")
	}
	const tries = 20
	for _, plan := range []load.Plan{{Rate: 400, Requests: 200, Seed: 1}, {Concurrency: 50, Requests: 100}} {
		for try := 1; ; try++ {
			r, err := measure(t.Context(), plan, timing)
			if err != nil {
				t.Fatal(err)
			}
			if r.Failed != 0 {
				t.Fatalf("%s: %+v", describe(plan), r)
			}
			if r.TTFTError.Median <= maxError && r.TPOTError.Median <= maxError {
				break
			}
			if try == tries {
				t.Fatalf("%s, the last of %d tries: %+v", describe(plan), tries, r)
			}
		}
	}
}

func TestHolds(t *testing.T) {
	good := Reading{Rate: 100, Achieved: 99}
	for name, spoil := range map[string]func(*Reading){
		"ttft": func(r *Reading) { r.TTFTError.Median = .3 }, "tpot": func(r *Reading) { r.TPOTError.Median = .3 },
		"mock's ttft": func(r *Reading) { r.TTFTInjected.Median = .3 }, "mock's tpot": func(r *Reading) { r.TPOTInjected.Median = .3 }, "lag": func(r *Reading) { r.Lag.Median = 2 },
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
	if r.TooMuch != 1e6 || r.Knee != 0 || len(r.Rungs) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "1e+06 requests/s") {
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
	if p := raised(load.Plan{Rate: 5, Requests: 1}, 7.4); p.Rate != 7 || p.Requests != 0 || p.Duration != rungTime {
		t.Errorf("%+v", p)
	}
	if p := raised(load.Plan{Concurrency: 5}, 10); p.Concurrency != 10 {
		t.Errorf("%+v", p)
	}
}

func TestExpected(t *testing.T) {
	for plan, want := range map[load.Plan]int{{Concurrency: 7}: 7, {Rate: 1000}: 1 + 13 + 14, {Rate: 1e6}: openAhead, {Rate: 1e6, Requests: 20}: 20} {
		if got := expected(plan, timing); got != want {
			t.Errorf("%+v: %d, want %d", plan, got, want)
		}
	}
}
