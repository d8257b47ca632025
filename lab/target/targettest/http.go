//go:build unix

package targettest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// engine is what the server has done.
type engine struct {
	asked, verified, tokens, requests          atomic.Int64
	decodeNS, verifyNS, draftNS, extendNS, pre atomic.Int64
}

// deadly is the request at which a server with the fault CrashesLater crashes.
const deadly = 3

// serve answers until it is asked to end.
func (s *standIn) serve() int {
	if s.Fault == ReadyTooSoon {
		s.say(-1, "The server is fired up and ready to roll!")
		s.rest(1)
	}
	l, status := s.listen()
	if status != 0 {
		return status
	}
	ended := make(chan int, 1)
	go func() { panic(http.Serve(l, s.routes(ended))) }()
	if s.Fault != ReadyTooSoon {
		s.say(-1, "INFO:     Uvicorn running on http://127.0.0.1:%s (Press CTRL+C to quit)", s.args["port"])
		s.say(-1, "The server is fired up and ready to roll!")
	}
	asked := make(chan os.Signal, 1)
	if s.Fault != Deaf {
		signal.Notify(asked, syscall.SIGTERM)
	}
	select {
	case <-asked:
		s.say(-1, "SIGTERM received. signum=15 frame=None. Draining requests and shutting down...")
		return 0
	case status := <-ended:
		return status
	}
}

func (s *standIn) routes(ended chan int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.args["model_path"], "object": "model"}}})
	})
	info := "GET /server_info"
	if s.Version == Old || s.Version == Middle { // the new name came with 0.5.6
		info = "GET /get_server_info"
	}
	mux.HandleFunc(info, func(w http.ResponseWriter, _ *http.Request) { reply(w, s.info()) })
	mux.HandleFunc("POST /flush_cache", func(http.ResponseWriter, *http.Request) {})
	if s.args["enable_metrics"] == "true" {
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { s.metrics(w) })
	}
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/generate"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if s.Fault == HealthLies {
				<-r.Context().Done()
				return
			}
			if s.Fault == CrashesLater && s.asked.Add(1) >= deadly {
				s.say(0, "Scheduler hit an exception: Traceback (most recent call last):\n  File \"scheduler.py\", line 2220\n"+
					"RuntimeError: CUDA error: an illegal memory access was encountered\n")
				ended <- s.sigquit()
				hang()
			}
			s.answer(w, r, path)
		})
	}
	return mux
}

func reply(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc) // the client may have gone
}

// info is the server's information: flat in 0.4.6, with the state of each rank later.
func (s *standIn) info() map[string]any {
	doc := map[string]any{}
	for key, value := range s.args {
		var v any = value
		if json.Unmarshal([]byte(value), &v) != nil {
			v = value
		}
		doc[key] = v
	}
	doc["version"] = s.Version
	state := map[string]any{"last_gen_throughput": 88.8, "effective_max_running_requests_per_dp": s.number("max_running_requests")}
	if s.Version == Old {
		for k, v := range state {
			doc[k] = v
		}
		return doc
	}
	doc["internal_states"] = []any{state}
	return doc
}

// metrics has the device timer in the newest version alone, and only if it was asked for.
func (s *standIn) metrics(w io.Writer) {
	fmt.Fprintf(w, "# TYPE sglang:num_requests_total counter\nsglang:num_requests_total{model_name=\"m\"} %d\n", s.requests.Load())
	fmt.Fprintf(w, "# TYPE sglang:generation_tokens_total counter\nsglang:generation_tokens_total{model_name=\"m\"} %d\n", s.tokens.Load())
	if s.Version != New || os.Getenv("SGLANG_ENABLE_METRICS_DEVICE_TIMER") != "1" {
		return
	}
	fmt.Fprintf(w, "# TYPE sglang:spec_verify_calls_total counter\nsglang:spec_verify_calls_total{model_name=\"m\",tp_rank=\"0\"} %d\n", s.verified.Load())
	fmt.Fprintln(w, "# TYPE sglang:forward_execution_seconds_total counter")
	for rank := range s.Ranks {
		for category, ns := range map[string]int64{"decode": s.decodeNS.Load(), "target_verify": s.verifyNS.Load(), "eagle_draft": s.draftNS.Load(),
			"eagle_draft_extend": s.extendNS.Load(), "extend": s.pre.Load(), "idle": 0} {
			fmt.Fprintf(w, "sglang:forward_execution_seconds_total{category=\"%s\",tp_rank=\"%d\"} %g\n", category, rank, float64(ns)/1e9)
		}
	}
}

// asked is what a request wants, in all three APIs.
type asked struct {
	Prompt   string `json:"prompt"`
	Text     string `json:"text"`
	Max      int    `json:"max_tokens"`
	Messages []struct {
		Content string `json:"content"`
	} `json:"messages"`
	Sampling struct {
		Max int `json:"max_new_tokens"`
	} `json:"sampling_params"`
}

