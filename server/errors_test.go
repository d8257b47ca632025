package server

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/engine"
	"draftlab/openai"
)

func TestBadRequests(t *testing.T) {
	f := newFake(t)
	f.info.MaxWaiting = 128
	s, _ := started(t, f, Config{MaxBody: 4096})
	prompt := func(more string) string { return `{"prompt":"a",` + more + `}` }
	for _, c := range []struct {
		path, body  string
		status      int
		param, code string
		message     string
	}{
		{"/v1/completions", ``, 400, "", "invalid_json", ""},
		{"/v1/completions", `{"prompt":"a"`, 400, "", "invalid_json", ""},
		{"/v1/completions", "{\"prompt\":\"\xff\"}", 400, "", "invalid_json", "UTF-8"},
		{"/v1/completions", `{}`, 400, "prompt", "missing_required_parameter", ""},
		{"/v1/completions", `{"prompt":""}`, 400, "prompt", "invalid_value", "empty"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", "invalid_value", "empty"},
		{"/v1/completions", `{"prompt":["a",""]}`, 400, "prompt", "invalid_value", "empty"},
		{"/v1/completions", `{"prompt":[-1]}`, 400, "prompt", "invalid_value", "-1"},
		{"/v1/completions", `{"prompt":[259]}`, 400, "prompt", "invalid_value", "0 to 258"},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("a", 5000) + `"}`, 413, "", "body_too_large", "4096"},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("a", 300) + `"}`, 400, "prompt", "context_length_exceeded", "200"},
		{"/v1/completions", prompt(`"max_tokens":200`), 400, "max_tokens", "context_length_exceeded", "199"},
		{"/v1/completions", prompt(`"max_tokens":0`), 400, "max_tokens", "invalid_value", ""},
		{"/v1/completions", prompt(`"max_tokens":9223372036854775807`), 400, "max_tokens", "context_length_exceeded", ""},
		{"/v1/completions", prompt(`"model":"gpt-4"`), 404, "model", "model_not_found", "fake"},
		{"/v1/completions", prompt(`"echo":true`), 400, "echo", "unsupported_parameter", "echo"},
		{"/v1/completions", prompt(`"best_of":2`), 400, "best_of", "unsupported_parameter", "best_of"},
		{"/v1/completions", prompt(`"nonsense":2`), 400, "nonsense", "unknown_parameter", "nonsense"},
		{"/v1/completions", prompt(`"temperature":-1`), 400, "temperature", "invalid_value", ""},
		{"/v1/completions", prompt(`"temperature":1e400`), 400, "temperature", "invalid_value", ""},
		{"/v1/completions", prompt(`"top_p":1.5`), 400, "top_p", "invalid_value", ""},
		{"/v1/completions", prompt(`"top_k":-2`), 400, "top_k", "invalid_value", ""},
		{"/v1/completions", prompt(`"min_p":2`), 400, "min_p", "invalid_value", ""},
		{"/v1/completions", prompt(`"presence_penalty":3`), 400, "presence_penalty", "invalid_value", ""},
		{"/v1/completions", prompt(`"frequency_penalty":-3`), 400, "frequency_penalty", "invalid_value", ""},
		{"/v1/completions", prompt(`"repetition_penalty":0`), 400, "repetition_penalty", "invalid_value", ""},
		{"/v1/completions", prompt(`"logit_bias":{"x":1}`), 400, "logit_bias", "invalid_value", ""},
		{"/v1/completions", prompt(`"logit_bias":{"01":1}`), 400, "logit_bias", "invalid_value", ""},
		{"/v1/completions", prompt(`"logit_bias":{"259":1}`), 400, "logit_bias", "invalid_value", ""},
		{"/v1/completions", prompt(`"logit_bias":{"1":1e300}`), 400, "logit_bias", "invalid_value", ""},
		{"/v1/completions", prompt(`"n":0`), 400, "n", "invalid_value", ""},
		{"/v1/completions", prompt(`"n":129`), 400, "n", "invalid_value", "128"},
		{"/v1/completions", `{"prompt":["a","b"],"n":65}`, 400, "n", "invalid_value", "64"},
		{"/v1/completions", prompt(`"logprobs":21`), 400, "logprobs", "invalid_value", ""},
		{"/v1/completions", prompt(`"stop":["a"` + strings.Repeat(`,"b"`, 64) + `]`), 400, "stop", "invalid_value", "at most 64"},
		{"/v1/completions", prompt(`"stop":""`), 400, "stop", "invalid_value", ""},
		{"/v1/completions", prompt(`"stop_token_ids":[300]`), 400, "stop_token_ids", "invalid_value", ""},
		{"/v1/completions", prompt(`"stream_options":{}`), 400, "stream_options", "invalid_value", ""},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "invalid_value", ""},
		{"/v1/chat/completions", `{"messages":[{"role":"tool","content":"a"}]}`, 400, "messages[0].role", "invalid_value", "tool"},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","content":"refuse"}]}`, 400, "messages", "invalid_value", "no"},
		{"/v1/chat/completions", `{` + chatHi + `,"tools":[{"type":"function"}]}`, 400, "tools", "unsupported_parameter", "tools"},
		{"/v1/chat/completions", `{` + chatHi + `,"top_logprobs":2}`, 400, "top_logprobs", "invalid_value", ""},
		{"/v1/chat/completions", `{` + chatHi + `,"max_tokens":2,"max_completion_tokens":3}`, 400, "max_tokens", "invalid_value", ""},
		{"/v1/chat/completions", `{` + chatHi + `,"max_completion_tokens":1000}`, 400, "max_completion_tokens", "context_length_exceeded", ""},
		{"/v1/chat/completions", `{` + chatHi + `,"chat_template_kwargs":{"add_generation_prompt":false}}`, 400, "messages", "invalid_value", `"add_generation_prompt" cannot be set`},
		{"/generate", `{}`, 400, "text", "invalid_value", "exactly one"},
		{"/generate", `{"text":"a","input_ids":[1]}`, 400, "text", "invalid_value", "exactly one"},
		{"/generate", `{"input_ids":"a"}`, 400, "input_ids", "invalid_value", ""},
		{"/generate", `{"text":"a","sampling_params":{"regex":"a"}}`, 400, "sampling_params.regex", "unsupported_parameter", ""},
		{"/generate", `{"text":"a","logprob_start_len":0}`, 400, "logprob_start_len", "invalid_value", ""},
		{"/generate", `{"text":""}`, 400, "text", "invalid_value", "text: the prompt is empty"},
		{"/generate", `{"text":[1]}`, 400, "text", "invalid_value", "list of strings"},
		{"/generate", `{"text":["a","b"],"rid":"x"}`, 400, "rid", "invalid_value", ""},
	} {
		w := call(s.Handler(), "POST", c.path, c.body)
		e := unmarshal[openai.ErrorBody](t, w, c.status).Error
		if e.Param != c.param || e.Code != c.code || !strings.Contains(e.Message, c.message) || e.Message == "" || e.Type != "invalid_request_error" {
			t.Errorf("%s %.80s: %s; want %+v", c.path, c.body, w.Body, c)
		}
	}
	if n := len(f.streams); n != 1 {
		t.Errorf("%d requests reached the engine", n-1)
	}
	if s.busy() != 0 {
		t.Errorf("%d requests are still counted", s.busy())
	}
}

