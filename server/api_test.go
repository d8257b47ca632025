package server

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/openai"
)

// unmarshal reads an answer, which must have the given status.
func unmarshal[T any](t *testing.T, w *httptest.ResponseRecorder, status int) (doc T) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return doc
}

// eventsOf reads a stream to its end and returns the events before [DONE].
func eventsOf[T any](t *testing.T, body io.Reader) (docs []T) {
	t.Helper()
	r := openai.NewReader(body)
	for {
		data, err := r.Next()
		if err != nil {
			t.Fatalf("the stream ends without [DONE]: %v", err)
		}
		if string(data) == openai.Done {
			if _, err := r.Next(); err != io.EOF {
				t.Fatalf("after [DONE]: %v", err)
			}
			return docs
		}
		var doc T
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		docs = append(docs, doc)
	}
}

const chatHi = `"messages":[{"role":"user","content":"Hi"}]`

func TestChat(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	w := call(s.Handler(), "POST", "/v1/chat/completions", `{"model":"fake",`+chatHi+`,"seed":7,"temperature":0.5,"top_k":3,"logit_bias":{"65":1}}`)
	doc := unmarshal[openai.ChatCompletion](t, w, 200)
	c := doc.Choices[0]
	if c.Message.Content != "Hello, world" || *c.FinishReason != "stop" || doc.Object != "chat.completion" || c.Logprobs != nil || doc.Model != "fake" {
		t.Errorf("answer %s", w.Body)
	}
	req := f.last().req
	text := f.tok.Decode(req.Prompt, false)
	if want := "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"; text != want {
		t.Errorf("prompt %q; want %q", text, want)
	}
	if want := (openai.Usage{PromptTokens: len(req.Prompt), CompletionTokens: 12, TotalTokens: len(req.Prompt) + 12}); doc.Usage.PromptTokens != want.PromptTokens ||
		doc.Usage.CompletionTokens != 12 || doc.Usage.TotalTokens != want.TotalTokens || doc.Usage.PromptTokensDetails.CachedTokens != 1 {
		t.Errorf("usage %+v; want %+v", doc.Usage, want)
	}
	if p := req.Sampling; p.Seed != 7 || p.Temperature != 0.5 || p.TopK != 3 || p.TopP != 1 || len(p.LogitBias) != 1 || req.MaxTokens != 200-len(req.Prompt) || req.Spec != nil {
		t.Errorf("request %+v", req)
	}
	// Control tokens that a user spells out are part of the template's text, as in other servers; what is special in the
	// output is not shown.
	f.script = func(engine.Request) []string { return []string{"a", "\x00", "b"} }
	doc = unmarshal[openai.ChatCompletion](t, call(s.Handler(), "POST", "/v1/chat/completions", `{`+chatHi+`,"ignore_eos":true,"max_tokens":3}`), 200)
	if c := doc.Choices[0]; c.Message.Content != "ab" || *c.FinishReason != "length" || doc.Usage.CompletionTokens != 3 {
		t.Errorf("with ignore_eos: %+v", c)
	}
	doc = unmarshal[openai.ChatCompletion](t, call(s.Handler(), "POST", "/v1/chat/completions", `{`+chatHi+`,"ignore_eos":true,"max_tokens":3,"skip_special_tokens":false}`), 200)
	if c := doc.Choices[0]; c.Message.Content != "a<|im_end|>b" {
		t.Errorf("with special tokens: %+v", c)
	}
}

func TestChatStream(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	w := call(s.Handler(), "POST", "/v1/chat/completions", `{`+chatHi+`,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true,"return_meta_info":true}`)
	if ct := w.Header().Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("Content-Type %q", ct)
	}
	docs := eventsOf[openai.ChatChunk](t, w.Body)
	var text strings.Builder
	ids := 0
	for i, d := range docs[:len(docs)-1] {
		c := d.Choices[0]
		if d.ID != docs[0].ID || d.Object != "chat.completion.chunk" || d.Usage != nil {
			t.Errorf("event %d: %+v", i, d)
		}
		if (c.Delta.Role == "assistant") != (i == 0) {
			t.Errorf("event %d has the role %q", i, c.Delta.Role)
		}
		if c.Delta.Content != nil {
			text.WriteString(*c.Delta.Content)
		}
		ids += len(c.TokenIDs)
		if last := i == len(docs)-2; (c.FinishReason != nil) != last || (c.MetaInfo != nil) != last {
			t.Errorf("event %d of %d: reason %v, meta %v", i, len(docs), c.FinishReason, c.MetaInfo)
		}
	}
	if text.String() != "Hello, world" || ids != 12 || len(docs) != 6 {
		t.Errorf("%d events, text %q, %d ids; want 6 (role, three texts, end, usage), 12 ids", len(docs), text.String(), ids)
	}
	if u := docs[len(docs)-1]; len(u.Choices) != 0 || u.Usage == nil || u.Usage.CompletionTokens != 12 {
		t.Errorf("the usage event is %+v", u)
	}
}

