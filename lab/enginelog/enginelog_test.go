package enginelog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// versions are lines as each generation writes them, with what must be read from them.
var versions = []struct {
	name, line string
	kind       Kind
	ranks      string
	want       map[string]float64
}{
	{"sglang 0.4.6", `[2025-04-28 10:00:01 TP0] Decode batch. #running-req: 1, #token: 9322, token usage: 0.00, accept len: 1.95, gen throughput (token/s): 97.52, #queue-req: 0`,
		Decode, "TP0", map[string]float64{keyRunning: 1, "#token": 9322, keyAccept: 1.95, keyThroughput: 97.52, keyQueue: 0}},
	{"sglang 0.4.6.post4", `[2025-05-12 10:00:01 DP1 TP8] Decode batch. #running-req: 4, #token: 100, token usage: 0.02, accept len: 2.50, cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 3`,
		Decode, "DP1 TP8", map[string]float64{keyAccept: 2.5, keyThroughput: 300, keyQueue: 3}},
	{"sglang 0.4.9, trailing comma", `[2025-07-05 10:00:01 TP0] Decode batch. #running-req: 2, #token: 88, token usage: 0.01, cuda graph: False, gen throughput (token/s): 55.10, #queue-req: 0, `,
		Decode, "TP0", map[string]float64{keyThroughput: 55.1, keyQueue: 0}},
	{"sglang 0.5.3.post2, accept rate", `[2025-10-10 10:00:01] Decode batch. #running-req: 1, #token: 500, token usage: 0.00, accept len: 1.95, accept rate: 0.49, cuda graph: True, gen throughput (token/s): 97.52, #queue-req: 0, `,
		Decode, "", map[string]float64{keyAccept: 1.95, "accept rate": .49, keyThroughput: 97.52}},
	{"sglang 0.5.4, iteration", `[2025-10-26 10:00:01 TP0] Decode batch [1240], #running-req: 1, #token: 500, token usage: 0.00, accept len: 3.10, accept rate: 0.78, cuda graph: True, gen throughput (token/s): 120.00, #queue-req: 0, `,
		Decode, "TP0", map[string]float64{keyAccept: 3.1, keyThroughput: 120}},
	{"sglang 0.5.5", `[2025-11-06 10:00:01 TP0 EP0] Decode batch, #running-req: 1, #token: 500, token usage: 0.00, accept len: 3.10, accept rate: 0.78, cuda graph: True, gen throughput (token/s): 121.00, #queue-req: 0, `,
		Decode, "TP0 EP0", map[string]float64{keyThroughput: 121}},
	{"sglang 0.5.9, prefill of the campaign", `[2026-02-26 15:41:01 TP0] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, input throughput (token/s): 0.09, cuda graph: False`,
		Prefill, "TP0", map[string]float64{"#new-seq": 1, keyNewTokens: 1, keyCached: 0, keyRunning: 0, keyInput: .09}},
	{"sglang 0.5.11, tails", `[2026-05-04 10:00:01.123 TP0] Decode batch, #running-req: 1, #token: 500, token usage: 0.00, accept len: 2.14, accept rate: 0.23, cuda graph: True, gen throughput (token/s): 71.30, #queue-req: 0, est. decode TFLOPS/s (per GPU): 12.50, est. read BW (GB/s per GPU): 830.00, fwd occupancy: 97.30%`,
		Decode, "TP0", map[string]float64{keyAccept: 2.14, keyThroughput: 71.3, "est. decode TFLOPS/s (per GPU)": 12.5, "fwd occupancy": 97.3}},
	{"sglang 0.5.18, hybrid model", `[2026-08-20 10:00:01] Decode batch, #running-req: 8, #full token: 100, full token usage: 0.10, #swa token: 90, swa token usage: 0.70, mamba num: 3, mamba usage: 0.20, cuda graph: True, gen throughput (token/s): 900.00, #queue-req: 1`,
		Decode, "", map[string]float64{"swa token usage": .7, keyThroughput: 900}},
	{"sglang under ray", `(SGLangActor pid=123, ip=10.0.0.4) [2026-08-20 10:00:01 TP0] Prefill batch, #new-seq: 2, #new-token: 300, #cached-token: 100, token usage: 0.10, #running-req: 3, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 4000.00`,
		Prefill, "TP0", map[string]float64{"#pending-token": 0, keyCached: 100}},
	{"sglang 0.5.3 prefill", `[2025-10-01 10:00:01 TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 3, token usage: 0.00, #running-req: 0, #queue-req: 0, `,
		Prefill, "TP0", map[string]float64{keyNewTokens: 7, keyQueue: 0}},
	{"vllm", `(APIServer pid=1) INFO 08-17 10:00:10 [loggers.py:257] Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 88.8 tokens/s, Running: 1 reqs, Waiting: 2 reqs, Preemptions: 1, GPU KV cache usage: 3.5%, Prefix cache hit rate: 40.0%`,
		Stats, "Engine 000", map[string]float64{keyVLLMThroughput: 88.8, keyVLLMRunning: 1, keyVLLMWaiting: 2, keyVLLMPreempted: 1, keyVLLMUsage: 3.5}},
	{"vllm, deferred requests", `INFO 09-04 11:01:16 [loggers.py:257] Engine 001: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 10.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, Deferred: 2 reqs, GPU KV cache usage: 3.5%, Prefix cache hit rate: 40.0%`,
		Stats, "Engine 001", map[string]float64{keyVLLMThroughput: 10, "Deferred": 2}},
	{"vllm speculation", `(APIServer pid=1) INFO 08-17 10:00:10 [metrics.py:125] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted throughput: 51.80 tokens/s, Drafted throughput: 111.00 tokens/s, Accepted: 518 tokens, Drafted: 1110 tokens, Per-position acceptance rate: 0.700, 0.450, 0.250, Avg Draft acceptance rate: 46.7%`,
		Spec, "", map[string]float64{keyVLLMAccept: 2.4, "Drafted": 1110, "Avg Draft acceptance rate": 46.7}},
	{"vllm iteration", `(EngineCore_DP0 pid=2) INFO 08-17 10:00:10 [core.py:400] Engine 000: Iteration(17): 0 context requests, 0 context tokens, 2 generation requests, 8 generation tokens, iteration elapsed time: 28.70 ms, GPU KV cache usage: 3.5%`,
		Iteration, "Engine 000", map[string]float64{keyIterationGen: 2, "generation tokens": 8, keyIterationMS: 28.7}},
	{"vllm 0.6", `INFO 11-03 15:47:45 metrics.py:449] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 40.0 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 1.2%, CPU KV cache usage: 0.0%.`,
		Stats, "", map[string]float64{keyVLLMThroughput: 40, keyVLLMPending: 0, "CPU KV cache usage": 0}},
	{"sglang in another program's format", `2025-12-04 20:35:53 INFO 151972 [scheduler_metrics_mixin.py:287] Decode batch. #running-req: 48, #token: 3894, token usage: 0.00, accept len: 1.00, accept rate: 0.11, cuda graph: False, gen throughput (token/s): 5452.63, #queue-req: 0, `,
		Decode, "", map[string]float64{keyAccept: 1, keyRunning: 48, keyThroughput: 5452.63}},
}

