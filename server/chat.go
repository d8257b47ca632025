package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"draftlab/engine/tokenizer"
	"draftlab/openai"
)

// handleChat answers POST /v1/chat/completions.
func (s *Server) handleChat(w http.ResponseWriter, r *http.Request) {
	var req openai.ChatRequest
	e, ctx, done, fail := s.begin(w, r, &req)
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer done()
	j, err := s.chatJob(e, &req)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	a := answer{s: s, j: j, o: &req.Options, id: newID("chatcmpl-"), created: time.Now().Unix(), logprobs: req.Logprobs}
	if req.Stream {
		c := chatStream{answer: &a, greeted: make([]bool, len(j.choices))}
		a.stream(ctx, w, c.event)
		return
	}
	pieces, err := s.collect(ctx, j)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	doc := openai.ChatCompletion{ID: a.id, Object: "chat.completion", Created: a.created, Model: s.cfg.Model, Usage: usage(j, endings(pieces))}
	for i := range pieces {
		p := &pieces[i]
		c := openai.ChatChoice{Index: p.choice, Message: openai.Answer{Role: "assistant", Content: p.text}, Logprobs: a.chatLogprobs(p)}
		c.FinishReason, c.TokenIDs, c.MetaInfo = a.rest(p)
		doc.Choices = append(doc.Choices, c)
	}
	s.writeJSON(w, http.StatusOK, doc)
}

// chatJob checks a request.
func (s *Server) chatJob(e Engine, req *openai.ChatRequest) (*job, error) {
	if err := s.checkModel(req.Model); err != nil {
		return nil, err
	}
	if err := checkStreamOptions(&req.Options); err != nil {
		return nil, err
	}
	w := wishes{promptName: "messages", maxName: "max_tokens", max: req.MaxTokens, logprobs: req.Logprobs, topName: "top_logprobs"}
	if req.MaxCompletionTokens != nil {
		if req.MaxTokens != nil && *req.MaxTokens != *req.MaxCompletionTokens { // load generators send both, for servers of any age
			return nil, openai.Invalid("max_tokens", "max_tokens and max_completion_tokens are the same limit: send one of them, or both alike")
		}
		w.maxName, w.max = "max_completion_tokens", req.MaxCompletionTokens
	}
	if req.TopLogprobs != nil {
		if !req.Logprobs && *req.TopLogprobs != 0 { // none are what there is without logprobs
			return nil, openai.Invalid("top_logprobs", "top_logprobs: it is only allowed with logprobs: true")
		}
		w.topLogprobs = *req.TopLogprobs
	}
	ids, err := chatPrompt(e, req)
	if err != nil {
		return nil, err
	}
	w.prompts = [][]int32{ids}
	return s.newJob(e, &req.Options, w)
}

// chatPrompt renders a conversation with the model's template.
func chatPrompt(e Engine, req *openai.ChatRequest) ([]int32, error) {
	tok := e.Tokenizer()
	if tok == nil {
		return nil, openai.Invalid("messages", "messages: this model has random weights and no tokenizer: send token ids to /v1/completions")
	}
	if len(req.Messages) == 0 {
		return nil, openai.Invalid("messages", "messages: at least one is needed")
	}
	messages := make([]tokenizer.Message, len(req.Messages))
	for i, m := range req.Messages {
		role := m.Role
		switch role {
		case "system", "user", "assistant":
		case "developer":
			role = "system" // the name that templates know; the OpenAI API treats the two alike
		default:
			param := fmt.Sprintf("messages[%d].role", i)
			return nil, openai.Invalid(param, "%s: %q: it must be system, developer, user or assistant", param, openai.Clip(role))
		}
		messages[i] = tokenizer.Message{Role: role, Content: string(m.Content)}
		if m.Name != "" {
			messages[i].Fields = map[string]any{"name": m.Name}
		}
	}
	ids, err := tok.EncodeChat(messages, tokenizer.ChatOptions{AddGenerationPrompt: true, Vars: req.ChatTemplateKwargs})
	if errors.Is(err, tokenizer.ErrNoChatTemplate) {
		return nil, openai.Invalid("messages", "messages: the model has no chat template: use /v1/completions")
	}
	if err != nil {
		return nil, openai.Invalid("messages", "messages: the model's chat template: %v", err)
	}
	return ids, nil
}

// chatLogprobs returns those of a piece, nil if they were not asked for.
func (a *answer) chatLogprobs(p *piece) *openai.ChatLogprobs {
	if !a.logprobs {
		return nil
	}
	return chatLogprobs(a.j.engine.Tokenizer(), p.tokens)
}

// chatStream makes the events of a chat answer: for each choice one with the role, some with text, and one with the reason of its
// end.
type chatStream struct {
	*answer
	greeted []bool // by choice: the role has been sent
}

// event adds the events of a piece.
func (c *chatStream) event(ev *events, p *piece) {
	if p == nil {
		c.add(ev, usage(c.j, c.ends))
		return
	}
	if !c.greeted[p.choice] {
		c.greeted[p.choice] = true
		empty := ""
		c.add(ev, c.soFar(p.choice), openai.ChatDelta{Index: p.choice, Delta: openai.Delta{Role: "assistant", Content: &empty}})
	}
	c.count(p)
	reason, ids, meta := c.rest(p)
	if p.text != "" || len(p.tokens) > 0 {
		c.add(ev, c.soFar(p.choice), openai.ChatDelta{Index: p.choice, Delta: openai.Delta{Content: &p.text}, Logprobs: c.chatLogprobs(p), TokenIDs: ids})
	}
	if p.end != nil {
		c.add(ev, c.soFar(p.choice), openai.ChatDelta{Index: p.choice, FinishReason: reason, MetaInfo: meta})
	}
}

// add adds an event with the given choices and, where the stream has usages, this one.
func (c *chatStream) add(ev *events, used *openai.Usage, choices ...openai.ChatDelta) {
	if choices == nil {
		choices = []openai.ChatDelta{}
	}
	doc := openai.ChatChunk{ID: c.id, Object: "chat.completion.chunk", Created: c.created, Model: c.s.cfg.Model, Choices: choices}
	if !c.usages() {
		ev.add(doc)
		return
	}
	ev.add(struct {
		openai.ChatChunk
		Usage *openai.Usage `json:"usage"` // null, where the embedded one would be left out
	}{doc, used})
}