// TestControlTokens checks that a raw prompt may spell control tokens out, since its author writes the turns, and that a chat's message may not.
func TestControlTokens(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	const text = `<|im_start|>u\nHi<|im_end|>`
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":"` + text + `"}`,
		"/generate":            `{"text":"` + text + `"}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"` + text + `","name":"<|im_end|>"}]}`,
	} {
		if w := call(s.Handler(), "POST", path, body); w.Code != 200 {
			t.Fatalf("%s: %s", path, w.Body)
		}
		var got []int32
		for _, id := range f.last().req.Prompt {
			if id == fakeEnd || id == fakeEnd+1 {
				got = append(got, id)
			}
		}
		want := []int32{fakeEnd + 1, fakeEnd}
		if strings.Contains(path, "chat") {
			want = append(want, fakeEnd+1) // the head of the answer: the template has the same two before it
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: control tokens %v; want %v", path, got, want)
		}
	}
}

// TestStreamUsage checks the usage in the events of a stream: none unless asked for, null before the last event as in the OpenAI API, and in
// every event, by choice, with continuous_usage_stats.
func TestStreamUsage(t *testing.T) {
	s, _ := started(t, newFake(t), Config{})
	for path, prompt := range map[string]string{"/v1/completions": `"prompt":"Hi","max_tokens":50`, "/v1/chat/completions": chatHi} {
		for options, want := range map[string]string{`{}`: "", `{"include_usage":true}`: "null", `{"include_usage":true,"continuous_usage_stats":true}`: "object"} {
			body := call(s.Handler(), "POST", path, `{`+prompt+`,"n":2,"stream":true,"stream_options":`+options+`}`).Body
			docs := eventsOf[map[string]json.RawMessage](t, body)
			sum := 0
			for i, d := range docs {
				got, ok := d["usage"]
				last := want != "" && i == len(docs)-1
				if !last && want != "object" && string(got) != want || ok != (want != "") {
					t.Errorf("%s %s: event %d has the usage %q", path, options, i, got)
				}
				var u openai.Usage
				if ok && string(got) != "null" {
					if err := json.Unmarshal(got, &u); err != nil || u.TotalTokens != u.PromptTokens+u.CompletionTokens || u.PromptTokens == 0 {
						t.Errorf("%s %s: event %d: %+v, %v", path, options, i, u, err)
					}
				}
				if ended := strings.Contains(string(d["choices"]), `"finish_reason":"stop"`); ended && want == "object" && u.CompletionTokens != 12 {
					t.Errorf("%s: %+v at the end of a choice of 12 tokens", path, u)
				}
				if last {
					sum = u.CompletionTokens
				}
			}
			if want != "" && sum != 24 {
				t.Errorf("%s %s: %d tokens in all; want 24", path, options, sum)
			}
		}
	}
}

func TestChatLogprobs(t *testing.T) {
	f := newFake(t)
	f.script = func(engine.Request) []string { return []string{"h\xc3", "\xa9\x00"} }
	s, _ := started(t, f, Config{})
	body := `{` + chatHi + `,"logprobs":true,"top_logprobs":2,"stream":`
	whole := unmarshal[openai.ChatCompletion](t, call(s.Handler(), "POST", "/v1/chat/completions", body+`false}`), 200)
	l := whole.Choices[0].Logprobs.Content
	if whole.Choices[0].Message.Content != "hé" || len(l) != 3 || l[0].Token != "h" || l[0].Logprob != -0.5 || len(l[0].TopLogprobs) != 2 ||
		l[0].TopLogprobs[1].Token != "i" || l[0].TopLogprobs[1].Logprob != -1.5 || l[1].Bytes[0] != 0xc3 || l[1].Token != "\ufffd" {
		t.Errorf("logprobs %+v", l)
	}
	n := 0
	for _, d := range eventsOf[openai.ChatChunk](t, call(s.Handler(), "POST", "/v1/chat/completions", body+`true}`).Body) {
		if d.Choices[0].Logprobs != nil {
			n += len(d.Choices[0].Logprobs.Content)
		}
	}
	if n != 3 {
		t.Errorf("the stream has %d logprobs", n)
	}
}

