package server

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"draftlab/openai"
)

// newID returns a name for an answer.
func newID(prefix string) string { return prefix + rand.Text() }

// checkModel refuses other models than the one that is served; no name at all is fine.
func (s *Server) checkModel(name string) error {
	if name == "" || name == s.cfg.Model {
		return nil
	}
	return &openai.Error{Status: http.StatusNotFound, Type: openai.InvalidRequest, Param: "model", Code: "model_not_found",
		Message: "no model " + openai.Clip(name) + " here: this server has " + s.cfg.Model}
}

// handleCompletion answers POST /v1/completions.
func (s *Server) handleCompletion(w http.ResponseWriter, r *http.Request) {
	var req openai.CompletionRequest
	e, ctx, done, fail := s.begin(w, r, &req)
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer done()
	j, err := s.completionJob(e, &req)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	a := answer{s: s, j: j, o: &req.Options, id: newID("cmpl-"), created: time.Now().Unix(), logprobs: req.Logprobs != nil}
	if req.Stream {
		a.stream(ctx, w, a.completionEvent)
		return
	}
	pieces, err := s.collect(ctx, j)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	doc := openai.Completion{ID: a.id, Object: "text_completion", Created: a.created, Model: s.cfg.Model, Usage: usage(j, endings(pieces))}
	for i := range pieces {
		doc.Choices = append(doc.Choices, a.completionChoice(&pieces[i]))
	}
	s.writeJSON(w, http.StatusOK, doc)
}

// completionJob checks a request.
func (s *Server) completionJob(e Engine, req *openai.CompletionRequest) (*job, error) {
	if err := s.checkModel(req.Model); err != nil {
		return nil, err
	}
	if err := checkStreamOptions(&req.Options); err != nil {
		return nil, err
	}
	prompts, err := promptIDs(e, "prompt", &req.Prompt)
	if err != nil {
		return nil, err
	}
	w := wishes{prompts: prompts, promptName: "prompt", maxName: "max_tokens", max: req.MaxTokens, def: legacyMaxTokens, logprobs: req.Logprobs != nil, topName: "logprobs"}
	if req.Logprobs != nil {
		w.topLogprobs = *req.Logprobs
	}
	return s.newJob(e, &req.Options, w)
}

// checkStreamOptions refuses options of a stream where there is none, as the OpenAI API does.
func checkStreamOptions(o *openai.Options) error {
	if o.StreamOptions != nil && !o.Stream {
		return openai.Invalid("stream_options", "stream_options: it is only allowed with stream: true")
	}
	return nil
}

// answer is what the events of one OpenAI answer have in common.
type answer struct {
	s        *Server
	j        *job
	o        *openai.Options
	id       string
	created  int64
	logprobs bool
	ends     []*ending // by choice; nil while it runs
	sent     []int     // by choice: tokens in the events of a stream so far
}

// stream sends a job's pieces as events; event makes those of a piece, or of the usage at the end if it is given nil.
func (a *answer) stream(ctx context.Context, w http.ResponseWriter, event func(ev *events, p *piece)) {
	ev := a.s.newEvents(w)
	a.ends, a.sent = make([]*ending, len(a.j.choices)), make([]int, len(a.j.choices))
	err := a.s.run(ctx, a.j, func(p piece) error {
		event(ev, &p)
		return ev.send()
	})
	if err != nil {
		ev.end(asError(ctx, err))
		return
	}
	if a.usages() {
		event(ev, nil)
	}
	ev.end(nil)
}

// usages reports whether the events of the stream have a usage, if only null, which then has the OpenAI API's clients wait for the last one.
func (a *answer) usages() bool { return a.o.StreamOptions != nil && a.o.StreamOptions.IncludeUsage }

// count takes a piece into the usage so far.
func (a *answer) count(p *piece) {
	a.ends[p.choice] = p.end
	a.sent[p.choice] += len(p.tokens)
}

// soFar is the usage of one choice in an event of the stream, nil if it is not wanted there.
func (a *answer) soFar(choice int) *openai.Usage {
	if !a.usages() || !a.o.StreamOptions.ContinuousUsage {
		return nil
	}
	n, prompt := a.sent[choice], len(a.j.choices[choice].req.Prompt)
	if end := a.ends[choice]; end != nil {
		n = end.tokens
	}
	return &openai.Usage{PromptTokens: prompt, CompletionTokens: n, TotalTokens: prompt + n}
}

// completionEvent adds the event of a piece.
func (a *answer) completionEvent(ev *events, p *piece) {
	doc := openai.Completion{ID: a.id, Object: "text_completion", Created: a.created, Model: a.s.cfg.Model, Choices: []openai.CompletionChoice{}}
	var used *openai.Usage
	if p == nil {
		used = usage(a.j, a.ends)
	} else {
		a.count(p)
		used = a.soFar(p.choice)
		doc.Choices = append(doc.Choices, a.completionChoice(p))
	}
	if !a.usages() {
		ev.add(doc)
		return
	}
	ev.add(struct {
		openai.Completion
		Usage *openai.Usage `json:"usage"` // null, where the embedded one would be left out
	}{doc, used})
}

// completionChoice is a piece as a choice.
func (a *answer) completionChoice(p *piece) openai.CompletionChoice {
	c := openai.CompletionChoice{Index: p.choice, Text: p.text}
	if a.logprobs {
		c.Logprobs = completionLogprobs(a.j.engine.Tokenizer(), p.tokens)
	}
	c.FinishReason, c.TokenIDs, c.MetaInfo = a.rest(p)
	return c
}

// rest is what the choices of both APIs have alike.
func (a *answer) rest(p *piece) (reason *string, ids []int32, meta any) {
	if a.o.ReturnTokenIDs {
		ids = p.ids()
	}
	if p.end != nil {
		reason = &p.end.reason
		if a.o.ReturnMetaInfo {
			meta = metaInfo(a.id, &a.j.choices[p.choice], p.end)
		}
	}
	return reason, ids, meta
}

// handleModels answers GET /v1/models. It needs no engine, so that a client can look around while the model loads.
func (s *Server) handleModels(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, openai.ModelList{Object: "list", Data: []openai.Model{s.model()}})
}

// handleModel answers GET /v1/models/NAME.
func (s *Server) handleModel(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	if err := s.checkModel(name); err != nil || name == "" {
		s.fail(w, &openai.Error{Status: http.StatusNotFound, Type: openai.InvalidRequest, Param: "model", Code: "model_not_found",
			Message: "no such model here: this server has " + s.cfg.Model})
		return
	}
	s.writeJSON(w, http.StatusOK, s.model())
}

func (s *Server) model() openai.Model {
	m := openai.Model{ID: s.cfg.Model, Object: "model", Created: s.created.Unix(), OwnedBy: "draftlab"}
	if e := s.engine.Load(); e != nil {
		m.MaxModelLen = (*e).Info().Context
	}
	return m
}
