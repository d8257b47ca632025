package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script answers with parts, each sent when the client's last one has been flushed.
func script(t *testing.T, status int, parts ...string) (c *Client, body *map[string]any) {
	t.Helper()
	body = new(map[string]any)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		for _, p := range parts {
			if p == "cut" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return &Client{Base: s.URL, HTTP: s.Client()}, body
}

const chatEnd = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length","meta_info":{"decode_steps":2,"spec_verify_ct":2,"spec_num_proposed_drafts":6,"spec_num_correct_drafts":2,"spec_correct_drafts_histogram":[1,0,1]}}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}

data: [DONE]

`

// TestAllThatTheModelWrote: reasoning, under either name, and calls of tools are text whose first piece is the first token, and a piece
// that a server sends under both names is one. A role alone is none.
func TestAllThatTheModelWrote(t *testing.T) {
	end := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct{ first, second, text string }{
		"reasoning_content": {`{"reasoning_content":"hm"}`, `{"content":"so"}`, "hmso"},
		"reasoning":         {`{"reasoning":"hm"}`, `{"content":"so"}`, "hmso"},
		"both":              {`{"reasoning":"hm","reasoning_content":"hm"}`, `{"content":"so"}`, "hmso"},
		"only reasoning":    {`{"reasoning":"hm"}`, `{"reasoning":"mm"}`, "hmmm"},
		"a tool":            {`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`, "f{}"},
	} {
		event := func(d string) string { return `data: {"choices":[{"index":0,"delta":` + d + "}]}\n\n" }
		c2, _ := script(t, 200, event(`{"role":"assistant","content":""}`), event(c.first), event(c.second), end)
		s := c2.Do(t.Context(), time.Time{}, &Request{API: Chat})
		if s.Error != "" || s.Text != c.text || s.OutputTokens != 4 || s.FirstNS <= 0 || len(s.Chunks) == 0 || s.Chunks[0].AtNS != s.FirstNS {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestDraftsOfARequest: vLLM and SGLang tell of them in the last events of a chat, each under a name of its own.
func TestDraftsOfARequest(t *testing.T) {
	const text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":57}%s}` + "\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct {
		extra string
		want  *Speculation
	}{
		"vLLM": {`,"metrics":{"speculative_decoding":{"mean_acceptance_length":1.23,"acceptance_histogram":[39,1,0,3],"num_spec_steps":43,"num_accepted_draft_tokens":10,"num_draft_tokens":129,"num_spec_tokens":3}}`,
			&Speculation{Cycles: 43, Drafted: 129, Accepted: 10, Histogram: []int64{39, 1, 0, 3}}},
		"vLLM, times alone": {`,"metrics":{"time_to_first_token_ms":3}`, nil},
		"SGLang": {`,"sglext":{"spec_tokens_details":{"spec_accept_length":1.3,"spec_num_correct_drafts":10,"spec_num_proposed_drafts":129,"spec_verify_ct":43,"spec_correct_drafts_histogram":[39,1,0,3]}}`,
			&Speculation{Cycles: 43, Drafted: 129, Accepted: 10, Histogram: []int64{39, 1, 0, 3}}},
		"SGLang, plain": {`,"sglext":{}`, nil},
		"neither":       {"", nil},
	} {
		c2, _ := script(t, 200, text+fmt.Sprintf(usage, c.extra))
		if s := c2.Do(t.Context(), time.Time{}, &Request{API: Chat}); s.Error != "" || fmt.Sprint(s.Spec) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q, %+v", name, s.Error, s.Spec)
		}
	}
}

// TestLlamaCPP: its server tells of drafts behind the answer (the end of a real one).
func TestLlamaCPP(t *testing.T) {
	end := `data: {"choices":[],"usage":{"completion_tokens":24,"prompt_tokens":35,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":35,"predicted_n":24,"predicted_ms":4425.972%s}}` + "\n\ndata: [DONE]\n\n"
	text := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	c, _ := script(t, 200, text+fmt.Sprintf(end, `,"draft_n":32,"draft_n_accepted":12`))
	s := c.Do(t.Context(), time.Time{}, &Request{API: Chat})
	if sp := s.Spec; s.Error != "" || sp == nil || sp.Cycles != 11 || sp.Drafted != 32 || sp.Accepted != 12 {
		t.Errorf("%q, %+v", s.Error, sp)
	}
	if s.DueUnixNS != s.StartUnixNS {
		t.Error("without a due time a request is due when it is sent")
	}
	if c, _ = script(t, 200, text+fmt.Sprintf(end, "")); c.Do(t.Context(), time.Time{}, &Request{API: Chat}).Spec != nil {
		t.Error("drafts out of nothing")
	}
}

func TestChat(t *testing.T) {
	c, body := script(t, 200,
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
		": a comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hé\"},\"token_ids\":[1]}]}\n",
		"\ndata: {\"choices\":[{\"delta\":{\"content\":\"llo\"},\"token_ids\":[2,3]}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"!\"},\"token_ids\":[4,5]}]}\n\n",
		chatEnd)
	due := time.Now().Add(-time.Second)
	s := c.Do(context.Background(), due, &Request{API: Chat, Model: "m", Prompt: "Hi", MaxTokens: 5, Extra: map[string]any{"temperature": 0}})
	if s.Error != "" || s.Status != 200 {
		t.Fatalf("status %d: %s", s.Status, s.Error)
	}
	if s.Text != "Héllo!" || !slices.Equal(s.TokenIDs, []int32{1, 2, 3, 4, 5}) || s.Finish != "length" {
		t.Errorf("text %q, ids %v, finish %q", s.Text, s.TokenIDs, s.Finish)
	}
	if s.PromptTokens != 7 || s.OutputTokens != 5 || s.CachedTokens != 3 || s.DecodeSteps != 2 {
		t.Errorf("counts: %+v", s)
	}
	if sp := s.Spec; sp == nil || sp.Cycles != 2 || sp.Drafted != 6 || sp.Accepted != 2 || len(sp.Histogram) != 3 {
		t.Errorf("speculation %+v", sp)
	}
	if n := len(s.Chunks); n != 3 || s.Chunks[0].Tokens != 1 || s.Chunks[1].Tokens != 2 || s.Chunks[0].Bytes != 3 {
		t.Errorf("chunks %+v", s.Chunks)
	}
	if !(0 < s.FirstNS && s.FirstNS <= s.LastNS && s.LastNS <= s.EndNS) || s.FirstNS != s.Chunks[0].AtNS || s.DueUnixNS != due.UnixNano() || s.StartUnixNS < s.DueUnixNS {
		t.Errorf("times: %+v", s)
	}
	want := map[string]any{"model": "m", "stream": true, "max_tokens": 5.0, "temperature": 0.0,
		"messages": []any{map[string]any{"role": "user", "content": "Hi"}}, "stream_options": map[string]any{"include_usage": true}}
	if got, want := fmt.Sprint(*body), fmt.Sprint(want); got != want {
		t.Errorf("body %s\nwant %s", got, want)
	}
}

func TestGenerate(t *testing.T) {
	c, body := script(t, 200,
		"data: {\"text\":\"a\",\"output_ids\":[1],\"meta_info\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"finish_reason\":null}}\n\n",
		"data: {\"text\":\"abc\",\"output_ids\":[1,2,3],\"meta_info\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"finish_reason\":{\"type\":\"stop\"},\"spec_verify_ct\":1,\"spec_accept_histogram\":[0,1]}}\n\ndata: [DONE]\n\n")
	s := c.Do(context.Background(), time.Now(), &Request{API: Generate, Prompt: "x", MaxTokens: 9,
		Extra: map[string]any{"temperature": 0}, Outer: map[string]any{"rid": "q"}})
	if s.Error != "" || s.Text != "abc" || len(s.TokenIDs) != 3 || s.OutputTokens != 3 || s.Finish != "stop" || s.Spec.Accepted != 1 {
		t.Errorf("%+v %+v", s, s.Spec)
	}
	if len(s.Chunks) != 2 || s.Chunks[1].Tokens != 2 || s.Chunks[1].Bytes != 2 {
		t.Errorf("chunks %+v", s.Chunks)
	}
	if got := fmt.Sprint(*body); got != "map[rid:q sampling_params:map[max_new_tokens:9 temperature:0] stream:true text:x]" {
		t.Errorf("body %s", got)
	}
}

func TestFailures(t *testing.T) {
	one := "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n"
	for name, c := range map[string]struct {
		status int
		parts  []string
		want   string
	}{
		"refused":     {400, []string{`{"error":{"message":"steps: too many"}}`}, "400 Bad Request: steps: too many"},
		"page":        {502, []string{"<html>"}, "502 Bad Gateway: <html>"},
		"broken off":  {200, []string{one, "cut"}, "unexpected EOF"},
		"no end":      {200, []string{one}, "before its end mark"},
		"half":        {200, []string{one, "data: {"}, "within an event"},
		"no JSON":     {200, []string{"data: hello\n\n"}, "no JSON object"},
		"late error":  {200, []string{one, "data: {\"error\":{\"message\":\"engine died\"}}\n\n"}, "engine died"},
		"no counts":   {200, []string{"data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"}, "how many tokens"},
		"empty":       {200, nil, "before its end mark"},
		"only counts": {200, []string{"data: [DONE]\n\n"}, ""},
	} {
		cl, _ := script(t, c.status, c.parts...)
		s := cl.Do(context.Background(), time.Now(), &Request{API: Completion, Prompt: "x", MaxTokens: 1})
		if !strings.Contains(s.Error, c.want) || (c.want == "") != (s.Error == "") || s.Status != c.status {
			t.Errorf("%s: status %d, error %q, want %q", name, s.Status, s.Error, c.want)
		}
	}
	gone := &Client{Base: "http://127.0.0.1:1", HTTP: http.DefaultClient}
	if s := gone.Do(context.Background(), time.Now(), &Request{API: Chat}); s.Error == "" || s.Status != 0 {
		t.Errorf("a server that is not there: %+v", s)
	}
	if s := gone.Do(context.Background(), time.Now(), &Request{API: "/v2"}); !strings.Contains(s.Error, "no API") {
		t.Errorf("an API that is not there: %+v", s)
	}
}

// TestEachChunkHasTheTimeOfItsOwnRead: reads that hold several events, parts of events, and more than a reader's buffer.
func TestEachChunkHasTheTimeOfItsOwnRead(t *testing.T) {
	event := func(text string) string { return "data: {\"choices\":[{\"text\":\"" + text + "\"}]}\n\n" }
	long := event(strings.Repeat("x", 10_000))
	a := &arrivals{}
	for i, part := range []string{event("a"), event("b") + event("c"), "data: {\"cho", "ices\":[{\"text\":\"d\"}]}\n", "\n" + long + event("e"), "data: {\"usage\":{\"completion_tokens\":9}}\n\ndata: [DONE]\n\n"} {
		a.data = append(a.data, part...)
		a.ends, a.at = append(a.ends, len(a.data)), append(a.at, int64(i))
	}
	var s Sample
	if err := s.read(Completion, a); err != nil {
		t.Fatal(err)
	}
	var at []int64
	for _, c := range s.Chunks {
		at = append(at, c.AtNS)
	}
	if want := []int64{0, 1, 1, 4, 4, 4}; !slices.Equal(at, want) {
		t.Errorf("times %v, want %v", at, want)
	}
}

func TestRates(t *testing.T) {
	s := Sample{FirstNS: 1e9, LastNS: 3e9, OutputTokens: 11, Chunks: []Chunk{{Tokens: 3}, {Tokens: 8}}}
	if s.DecodeTokS() != 4 || s.EndToEndTokS() != 11.0/3 {
		t.Errorf("%v %v", s.DecodeTokS(), s.EndToEndTokS())
	}
	s.Chunks[0].Tokens = 0 // unknown: one
	if s.DecodeTokS() != 5 {
		t.Errorf("%v", s.DecodeTokS())
	}
	if none := (&Sample{}); none.DecodeTokS() != 0 || none.EndToEndTokS() != 0 {
		t.Error("an empty sample has a rate")
	}
}

// FuzzAnswer: whatever a server sends, the counts of chunks agree with the whole.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(chatEnd), true)
	f.Add([]byte("data: {\"text\":\"a\",\"output_ids\":[1],\"meta_info\":{}}\n\ndata: [DONE]\n\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, chat bool) {
		api := Generate
		if chat {
			api = Chat
		}
		a := &arrivals{data: data}
		for i := 0; i < len(data); i = min(i+7, len(data)) {
			a.ends, a.at = append(a.ends, min(i+7, len(data))), append(a.at, int64(i))
		}
		var s Sample
		if s.read(api, a) != nil {
			return
		}
		tokens, bytes, last := 0, 0, int64(0)
		for _, c := range s.Chunks {
			tokens, bytes = tokens+c.Tokens, bytes+c.Bytes
			if c.AtNS < last {
				t.Fatalf("time goes back: %+v", s.Chunks)
			}
			last = c.AtNS
		}
		if tokens != len(s.TokenIDs) || bytes != len(s.Text) || last != s.LastNS {
			t.Fatalf("%+v", s)
		}
	})
}

