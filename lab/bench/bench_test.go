package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/measure"
	"draftlab/lab/probe"
	"draftlab/lab/prompts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// well is a complete answer of three tokens in two chunks.
const well = "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n" +
	"data: {\"choices\":[{\"text\":\"bc\",\"token_ids\":[2,3]}]}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"

// backend is a server that answers by a function and remembers the bodies.
type backend struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []map[string]any
	header http.Header // of the last request
}

func serve(t *testing.T, answer func(w http.ResponseWriter, prompt string, n int64)) *backend {
	t.Helper()
	b := &backend{}
	var n atomic.Int64
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/flush_cache" {
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != "/v1/completions" {
			w.WriteHeader(404)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		b.bodies, b.header = append(b.bodies, body), r.Header
		b.mu.Unlock()
		answer(w, body["prompt"].(string), n.Add(1)-1)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) config(plan load.Plan) *Config {
	return &Config{
		Server: &probe.Server{Base: b.URL, HTTP: b.Client(), Kind: probe.SGLang, Model: "m", Version: "7"}, API: client.Completion,
		Prompts: prompts.Set{{ID: "x", Category: "chat", Text: "one"}, {ID: "y", Text: "two"}}, Plan: plan, MaxTokens: 8, Stall: time.Minute,
	}
}

func TestRun(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ string, _ int64) { _, _ = io.WriteString(w, well) })
	cfg := b.config(load.Plan{Concurrency: 2, Requests: 5})
	cfg.Server.Header, cfg.Server.Info = http.Header{"X-Who": {"me"}}, map[string]any{"steps": 3}
	var raw bytes.Buffer
	cfg.Raw, cfg.IgnoreEOS, cfg.Extra = &raw, true, map[string]any{"temperature": .5, "speculative": map[string]any{"steps": 0}}
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.Completed != 5 || s.Failed != 0 || s.Output != 15 || s.Input != 20 || s.Backend != "sglang" || s.ServerVersion != "7" || s.Warmup.Requests != 0 {
		t.Errorf("%+v", s)
	}
	if b.header.Get("X-Who") != "me" || s.ServerInfo["steps"] != 3 {
		t.Errorf("header %v, server %v", b.header, s.ServerInfo)
	}
	var got []string
	for line := range strings.Lines(raw.String()) {
		var r measure.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Text != "abc" || len(r.Chunks) != 2 {
			t.Errorf("%s", line)
		}
		got = append(got, fmt.Sprintf("%d %s%d %s", r.N, r.PromptID, r.Round, r.Category))
	}
	slices.Sort(got)
	if want := []string{"0 x0 chat", "1 y0 ", "2 x1 chat", "3 y1 ", "4 x2 chat"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var sent []string
	for _, body := range b.bodies {
		sent = append(sent, body["prompt"].(string))
		if body["temperature"] != .5 || body["ignore_eos"] != true || body["speculative"] == nil || body["model"] != "m" || body["max_tokens"] != 8.0 {
			t.Errorf("%v", body)
		}
	}
	slices.Sort(sent)
	if want := []string{"(1) one", "(1) two", "(2) one", "one", "two"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

// TestDoubts: what the setting does to the figures is said where drafts were counted, and where none were, whether that is known.
func TestDoubts(t *testing.T) {
	drafted := strings.Replace(well, `"usage"`, `"timings":{"predicted_n":3,"draft_n":4,"draft_n_accepted":1},"usage"`, 1)
	for name, c := range map[string]struct {
		answer string
		change func(*Config)
		word   string
		want   []string
	}{
		"drafts":             {drafted, func(c *Config) {}, "", nil},
		"behind the end":     {drafted, func(c *Config) { c.IgnoreEOS = true }, "", []string{"the end of the text was ignored"}},
		"without a template": {drafted, func(c *Config) { c.Turns = true }, "", []string{"without the model's chat template"}},
		"none":               {well, func(c *Config) { c.IgnoreEOS, c.Turns = true, true }, "none seen", nil},
		"SGLang, mute":       {well, func(c *Config) { c.Server.Info = map[string]any{"speculative_algorithm": "EAGLE3"} }, "not told", []string{"the server speculates (EAGLE3) and tells nothing"}},
		"first tokens":       {strings.Replace(well, `"completion_tokens":3`, `"completion_tokens":1`, 1), func(c *Config) { c.Server.Info = map[string]any{"speculative_algorithm": "EAGLE3"} }, "", nil},
		"SGLang, plain":      {well, func(c *Config) { c.Server.Info = map[string]any{"speculative_algorithm": nil} }, "none seen", nil},
		"nobody knows":       {well, func(c *Config) { c.Server.Kind, c.Repeat = probe.OpenAI, true }, "not told", nil},
	} {
		b := serve(t, func(w http.ResponseWriter, _ string, _ int64) { _, _ = io.WriteString(w, c.answer) })
		cfg := b.config(load.Plan{Concurrency: 1, Requests: 2})
		c.change(cfg)
		s, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s.Speculation != c.word || len(s.Warnings) != len(c.want) || len(c.want) > 0 && !strings.Contains(s.Warnings[0], c.want[0]) {
			t.Errorf("%s: %q, %q", name, s.Speculation, s.Warnings)
		}
	}
}

// TestACacheThatIsNotEmptied: the prompts of a run are no other run's, unless asked.
func TestACacheThatIsNotEmptied(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ string, _ int64) { _, _ = io.WriteString(w, well) })
	cfg := b.config(load.Plan{Concurrency: 1, Requests: 3})
	cfg.Server.Kind = probe.OpenAI
	var raw bytes.Buffer
	cfg.Raw = &raw
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var r measure.Record
	if err := json.Unmarshal(raw.Bytes()[:bytes.IndexByte(raw.Bytes(), '\n')], &r); err != nil {
		t.Fatal(err)
	}
	first, third := fmt.Sprintf("(%d) one", r.Mark), fmt.Sprintf("(%d) one", r.Mark+1)
	if b.bodies[0]["prompt"] != first || b.bodies[2]["prompt"] != third || r.Mark < 1e9 || !strings.Contains(strings.Join(s.Warnings, "\n"), "did not empty its prefix cache") {
		t.Errorf("sent %v and %v, mark %d, warnings %q", b.bodies[0], b.bodies[2], r.Mark, s.Warnings)
	}
	cfg.Repeat = true
	if s, err = Run(t.Context(), cfg); err != nil || b.bodies[3]["prompt"] != "one" || len(s.Warnings) != 0 {
		t.Errorf("sent %v, warnings %q, %v", b.bodies[3], s.Warnings, err)
	}
}

