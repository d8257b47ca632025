package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeLedger is a draftlab server's /debug/cycles over a list of records.
type fakeLedger struct {
	records []map[string]any
	kept    int // records that are still there
	doc     map[string]any
}

// add adds n cycles of a shape.
func (f *fakeLedger) add(n, steps int, phases map[string]int64, accepted int64) {
	t := f.doc["totals"].(map[string]any)
	var wall int64
	for name, ns := range phases {
		wall += ns
		t["phase_ns"].(map[string]int64)[name] += ns * int64(n)
	}
	key := map[string]any{"steps": steps, "topk": 1, "draft_tokens": steps + 1, "batch": 1}
	shape := map[string]any{"steps": steps, "topk": 1, "draft_tokens": steps + 1, "batch": 1, "cycles": n, "wall_ns": wall * int64(n), "phase_ns": map[string]int64{}}
	for name, ns := range phases {
		shape["phase_ns"].(map[string]int64)[name] = ns * int64(n)
	}
	if steps > 0 {
		shape["sequence_cycles"], shape["accepted"] = n, accepted*int64(n)
		t["sequence_cycles"] = t["sequence_cycles"].(int) + n
		t["accepted"] = t["accepted"].(int64) + accepted*int64(n)
		t["accept_histogram"].([]int64)[accepted] += int64(n)
	}
	t["by_shape"] = append(t["by_shape"].([]any), shape)
	t["cycles"] = t["cycles"].(int) + n
	t["wall_ns"] = t["wall_ns"].(int64) + wall*int64(n)
	t["emitted"] = t["emitted"].(int64) + (1+accepted)*int64(n)
	for range n {
		r := map[string]any{"seq": len(f.records) + 1, "kind": "cycle", "wall_ns": wall, "phase_ns": phases}
		for k, v := range key {
			r[k] = v
		}
		f.records = append(f.records, r)
	}
	t["seq"] = len(f.records)
}

func newFakeLedger() *fakeLedger {
	return &fakeLedger{kept: 1 << 30, doc: map[string]any{
		"phases": []string{"prefill", "prefill.draft", "decode", "draft", "verify", "accept", "draft_extend", "other"},
		"totals": map[string]any{"seq": 0, "cycles": 0, "wall_ns": int64(0), "idle_ns": 0, "emitted": int64(0), "accepted": int64(0), "sequence_cycles": 0,
			"phase_ns": map[string]int64{}, "other_ns": map[string]int64{"stream": 5}, "accept_histogram": make([]int64, 8), "by_shape": []any{}},
		"percentiles": map[string]any{"verify": map[string]int64{"p50": 7e6, "p90": 8e6, "p99": 9e6}},
	}}
}

// ServeHTTP answers as the contract of /debug/cycles says.
func (f *fakeLedger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/debug/cycles" {
		http.NotFound(w, r)
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	cycles := f.records[max(0, len(f.records)-f.kept):]
	if since := r.URL.Query().Get("since"); since != "" {
		after, _ := strconv.Atoi(since)
		for len(cycles) > 0 && cycles[0]["seq"].(int) <= after {
			cycles = cycles[1:]
		}
		cycles = cycles[:min(limit, len(cycles))]
	} else {
		cycles = cycles[max(0, len(cycles)-limit):]
	}
	f.doc["cycles"] = cycles
	_ = json.NewEncoder(w).Encode(f.doc)
}

func serve(t *testing.T, h http.Handler) Options {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Options{URL: s.URL + "/", HTTP: s.Client()}
}