func TestParseOfEveryVersion(t *testing.T) {
	for _, v := range versions {
		l := Parse([]byte(v.line))
		if l.Kind != v.kind || l.Ranks != v.ranks {
			t.Errorf("%s: kind %d of %q, want %d of %q", v.name, l.Kind, l.Ranks, v.kind, v.ranks)
		}
		for key, want := range v.want {
			if got, ok := l.Values.Number(key); !ok || got != want {
				t.Errorf("%s: %s = %v, %v, want %v", v.name, key, got, ok, want)
			}
		}
		if l.Time.IsZero() {
			t.Errorf("%s: no time", v.name)
		}
	}
}

func TestPerPositionListIsOneValue(t *testing.T) {
	l := Parse([]byte(versions[13].line))
	if got, _ := l.Values.Text("Per-position acceptance rate"); got != "0.700, 0.450, 0.250" {
		t.Errorf("got %q", got)
	}
}

// TestWrappings puts every line into what docker, journald, Kubernetes and terminals make of it.
func TestWrappings(t *testing.T) {
	docker := func(s string) string {
		b, err := json.Marshal(map[string]string{"log": s + "\n", "stream": "stderr", "time": "2026-02-26T15:41:01.5Z"})
		if err != nil {
			t.Fatal(err)
		}
		return `{"log":` + strings.TrimPrefix(string(b), `{"log":`)
	}
	for name, wrap := range map[string]func(string) string{
		"CR":             func(s string) string { return s + "\r" },
		"colours":        func(s string) string { return "\x1b[1;36m" + strings.Replace(s, ":", "\x1b[0m:", 1) + "\x1b[0;0m" },
		"title":          func(s string) string { return "\x1b]0;server\x07" + s },
		"docker json":    docker,
		"docker -t":      func(s string) string { return "2026-02-26T15:41:01.123456789Z " + s },
		"docker compose": func(s string) string { return "sglang-1  | " + s },
		"journald":       func(s string) string { return "Feb 26 15:41:01 gpu-host python3[4711]: " + s },
		"journald iso":   func(s string) string { return "2026-02-26T15:41:01+0000 gpu-host sglang[4711]: " + s },
		"kubernetes":     func(s string) string { return "2026-02-26T15:41:01.123456789Z stderr F " + s },
		"kubectl prefix": func(s string) string { return "[pod/sglang-0/server] " + s },
		"NULs":           func(s string) string { return strings.Repeat("\x00", 5000) + s },
	} {
		for _, v := range versions {
			want, got := Parse([]byte(v.line)), Parse([]byte(wrap(v.line)))
			if got.Kind != want.Kind || got.Ranks != want.Ranks || !slices.Equal(got.Values, want.Values) || !got.Time.Equal(want.Time) {
				t.Errorf("%s, %s:\n got %+v\nwant %+v", name, v.name, got, want)
			}
		}
	}
}