func TestCompletion(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	doc := unmarshal[openai.Completion](t, call(s.Handler(), "POST", "/v1/completions", `{"prompt":["ab","c"],"n":2,"logprobs":0,"max_tokens":5,"seed":-1}`), 200)
	if len(doc.Choices) != 4 || doc.Usage.PromptTokens != 3 || doc.Usage.CompletionTokens != 20 {
		t.Fatalf("%+v", doc)
	}
	for i, c := range doc.Choices {
		if c.Index != i || c.Text != "Hello" || *c.FinishReason != "length" {
			t.Errorf("choice %d: %+v", i, c)
		}
		if l := c.Logprobs; len(l.Tokens) != 5 || l.TextOffset[4] != 4 || l.TopLogprobs[0]["H"] != -0.5 {
			t.Errorf("choice %d: logprobs %+v", i, l)
		}
	}
	seeds := map[uint64]bool{}
	for _, st := range f.streams[1:] { // after the warm-up's
		seeds[st.req.Sampling.Seed] = true
	}
	if !seeds[^uint64(0)] || !seeds[0] || len(seeds) != 2 {
		t.Errorf("seeds %v; want -1 and its successor", seeds)
	}
	events := eventsOf[openai.Completion](t, call(s.Handler(), "POST", "/v1/completions", `{"prompt":[104,105],"n":3,"stream":true}`).Body)
	texts, ends := map[int]string{}, 0
	for _, e := range events {
		texts[e.Choices[0].Index] += e.Choices[0].Text
		if e.Choices[0].FinishReason != nil {
			ends++
		}
	}
	if len(texts) != 3 || texts[2] != "Hello, world" || ends != 3 {
		t.Errorf("texts %v, %d ends", texts, ends)
	}
}

func TestSpeculativeExtension(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	for in, want := range map[string]engine.Spec{
		`{"drafter":"ngram","steps":3}`:                           {Drafter: engine.DraftNgram, Shape: draft.Chain(3)},
		`{"drafter":"ngram","steps":2,"topk":2,"draft_tokens":6}`: {Drafter: engine.DraftNgram, Shape: draft.Shape{Steps: 2, TopK: 2, DraftTokens: 6}},
		`{"drafter":"none"}`:                                      {Drafter: engine.DraftNone},
		`{"drafter":"eagle3","steps":1,"p_min":0.25,"rule":"b"}`:  {Drafter: engine.DraftModel, Shape: draft.Chain(1), PMin: 0.25, Rule: engine.RuleB},
		`{"drafter":"ngram","steps":0,"topk":null}`:               {Drafter: engine.DraftNgram, Shape: draft.Chain(0)},
	} {
		w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","speculative":`+in+`}`)
		if got := f.last().req.Spec; w.Code != 200 || got == nil || *got != want {
			t.Errorf("%s: %d, %+v; want %+v", in, w.Code, got, want)
		}
	}
	for in, param := range map[string]string{
		`{"drafter":"x"}`:                        "speculative.drafter",
		`{"topk":2}`:                             "speculative.steps",
		`{"drafter":"ngram","steps":2,"topk":2}`: "speculative.topk",
		`{"drafter":"ngram","steps":9}`:          "speculative.steps",
		`{"drafter":"ngram","steps":2,"topk":1,"draft_tokens":9}`: "speculative.steps",
		`{"drafter":"ngram","steps":-1}`:                          "speculative.steps",
		`{"steps":2}`:                                             "speculative.steps",
		`{"p_min":1.5}`:                                           "speculative.p_min",
		`{"rule":"c"}`:                                            "speculative.rule",
		`{"drafter":"ngram","steps":2,"rule":"b"}`:                "speculative.rule",
		`{"drafter":"eagle3","steps":0,"rule":"b"}`:               "speculative.rule",
		`{"step":1}`:                                              "speculative.step",
	} {
		w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","speculative":`+in+`}`)
		if doc := unmarshal[openai.ErrorBody](t, w, 400); doc.Error.Param != param {
			t.Errorf("%s: %+v; want param %s", in, doc.Error, param)
		}
	}
}