func TestRoutes(t *testing.T) {
	s, _ := started(t, newFake(t), Config{APIKey: "secret"})
	const key = "Bearer secret"
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"GET", "/v1/models", "", nil, 401},
		{"GET", "/v1/models", "", []string{"Authorization", "Bearer wrong"}, 401},
		{"GET", "/v1/models", "", []string{"Authorization", "secret"}, 401},
		{"GET", "/v1/models", "", []string{"Authorization", "bearer secret"}, 200},
		{"HEAD", "/v1/models/fake", "", []string{"Authorization", key}, 200},
		{"HEAD", "/v1/models", "", []string{"Authorization", key}, 200},
		{"GET", "/nowhere", "", nil, 401},
		{"GET", "/nowhere", "", []string{"Authorization", key}, 404},
		{"GET", "/v1/completions", "", []string{"Authorization", key}, 405},
		{"BREW", "/v1/completions", "", []string{"Authorization", key}, 405},
		{"POST", "/health", "", nil, 405},
		{"GET", "/health", "", nil, 200},
		{"HEAD", "/health", "", nil, 200},
		{"GET", "/health_generate", "", nil, 200},
		{"GET", "/metrics", "", nil, 200},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Type", "text/plain"}, 415},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Type", "application/json; charset=latin1"}, 415},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Type", "application/json; charset=UTF-8"}, 200},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Type", "application/json;charset=utf8"}, 200},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Encoding", "identity"}, 200},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Encoding", "gzip"}, 415},
		{"POST", "/v1/completions", `{"prompt":"a"}`, []string{"Authorization", key, "Content-Type", "/"}, 415},
	} {
		w := call(s.Handler(), c.method, c.path, c.body, c.header...)
		if w.Code != c.status {
			t.Errorf("%s %s %v: %d, want %d: %s", c.method, c.path, c.header, w.Code, c.status, w.Body)
		}
		if w.Code >= 400 {
			var doc openai.ErrorBody
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Error.Message == "" {
				t.Errorf("%s %s: error body %s", c.method, c.path, w.Body)
			}
		}
		if (w.Code == 405) != (w.Header().Get("Allow") != "") || (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s %s: headers %v", c.method, c.path, w.Header())
		}
	}
	scrape := call(s.Handler(), "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`draftlab:http_requests_total{method="OTHER",model_name="fake",path="other",status="405"} 1`,
		`sglang:num_running_reqs{model_name="fake"} 0`, `draftlab:phase_seconds_total{model_name="fake",phase="draft_extend"} 0`,
		`sglang:e2e_request_latency_seconds_count{model_name="fake"} 3`, `draftlab:spec_decode_num_drafts_total{model_name="fake"} 0`,
	} {
		if !strings.Contains(scrape, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
}

func TestEngineErrors(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	s.retry.done(90 * time.Second)
	post := func(more string) *openai.Error {
		w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","n":2`+more+`}`)
		e := unmarshal[openai.ErrorBody](t, w, w.Code).Error
		e.Status = w.Code
		if w.Code == 429 && w.Header().Get("Retry-After") != "45" {
			t.Errorf("Retry-After %q; want the 90 s of a request through 2 places", w.Header().Get("Retry-After"))
		}
		return e
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
		param  string
	}{
		{fullQueue(4), 429, "queue_full", ""},
		{engine.ErrContext, 400, "context_length_exceeded", ""},
		{errors.New("top_p = 3: too much"), 400, "invalid_value", "top_p"},
		{errors.New(""), 400, "invalid_value", ""},
	} {
		f.set(func(*engine.Stats) {}, c.err)
		for _, more := range []string{"", `,"stream":true`} {
			if e := post(more); e.Status != c.status || e.Code != c.code || e.Param != c.param {
				t.Errorf("%v: %+v", c.err, e)
			}
		}
	}
	f.set(func(st *engine.Stats) { st.Waiting = 4 }, nil)
	before := len(f.streams)
	if e := post(""); e.Status != 429 || len(f.streams) != before {
		t.Errorf("with a full queue: %+v", e)
	}
	f.set(func(st *engine.Stats) { st.Waiting = 0 }, nil)
	f.fail = errBroken
	f.script = func(engine.Request) []string { return nil }
	if e := post(""); e.Status != 500 || !strings.Contains(e.Message, "broken") {
		t.Errorf("a broken engine: %+v", e)
	}
	if e := post(`,"stream":true`); e.Status != 500 { // nothing was sent yet
		t.Errorf("a broken engine, streaming: %+v", e)
	}
	f.script = func(engine.Request) []string { return []string{"ab"} }
	w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","stream":true}`)
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, `"error":{"message":"the engine failed: a broken engine"`) || strings.Contains(body, openai.Done) {
		t.Errorf("an engine that breaks within a stream: %d %s", w.Code, body)
	}
	if s.busy() != 0 {
		t.Errorf("%d requests are still counted", s.busy())
	}
}