// answer streams a text that follows from the prompt alone, in the time that the script says.
func (s *standIn) answer(w http.ResponseWriter, r *http.Request, path string) {
	if key := s.args["api_key"]; key != "" && r.Header.Get("Authorization") != "Bearer "+key {
		http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	var a asked
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt, limit := a.Prompt+a.Text, max(a.Max, a.Sampling.Max)
	for _, m := range a.Messages {
		prompt += m.Content
	}
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, prompt)
	luck := float64(hash.Sum64()>>11) / (1 << 53)
	s.requests.Add(1)
	due := time.Now()
	s.sleep(&due, &s.pre, s.Plain)
	out := &stream{w: w, path: path, version: s.Version, prompt: len(strings.Fields(prompt)), words: rand.New(rand.NewPCG(hash.Sum64(), 2))}
	out.emit(1)
	for out.tokens < limit {
		_, luck = math.Modf(luck + 1/math.Phi) // even over any stretch of cycles, so that short outputs show what long ones would
		got := s.cycle(&due, luck)
		out.cycles, out.accepted = out.cycles+1, out.accepted+got-1
		out.emit(min(got, limit-out.tokens))
	}
	out.end(s.args["speculative_algorithm"] != "null", s.number("speculative_num_steps"))
	s.tokens.Add(int64(out.tokens))
	if s.args["speculative_algorithm"] != "null" {
		s.verified.Add(int64(out.cycles))
	}
	s.say(0, "Decode batch. #running-req: 1, #token: %d, token usage: 0.00, gen throughput (token/s): 88.80, #queue-req: 0", out.tokens)
}

// sleep sleeps until what is due has taken that much longer, so that a late end makes the next sleep shorter and the answer takes what
// the script says.
func (s *standIn) sleep(due *time.Time, spent *atomic.Int64, d time.Duration) {
	*due = due.Add(d)
	time.Sleep(time.Until(*due))
	spent.Add(int64(d))
}

// cycle takes the time of a pass and returns how many tokens it gave: more, the closer luck is to 0; it is below 1.
func (s *standIn) cycle(due *time.Time, luck float64) int {
	steps := s.number("speculative_num_steps")
	if s.args["speculative_algorithm"] == "null" {
		s.sleep(due, &s.decodeNS, s.Plain)
		return 1
	}
	s.sleep(due, &s.draftNS, time.Duration(steps)*s.Draft)
	s.sleep(due, &s.verifyNS, s.Verify+time.Duration(s.number("speculative_num_draft_tokens"))*s.Row)
	s.sleep(due, &s.extendNS, s.Draft)
	got, likely, rate := 1, s.Accept, s.Accept
	for ; got <= steps && luck < likely; got++ {
		if s.Fade > 0 {
			rate *= s.Fade
		}
		likely *= rate
	}
	return got
}

// stream is an answer.
type stream struct {
	w                                http.ResponseWriter
	path, version, text              string
	prompt, tokens, cycles, accepted int
	words                            *rand.Rand
}

// emit sends tokens as one event.
func (o *stream) emit(n int) {
	var more string
	for range n {
		more += fmt.Sprintf(" w%d", o.words.IntN(1000))
	}
	o.text, o.tokens = o.text+more, o.tokens+n
	switch o.path {
	case "/generate":
		o.send(map[string]any{"text": o.text, "meta_info": map[string]any{"prompt_tokens": o.prompt, "completion_tokens": o.tokens}})
	case "/v1/completions":
		o.send(map[string]any{"choices": []any{map[string]any{"index": 0, "text": more}}})
	default:
		o.send(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": more}}}})
	}
}

// end sends what stands behind the text.
func (o *stream) end(spec bool, depth int) {
	if o.path == "/generate" {
		meta := map[string]any{"prompt_tokens": o.prompt, "completion_tokens": o.tokens, "finish_reason": map[string]any{"type": "length"}}
		if spec {
			meta["spec_verify_ct"] = o.cycles
			if o.version == New {
				meta["spec_num_correct_drafts"] = o.accepted
			}
		}
		o.send(map[string]any{"text": o.text, "meta_info": meta})
	} else {
		empty := map[string]any{"index": 0, "finish_reason": "length", "text": "", "delta": map[string]any{}}
		o.send(map[string]any{"choices": []any{empty}})
		last := map[string]any{"choices": []any{}, "usage": map[string]any{"prompt_tokens": o.prompt, "completion_tokens": o.tokens}}
		if o.isLlama() {
			last["timings"] = o.timings(depth)
		}
		o.send(last)
	}
	_, _ = io.WriteString(o.w, "data: [DONE]\n\n") // the client may have gone
}

func (o *stream) send(doc any) {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(o.w, "data: %s\n\n", text) // the client may have gone
	o.w.(http.Flusher).Flush()
}