func mustAttach(t *testing.T, o Options) Source {
	t.Helper()
	src, err := Attach(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func poll(t *testing.T, src Source, at float64) {
	t.Helper()
	if err := src.Poll(context.Background(), time.Unix(0, int64(at*1e9))); err != nil {
		t.Fatal(err)
	}
}

var (
	drafting = map[string]int64{"draft": 1e6, "verify": 5e6, "draft_extend": 5e5, "other": 5e5}
	decoding = map[string]int64{"decode": 4e6, "other": 1e6}
)

// TestLedger watches a server that had a life before: sums are of the cycles watched, the plain step may come from before.
func TestLedger(t *testing.T) {
	f := newFakeLedger()
	f.add(50, 0, decoding, 0)
	src := mustAttach(t, serve(t, f))
	poll(t, src, 0)
	f.add(2500, 3, drafting, 2)
	f.add(20, 1, map[string]int64{"verify": 4e6, "draft_extend": 5e5, "other": 5e5}, 1)
	poll(t, src, 20)
	r := src.Report()
	if r.Engine != "draftlab" || *r.Cycles != 2520 || src.Progress() != 2520 || *r.SeqCycles != 2520 || r.Seconds != 20 || *r.Shape != (Shape{3, 1, 4}) || r.Basis != "medians of the cycles watched" {
		t.Errorf("%+v", r)
	}
	if got, want := *r.AcceptLength, 1+(2500*2+20.)/2520; got != want {
		t.Errorf("accept length %v, want %v", got, want)
	}
	var share float64
	for _, p := range r.Phases {
		share += p.Share
		if p.Name == "verify" && (*p.P50Ms != 5 || *p.P99Ms != 5 || p.TotalMs != 2500*5+20*4) {
			t.Errorf("%+v", p)
		}
	}
	if !near(share, 1, 1e-9) || r.Phases[0].Name != "draft" || *r.Cycle.P50Ms != 7 {
		t.Errorf("shares add up to %v; %+v", share, r.Cycle)
	}
	if *r.PlainStepMs != 5 || line(t, r.WhatIf, "break-even").Numbers["accept_length"] != 7./5 {
		t.Errorf("%v %+v", *r.PlainStepMs, r.WhatIf)
	}
	// Two shapes at one batch size: (5 − 4) ms over 4 − 2 rows. The histogram is all but that of the commonest shape.
	if fewer := line(t, r.WhatIf, "one fewer"); fewer.Missing != "" || fewer.Numbers["row_ms_low"] != .5 || fewer.Numbers["draft_pass_ms"] != .5 || !strings.Contains(fewer.Text, "as measured by position") {
		t.Errorf("%+v", fewer)
	}
}

func TestLedgerSinceStart(t *testing.T) {
	f := newFakeLedger()
	f.add(50, 3, drafting, 2)
	o := serve(t, f)
	o.SinceStart, o.PlainTokS = true, 200
	src := mustAttach(t, o)
	poll(t, src, 0)
	r := src.Report()
	if *r.Cycles != 50 || *r.PlainStepMs != 5 || r.Basis != "means since the server's start" {
		t.Errorf("%+v", r)
	}
	for _, p := range r.Phases {
		if p.Name == "verify" && (*p.P50Ms != 7 || *p.MeanMs != 5) {
			t.Errorf("percentiles are not the server's: %+v", p)
		}
	}
}

func TestLedgerLosesRecords(t *testing.T) {
	f := newFakeLedger()
	src := mustAttach(t, serve(t, f))
	poll(t, src, 0)
	if r := src.Report(); *r.Cycles != 0 || r.Cycle != nil || len(r.Missing) != 1 {
		t.Errorf("an idle server: %+v", r)
	}
	f.add(100, 3, drafting, 2)
	f.kept = 40
	poll(t, src, 1)
	r := src.Report()
	if *r.Cycles != 100 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "60 records were overwritten") {
		t.Errorf("%+v", r)
	}
	if len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "a plain step's time at batch size 1") {
		t.Errorf("%q", r.Missing)
	}
	*f = *newFakeLedger()
	if err := src.Poll(context.Background(), time.Unix(2, 0)); err == nil || !strings.Contains(err.Error(), "started anew") {
		t.Errorf("after a restart: %v", err)
	}
}

// metrics serves a text that changes at each request, and SGLang's settings.
func metrics(texts ...string) http.Handler {
	i := -1 // Attach asks once, too
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, texts[max(0, min(i, len(texts)-1))])
		i++
	})
	mux.HandleFunc("/server_info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"speculative_num_steps":5,"speculative_eagle_topk":1,"speculative_num_draft_tokens":6}`)
	})
	return mux
}

