package main

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/server"
)

// FuzzServedSpeculation checks invariant 1 through the server: whatever a request asks for, its text, tokens, log-probabilities, finish reasons
// and counts are the same plain and with any draft, whole and streamed. The tiny model repeats the alphabet, so that look-up is accepted
// whole, stop strings and ends of turns inside of drafts included.
func FuzzServedSpeculation(f *testing.F) {
	h := tinyServer(f)
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		path, req := randomRequest(r)
		want := answerOf(t, h, path, with(req, "speculative", map[string]any{"drafter": "none"}), false)
		req["speculative"] = randomSpec(r)
		for _, stream := range []bool{false, true} {
			if got := answerOf(t, h, path, req, stream); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %v, stream %v:\n%+v\nplain:\n%+v", path, req, stream, got, want)
			}
		}
		for _, c := range want.Choices {
			if c.Logprobs != len(c.IDs) && req["logprobs"] != nil {
				t.Errorf("%s %v: %d log-probabilities for %d tokens", path, req, c.Logprobs, len(c.IDs))
			}
		}
	})
}

// tinyServer serves the tiny model with as many layers as a drafter of random weights needs.
func tinyServer(t testing.TB) http.Handler {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, layeredGGUF(6), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(engine.Options{Model: path, Threads: 1, Context: 256, MaxRunning: 3, MaxWaiting: 8, Drafter: engine.RandomDrafter,
		Limit: draft.Shape{Steps: 8, TopK: 4, DraftTokens: 16}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	s := server.New(server.Config{Model: "tiny"})
	if err := s.Start(ctx, server.Wrap(e)); err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// randomRequest returns a valid request of either API.
func randomRequest(r *rand.Rand) (path string, req map[string]any) {
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	req = map[string]any{"max_tokens": pick(1, 2, 3, 5, 8, 13, 40), "temperature": pick(0, 0, 0.3, 1, 1e-9, 50), "seed": pick(0, 7, -1), "return_token_ids": true}
	text := ""
	for range 1 + r.IntN(3) {
		text += pick("\nabcdefghijklmnopqrstuvwxyz\nabc", "xyz\nabcdefghijklmnop\n", "😀 \nabcde 😀 \nab", "<|im_end|>", "你好世界", "e\u0301", " ").(string)
	}
	extras := map[string][]any{
		"top_p": {0, 0.5, 0.999, 1}, "top_k": {-1, 0, 1, 2, 258, 1 << 40}, "min_p": {0.01, 0.3, 1}, "repetition_penalty": {0.01, 0.9, 1.5, 1e6},
		"frequency_penalty": {-2, 0.5, 2}, "presence_penalty": {-2, 0.5, 2}, "ignore_eos": {true}, "skip_special_tokens": {false}, "n": {2, 3},
		"logit_bias":     {map[string]any{"258": 100}, map[string]any{"258": -100, "240": 5}, map[string]any{"98": 5, "159": 100}},
		"stop":           {"fgh", "x", []any{"qrstu", "yz"}, []any{"a", "\n"}, []any{"<|im_end|>", "\ufffd"}, []any{"z\u0001", "z<|im"}},
		"stop_token_ids": {[]any{'h'}, []any{258}, []any{'z', 'b', 0}},
	}
	for _, name := range slices.Sorted(maps.Keys(extras)) { // a seed is one request
		if v := pick(extras[name]...); r.IntN(4) == 0 {
			req[name] = v
		}
	}
	chat, logprobs := r.IntN(2) == 0, r.IntN(2) == 0
	if chat {
		req["messages"] = []any{map[string]any{"role": "user", "content": text}}
		if logprobs {
			req["logprobs"], req["top_logprobs"] = true, r.IntN(4)
		}
		return "/v1/chat/completions", req
	}
	if req["prompt"] = text; logprobs {
		req["logprobs"] = r.IntN(4)
	}
	return "/v1/completions", req
}

// randomSpec returns a way of speculating within the server's limit.
func randomSpec(r *rand.Rand) map[string]any {
	steps := 1 + r.IntN(8)
	spec := map[string]any{"drafter": "ngram", "steps": steps}
	if r.IntN(2) == 0 {
		spec["drafter"] = "eagle3"
		if top := 2 + r.IntN(3); r.IntN(2) == 0 {
			spec["topk"], spec["draft_tokens"] = top, 1+steps+r.IntN(min(15-steps, top-1)+1)
		}
	}
	return spec
}

// answer is what must not depend on the way; the rest of what a server says is left out.
type answer struct {
	Choices map[int]*answerChoice
	Usage   wireUsage
}

type answerChoice struct {
	Text, Reason string
	IDs          []int32
	Logprobs     int                 // entries
	Lists        map[string][]string // they, as they came
}

type wireUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// wireDoc is the answer of either API, or an event of its stream.
type wireDoc struct {
	Choices []struct {
		Index          int
		Text           string
		Message, Delta struct{ Content string }
		Logprobs       map[string][]json.RawMessage
		Reason         string  `json:"finish_reason"`
		IDs            []int32 `json:"token_ids"`
	}
	Usage *wireUsage
}

// with returns a copy of a request with one more parameter.
func with(req map[string]any, name string, value any) map[string]any {
	c := maps.Clone(req)
	c[name] = value
	return c
}

// answerOf sends a request and puts its answer, or the events of its stream, together.
func answerOf(t *testing.T, h http.Handler, path string, req map[string]any, stream bool) answer {
	t.Helper()
	if stream {
		req = with(with(req, "stream", true), "stream_options", map[string]any{"include_usage": true})
	}
	body, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d: %s", body, w.Code, w.Body)
	}
	docs := []string{w.Body.String()}
	if stream {
		docs = strings.Split(strings.TrimSuffix(docs[0], "data: [DONE]\n\n"), "\n\n")
		docs = docs[:len(docs)-1] // nothing follows the last line
	}
	a := answer{Choices: map[int]*answerChoice{}}
	for _, doc := range docs {
		a.add(t, strings.TrimPrefix(doc, "data: "))
	}
	return a
}

// add takes one document.
func (a *answer) add(t *testing.T, text string) {
	t.Helper()
	var doc wireDoc
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if doc.Usage != nil {
		a.Usage = *doc.Usage
	}
	for _, c := range doc.Choices {
		to := a.Choices[c.Index]
		if to == nil {
			to = &answerChoice{Lists: map[string][]string{}}
			a.Choices[c.Index] = to
		}
		if to.Reason != "" {
			t.Errorf("an event after the end: %s", text)
		}
		to.Text, to.Reason, to.IDs = to.Text+c.Text+c.Message.Content+c.Delta.Content, c.Reason, append(to.IDs, c.IDs...)
		to.Logprobs += len(c.Logprobs["content"]) + len(c.Logprobs["tokens"])
		for name, list := range c.Logprobs {
			for _, v := range list {
				to.Lists[name] = append(to.Lists[name], string(v))
			}
		}
	}
}
