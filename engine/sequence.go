package engine

import (
	"time"

	"draftlab/engine/draft"
	"draftlab/engine/draft/ngram"
	"draftlab/engine/kvcache"
	"draftlab/engine/ledger"
	"draftlab/engine/sample"
	"draftlab/engine/sched"
)

// sequence is a request in the engine's hands. It belongs to the loop's goroutine; what the reader sees lies in its handle.
type sequence struct {
	id sched.Seq
	// number counts requests in the order in which the loop takes them.
	number int64
	req    Request
	spec   Spec // resolved
	h      *Handle

	tokens  []int32 // prompt and output; the last one has not run yet
	table   kvcache.Table
	salt    uint64
	history *sample.History // nil where no penalty needs it

	tree    draft.Tree // candidates for the next cycle; the root alone without a draft
	index   *ngram.Index
	drafter bool // it has drafter rows
	resumed bool // its next prompt row follows a cached prefix
	builder grower
	fixed   *draft.Fixed      // the builder, under rule B; nil under rule A
	guess   []float32         // where acceptance is simulated: the probabilities that a tree is made by; nil elsewhere
	dice    uint64            // seed of simulated acceptance
	drawn   []sample.Proposal // under rule B: what the candidates of each of the draft's runs of the drafter were drawn from
	covered int               // slots that its blocks cover without those borrowed for a draft
	limit   int               // most output tokens

	spent ledger.Times // Result.Phases so far

	last outcome // of the pass in progress
	out  int     // first output row of the pass in progress
	path []int32 // accepted nodes of the cycle in progress

	submitted, started time.Time
	first              time.Time // of the first token
}

// emitted returns the number of output tokens.
func (s *sequence) emitted() int { return len(s.tokens) - len(s.req.Prompt) }

// newSequence prepares a valid request.
func (e *Engine) newSequence(req Request, spec Spec, h *Handle) *sequence {
	s := &sequence{req: req, spec: spec, h: h, submitted: time.Now(), salt: saltPlain}
	room := len(req.Prompt) + min(req.MaxTokens, e.Context())
	// The last output token needs no position of its own: nothing is computed from it.
	s.limit = min(req.MaxTokens, e.Context()-len(req.Prompt)+1)
	s.tokens, s.path = append(make([]int32, 0, room), req.Prompt...), make([]int32, 0, spec.Shape.Steps+1)
	s.table.Blocks = make([]int32, 0, kvcache.BlocksFor(room+spareSlots+spec.Shape.Rows()+spec.Shape.Steps*spec.Shape.TopK))
	if req.Sampling.Penalises() {
		s.history = sample.NewHistory(req.Prompt)
		s.history.Reserve(room - len(req.Prompt))
	}
	switch spec.Drafter {
	case DraftModel:
		s.drafter, s.salt = true, saltDrafted
		if spec.Rule == RuleB && req.Sampling.Temperature > 0 {
			s.drawsCandidates(e.drafter.Config().DraftVocab)
		} else {
			s.builder = draft.NewBuilder(spec.Shape)
		}
		if e.simulation != nil {
			e.simulateFor(s)
		}
	case DraftNgram:
		s.index = ngram.New(ngramLengths, uint64(len(req.Prompt)))
		s.index.Append(req.Prompt...)
	}
	return s
}

// reserve makes room for all of the output, so that a step allocates nothing (invariant 6). Requests that wait do without. The handle is
// locked.
func (s *sequence) reserve() {
	s.h.res.Tokens = make([]Token, 0, s.limit)
	if s.index != nil {
		s.index.Reserve(cap(s.tokens))
	}
}

// ngramLengths are the lengths of a match that the look-up drafter wants. Shorter than 2 proposes noise after
// every common word; beyond 5 a longer match is hardly ever a better one.
var ngramLengths = ngram.Options{Min: 2, Max: 5}

// push appends an output token.
func (s *sequence) push(t Token) {
	s.tokens = append(s.tokens, t.ID)
	if s.history != nil {
		s.history.Push(t.ID)
	}
	if s.index != nil {
		s.index.Append(t.ID)
	}
}

// deliver hands tokens to the reader.
func (s *sequence) deliver(tokens []Token) {
	now := time.Now()
	h := s.h
	h.mu.Lock()
	s.add(tokens, now)
	h.mu.Unlock()
	h.news()
}

// deliverCycle hands the tokens of a decode or verify cycle to the reader, with what the draft was worth.
func (s *sequence) deliverCycle(tokens []Token, drafted, depth, accepted int) {
	now := time.Now()
	h := s.h
	h.mu.Lock()
	s.add(tokens, now)
	h.res.Steps++
	h.res.Decode = now.Sub(s.first)
	if s.spec.Drafter != DraftNone {
		h.res.Draft.Record(drafted, depth, accepted)
	}
	h.mu.Unlock()
	h.news()
}

// add appends tokens to the result; the handle is locked.
func (s *sequence) add(tokens []Token, now time.Time) {
	r := &s.h.res
	if s.first.IsZero() {
		s.first = now
		r.First, r.Prefill = now.Sub(s.submitted), now.Sub(s.started)
	}
	r.Tokens, r.Phases = append(r.Tokens, tokens...), s.spent
}

// finish ends the reader's output.
func (s *sequence) finish(reason FinishReason, err error) {
	h := s.h
	h.mu.Lock()
	h.res.Finish, h.res.Phases, h.err, h.done = reason, s.spent, err, true
	h.mu.Unlock()
	h.news()
}
