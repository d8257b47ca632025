package probe

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub serves fixed answers by path.
func stub(t *testing.T, answers map[string]string) *Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(404)
		case r.Header.Get("Authorization") != "Bearer sesame" || r.Header.Get("X-Who") != "me" || r.Host != "model.test":
			w.WriteHeader(401)
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	got, err := Identify(t.Context(), s.Client(), s.URL, "sesame", http.Header{"X-Who": {"me"}, "Host": {"model.test"}})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const models = `{"object":"list","data":[{"id":"m","object":"model"}]}`

// counters is what vLLM and, under other prefixes, draftlab and llama.cpp's server have.
const counters = `# TYPE P:spec_decode_num_drafts_total counter
P:spec_decode_num_drafts_total{engine="0"} 10
P:spec_decode_num_draft_tokens_total{engine="0"} 30
P:spec_decode_num_accepted_tokens_total{engine="0"} 12
P:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 8
P:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 4
P:spec_decode_num_accepted_tokens_per_pos_total{position="x"} 4
P:prefix_cache_hits_total{engine="0"} 48
`

func TestIdentifyAndCount(t *testing.T) {
	with := func(prefix string) string { return strings.ReplaceAll(counters, "P:", prefix+":") }
	for want, c := range map[Kind]struct {
		answers map[string]string
		version string
		flushes bool
	}{
		Draftlab: {map[string]string{"/server_info": `{"version":"1","speculative_limit":"8,4,32","internal_states":[{}]}`, "/metrics": with("draftlab"), "/flush_cache": ""}, "1", true},
		VLLM:     {map[string]string{"/metrics": with("vllm"), "/version": `{"version":"0.32"}`}, "0.32", false},
		LlamaCPP: {map[string]string{"/props": `{"default_generation_settings":{},"build_info":"b1"}`, "/metrics": with("llamacpp")}, "b1", false},
	} {
		c.answers["/v1/models"] = models
		s := stub(t, c.answers)
		if s.Kind != want || s.Model != "m" || s.Version != c.version {
			t.Errorf("%s: %+v", want, s)
		}
		d, ok := s.Drafts(t.Context())
		if !ok || d.Cycles != 10 || d.Drafted != 30 || d.Accepted != 12 || len(d.PerPosition) != 2 {
			t.Errorf("%s: %+v, %v", want, d, ok)
		}
		if n, ok := s.Cached(t.Context()); ok != (want == VLLM) || ok && n != 48 {
			t.Errorf("%s: %d cached, %v", want, n, ok)
		}
		if s.Flush(t.Context()) != c.flushes {
			t.Errorf("%s: flush is not %v", want, c.flushes)
		}
	}
	s := stub(t, map[string]string{"/v1/models": models, "/server_info": `{"version":"0.5","internal_states":[{}]}`,
		"/metrics": "sglang:spec_verify_calls_total 10\nsglang:generation_tokens_total 27\nsglang:num_requests_total 2\n"})
	if d, ok := s.Drafts(t.Context()); s.Kind != SGLang || !ok || d.Cycles != 10 || d.Accepted != 15 {
		t.Errorf("SGLang: %+v, %+v, %v", s, d, ok)
	}
	s = stub(t, map[string]string{"/v1/models": models})
	if _, ok := s.Drafts(t.Context()); s.Kind != OpenAI || ok || s.Flush(t.Context()) {
		t.Errorf("another: %+v, %v", s, ok)
	}
	s = stub(t, map[string]string{"/metrics": "} {"}) // what cannot be read is as if absent
	if _, ok := s.Drafts(t.Context()); s.Kind != OpenAI || ok {
		t.Errorf("broken: %+v", s)
	}
}

// TestInfoKeepsSecrets: results travel, and a server's account of itself has its keys.
func TestInfoKeepsSecrets(t *testing.T) {
	s := stub(t, map[string]string{"/v1/models": models, "/server_info": `{"version":"0.5","api_key":"k1","admin_api_key":null,"hf_token":"k2",
		"max_total_num_tokens":7,"tokenizer_path":"m","eos_token":"</s>","internal_states":[{"auth":{"password":"k3"},"attn_token":"k4"}]}`})
	text, err := json.Marshal(s.Info)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"admin_api_key":null,"api_key":"(hidden)","eos_token":"\u003c/s\u003e","hf_token":"(hidden)","internal_states":[{"attn_token":"(hidden)","auth":{"password":"(hidden)"}}],"max_total_num_tokens":7,"tokenizer_path":"m","version":"0.5"}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func TestIdentifyFails(t *testing.T) {
	if _, err := Identify(t.Context(), http.DefaultClient, "http://127.0.0.1:1", "", nil); err == nil || !strings.Contains(err.Error(), "nothing answers") {
		t.Error(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	defer s.Close()
	if _, err := Identify(context.Background(), s.Client(), s.URL, "", nil); err == nil || !strings.Contains(err.Error(), "API key") {
		t.Error(err)
	}
}

func TestBetween(t *testing.T) {
	before := Drafts{Cycles: 100, Drafted: 300, Accepted: 150, PerPosition: []int64{90, 60}}
	a := Between(before, Drafts{Cycles: 110, Drafted: 330, Accepted: 162, PerPosition: []int64{98, 63, 1}})
	if a == nil || a.Length.Value != 2.2 || a.Rate.Value != .4 || a.Source != "counters" {
		t.Fatalf("%+v", a)
	}
	if len(a.Survival) != 3 || a.Survival[0].Value != .8 || a.Survival[2].Value != .1 || a.Conditional[1].Value != 3.0/8 || a.Conditional[0].Value != .8 {
		t.Errorf("%+v %+v", a.Survival, a.Conditional)
	}
	if Between(before, before) != nil || Between(before, Drafts{Cycles: 5}) != nil {
		t.Error("drafts out of nothing")
	}
}
