package openai

import (
	"encoding/json"
	"strings"
)

// Options are the parameters that both ways of completion share. A nil pointer leaves the choice to the server.
type Options struct {
	Model             string             `json:"model,omitempty"`
	N                 *int               `json:"n,omitempty"`
	Seed              *int64             `json:"seed,omitempty"`
	Temperature       *float64           `json:"temperature,omitempty"`
	TopP              *float64           `json:"top_p,omitempty"`
	TopK              *int               `json:"top_k,omitempty"`
	MinP              *float64           `json:"min_p,omitempty"`
	PresencePenalty   *float64           `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty,omitempty"`
	RepetitionPenalty *float64           `json:"repetition_penalty,omitempty"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"` // by token id, in decimal
	Stop              Strings            `json:"stop,omitempty"`
	StopTokenIDs      []int32            `json:"stop_token_ids,omitempty"`
	IgnoreEOS         bool               `json:"ignore_eos,omitempty"`
	SkipSpecialTokens *bool              `json:"skip_special_tokens,omitempty"` // true if nil
	MaxTokens         *int               `json:"max_tokens,omitempty"`
	Stream            bool               `json:"stream,omitempty"`
	StreamOptions     *StreamOptions     `json:"stream_options,omitempty"`
	Speculative       *Speculative       `json:"speculative,omitempty"`
	ReturnTokenIDs    bool               `json:"return_token_ids,omitempty"`
	ReturnMetaInfo    bool               `json:"return_meta_info,omitempty"`
	User              string             `json:"user,omitempty"` // taken and not used, as the two that have replaced it
	PromptCacheKey    string             `json:"prompt_cache_key,omitempty"`
	SafetyIdentifier  string             `json:"safety_identifier,omitempty"`
}

// StreamOptions are the parameters of a stream.
type StreamOptions struct {
	IncludeUsage    bool `json:"include_usage,omitempty"`          // a last event with the usage
	ContinuousUsage bool `json:"continuous_usage_stats,omitempty"` // with it: the usage so far in each event (vLLM's, SGLang's)
}

// UnmarshalJSON reads it strictly.
func (o *StreamOptions) UnmarshalJSON(data []byte) error { return decodeObject(data, o) }

func (o *StreamOptions) refuses() map[string][]string {
	return map[string][]string{"include_obfuscation": {"false"}}
}

// Speculative says how one request speculates; what is nil or "" is the server's default.
type Speculative struct {
	Drafter     string   `json:"drafter,omitempty"`      // auto, none, ngram or eagle3
	Steps       *int     `json:"steps,omitempty"`        // drafted tokens on a path; 0 is plain decoding
	TopK        *int     `json:"topk,omitempty"`         // branches of a node
	DraftTokens *int     `json:"draft_tokens,omitempty"` // rows of a verify pass, root included
	PMin        *float64 `json:"p_min,omitempty"`        // a draft ends where the product of its probabilities falls below
	Rule        string   `json:"rule,omitempty"`         // a or b: how sampled tokens meet drafts
}

// UnmarshalJSON reads it strictly.
func (s *Speculative) UnmarshalJSON(data []byte) error { return decodeObject(data, s) }

// CompletionRequest is the body of POST /v1/completions.
type CompletionRequest struct {
	Options
	Prompt   Prompt `json:"prompt"`
	Logprobs *int   `json:"logprobs,omitempty"` // this many of the most probable tokens beside each token
}

func (*CompletionRequest) requires() []string { return []string{"prompt"} }

func (*CompletionRequest) refuses() map[string][]string {
	return map[string][]string{"best_of": {"1"}, "echo": {"false"}, "suffix": {`""`}, "min_tokens": {"0"}}
}

// ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest struct {
	Options
	Messages            Messages       `json:"messages"`
	MaxCompletionTokens *int           `json:"max_completion_tokens,omitempty"` // the newer name of max_tokens
	Logprobs            bool           `json:"logprobs,omitempty"`
	TopLogprobs         *int           `json:"top_logprobs,omitempty"`         // with Logprobs: this many of the most probable tokens
	ChatTemplateKwargs  map[string]any `json:"chat_template_kwargs,omitempty"` // further variables of the chat template
}

func (*ChatRequest) requires() []string { return []string{"messages"} }

func (*ChatRequest) refuses() map[string][]string {
	return map[string][]string{
		"audio": nil, "function_call": {`"none"`}, "functions": {"[]"}, "metadata": {"{}"}, "min_tokens": {"0"}, "modalities": {`["text"]`},
		"moderation": nil, "parallel_tool_calls": {"true", "false"}, "prediction": nil, "prompt_cache_retention": nil,
		"reasoning_effort": {`"none"`}, "response_format": {`{"type":"text"}`}, "service_tier": {`"auto"`, `"default"`},
		"store": {"false"}, "tool_choice": {`"none"`, `"auto"`}, "tools": {"[]"}, "verbosity": nil, "web_search_options": nil,
	}
}