// TestRequestsOfEachServer: what one server's requests carry and another's do not.
func TestRequestsOfEachServer(t *testing.T) {
	for kind, want := range map[probe.Kind]string{
		probe.Draftlab: "map[return_meta_info:true return_token_ids:true]", probe.VLLM: "map[return_token_ids:true]",
		probe.LlamaCPP: "map[cache_prompt:false]", probe.OpenAI: "map[]", probe.SGLang: "map[return_spec_tokens_details:true]",
	} {
		b := &bench{cfg: &Config{Server: &probe.Server{Kind: kind}, API: client.Chat}}
		if got := fmt.Sprint(b.request("x").Outer); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// TestVLLMCountsWhatItCached: its answers do not tell, its counter does, from which what was before the run is taken off.
func TestVLLMCountsWhatItCached(t *testing.T) {
	var cached atomic.Int64
	cached.Store(1000)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = fmt.Fprintf(w, "vllm:prefix_cache_hits_total %d\n", cached.Load())
		case "/v1/completions":
			cached.Add(3)
			_, _ = io.WriteString(w, well)
		}
	}))
	t.Cleanup(h.Close)
	cfg := (&backend{Server: h}).config(load.Plan{Concurrency: 1, Requests: 5})
	cfg.Server.Kind, cfg.Warmups = probe.VLLM, 2
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.Cached != 15 || !strings.Contains(strings.Join(s.Warnings, "\n"), "15 of 20 prompt tokens") {
		t.Errorf("%d cached, warnings %q", s.Cached, s.Warnings)
	}
}

// TestHostileServersAreSurvived: each kind of failure is counted under its name, and the other requests are measured as if nothing
// had been.
func TestHostileServersAreSurvived(t *testing.T) {
	release := make(chan struct{})
	b := serve(t, func(w http.ResponseWriter, _ string, n int64) {
		switch n % 7 {
		case 0:
			w.WriteHeader(429)
		case 1:
			w.WriteHeader(500)
		case 2:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
			w.(http.Flusher).Flush()
			<-release
		case 3:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 4:
			_, _ = io.WriteString(w, "data: {\"choices\": hello\n\n")
		default:
			_, _ = io.WriteString(w, well)
		}
	})
	defer close(release)
	for stall := 500 * time.Millisecond; ; stall *= 4 {
		cfg := b.config(load.Plan{Rate: 500, Requests: 70, Seed: 1})
		cfg.Stall = stall
		s, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s.Failures[client.Stalled] > 10 && stall < 10*time.Second {
			continue // a busy machine is silent for so long as well
		}
		for _, f := range []client.Failure{client.Limited, client.ServerFault, client.Stalled, client.Cut, client.Broken} {
			if s.Failures[f] != 10 {
				t.Errorf("%s: %d", f, s.Failures[f])
			}
		}
		if s.Completed != 20 || s.Failed != 50 || s.Output != 60 || len(s.Warnings) < 5 || !strings.Contains(s.Warnings[0], "10 requests failed: ") {
			t.Errorf("%d complete, %d failed, warnings %q", s.Completed, s.Failed, s.Warnings)
		}
		return
	}
}