// TestPartialSubmit checks that a request of which the queue takes a part leaves nothing behind.
func TestPartialSubmit(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	script := f.script
	n := 0
	f.script = func(r engine.Request) []string {
		if n++; n == 3 {
			f.submitErr = fullQueue(4) // Submit holds the lock; this call still succeeds
		}
		return script(r)
	}
	if w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","n":4}`); w.Code != 429 {
		t.Errorf("status %d", w.Code)
	}
	if len(f.streams) != 4 {
		t.Errorf("%d outputs were handed in; want the warm-up and 3", len(f.streams))
	}
	for i, st := range f.streams[1:] {
		select {
		case <-st.cancelled:
		default:
			t.Errorf("output %d still runs", i)
		}
	}
}

// TestMoreThanTheQueue checks that a request with more outputs than can ever wait is refused for good, and that one which does not fit
// now leaves the queue to others.
func TestMoreThanTheQueue(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":"a","n":5}`,
		"/v1/chat/completions": `{` + chatHi + `,"n":5}`,
		"/generate":            `{"text":["a","b","c","d","e"]}`,
	} {
		e := unmarshal[openai.ErrorBody](t, call(s.Handler(), "POST", path, body), 400).Error
		if !strings.Contains(e.Message, "4") || !strings.Contains(e.Message, "queue") {
			t.Errorf("%s: %+v", path, e)
		}
	}
	f.set(func(st *engine.Stats) { st.Waiting = 1 }, nil)
	if w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","n":4}`); w.Code != 429 || len(f.streams) != 1 {
		t.Errorf("status %d, %d outputs were handed in", w.Code, len(f.streams)-1)
	}
}