// Strings is one string or a list of strings.
type Strings []string

// UnmarshalJSON reads either form.
func (s *Strings) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = Strings{one}
		return nil
	}
	var list []*string
	if json.Unmarshal(data, &list) != nil {
		return Invalid("", "want a string or a list of strings, got %s", kindOf(data))
	}
	*s = make(Strings, len(list))
	for i, p := range list {
		if p == nil {
			return Invalid("", "want a string or a list of strings: entry %d is null", i)
		}
		(*s)[i] = *p
	}
	return nil
}

// Prompt is one or several prompts, each a text or token ids; one of the two lists is empty. On the wire it is a string, a list of
// strings, a list of ids, or a list of such lists.
type Prompt struct {
	Texts []string
	IDs   [][]int32
	Many  bool // a list of prompts was sent, be it of one
}

// Len returns the number of prompts.
func (p *Prompt) Len() int { return len(p.Texts) + len(p.IDs) }

// UnmarshalJSON reads any of the four forms.
func (p *Prompt) UnmarshalJSON(data []byte) error {
	var texts Strings
	if texts.UnmarshalJSON(data) == nil && len(texts) > 0 {
		*p = Prompt{Texts: texts, Many: kindOf(data) == "a list"}
		return nil
	}
	var ids []*int32
	if json.Unmarshal(data, &ids) == nil {
		one, err := plain(ids)
		*p = Prompt{IDs: [][]int32{one}}
		return err
	}
	var lists [][]*int32
	if json.Unmarshal(data, &lists) != nil {
		return Invalid("", "want a string, a list of strings, a list of token ids (whole numbers below 2^31), or a list of such lists; this %s is none", strings.TrimPrefix(strings.TrimPrefix(kindOf(data), "a "), "an "))
	}
	*p = Prompt{IDs: make([][]int32, len(lists)), Many: true}
	for i, list := range lists {
		one, err := plain(list)
		if err != nil {
			return err
		}
		p.IDs[i] = one
	}
	return nil
}

// plain returns a list of ids in which none is null.
func plain(list []*int32) ([]int32, error) {
	ids := make([]int32, len(list))
	for i, p := range list {
		if p == nil {
			return nil, Invalid("", "token id %d is null", i)
		}
		ids[i] = *p
	}
	return ids, nil
}

// MarshalJSON writes a single prompt as such unless Many is set.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case len(p.Texts) == 1 && !p.Many:
		return json.Marshal(p.Texts[0])
	case len(p.Texts) > 0:
		return json.Marshal(p.Texts)
	case len(p.IDs) == 1 && !p.Many:
		return json.Marshal(p.IDs[0])
	}
	return json.Marshal(p.IDs)
}

// Message is one turn of a conversation in a request.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	Name    string  `json:"name,omitempty"`
}

func (*Message) requires() []string { return []string{"role", "content"} }

func (*Message) refuses() map[string][]string {
	return map[string][]string{
		"annotations": {"[]"}, "audio": nil, "function_call": nil, "refusal": nil, "tool_call_id": nil, "tool_calls": {"[]"},
	}
}

// UnmarshalJSON reads it strictly.
func (m *Message) UnmarshalJSON(data []byte) error { return decodeObject(data, m) }

// Messages is a conversation.
type Messages []Message

// UnmarshalJSON reads a list of messages; an error says in which one it lies.
func (m *Messages) UnmarshalJSON(data []byte) error {
	list, err := each(data)
	if err != nil {
		return err
	}
	*m = make(Messages, len(list))
	for i, raw := range list {
		if err := (*m)[i].UnmarshalJSON(raw); err != nil {
			return at(i, err)
		}
	}
	return nil
}

// Content is the text of a message: a string, or a list of parts of type text, which are put together.
type Content string

// part is one part of a message's content.
type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (*part) requires() []string { return []string{"type", "text"} }

// UnmarshalJSON reads either form.
func (c *Content) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = Content(text)
		return nil
	}
	list, err := each(data)
	if err != nil {
		return Invalid("", "want a string or a list of parts, got %s", kindOf(data))
	}
	var b strings.Builder
	for i, raw := range list {
		var kind struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(raw, &kind) == nil && kind.Type != "text" && kind.Type != "" {
			return at(i, &Error{Status: 400, Type: InvalidRequest, Param: "type", Code: "unsupported_value",
				Message: "content parts of type " + Clip(kind.Type) + " are not supported by this server: only text is"})
		}
		var p part
		if err := decodeObject(raw, &p); err != nil {
			return at(i, err)
		}
		b.WriteString(p.Text)
	}
	*c = Content(b.String())
	return nil
}

// each splits a list.
func each(data []byte) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, Invalid("", "want a list, got %s", kindOf(data))
	}
	return list, nil
}