// TestRuleOfARequest: a server's rule b is for requests that use its drafter, and asking for it where it means nothing is an error.
func TestRuleOfARequest(t *testing.T) {
	f := newFake(t)
	f.info.Spec = engine.Spec{Drafter: engine.DraftModel, Shape: draft.Chain(3), Rule: engine.RuleB}
	s, _ := started(t, f, Config{})
	for in, want := range map[string]engine.Rule{
		`{"steps":2}`: engine.RuleB, `{"rule":"a"}`: engine.RuleA, `{"drafter":"none"}`: engine.RuleA, `{"steps":0}`: engine.RuleA,
		`{"drafter":"ngram","steps":2}`: engine.RuleA,
	} {
		w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","temperature":0,"speculative":`+in+`}`)
		if got := f.last().req.Spec; w.Code != 200 || got == nil || got.Rule != want {
			t.Errorf("%s: %d, %+v; want rule %s", in, w.Code, got, want)
		}
	}
	w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","temperature":0,"speculative":{"rule":"b"}}`)
	if doc := unmarshal[openai.ErrorBody](t, w, 400); doc.Error.Param != "speculative.rule" {
		t.Errorf("rule b at temperature 0: %+v", doc.Error)
	}
}

// TestSimulationIsSaid: every kind of answer of a server that simulates acceptance says so, and of another one none.
func TestSimulationIsSaid(t *testing.T) {
	for _, length := range []float64{0, 2.5} {
		f := newFake(t)
		f.info.Simulated = length
		s, _ := started(t, f, Config{})
		for path, body := range map[string]string{
			"/v1/completions":      `{"prompt":"a"}`,
			"/v1/chat/completions": `{"messages":[{"role":"user","content":"a"}]}`,
			"/generate":            `{"text":"a"}`,
		} {
			w := call(s.Handler(), "POST", path, body)
			said := strings.Contains(w.Body.String(), `"simulated_accept_length":2.5`)
			if header := w.Header().Get(simulatedHeader); w.Code != 200 || said != (length != 0) || (header == "2.5") != (length != 0) {
				t.Errorf("simulated %v, %s: %d, header %q, %s", length, path, w.Code, header, w.Body)
			}
			stream := call(s.Handler(), "POST", path, strings.Replace(body, "{", `{"stream":true,`, 1))
			if header := stream.Header().Get(simulatedHeader); (header == "2.5") != (length != 0) {
				t.Errorf("simulated %v, stream of %s: header %q", length, path, header)
			}
		}
	}
}

func TestGenerate(t *testing.T) {
	f := newFake(t)
	s, _ := started(t, f, Config{})
	w := call(s.Handler(), "POST", "/generate", `{"text":"Hi","rid":"r1","sampling_params":{"temperature":0,"max_new_tokens":64},"return_logprob":true,"return_text_in_logprobs":true}`)
	doc := unmarshal[map[string]any](t, w, 200)
	meta := doc["meta_info"].(map[string]any)
	for k, want := range map[string]any{
		"id": "r1", "prompt_tokens": 2.0, "completion_tokens": 12.0, "cached_tokens": 1.0, "spec_verify_ct": 1.0, "spec_accept_length": 12.0, "accept_length": 2.0,
		"spec_accept_rate": 0.5, "spec_num_correct_drafts": 1.0, "spec_num_proposed_drafts": 2.0,
	} {
		if meta[k] != want {
			t.Errorf("meta_info.%s = %v; want %v", k, meta[k], want)
		}
	}
	text, err := json.Marshal([]any{doc["text"], meta["finish_reason"], meta["spec_correct_drafts_histogram"], meta["spec_accept_histogram"], meta["output_token_logprobs"].([]any)[0]})
	if want := `["Hello, world",{"matched":256,"type":"stop"},[0,1],[0,1],[-0.5,72,"H"]]`; err != nil || string(text) != want {
		t.Errorf("%s; want %s", text, want)
	}
	if req := f.last().req; req.Sampling.Temperature != 0 || req.MaxTokens != 64 {
		t.Errorf("request %+v", req)
	}

	events := eventsOf[openai.Generated](t, call(s.Handler(), "POST", "/generate", `{"input_ids":[1,2],"stream":true,"sampling_params":{"stop":"wor"}}`).Body)
	last := events[len(events)-1]
	if last.Text != "Hello, " || last.MetaInfo.FinishReason.Matched != "wor" || last.MetaInfo.CompletionTokens != 10 || events[0].Text != "H" || events[0].MetaInfo.FinishReason != nil {
		t.Errorf("events %+v", events)
	}
	for i := 1; i < len(events); i++ {
		if !strings.HasPrefix(events[i].Text, events[i-1].Text) {
			t.Errorf("event %d has %q after %q", i, events[i].Text, events[i-1].Text)
		}
	}
	for _, one := range []string{`"text":["a"]`, `"input_ids":[[1]]`} { // as in SGLang, a list is answered by a list
		if list := unmarshal[[]openai.Generated](t, call(s.Handler(), "POST", "/generate", `{`+one+`}`), 200); len(list) != 1 || list[0].Text != "Hello, world" {
			t.Errorf("%s: %+v", one, list)
		}
	}
	list := unmarshal[[]openai.Generated](t, call(s.Handler(), "POST", "/generate", `{"text":["a","b"],"sampling_params":{"max_new_tokens":1}}`), 200)
	if len(list) != 2 || list[1].Text != "H" || list[1].MetaInfo.FinishReason.Length != 1 || *list[1].Index != 1 {
		t.Errorf("%+v", list)
	}
}

