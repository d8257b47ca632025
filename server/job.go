package server

import (
	"math/rand/v2"
	"strconv"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
	"draftlab/engine/tokenizer"
	"draftlab/openai"
)

const (
	maxStops        = 64   // the OpenAI API takes 4, other servers any number
	maxStopBytes    = 1024 // of a stop string: each token's text is searched for it
	maxStopTokens   = 256
	maxTopLogprobs  = 20 // as in the OpenAI API
	legacyMaxTokens = 16 // of /v1/completions without max_tokens, as in the OpenAI API
	sglangMaxTokens = 128
)

// job is a request as the engine will run it: one or more choices, each an output of its own.
type job struct {
	engine  Engine
	choices []choice // those of one prompt are neighbours
	n       int      // choices of each prompt
	stops   []string
	keep    bool // special tokens stay in the text
	arrived time.Time
}

// choice is one output.
type choice struct {
	req     engine.Request
	matched *int32 // the token that stopped it, −1 before; written by the engine's loop before the output is complete
}

// greedy is plain decoding without sampling.
func greedy() sample.Params { return sample.Defaults() }

// wishes are the parts of a request that the APIs name differently.
type wishes struct {
	prompts     [][]int32
	promptName  string // the parameter that has them
	maxName     string // the parameter that limits the output
	max         *int
	def         int // what max is without it; 0 is the rest of the context
	logprobs    bool
	topLogprobs int
	topName     string
}

// newJob checks a request's parameters (S1).
func (s *Server) newJob(e Engine, o *openai.Options, w wishes) (*job, error) {
	info := e.Info()
	params, err := sampling(o, info.Vocab)
	if err != nil {
		return nil, err
	}
	n, err := s.choiceCount(o.N, &w, info.MaxWaiting)
	if err != nil {
		return nil, err
	}
	if err := checkStops(o, info.Vocab); err != nil {
		return nil, err
	}
	if w.topLogprobs < 0 || w.topLogprobs > maxTopLogprobs {
		return nil, openai.Invalid(w.topName, "%s = %d: it must be from 0 to %d", w.topName, w.topLogprobs, maxTopLogprobs)
	}
	spec, err := speculation(o.Speculative, info)
	if err != nil {
		return nil, err
	}
	if spec != nil && o.Speculative.Rule == string(engine.RuleB) && params.Temperature == 0 {
		return nil, openai.Invalid("speculative.rule", "speculative.rule: greedy decoding (temperature 0) is the same under both rules: leave it out, or ask for a temperature")
	}
	j := &job{engine: e, n: n, stops: o.Stop, keep: o.SkipSpecialTokens != nil && !*o.SkipSpecialTokens, arrived: time.Now()}
	for _, ids := range w.prompts {
		limit, err := w.outputLimit(len(ids), info.Context)
		if err != nil {
			return nil, err
		}
		for i := range n {
			c := choice{matched: new(int32)}
			c.req = engine.Request{Prompt: ids, MaxTokens: limit, Sampling: params, Logprobs: w.logprobs, TopLogprobs: w.topLogprobs, Spec: spec}
			c.req.Sampling.Seed += uint64(i) // so that n outputs differ, and a single one is the first of n
			*c.matched = -1
			c.req.Stop = stopFunc(e.Tokenizer(), o, c.matched)
			j.choices = append(j.choices, c)
		}
	}
	return j, nil
}

// choiceCount returns n, the outputs of each prompt. All outputs of a request wait in the queue at first, so that one with more than the
// queue holds could never be taken: it is refused for good, not asked to try again.
func (s *Server) choiceCount(n *int, w *wishes, maxWaiting int) (int, error) {
	count, prompts, most := 1, len(w.prompts), min(s.cfg.MaxChoices, maxWaiting)
	if n != nil {
		count = *n
	}
	why := ""
	if most < s.cfg.MaxChoices {
		why = " (this server's queue)"
	}
	switch {
	case prompts < 1 || prompts > most:
		return 0, openai.Invalid(w.promptName, "%s: %d prompts: it must be 1 to %d%s", w.promptName, prompts, most, why)
	case count < 1 || count > most/prompts:
		return 0, openai.Invalid("n", "n = %d: it must be 1 to %d, %d outputs in all%s", count, most/prompts, most, why)
	}
	return count, nil
}

