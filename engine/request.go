package engine

import (
	"context"
	"io"
	"sync"
	"time"

	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/engine/sample"
)

// FinishReason says why a text ended.
type FinishReason string

// The reasons, in the OpenAI API's words, and one of our own.
const (
	FinishStop   FinishReason = "stop"   // the model ended its text
	FinishLength FinishReason = "length" // MaxTokens or the context was reached
	FinishAbort  FinishReason = "abort"  // the request was cancelled, or failed
)

// Drafter names a way of drafting.
type Drafter string

// The drafters. DraftModel stands for the EAGLE-3 head that the engine was opened with.
const (
	DraftNone  Drafter = "none"
	DraftNgram Drafter = "ngram"
	DraftModel Drafter = "eagle3"
)

// Rule is how sampled tokens meet drafts.
type Rule string

// RuleA draws the target's token from a generator keyed by (seed, output position) and accepts a draft that equals it: the
// output is that of plain decoding with the same seed, token for token. RuleB draws the drafts from the drafter's distribution and
// accepts each with probability min(1, p/q) (Leviathan et al. 2023): at temperatures near 1 more are accepted. Its output has
// the distribution of plain decoding's, but it is another text, which a seed fixes for one draft shape, drafter and batch only. It
// needs DraftModel; at temperature 0 it is RuleA.
const (
	RuleA Rule = "a"
	RuleB Rule = "b"
)

// Spec is how a request speculates.
type Spec struct {
	Drafter Drafter
	Shape   draft.Shape // the zero Shape is plain decoding
	Rule    Rule        // "" is RuleA
	PMin    float32     // a draft ends where the product of its probabilities falls below; 0 never
}

// Request is one prompt to continue.
type Request struct {
	Prompt    []int32 // token ids, at least one
	MaxTokens int     // most output tokens, at least 1
	Sampling  sample.Params
	// Stop reports whether an id ends the text; nil means that none does. The id that stopped is not part of the output.
	Stop func(id int32) bool
	// Logprobs asks for the log-probability of each output token, and TopLogprobs for those of the n most probable ones at its
	// place. They are of the model's distribution before temperature, penalties and filters.
	Logprobs    bool
	TopLogprobs int
	// Spec overrides the engine's default way of speculating; nil takes it. It must lie within the engine's limit.
	Spec *Spec
	// NoCache keeps the request from using and filling the prefix cache.
	NoCache bool
}

// Token is one token of an output.
type Token struct {
	ID      int32
	Logprob float32   // if Request.Logprobs
	Top     []Logprob // the Request.TopLogprobs most probable, the best first
}

// Logprob is a token with its log-probability.
type Logprob struct {
	ID      int32
	Logprob float32
}

// Result is a finished output.
type Result struct {
	Tokens []Token
	Finish FinishReason
	Cached int // prompt tokens that the prefix cache gave

	Queued  time.Duration // from Submit to the first prompt row
	Prefill time.Duration // from the first prompt row to the prompt's last logits
	First   time.Duration // from Submit to the first token (TTFT)
	Decode  time.Duration // from the first token to the last
	Steps   int           // decode and verify passes in Decode

	Draft     draft.Stats // of the cycles that drafted
	Simulated float64     // the accept length that was simulated, so that the text means nothing; 0 for a real one
	// Phases are sums over the passes that the request took part in, whole, not its share of them: what other requests ran in
	// the same passes is in them. Schedule and Bookkeeping, which belong to no pass, are not; of an output that is cut short by its reader the
	// last cycle is not.
	Phases    ledger.Times
	Preempted int
}

// IDs returns the token ids of the output.
func (r *Result) IDs() []int32 {
	ids := make([]int32, len(r.Tokens))
	for i, t := range r.Tokens {
		ids[i] = t.ID
	}
	return ids
}

// Handle is a submitted request. Its output waits here, bounded by MaxTokens, so that a reader who is slow or gone
// holds up nobody. Next belongs to one goroutine; Cancel may be called by any.
type Handle struct {
	cancel func() // asks the engine's loop

	mu    sync.Mutex
	ready chan struct{} // has a value when there is news
	res   Result
	read  int // tokens that Next has returned
	done  bool
	err   error
}

func newHandle(cancel func()) *Handle {
	return &Handle{cancel: cancel, ready: make(chan struct{}, 1)}
}

// Next returns the tokens that came since the last call, at least one, waiting if need be. At the end of the output it returns
// io.EOF, or the error with which the request ended. It also returns when ctx ends, which leaves the request running.
func (h *Handle) Next(ctx context.Context) ([]Token, error) {
	for {
		if tokens, err, ok := h.poll(); ok {
			return tokens, err
		}
		select {
		case <-h.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// poll is Next without waiting: ok is false if there is no news.
func (h *Handle) poll() (fresh []Token, err error, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = h.res.Tokens[h.read:]
	h.read = len(h.res.Tokens)
	switch {
	case len(fresh) > 0:
		return fresh, nil, true
	case h.err != nil:
		return nil, h.err, true
	case h.done:
		return nil, io.EOF, true
	}
	return nil, nil, false
}

// Result returns what there is of the output; it is complete once Next has returned io.EOF or the request's error.
func (h *Handle) Result() Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.res
	r.Tokens = r.Tokens[:len(r.Tokens):len(r.Tokens)]
	return r
}

// Cancel ends the request: its memory is free after the step in progress. Next then returns context.Canceled, after the
// tokens that came before.
func (h *Handle) Cancel() { h.cancel() }

// news wakes Next.
func (h *Handle) news() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}