// TestLateStartsAreSaid: one place, and a server that is slower than the requests come.
func TestLateStartsAreSaid(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ string, _ int64) {
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, well)
	})
	s, err := Run(t.Context(), b.config(load.Plan{Rate: 200, Requests: 10, Concurrency: 1, Seed: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Tally.Late < 5 || !strings.Contains(strings.Join(s.Warnings, "\n"), "starts were more than 1ms late") {
		t.Errorf("%+v, warnings %q", s.Tally, s.Warnings)
	}
	if s, err = Run(t.Context(), b.config(load.Plan{Requests: 5, Concurrency: 1})); err != nil || s.Tally.Late != 0 || len(s.Warnings) != 0 {
		t.Errorf("a closed loop: %+v, warnings %q, %v", s.Tally, s.Warnings, err)
	}
}

// TestAServerThatDies: what was measured until then is the result, and the run ends soon.
func TestAServerThatDies(t *testing.T) {
	var b *backend
	var once sync.Once
	b = serve(t, func(w http.ResponseWriter, _ string, n int64) {
		if n >= 6 {
			once.Do(func() { go b.Listener.Close() })
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, well)
	})
	s, err := Run(t.Context(), b.config(load.Plan{Concurrency: 2, Duration: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Completed != 6 || s.Failures[client.Unreachable] < giveUpAfter || !strings.Contains(s.Warnings[len(s.Warnings)-1], "has gone") {
		t.Errorf("%d complete, %v, %q", s.Completed, s.Failures, s.Warnings)
	}
}

func TestWarmUp(t *testing.T) {
	// The first answers are slow, as a cold server's.
	b := serve(t, func(w http.ResponseWriter, _ string, n int64) {
		time.Sleep(time.Duration(40/(1+n/leastWindow*100))*time.Millisecond + 20*time.Millisecond)
		_, _ = io.WriteString(w, well)
	})
	cfg := b.config(load.Plan{Concurrency: 1, Requests: 1})
	cfg.Warmups = -1
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Warmup; w.Requests < 3*leastWindow || w.Elapsed < 160*time.Millisecond {
		t.Errorf("%+v", w)
	}
	for try := 0; !s.Warmup.Settled; try++ { // a busy machine may have no two windows alike
		if try == 20 {
			t.Fatalf("%+v", s.Warmup)
		}
		if s, err = Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Warmups = 3
	if s, err = Run(t.Context(), cfg); err != nil || s.Warmup.Requests != 3 || s.Warmup.Settled {
		t.Errorf("%+v, %v", s, err)
	}
	if s.Completed != 1 || s.Tally.Started != 1 {
		t.Errorf("warm-up was counted: %+v", s)
	}
}

func TestRunIsInterrupted(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{})
	b := serve(t, func(w http.ResponseWriter, _ string, n int64) {
		if n < 3 {
			_, _ = io.WriteString(w, well)
			return
		}
		close(asked)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-asked
		cancel()
	}()
	s, err := Run(ctx, b.config(load.Plan{Concurrency: 1, Requests: 100}))
	if !errors.Is(err, context.Canceled) || s == nil || s.Completed != 3 || s.Failed != 0 || !strings.Contains(s.Warnings[0], "interrupted") {
		t.Errorf("%+v, %v", s, err)
	}
}

// full is a disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAFileThatCannotBeWrittenEndsTheRun(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ string, _ int64) { _, _ = io.WriteString(w, well) })
	cfg := b.config(load.Plan{Concurrency: 1, Duration: time.Hour})
	cfg.Raw = full{}
	if _, err := Run(t.Context(), cfg); err == nil || err.Error() != "no space left" {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, _ string, _ int64) {
		time.Sleep(5 * time.Millisecond)
		_, _ = io.WriteString(w, well)
	})
	cfg := b.config(load.Plan{Concurrency: 1, Requests: 400})
	var states []State
	cfg.Progress = func(s State) { states = append(states, s) }
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(states) == 0 {
		t.Fatal("nothing was said in two seconds")
	}
	if last := states[len(states)-1]; last.Ended < 1 || last.Ended > s.Completed || last.Output != 3*last.Ended {
		t.Errorf("%+v of %d", states, s.Completed)
	}
}