// TestSGLang has a minute of the campaign's figures: 1996 cycles of 30.05 ms.
func TestSGLang(t *testing.T) {
	text := func(verify, draft, extend float64, calls, tokens int) string {
		return fmt.Sprintf(`sglang:num_running_reqs{tp_rank="0"} 1
sglang:gen_throughput{tp_rank="0"} 71.3
sglang:spec_accept_length{tp_rank="0"} 2.1426
sglang:generation_tokens_total 5
sglang:realtime_tokens_total{mode="decode"} %d
sglang:realtime_tokens_total{mode="prefill_compute"} 7
sglang:spec_verify_calls_total %d
sglang:forward_execution_seconds_total{category="target_verify",tp_rank="0"} %g
sglang:forward_execution_seconds_total{category="target_verify",tp_rank="1"} %g
sglang:forward_execution_seconds_total{category="eagle_draft",tp_rank="0"} %g
sglang:forward_execution_seconds_total{category="eagle_draft_extend",tp_rank="0"} %g
`, tokens, calls, verify, verify-.5, draft, extend)
	}
	o := serve(t, metrics(text(100, 10, 5, 50, 100), text(157.3, 11.8, 5.6, 2046, 4378)))
	o.PlainTokS = 88.8
	src := mustAttach(t, o)
	poll(t, src, 0)
	poll(t, src, 60)
	r := src.Report()
	if r.Engine != "sglang" || *r.Shape != (Shape{5, 1, 6}) || *r.SeqCycles != 1996 || *r.BusySeconds != 60 || !near(*r.TokS, 4278/60., 1e-9) || !near(*r.Cycle.MeanMs, 30.05, .01) {
		t.Errorf("%+v", r)
	}
	names := ""
	for _, p := range r.Phases {
		names += p.Name + " "
	}
	if names != "draft verify draft_extend other " || !near(r.Phases[1].Share, .955, 1e-9) || !near(*r.Phases[1].MeanMs, 28.7, .01) {
		t.Errorf("%s: %+v", names, r.Phases)
	}
	if even := line(t, r.WhatIf, "break-even"); !near(even.Numbers["accept_length"], 2.669, .001) {
		t.Errorf("%+v", even)
	}
}

func TestSGLangWithoutTimers(t *testing.T) {
	src := mustAttach(t, serve(t, metrics("sglang:num_running_reqs 0\nsglang:spec_accept_length 0\n")))
	poll(t, src, 0)
	poll(t, src, 1)
	r := src.Report()
	all := strings.Join(r.Missing, "\n")
	if r.WhatIf != nil || len(r.Phases) != 0 || !strings.Contains(all, "SGLANG_ENABLE_METRICS_DEVICE_TIMER=1") || !strings.Contains(all, "accept length") {
		t.Errorf("%+v", r)
	}
}

func TestVLLM(t *testing.T) {
	text := func(drafts, accepted, p0, p1, tokens int) string {
		return fmt.Sprintf(`vllm:num_requests_running{engine="0"} 2
vllm:generation_tokens_total{engine="0"} %d
vllm:spec_decode_num_drafts_total{engine="0"} %d
vllm:spec_decode_num_accepted_tokens_total{engine="0"} %d
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} %d
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} %d
`, tokens, drafts, accepted, p0, p1)
	}
	src := mustAttach(t, serve(t, metrics(text(10, 5, 4, 1, 100), text(1010, 905, 604, 301, 2000))))
	poll(t, src, 0)
	poll(t, src, 10)
	r := src.Report()
	// Two sequences for 10 s in 1000 cycles: 20 ms each.
	if r.Engine != "vllm" || !near(*r.AcceptLength, 1.9, 1e-9) || !near(*r.Cycle.MeanMs, 20, 1e-9) || *r.Shape != (Shape{2, 1, 3}) || *r.TokS != 190 || *r.Batch != 2 {
		t.Errorf("%+v", r)
	}
	if l := line(t, r.WhatIf, "bottleneck"); l.Missing == "" {
		t.Errorf("a bottleneck without phases: %+v", l)
	}
	if !strings.Contains(strings.Join(r.Missing, "\n"), "times by phase: vLLM") {
		t.Errorf("%q", r.Missing)
	}
}

// TestVLLMCountsGaps reads what vLLM 0.32 answered on a CPU: as many gaps between outputs as cycles.
func TestVLLMCountsGaps(t *testing.T) {
	text, err := os.ReadFile("testdata/vllm-0.32-cpu-eagle3.metrics")
	if err != nil {
		t.Fatal(err)
	}
	o := serve(t, metrics(string(text)))
	o.SinceStart = true
	src := mustAttach(t, o)
	poll(t, src, 0)
	r := src.Report()
	if r.Engine != "vllm" || *r.SeqCycles != 2348 || !near(*r.AcceptLength, 1+3213.0/2348, 1e-9) || *r.Shape != (Shape{3, 1, 4}) {
		t.Errorf("%+v", r)
	}
	if !near(*r.Cycle.MeanMs, 1e3*321.6039191530017/2348, 1e-9) || r.PlainStepMs != nil {
		t.Errorf("cycle %+v, plain %v", r.Cycle, r.PlainStepMs)
	}
}