func TestRandomModel(t *testing.T) {
	f := newFake(t)
	f.tok = nil
	s, _ := started(t, f, Config{})
	doc := unmarshal[openai.Completion](t, call(s.Handler(), "POST", "/v1/completions", `{"prompt":[5,6],"max_tokens":3,"logprobs":1}`), 200)
	if doc.Choices[0].Text != "72 101 108" {
		t.Errorf("text %q", doc.Choices[0].Text)
	}
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"a"}`, "/v1/chat/completions": `{` + chatHi + `}`, "/generate": `{"text":"a"}`} {
		if e := unmarshal[openai.ErrorBody](t, call(s.Handler(), "POST", path, body), 400).Error; !strings.Contains(e.Message, "no tokenizer") {
			t.Errorf("%s: %+v", path, e)
		}
	}
}

func TestInfo(t *testing.T) {
	f := newFake(t)
	f.info.Spec = engine.Spec{Drafter: engine.DraftNgram, Shape: draft.Chain(3)}
	s, log := started(t, f, Config{Settings: map[string]any{"model_path": "m.gguf", "threads": 2}, Version: "v1"})
	f.set(func(st *engine.Stats) {
		st.Draft.Record(3, 3, 2)
		st.Draft.Record(3, 3, 1)
	}, nil)
	for _, path := range []string{"/server_info", "/get_server_info"} {
		doc := unmarshal[map[string]any](t, call(s.Handler(), "GET", path, ""), 200)
		state := doc["internal_states"].([]any)[0].(map[string]any)
		if doc["threads"] != 2.0 || doc["speculative_algorithm"] != "NGRAM" || doc["speculative_num_steps"] != 3.0 || doc["version"] != "v1" ||
			doc["max_total_num_tokens"] != float64(8*blockSlots) || state["avg_spec_accept_length"] != 2.5 {
			t.Errorf("%s: %v", path, doc)
		}
	}
	if doc := unmarshal[map[string]any](t, call(s.Handler(), "POST", "/flush_cache", ""), 200); doc["blocks"] != 3.0 {
		t.Errorf("flush: %v", doc)
	}
	state := unmarshal[map[string]any](t, call(s.Handler(), "GET", "/server_info", ""), 200)["internal_states"].([]any)[0].(map[string]any)
	if _, ok := state["avg_spec_accept_length"]; ok {
		t.Errorf("the average outlives a flush: %v", state)
	}
	f.set(func(st *engine.Stats) { st.Running = 1 }, nil)
	if e := unmarshal[openai.ErrorBody](t, call(s.Handler(), "GET", "/flush_cache", ""), 400).Error; e.Code != "busy" {
		t.Errorf("flush while busy: %+v", e)
	}
	for _, path := range []string{"/model_info", "/get_model_info"} {
		if doc := unmarshal[map[string]any](t, call(s.Handler(), "GET", path, ""), 200); doc["model_path"] != "m.gguf" || doc["is_generation"] != true || doc["model_type"] != "llama" {
			t.Errorf("%s: %v", path, doc)
		}
	}
	if doc := unmarshal[openai.ModelList](t, call(s.Handler(), "GET", "/v1/models", ""), 200); doc.Data[0].ID != "fake" || doc.Data[0].MaxModelLen != 200 {
		t.Errorf("models: %+v", doc)
	}
	if doc := unmarshal[openai.Model](t, call(s.Handler(), "GET", "/v1/models/fake", ""), 200); doc.ID != "fake" {
		t.Errorf("model: %+v", doc)
	}
	if e := unmarshal[openai.ErrorBody](t, call(s.Handler(), "GET", "/v1/models/other", ""), 404).Error; e.Code != "model_not_found" {
		t.Errorf("other model: %+v", e)
	}
	if !strings.Contains(log.String(), "] The server is fired up and ready to roll!\n") {
		t.Errorf("no ready line in\n%s", log)
	}
	if line := `] INFO:     192.0.2.1:1234 - "GET /v1/models/other HTTP/1.1" 404 Not Found` + "\n"; !strings.Contains(log.String(), line) {
		t.Errorf("no access line %q in\n%s", line, log)
	}
}
