package client

import (
	"context"
	"reflect"
	"testing"
	"time"
)

// TestSpeculationOfOthers: what llama.cpp and old versions of SGLang tell is enough for cycles and accepted drafts.
func TestSpeculationOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		api  API
		body string
		want *Speculation
	}{
		// 1 token by the prompt's pass, and three cycles of 2, 3 and 1.
		"llama.cpp": {Chat, `data: {"choices":[{"index":0,"delta":{"content":"text"}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7},"timings":{"predicted_n":7,"draft_n":6,"draft_n_accepted":3}}

data: [DONE]

`, &Speculation{Cycles: 3, Drafted: 6, Accepted: 3}},
		"llama.cpp, plain": {Chat, `data: {"choices":[{"index":0,"delta":{"content":"text"}}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7},"timings":{"predicted_n":7,"predicted_ms":12.5}}

data: [DONE]

`, nil},
		"SGLang 0.4.6": {Generate, `data: {"text":"text","meta_info":{"prompt_tokens":9,"completion_tokens":7,"finish_reason":{"type":"length"},"spec_verify_ct":3}}

data: [DONE]

`, &Speculation{Cycles: 3, Accepted: 3}},
	} {
		client, _ := script(t, 200, c.body)
		s := client.Do(context.Background(), time.Now(), &Request{API: c.api, Prompt: "x", MaxTokens: 7})
		if s.Error != "" || !reflect.DeepEqual(s.Spec, c.want) {
			t.Errorf("%s: %s %+v", name, s.Error, s.Spec)
		}
	}
}
