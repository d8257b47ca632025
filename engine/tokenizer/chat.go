package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ardanlabs/jinja"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string
	Content string
	// Fields are what some templates read beside these two, such as name, reasoning_content or tool_calls. A
	// json.RawMessage keeps the order of its objects' fields, which tojson writes out.
	Fields map[string]any
}

// ChatOptions says how ApplyChat renders. The zero value renders the messages alone.
type ChatOptions struct {
	AddGenerationPrompt bool            // end with the head of the assistant's turn
	Tools               json.RawMessage // the tools offered to the model, a JSON list; nil for none
	Vars                map[string]any  // further variables of the template, such as enable_thinking; an error if one is ApplyChat's own
	Now                 time.Time       // what strftime_now formats; the time of the call if zero
}

// ErrNoChatTemplate is returned by ApplyChat where the vocabulary came without a template.
var ErrNoChatTemplate = errors.New("tokenizer: the model has no chat template; give it a plain prompt")

// ChatError is what a template says by raise_exception about messages that it does not accept.
type ChatError struct{ Message string }

func (e *ChatError) Error() string { return "tokenizer: the chat template refuses: " + e.Message }

// chatTemplate is a compiled template, or the reason why there is none.
type chatTemplate struct {
	source   string
	compiled *jinja.Template
	err      error
}

// newChatTemplate compiles source. What is wrong with it is kept for the caller of ApplyChat: a model whose
// template does not parse still completes plain text.
func newChatTemplate(field, source string) *chatTemplate {
	c := &chatTemplate{source: source}
	if source == "" {
		c.err = ErrNoChatTemplate
		return c
	}
	prepared, err := prepareTemplate(source)
	if err == nil {
		c.compiled, err = compileTemplate(prepared)
	}
	if err != nil {
		c.err = fmt.Errorf("tokenizer: %s: %w", field, err)
	}
	return c
}

// compileTemplate compiles, and turns a panic of the library into an error.
func compileTemplate(source string) (t *jinja.Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("the template does not parse: %v", r)
		}
	}()
	return jinja.Compile(source)
}

// ChatTemplate returns the source of the chat template, "" if there is none.
func (t *Tokenizer) ChatTemplate() string { return t.chat.source }

// ApplyChat renders messages with the model's chat template, as Hugging Face's apply_chat_template does. For ids
// take [Tokenizer.EncodeChat]: in the rendered text, what a message says and what the template says look alike.
//
// The Jinja library differs from Jinja2 in these ways: an element or attribute of something undefined is undefined
// again, and renders as nothing, where Jinja2 refuses; a variable that one round of a loop sets is still set in the
// next; str.join is unknown; and ** makes floats.
//
// Errors are ErrNoChatTemplate, a *ChatError, or say where the template does not parse or what went wrong in it. Templates come with
// models, from strangers: their length, loops, range and the depth of macros are bounded. What a single expression
// does is not: a hostile template can still take memory by doubling a string and time by slicing one up to a huge number.
func (t *Tokenizer) ApplyChat(messages []Message, o ChatOptions) (text string, err error) {
	if t.chat.err != nil {
		return "", t.chat.err
	}
	vars, err := t.chatVars(messages, o)
	if err != nil {
		return "", err
	}
	var raised *ChatError
	vars["raise_exception"] = jinja.NewCallable("raise_exception", func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		raised = &ChatError{}
		if len(args) > 0 {
			if raised.Message = args[0].String(); args[0].IsString() {
				raised.Message = args[0].AsString()
			}
		}
		return jinja.Undefined(), raised
	})
	installFilters(vars)
	(&guard{}).install(vars)
	defer func() {
		if r := recover(); r != nil {
			text, err = "", fmt.Errorf("tokenizer: chat template: %v", r)
		}
	}()
	text, err = t.chat.compiled.RenderValues(vars)
	if raised != nil {
		return "", raised
	}
	if err != nil {
		return "", fmt.Errorf("tokenizer: chat template: %w", err)
	}
	return text, nil
}

// ownVars are the variables whose values are not the caller's to choose; one that was set would have no effect.
var ownVars = []string{"messages", "add_generation_prompt", "raise_exception", "strftime_now", tojsonName, outName}

// chatVars builds the variables that Hugging Face gives to a template.
func (t *Tokenizer) chatVars(messages []Message, o ChatOptions) (map[string]jinja.Value, error) {
	vars := map[string]jinja.Value{"tools": jinja.None(), "documents": jinja.None()}
	for name, id := range t.named {
		vars[name] = jinja.NewString(t.tokens[id])
	}
	for name, v := range o.Vars {
		if slices.Contains(ownVars, name) {
			return nil, fmt.Errorf("tokenizer: chat variable %q cannot be set: it is what the template is given of the request itself", name)
		}
		value, err := chatValue(v)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: chat variable %q: %w", name, err)
		}
		vars[name] = value
	}
	if o.Tools != nil {
		tools, err := orderedJSON(o.Tools)
		if err != nil || !tools.IsList() && !tools.IsNone() {
			return nil, fmt.Errorf("tokenizer: chat tools must be a JSON list: %v", err)
		}
		vars["tools"] = tools
	}
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		d := jinja.NewDict()
		d.AsDict().Set("role", jinja.NewString(m.Role))
		d.AsDict().Set("content", jinja.NewString(m.Content))
		for _, name := range slices.Sorted(maps.Keys(m.Fields)) {
			value, err := chatValue(m.Fields[name])
			if err != nil {
				return nil, fmt.Errorf("tokenizer: chat message %d: %q: %w", i, name, err)
			}
			d.AsDict().Set(name, value)
		}
		list[i] = d
	}
	vars["messages"] = jinja.NewList(list)
	vars["add_generation_prompt"] = jinja.NewBool(o.AddGenerationPrompt)
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	vars["strftime_now"] = jinja.NewCallable("strftime_now", func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		if len(args) != 1 || !args[0].IsString() {
			return jinja.Undefined(), errors.New("strftime_now takes one format")
		}
		s, err := strftime(now, args[0].AsString())
		return jinja.NewString(s), err
	})
	return vars, nil
}