// outputLimit returns the most output tokens of a prompt.
func (w *wishes) outputLimit(prompt, context int) (int, error) {
	room := context - prompt
	switch {
	case prompt == 0:
		return 0, openai.Invalid(w.promptName, "%s: the prompt is empty: at least one token is needed", w.promptName)
	case w.max != nil && *w.max < 1:
		return 0, openai.Invalid(w.maxName, "%s = %d: it must be 1 or more", w.maxName, *w.max)
	case room < 1:
		e := openai.Invalid(w.promptName, "this model's context is %d tokens, and the prompt has %d: shorten it", context, prompt)
		e.Code = "context_length_exceeded"
		return 0, e
	case w.max != nil && *w.max > room:
		e := openai.Invalid(w.maxName, "this model's context is %d tokens, but %d were requested (%d in the prompt, %d for the output): "+
			"shorten the prompt or ask for at most %d output tokens", context, prompt+*w.max, prompt, *w.max, room)
		e.Code = "context_length_exceeded"
		return 0, e
	case w.max != nil:
		return *w.max, nil
	case w.def > 0:
		return min(w.def, room), nil
	}
	return room, nil
}

// sampling returns the parameters of sampling. Without a temperature it is 1, without a seed a random one, as in the OpenAI API.
func sampling(o *openai.Options, vocab int) (sample.Params, error) {
	p := sample.Defaults()
	p.Temperature = 1
	for _, f := range []struct {
		to   *float64
		from *float64
	}{
		{&p.Temperature, o.Temperature}, {&p.TopP, o.TopP}, {&p.MinP, o.MinP}, {&p.PresencePenalty, o.PresencePenalty},
		{&p.FrequencyPenalty, o.FrequencyPenalty}, {&p.RepetitionPenalty, o.RepetitionPenalty},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if o.TopK != nil {
		p.TopK = *o.TopK
	}
	p.Seed = rand.Uint64()
	if o.Seed != nil {
		p.Seed = uint64(*o.Seed)
	}
	bias := make(map[int32]float32, len(o.LogitBias))
	for key, v := range o.LogitBias {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id >= int64(vocab) || strconv.FormatInt(id, 10) != key {
			return p, openai.Invalid("logit_bias", "logit_bias: %q is no token id: they are 0 to %d", openai.Clip(key), vocab-1)
		}
		bias[int32(id)] = float32(v)
	}
	p.LogitBias = sample.NewLogitBias(bias)
	if err := p.Validate(); err != nil {
		return p, openai.Invalid(parameterOf(err), "%v", err)
	}
	return p, nil
}

// checkStops checks stop strings and stop tokens.
func checkStops(o *openai.Options, vocab int) error {
	if len(o.Stop) > maxStops {
		return openai.Invalid("stop", "stop has %d strings: at most %d are allowed", len(o.Stop), maxStops)
	}
	for _, stop := range o.Stop {
		if stop == "" || len(stop) > maxStopBytes {
			return openai.Invalid("stop", "stop: a string of %d bytes: it must be 1 to %d", len(stop), maxStopBytes)
		}
	}
	if len(o.StopTokenIDs) > maxStopTokens {
		return openai.Invalid("stop_token_ids", "stop_token_ids has %d ids: at most %d are allowed", len(o.StopTokenIDs), maxStopTokens)
	}
	for _, id := range o.StopTokenIDs {
		if id < 0 || int(id) >= vocab {
			return openai.Invalid("stop_token_ids", "stop_token_ids: %d is no token id: they are 0 to %d", id, vocab-1)
		}
	}
	return nil
}

// stopFunc returns the engine's test for the end of a text. It notes the token in matched.
func stopFunc(tok *tokenizer.Tokenizer, o *openai.Options, matched *int32) func(int32) bool {
	own := make(map[int32]bool, len(o.StopTokenIDs))
	for _, id := range o.StopTokenIDs {
		own[id] = true
	}
	ends := tok != nil && !o.IgnoreEOS
	return func(id int32) bool {
		if own[id] || ends && tok.IsEOG(id) {
			*matched = id
			return true
		}
		return false
	}
}

// speculation resolves a request's way of speculating against the engine's default; nil is that default. Steps alone ask
// for a chain; a tree needs all three numbers.
func speculation(o *openai.Speculative, info Info) (*engine.Spec, error) {
	if o == nil {
		return nil, nil
	}
	bad := func(field, format string, a ...any) error {
		return openai.Invalid("speculative."+field, "speculative."+field+": "+format, a...)
	}
	spec := info.Spec
	switch d := engine.Drafter(o.Drafter); d {
	case "", "auto":
	case engine.DraftNone:
		spec.Drafter, spec.Shape = engine.DraftNone, draft.Shape{}
	case engine.DraftNgram, engine.DraftModel:
		spec.Drafter = d
	default:
		return nil, bad("drafter", "%q: it must be auto, none, ngram or eagle3", openai.Clip(o.Drafter))
	}
	switch {
	case o.Steps == nil && (o.TopK != nil || o.DraftTokens != nil):
		return nil, bad("steps", "topk and draft_tokens need it")
	case o.Steps == nil:
	case o.TopK == nil && o.DraftTokens == nil:
		spec.Shape = draft.Chain(*o.Steps)
	case o.TopK == nil || o.DraftTokens == nil:
		return nil, bad("topk", "a tree needs steps, topk and draft_tokens; steps alone ask for a chain")
	default:
		spec.Shape = draft.Shape{Steps: *o.Steps, TopK: *o.TopK, DraftTokens: *o.DraftTokens}
	}
	if o.Steps != nil && *o.Steps > 0 && spec.Drafter == engine.DraftNone {
		return nil, bad("steps", "%d steps without a drafter: name one that this server has (ngram)", *o.Steps)
	}
	if err := spec.Shape.Validate(); err != nil {
		return nil, bad("steps", "%v", err)
	}
	if err := spec.Shape.Within(info.Limit); err != nil {
		return nil, bad("steps", "%v", err)
	}
	if o.PMin != nil {
		if !(*o.PMin >= 0 && *o.PMin <= 1) {
			return nil, bad("p_min", "%v: it must be from 0 to 1", *o.PMin)
		}
		spec.PMin = float32(*o.PMin)
	}
	draws := spec.Drafter == engine.DraftModel && spec.Shape.Steps > 0
	switch r := engine.Rule(o.Rule); {
	case r == "" && spec.Rule == engine.RuleB && !draws:
		spec.Rule = engine.RuleA // the default is for a drafter that this request does not use
	case r == "":
	case r == engine.RuleB && !draws:
		return nil, bad("rule", "b draws drafts from the distribution of drafter eagle3, which this request does not use")
	case r == engine.RuleA || r == engine.RuleB:
		spec.Rule = r
	default:
		return nil, bad("rule", "%q: it must be a or b", openai.Clip(o.Rule))
	}
	return &spec, nil
}

// promptIDs returns the ids of every prompt.
func promptIDs(e Engine, param string, p *openai.Prompt) ([][]int32, error) {
	vocab := e.Info().Vocab
	for _, ids := range p.IDs {
		for _, id := range ids {
			if id < 0 || int(id) >= vocab {
				return nil, openai.Invalid(param, "%s: %d is no token id: they are 0 to %d", param, id, vocab-1)
			}
		}
	}
	out := p.IDs
	for _, text := range p.Texts {
		tok := e.Tokenizer()
		if tok == nil {
			return nil, openai.Invalid(param, "%s: this model has random weights and no tokenizer: send token ids", param)
		}
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}) // as SGLang, vLLM and llama.cpp take a prompt
		if err != nil {
			return nil, openai.Invalid(param, "%s: %v", param, err)
		}
		out = append(out, ids)
	}
	return out, nil
}
