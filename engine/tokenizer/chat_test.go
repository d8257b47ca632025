package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// chatNow is the time that testdata/chat.py renders at.
var chatNow = time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)

// chatGolden is one rendering by transformers.
type chatGolden struct {
	Template       string            `json:"template"`
	Case           string            `json:"case"`
	Messages       []json.RawMessage `json:"messages"`
	Tools          json.RawMessage   `json:"tools"`
	Prompt         bool              `json:"add_generation_prompt"`
	EnableThinking *bool             `json:"enable_thinking"`
	Want           string            `json:"want"`
	Error          *string           `json:"error"`
}

// chatTokenizer returns a tiny tokenizer with the given chat template.
func chatTokenizer(t testing.TB, template string) *Tokenizer {
	t.Helper()
	tok, err := FromVocab(Spec{
		Tokens: []string{"a", "<|begin_of_text|>", "<|im_end|>"}, Types: []int32{1, 3, 3}, Pre: "gpt-2",
		BOS: 1, EOS: 2, EOT: -1, PAD: -1, UNK: -1, ChatTemplate: template,
	})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func (g chatGolden) render(t *testing.T) (string, error) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "chat", g.Template))
	if err != nil {
		t.Fatal(err)
	}
	var messages []Message
	for _, raw := range g.Messages {
		var m Message
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		m.Fields = map[string]any{}
		for name, v := range fields {
			switch name {
			case "role":
				err = json.Unmarshal(v, &m.Role)
			case "content":
				err = json.Unmarshal(v, &m.Content)
			default:
				m.Fields[name] = v
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		messages = append(messages, m)
	}
	o := ChatOptions{AddGenerationPrompt: g.Prompt, Tools: g.Tools, Now: chatNow}
	if g.EnableThinking != nil {
		o.Vars = map[string]any{"enable_thinking": *g.EnableThinking}
	}
	return chatTokenizer(t, string(source)).ApplyChat(messages, o)
}

// TestChatParity compares ApplyChat with transformers' renderings.
func TestChatParity(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "chat.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens []chatGolden
	if err := json.Unmarshal(b, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 100 {
		t.Fatalf("%d goldens", len(goldens))
	}
	for _, g := range goldens {
		t.Run(g.Template+"/"+g.Case, func(t *testing.T) {
			got, err := g.render(t)
			switch {
			case g.Error != nil && err == nil:
				t.Errorf("got %q; want the error %q", got, *g.Error)
			case g.Error == nil && (err != nil || got != g.Want):
				t.Errorf("got %q, %v\nwant %q", got, err, g.Want)
			}
			var raised *ChatError
			if errors.As(err, &raised) && raised.Message != *g.Error {
				t.Errorf("got the message %q; want %q", raised.Message, *g.Error)
			}
		})
	}
}

// TestChatErrors checks that what is wrong with a template or its use is said, with the line.
func TestChatErrors(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"none", "", "no chat template"},
		{"unclosed tag", "a\n\n{{ messages", "line 3"},
		{"unclosed string", "a\n{{ 'x }}", "line 2"},
		{"unclosed raw", "{% raw %}", "line 1"},
		{"unclosed block", "a\n{% if true %}b", "ChatTemplate"},
		{"bad expression", "a\n\n{{ 1 + }}", "ChatTemplate"},
		{"unknown tag", "x\n\n\n{%- frobnicate -%}", "line 4"},
		{"too long", strings.Repeat("x", maxTemplateLen+1), "allowed are"},
		{"call of nothing", "{{ nosuch() }}", "nosuch"},
		{"unknown strftime", "{{ strftime_now('%Q') }}", "unknown directive"},
		{"endless recursion", "{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "nested more than"},
		{"huge range", "{% for i in range(1000000000) %}x{% endfor %}", "range has more"},
		{"long loops", "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}", "loops more than"},
		{"long comprehension", "{% set c = range(10000) | list %}{% for i in c %}{% for j in c if false %}{% endfor %}{% for j in c %}{% endfor %}{% endfor %}", "loops more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := chatTokenizer(t, c.template).ApplyChat([]Message{{Role: "user", Content: "hi"}}, ChatOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.100q, %v; want an error with %q", got, err, c.want)
			}
		})
	}
}

// TestChatTools refuses tools that are not a list and variables that JSON cannot hold.
func TestChatTools(t *testing.T) {
	tok := chatTokenizer(t, "{{ tools }}")
	for _, o := range []ChatOptions{
		{Tools: json.RawMessage(`{"a": 1}`)}, {Tools: json.RawMessage(`[1`)}, {Tools: json.RawMessage(`[] 1`)},
		{Vars: map[string]any{"f": func() {}}},
	} {
		if got, err := tok.ApplyChat(nil, o); err == nil {
			t.Errorf("%+v: got %q without an error", o, got)
		}
	}
}