func TestQuotedLinesAreNotLines(t *testing.T) {
	for _, s := range []string{
		`[2026-02-26 15:41:01 TP0] Receive: obj=GenerateReqInput(text="CUDA out of memory")`,
		`prompt: '[2026-02-26 15:41:01 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 1'`,
	} {
		if l := Parse([]byte(s)); l.Kind != Other {
			t.Errorf("%q is of kind %d", s, l.Kind)
		}
	}
}

func TestTextLines(t *testing.T) {
	const at = "[2026-02-26 15:41:02 TP0] "
	for _, c := range []struct {
		text string
		kind Kind
		name string
		took time.Duration
	}{
		{`[2026-02-26 15:41:02] INFO:     127.0.0.1:56348 - "GET /health HTTP/1.1" 200 OK`, Access, "GET /health", 0},
		{`(APIServer pid=1) INFO:     10.0.0.1:4 - "POST /v1/completions?x=1 HTTP/1.1" 503 Service Unavailable`, Access, "POST /v1/completions", 0},
		{at + "Load weight begin. avail mem=94.00 GB", Milestone, "weights: begin", 0},
		{at + "Capture cuda graph begin. This can take up to several minutes. avail mem=10 GB", Milestone, "graphs: begin", 0},
		{at + "Capture draft cuda graph end. Time elapsed: 62.67 s. mem usage=1 GB", Milestone, "draft graphs: captured", 62670 * time.Millisecond},
		{at + "Capture draft extend CUDA graph end. elapsed=0.84 s, mem usage=0.11 GB", Milestone, "draft extend graphs: captured", 840 * time.Millisecond},
		{at + "The server is fired up and ready to roll!", Milestone, ReadyName, 0},
		{"INFO:     Application startup complete.", Milestone, "HTTP: up", 0},
		{"INFO 10-06 12:00:40 [gpu_model_runner.py:3480] Graph capturing finished in 8 secs, took 0.31 GiB", Milestone, "graphs: captured", 8 * time.Second},
		{"INFO 10-06 12:00:40 [core.py:240] init engine (profile, create kv cache, warmup model) took 87.24 s (compilation: 34.75 s)", Milestone, "engine: initialised", 87240 * time.Millisecond},
		{"INFO 10-06 12:00:40 [x.py:1] Model loading took 15.2700 GiB and 35.612771 seconds", Milestone, "model: loaded", 35612771 * time.Microsecond},
		{at + "Scheduler hit an exception: Traceback (most recent call last):", Fault, Crash, 0},
		{"RuntimeError: selected index k out of range", Fault, BadFlag, 0},
		{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", Fault, OutOfMemory, 0},
		{"Rank 0 scheduler died during initialization (exit code: -9)", Fault, OutOfMemory, 0},
		{"[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use", Fault, PortInUse, 0},
		{"launch_server.py: error: argument --tp: invalid int value: 'x'", Fault, BadFlag, 0},
		{at + "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.9998 -> 1.0000", Notice, retracted, 0},
		{at + "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1", Notice, "draft tokens changed", 0},
		{at + "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm. You can set env SGLANG_ENABLE_SPEC_V2=True", Notice, "scheduling without overlap", 0},
		{at + "Mixed chunked prefill is disabled because of using eagle speculative decoding.", Notice, "mixed chunks off", 0},
		{at + "Overriding the draft model's max_position_embeddings to 8192.", Notice, "drafter stretched to longer texts", 0},
		{"ValueError: Warning: Target model's context_length (8192) is greater than the derived context_length (2048). This may lead to incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1", Fault, BadFlag, 0},
		{"WARNING 07-09 01:59:44 [compilation.py:1405] CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInferBackend (support: x); setting cudagraph_mode=PIECEWISE", Notice, "graphs reduced", 0},
		{"WARNING 01-09 01:59:44 [vllm.py:1] Async scheduling not supported with ngram-based speculative decoding and will be disabled.", Notice, "scheduling without overlap", 0},
		{at + "Decode batch, #running-req: 1, #token: 5, gen thro", Damaged, "", 0},
		{at + "Decode batch, #running-req: -1, gen throughput (token/s): NaN", Damaged, "", 0},
		{"any other line: with a colon", Other, "", 0},
	} {
		if l := Parse([]byte(c.text)); l.Kind != c.kind || l.Name != c.name || l.Took != c.took {
			t.Errorf("%q: kind %d, %q, %v; want %d, %q, %v", c.text, l.Kind, l.Name, l.Took, c.kind, c.name, c.took)
		}
	}
}

func read(t *testing.T, text string) *Report {
	t.Helper()
	var s Summary
	if err := s.Read(context.Background(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return s.Report()
}

func sglangDecode(sec int, accept, rate float64, graph string) string {
	return fmt.Sprintf("[2026-02-26 16:20:%02d TP0] Decode batch, #running-req: 1, #token: 500, token usage: 0.25, accept len: %.2f, cuda graph: %s, gen throughput (token/s): %.2f, #queue-req: 2\n", sec, accept, graph, rate)
}

// TestCycleTime checks the campaign's arithmetic: 2.14 tokens at 71.3 tok/s are cycles of 30.0 ms; the line after a rest counts
// for the accept length alone.
func TestCycleTime(t *testing.T) {
	rest := versions[6].line + "\n"
	r := read(t, rest+sglangDecode(1, 2, .39, "False")+sglangDecode(2, 2.14, 71.3, "True")+sglangDecode(3, 2.14, 71.3, "True")+rest+sglangDecode(9, 2.14, 5, "True"))
	g := r.Decode[0]
	if r.Engine != "sglang" || g.Ranks != "TP0" || g.Lines != 4 || g.AfterRest != 2 || g.GraphStated != 4 || g.WithoutGraph != 1 {
		t.Errorf("%q, %+v", r.Engine, g)
	}
	if g.Cycle.N != 2 || g.Cycle.P50 < 30.01 || g.Cycle.P50 > 30.02 || g.Throughput.Min != 71.3 || g.AcceptLength.N != 4 || g.Plain != nil {
		t.Errorf("cycle %+v, throughput %+v, accept length %+v", g.Cycle, g.Throughput, g.AcceptLength)
	}
	if r.Pressure.WithQueue != 4 || r.Pressure.Queue.Max != 2 || r.Pressure.Usage.Max != .25 || r.Prefill.New != 2 {
		t.Errorf("pressure %+v, prefill %+v", r.Pressure, r.Prefill)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "1 of 4 decode batches") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func TestOnlyLinesAfterRestsAreUsedWithAWarning(t *testing.T) {
	r := read(t, sglangDecode(1, 2, 50, "True"))
	if g := r.Decode[0]; g.AfterRest != 0 || g.Cycle == nil || g.Cycle.P50 != 40 || len(r.Warnings) != 1 {
		t.Errorf("%+v, %q", g, r.Warnings)
	}
}

func TestVLLMPairsItsTwoLines(t *testing.T) {
	plain := versions[11].line + "\n"
	r := read(t, plain+plain+versions[13].line+"\n"+plain+versions[14].line+"\n"+plain)
	g := r.Decode[0]
	if r.Engine != "vllm" || len(r.Decode) != 1 || g.Lines != 4 || g.AfterRest != 1 || g.Cycle.N != 1 || g.Plain.N != 1 || g.Iteration.P50 != 28.7 || r.Pressure.Preempted != 4 {
		t.Fatalf("%s %+v %+v", r.Engine, r.Decode, r.Pressure)
	}
	if want := 1e3 * 2.4 / 88.8; g.Cycle.P50 != want || g.Plain.P50 != 1e3/88.8 || r.Pressure.Usage.Max != .035 {
		t.Errorf("cycle %v, plain %v, usage %v", g.Cycle.P50, g.Plain.P50, r.Pressure.Usage.Max)
	}
}

// TestVLLMOnACPU reads what vLLM 0.32 wrote with a drafter on two cores: its start and the intervals of three short loads.
func TestVLLMOnACPU(t *testing.T) {
	text, err := os.ReadFile("testdata/vllm-0.32-cpu-eagle3.log")
	if err != nil {
		t.Fatal(err)
	}
	r := read(t, string(text))
	if r.Engine != "vllm" || len(r.Boots) != 1 || len(r.Decode) != 1 || len(r.Faults) != 0 || r.Lines.Damaged != 0 {
		t.Fatalf("%+v", r)
	}
	var steps []string
	for _, m := range r.Boots[0].Milestones {
		steps = append(steps, m.Name)
	}
	want := "arguments read, engine: begin, weights: begin, weights: loaded, drafter: begin, warm-up: begin, backbone: compiled, backbone: first run, " +
		"eagle_head: compiled, eagle_head: first run, warm-up: done, key/value memory: measured, key/value memory: allocated, engine: initialised, " +
		"HTTP: starting, HTTP: up, first 200 on /health"
	if got := strings.Join(steps, ", "); got != want {
		t.Errorf("milestones: %s\nwant        %s", got, want)
	}
	if ready := r.Boots[0].Ready; ready == nil || *ready != 230 {
		t.Errorf("ready after %v, want 230 s", ready)
	}
	// Seven intervals: two follow a rest, two end with nothing running, and the last still waits for its second line.
	g := r.Decode[0]
	if g.Lines != 7 || g.AfterRest != 2 || g.Cycle.N != 2 || g.Throughput.Min != 24 || g.Throughput.Max != 48.9 || g.AcceptLength.N != 5 {
		t.Errorf("%+v, cycle %+v, throughput %+v", g, g.Cycle, g.Throughput)
	}
	if u := r.Pressure.Usage; u == nil || u.Max == 0 {
		t.Errorf("no key/value use: %+v", u)
	}
	if names := noticeNames(r); names != "tokens of a pass limited, no tcmalloc, min_p and logit_bias without effect, threads changed, workers silent for a minute" {
		t.Errorf("notices: %s", names)
	}
}

func noticeNames(r *Report) string {
	var names []string
	for _, n := range r.Notices {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

func TestBoots(t *testing.T) {
	boot := `[2026-02-26 15:00:00] server_args=ServerArgs(model_path='x')
[2026-02-26 15:00:10 TP0] Load weight begin. avail mem=94 GB
[2026-02-26 15:00:11 TP1] Load weight begin. avail mem=94 GB
[2026-02-26 15:12:10 TP0] Load weight end. elapsed=720.00 s, avail mem=20 GB
[2026-02-26 15:12:40 TP1] Load weight end. elapsed=749.00 s, avail mem=20 GB
[2026-02-26 15:13:40 TP0] Capture cuda graph end. Time elapsed: 60.00 s.
` + versions[6].line + `
[2026-02-26 15:41:02] The server is fired up and ready to roll!
[2026-02-26 15:41:02] INFO:     127.0.0.1:56348 - "GET /health HTTP/1.1" 200 OK
`
	r := read(t, boot+strings.ReplaceAll(boot, "2026-02-26", "2026-02-27"))
	if len(r.Boots) != 2 {
		t.Fatalf("%d boots", len(r.Boots))
	}
	for i, b := range r.Boots {
		if b.Ready == nil || *b.Ready != 2462 {
			t.Errorf("boot %d: ready after %v", i, b.Ready)
		}
		m := b.Milestones[2]
		if m.Name != "weights: loaded" || m.Count != 2 || *m.At != 760 || *m.Since != 749 || *m.Took != 749 {
			t.Errorf("boot %d: %+v", i, m)
		}
		if last := b.Milestones[len(b.Milestones)-1]; last.Name != "first 200 on /health" {
			t.Errorf("boot %d ends with %q", i, last.Name)
		}
	}
}

func TestYearEnd(t *testing.T) {
	a, b := parseTime("01-02 15:04:05", "12-31 23:59:50"), parseTime("01-02 15:04:05", "01-01 00:00:10")
	if d := between(a, b); d != 20*time.Second {
		t.Errorf("%v", d)
	}
	if d := between(b, b.Add(-time.Second)); d != 0 {
		t.Errorf("%v", d)
	}
}

// TestReader takes apart what files hold, in one piece and byte by byte.
func TestReader(t *testing.T) {
	text := "a\r\nb\n\n\r\n10%\r20%\rdone\n" + strings.Repeat("x", maxLine+5) + "\nlast"
	want := []string{"a", "b", "10%", "20%", "done", strings.Repeat("x", maxLine), "last"}
	for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		r := NewReader(in)
		for i, w := range want {
			raw, err := r.Next()
			if err != nil || string(raw.Text) != w || raw.Cut != (i == 5) || raw.Whole != (i < 6) {
				t.Fatalf("line %d: %.20q, cut %v, whole %v, %v", i, raw.Text, raw.Cut, raw.Whole, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestTheLastLineMayBeHalfWritten(t *testing.T) {
	whole := sglangDecode(1, 2, 71.3, "True")
	at := strings.Index(whole, "71.3") + 1 // "7" is a number, too
	r := read(t, whole+whole[:at])
	if r.Lines.Damaged != 1 || r.Decode[0].Lines != 1 {
		t.Errorf("%+v, %+v", r.Lines, r.Decode)
	}
}

func TestMaliciousNamesAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "INFO:     1.1.1.1:1 - \"GET /%d HTTP/1.1\" 404 Not Found\n[2026-02-26 16:20:01 TP%d] Decode batch, #running-req: 1, gen throughput (token/s): 5\n", i, i)
	}
	if r := read(t, b.String()); len(r.Requests) > maxNames+1 || len(r.Decode) > maxNames+1 || r.Lines.Total != 2000 {
		t.Errorf("%d requests, %d ranks", len(r.Requests), len(r.Decode))
	}
}

func TestQuantiles(t *testing.T) {
	var v values
	for i := 100; i >= 0; i-- {
		v.add(float64(i))
	}
	if d := v.dist(); d.P10 != 10 || d.P50 != 50 || d.P90 != 90 || d.P99 != 99 || d.Min != 0 || d.Max != 100 || d.N != 101 {
		t.Errorf("%+v", d)
	}
}

// FuzzSummary: whatever a log holds, every line is counted once and the report is valid JSON.
func FuzzSummary(f *testing.F) {
	for _, v := range versions {
		f.Add([]byte(v.line + "\n" + v.line))
	}
	f.Add([]byte("{\"log\":\"\\u0000[2026-02-26 15:41:01] Load weight begin\"}\n\x1b[\x1b]\x1b\r\r\n\xff\xfe"))
	f.Add([]byte(`[2026-02-26 15:41:01 TP0] Decode batch, #running-req: 1e300, gen throughput (token/s): 1e-300, accept len: 1e308` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Summary
		if err := s.Read(context.Background(), bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		r := s.Report()
		if n := r.Lines; n.Read+n.Other+n.Damaged != n.Total || n.Total > int64(len(data)) {
			t.Errorf("%+v of %d bytes", n, len(data))
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// TestOwnLog: draftlab's server writes SGLang's lines, and no CUDA graph is missed on a processor.
func TestOwnLog(t *testing.T) {
	const line = "[2026-11-30 16:20:37] Decode batch, #running-req: 1, #token: 80, token usage: 0.50, accept len: 2.40, accept rate: 0.47, cuda graph: False, gen throughput (token/s): 500.00, #queue-req: 0\n"
	const settings = "[2026-11-30 16:20:30] settings draft_tokens=4 drafter=auto drafter_format=q8 drain_timeout=30\n"
	for log, want := range map[string]string{strings.Repeat(line, 3): "sglang", settings + strings.Repeat(line, 3): "draftlab"} {
		r := read(t, log)
		graphs := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "CUDA graph") })
		if r.Engine != want || graphs != (want == "sglang") || r.Decode[0].Lines != 3 {
			t.Errorf("%s: %q, %q", want, r.Engine, r.Warnings)
		}
	}
}