// TestVLLMPlain is a vLLM without a drafter: its cycles are plain steps.
func TestVLLMPlain(t *testing.T) {
	text := func(n int, sum float64) string {
		return fmt.Sprintf("vllm:num_requests_running 1\nvllm:generation_tokens_total %d\n# TYPE vllm:inter_token_latency_seconds histogram\n"+
			"vllm:inter_token_latency_seconds_bucket{le=\"+Inf\"} %d\nvllm:inter_token_latency_seconds_count %d\nvllm:inter_token_latency_seconds_sum %g\n", n+3, n, n, sum)
	}
	src := mustAttach(t, serve(t, metrics(text(100, 9), text(300, 11), text(2, .1))))
	poll(t, src, 0)
	poll(t, src, 3)
	if r := src.Report(); !near(*r.Cycle.MeanMs, 10, 1e-9) || !near(*r.PlainStepMs, 10, 1e-9) || r.AcceptLength != nil {
		t.Errorf("%+v, %+v", r, r.Cycle)
	}
	poll(t, src, 5) // another server: what it has counted is less
	if r := src.Report(); r.PlainStepMs != nil {
		t.Errorf("%+v, %+v", r, r.Cycle)
	}
}

func TestLlamaCPP(t *testing.T) {
	text := func(drafts, accepted int, seconds float64) string {
		return fmt.Sprintf("llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total 40\nllamacpp:tokens_predicted_seconds_total %g\nllamacpp:spec_decode_num_drafts_total %d\nllamacpp:spec_decode_num_accepted_tokens_total %d\n", seconds, drafts, accepted)
	}
	src := mustAttach(t, serve(t, metrics(text(0, 0, 0), text(100, 150, 4))))
	poll(t, src, 0)
	poll(t, src, 5)
	if r := src.Report(); r.Engine != "llama.cpp" || *r.AcceptLength != 2.5 || *r.Cycle.MeanMs != 40 {
		t.Errorf("%+v", r)
	}
}

func TestWhoCannotBeProfiled(t *testing.T) {
	page := func(status int, path, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				http.NotFound(w, r)
				return
			}
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
		})
	}
	for _, c := range []struct {
		h            http.Handler
		says, remedy string
	}{
		{page(200, "/get_server_info", "{}"), "looks like SGLang", "--enable-metrics"},
		{page(200, "/props", "{}"), "looks like llama.cpp's server", "--metrics"},
		{page(200, "/metrics", "go_goroutines 3\n"), "no metric of draftlab, SGLang, vLLM or llama.cpp", ""},
		{page(200, "/metrics", "draftlab:steps_total 3\n"), "without /debug/cycles", ""},
		{page(200, "/metrics", "<html>"), "not in Prometheus's text format", ""},
		{page(401, "/debug/cycles", "no"), "answered 401 Unauthorized: no", "DRAFTLAB_API_KEY"},
		{page(503, "/debug/cycles", "loading"), "503", "wait"},
		{http.NotFoundHandler(), "no server that draftlab knows", ""},
	} {
		_, err := Attach(context.Background(), serve(t, c.h))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
		var r interface{ Remedy() string }
		if c.remedy != "" && (!errors.As(err, &r) || !strings.Contains(r.Remedy(), c.remedy)) {
			t.Errorf("%v: no remedy %q", err, c.remedy)
		}
	}
}

// FuzzCycles: whatever a server answers, there is an error or a report that is valid JSON.
func FuzzCycles(f *testing.F) {
	b, err := json.Marshal(newFakeLedger().doc)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"phases":["verify"],"totals":{"seq":3,"cycles":-5,"by_shape":[{"steps":1,"draft_tokens":2,"cycles":20,"sequence_cycles":20}]},"cycles":[{"seq":9223372036854775807,"kind":"cycle"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
		s := &ledgerSource{conn: &conn{base: "http://fake", http: &http.Client{Transport: handlerTransport{h}}}}
		for i := range 2 {
			if s.Poll(context.Background(), time.Unix(int64(i), 0)) != nil {
				return
			}
		}
		if _, err := json.Marshal(s.Report()); err != nil {
			t.Error(err)
		}
	})
}

// handlerTransport asks a handler without a network.
type handlerTransport struct{ h http.Handler }

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	t.h.ServeHTTP(w, r)
	return w.Result(), nil
}
