package server

import (
	"context"
	"net/http"
	"time"

	"draftlab/engine/tokenizer"
	"draftlab/openai"
)

// handleGenerate answers SGLang's POST /generate.
func (s *Server) handleGenerate(w http.ResponseWriter, r *http.Request) {
	var req openai.GenerateRequest
	e, ctx, done, fail := s.begin(w, r, &req)
	if fail != nil {
		s.fail(w, fail)
		return
	}
	defer done()
	j, list, err := s.generateJob(e, &req)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	g := generation{s: s, j: j, req: &req, list: list, outs: make([]openai.Generated, len(j.choices))}
	for i := range g.outs {
		g.outs[i] = openai.Generated{OutputIDs: []int32{}, MetaInfo: openai.MetaInfo{ID: g.name(i), PromptTokens: len(j.choices[i].req.Prompt)}}
	}
	if req.Stream {
		g.stream(ctx, w)
		return
	}
	pieces, err := s.collect(ctx, j)
	if err != nil {
		s.fail(w, asError(ctx, err))
		return
	}
	for i := range pieces {
		g.add(&pieces[i])
	}
	if list {
		s.writeJSON(w, http.StatusOK, g.outs)
		return
	}
	s.writeJSON(w, http.StatusOK, g.outs[0])
}

// generateJob checks a request; list says that the answer is a list of outputs.
func (s *Server) generateJob(e Engine, req *openai.GenerateRequest) (j *job, list bool, err error) {
	if (req.Text == nil) == (req.InputIDs == nil) {
		return nil, false, openai.Invalid("text", "text, input_ids: send exactly one of them")
	}
	if req.LogprobStartLen != nil && *req.LogprobStartLen != -1 {
		return nil, false, openai.Invalid("logprob_start_len", "logprob_start_len = %d: this server has log-probabilities of the output alone: -1", *req.LogprobStartLen)
	}
	prompt, param := req.Text, "text"
	switch {
	case prompt == nil:
		if prompt, param = req.InputIDs, "input_ids"; len(prompt.Texts) > 0 {
			return nil, false, openai.Invalid(param, "input_ids: want a list of token ids, or a list of such lists")
		}
	case len(prompt.IDs) > 0:
		return nil, false, openai.Invalid(param, "text: want a string or a list of strings")
	}
	ids, err := promptIDs(e, param, prompt)
	if err != nil {
		return nil, false, err
	}
	if req.RID != nil && len(*req.RID) != len(ids) {
		return nil, false, openai.Invalid("rid", "rid: %d names for %d prompts", len(*req.RID), len(ids))
	}
	o := req.SamplingParams.Options()
	o.Speculative = req.Speculative
	w := wishes{prompts: ids, promptName: param, maxName: "max_new_tokens", max: o.MaxTokens, def: sglangMaxTokens, topName: "top_logprobs_num"}
	if req.ReturnLogprob {
		w.logprobs, w.topLogprobs = true, req.TopLogprobsNum
	}
	j, err = s.newJob(e, &o, w)
	return j, err == nil && (prompt.Many || len(j.choices) > 1), err
}

// generation is the answer in progress.
type generation struct {
	s    *Server
	j    *job
	req  *openai.GenerateRequest
	list bool
	outs []openai.Generated // by choice: what there is so far
}

// name returns the name of an output, the client's own if it gave one.
func (g *generation) name(i int) string {
	if g.req.RID != nil && g.j.n == 1 {
		return (*g.req.RID)[i]
	}
	return newID("")
}

// add appends a piece to its output.
func (g *generation) add(p *piece) {
	out := &g.outs[p.choice]
	out.Text += p.text
	out.OutputIDs = append(out.OutputIDs, p.ids()...)
	if g.list {
		out.Index = &p.choice
	}
	m := &out.MetaInfo
	m.CompletionTokens = len(out.OutputIDs)
	if g.req.ReturnLogprob {
		tok := g.j.engine.Tokenizer()
		for _, t := range p.tokens {
			m.OutputLogprobs = append(m.OutputLogprobs, g.logprob(tok, t.ID, t.Logprob))
			if g.req.TopLogprobsNum > 0 {
				top := make([]openai.MetaLogprob, len(t.Top))
				for i, c := range t.Top {
					top[i] = g.logprob(tok, c.ID, c.Logprob)
				}
				m.OutputTop = append(m.OutputTop, top)
			}
		}
	}
	if p.end != nil {
		whole := metaInfo(m.ID, &g.j.choices[p.choice], p.end)
		whole.OutputLogprobs, whole.OutputTop = m.OutputLogprobs, m.OutputTop
		*m = *whole
	}
}

// logprob is a token in SGLang's shape.
func (g *generation) logprob(tok *tokenizer.Tokenizer, id int32, lp float32) openai.MetaLogprob {
	out := openai.MetaLogprob{finite(lp), id, nil}
	if g.req.TextInLogprobs {
		out[2], _ = tokenText(tok, id)
	}
	return out
}

// stream sends each output as far as it is, again and again, which is SGLang's way.
func (g *generation) stream(ctx context.Context, w http.ResponseWriter) {
	ev := g.s.newEvents(w)
	err := g.s.run(ctx, g.j, func(p piece) error {
		g.add(&p)
		ev.add(&g.outs[p.choice])
		return ev.send()
	})
	if err != nil {
		ev.end(asError(ctx, err))
		return
	}
	ev.end(nil)
}

// metaInfo tells about a complete output.
func metaInfo(id string, c *choice, end *ending) *openai.MetaInfo {
	r := &end.result
	m := &openai.MetaInfo{
		ID: id, FinishReason: &openai.MetaFinish{Type: end.reason, Matched: end.matched},
		PromptTokens: len(c.req.Prompt), CompletionTokens: end.tokens, CachedTokens: r.Cached, E2ELatency: end.elapsed.Seconds(),
		MetaTimes: &openai.MetaTimes{
			Queue: r.Queued.Seconds(), Prefill: r.Prefill.Seconds(), FirstToken: r.First.Seconds(),
			Decode: r.Decode.Seconds(), DecodeSteps: r.Steps, Preempted: r.Preempted,
			Phases: phaseSeconds(&r.Phases),
		},
	}
	if end.reason == "length" {
		m.FinishReason.Length = c.req.MaxTokens
	}
	if d := &r.Draft; d.Cycles > 0 {
		hist := d.AppendHistogram([]int64{})
		m.MetaSpec = &openai.MetaSpec{
			VerifyCount: d.Cycles, AcceptLength: ratio(float64(end.tokens), float64(d.Cycles)), AcceptRate: ratio(float64(d.Accepted), float64(d.Drafted)),
			CorrectDrafts: d.Accepted, ProposedDrafts: d.Drafted, CorrectHistogram: hist, AcceptHistogram: hist, CycleAcceptLength: d.AcceptLength(),
			Simulated: r.Simulated,
		}
	}
	return m
}

// ratio is a/b, 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// since is the time of a request so far.
func (j *job) since() time.Duration { return time.Since(j.arrived) }