// TestTLS: times are those of the encrypted bytes, and the start is that of the request, not of the handshake.
func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	h := NewHTTP(1, 10*time.Second)
	defer h.CloseIdleConnections()
	h.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	c := &Client{Base: s.URL, HTTP: h}
	for range 2 {
		due := time.Now()
		got := c.Do(t.Context(), due, &Request{API: Completion})
		took := time.Since(due).Nanoseconds()
		lag := got.StartUnixNS - got.DueUnixNS
		if got.Failure != "" || lag < 0 || got.FirstNS < 20e6-1e6 || lag+got.FirstNS > took+1e6 || got.EndNS < got.FirstNS {
			t.Errorf("%+v after %d ns", got, took)
		}
	}
}

// FuzzRead: whatever a server streams, in whatever pieces, is taken apart or refused, and the sample is consistent.
func FuzzRead(f *testing.F) {
	text := "data: {\"choices\":[{\"delta\":{\"content\":\"Hé\"},\"token_ids\":[1,2]}]}\n\n"
	f.Add(text+chatEnd, 10, byte(0))
	f.Add("data: {\"text\":\"ab\",\"output_ids\":[1,2],\"meta_info\":{\"completion_tokens\":2,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n", 7, byte(2))
	f.Add("data: {\"error\":{\"message\":\"no\"}}\n\n", 3, byte(1))
	f.Add("data: {\"choices\": hello\n\n", 1, byte(1))
	f.Fuzz(func(t *testing.T, body string, step int, api byte) {
		a := &arrivals{data: []byte(body)}
		step = min(max(step, 1), 1<<10)
		for end := 0; end < len(body); {
			end = min(end+step, len(body))
			a.ends, a.at = append(a.ends, end), append(a.at, int64(len(a.at)+1))
		}
		s := &Sample{}
		err := s.read([]API{Chat, Completion, Generate}[api%3], a)
		if (err == nil) != (failureOf(t.Context(), 200, err) == "") {
			t.Errorf("%v has the name %q", err, failureOf(t.Context(), 200, err))
		}
		last, length := int64(0), 0
		for _, c := range s.Chunks {
			if c.AtNS < last || c.AtNS > int64(len(a.at)) || c.Tokens < 0 {
				t.Fatalf("chunks %+v", s.Chunks)
			}
			last, length = c.AtNS, length+c.Bytes
		}
		if length != len(s.Text) || last != s.LastNS {
			t.Errorf("chunks of %d bytes until %d, text of %d until %d", length, last, len(s.Text), s.LastNS)
		}
	})
}