func TestPanic(t *testing.T) {
	f := newFake(t)
	s, log := started(t, f, Config{})
	f.script = func(engine.Request) []string { panic("kaboom") }
	w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a"}`)
	if e := unmarshal[openai.ErrorBody](t, w, 500).Error; e.Code != "internal_error" || strings.Contains(e.Message, "kaboom") {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(log.String(), "kaboom") || s.busy() != 0 {
		t.Errorf("busy %d, log %s", s.busy(), log)
	}
}

// FuzzRequests sends anything to every endpoint that takes a body: the answer is a document, never a failure of the
// server's own, and what was submitted is valid.
func FuzzRequests(f *testing.F) {
	paths := []string{"/v1/completions", "/v1/chat/completions", "/generate"}
	f.Add(uint8(0), []byte(`{"prompt":["a",[1]],"n":2,"stop":["x"],"stream":true,"logprobs":2,"logit_bias":{"1":-100}}`))
	f.Add(uint8(1), []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"stream_options":{"include_usage":true},"chat_template_kwargs":{"a":[1]}}`))
	f.Add(uint8(2), []byte(`{"text":["a"],"sampling_params":{"stop":["x"],"n":3},"return_logprob":true,"top_logprobs_num":2,"speculative":{"steps":1}}`))
	eng := newFake(f)
	s, _ := started(f, eng, Config{})
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		eng.streams = nil
		w := call(s.Handler(), "POST", paths[int(which)%len(paths)], string(body))
		if !slices.Contains([]int{200, 400, 404, 413}, w.Code) {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("no JSON: %s", w.Body)
		}
		for _, st := range eng.streams {
			if err := st.req.Sampling.Validate(); err != nil || len(st.req.Prompt) == 0 || len(st.req.Prompt)+st.req.MaxTokens > eng.info.Context {
				t.Errorf("submitted %+v: %v", st.req, err)
			}
		}
		if s.busy() != 0 {
			t.Errorf("%d requests are still counted", s.busy())
		}
	})
}
