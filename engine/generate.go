package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"draftlab/engine/sample"
)

// FinishReason says why a text ended.
type FinishReason string

// The reasons, in the OpenAI API's words.
const (
	FinishStop   FinishReason = "stop"   // the model ended its text
	FinishLength FinishReason = "length" // MaxTokens or the context was reached
)

// Request is one prompt to continue.
type Request struct {
	Prompt    []int32 // token ids, at least one
	MaxTokens int     // most output tokens, at least 1
	Sampling  sample.Params
	// Stop reports whether an id ends the text; nil means that none does. The id that stopped is not part of the output.
	Stop func(id int32) bool
}

// Result is a finished output.
type Result struct {
	Tokens  []int32
	Finish  FinishReason
	Prefill time.Duration // from the start to the prompt's last logits
	First   time.Duration // from the start to the first token (TTFT)
	Decode  time.Duration // from the first token to the last
	Steps   int           // decode passes in Decode
}

// ErrContext is wrapped by the error for a prompt that leaves no room in the context.
var ErrContext = errors.New("the prompt does not fit the context")

// Generate continues a prompt and calls emit, if not nil, with each output token as it comes. Output
// ends at a stop token, at MaxTokens or where the context is full. When ctx ends or emit fails, Generate returns
// what it has, with the error.
func (e *Engine) Generate(ctx context.Context, req Request, emit func(id int32) error) (Result, error) {
	if err := e.check(&req); err != nil {
		return Result{}, err
	}
	start := time.Now()
	g := &generation{e: e, req: &req, history: sample.NewHistory(req.Prompt)}
	if err := g.prefill(ctx); err != nil {
		return g.res, err
	}
	g.res.Prefill = time.Since(start)
	// The last output token needs no position of its own: nothing is computed from it.
	limit := min(req.MaxTokens, e.Context()-len(req.Prompt)+1)
	for n := 0; ; n++ {
		id, err := g.next(n)
		if n == 0 {
			g.res.First = time.Since(start)
		}
		g.res.Decode, g.res.Steps = time.Since(start)-g.res.First, n
		switch {
		case err != nil:
			return g.res, err
		case req.Stop != nil && req.Stop(id):
			g.res.Finish = FinishStop
			return g.res, nil
		}
		g.res.Tokens = append(g.res.Tokens, id)
		if emit != nil {
			if err := emit(id); err != nil {
				return g.res, err
			}
		}
		if n+1 == limit {
			g.res.Finish = FinishLength
			return g.res, nil
		}
		if err := g.step(ctx, id, len(req.Prompt)+n); err != nil {
			return g.res, err
		}
	}
}

// check refuses what cannot be run.
func (e *Engine) check(req *Request) error {
	if len(req.Prompt) == 0 {
		return errors.New("the prompt is empty: at least one token is needed")
	}
	if len(req.Prompt) > e.Context() {
		return fmt.Errorf("%w: %d prompt tokens, context %d", ErrContext, len(req.Prompt), e.Context())
	}
	if req.MaxTokens < 1 {
		return fmt.Errorf("max tokens = %d: at least 1 is needed", req.MaxTokens)
	}
	return req.Sampling.Validate()
}

// generation is one request in progress.
type generation struct {
	e       *Engine
	req     *Request
	history *sample.History
	res     Result
}

// prefill runs the prompt in chunks; the last row's logits are those of the first output token.
func (g *generation) prefill(ctx context.Context) error {
	b := g.e.model.Batch()
	for at := 0; at < len(g.req.Prompt); at += prefillChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.Reset()
		b.Blocks[0] = g.e.blocks
		end := min(at+prefillChunk, len(g.req.Prompt))
		for i := at; i < end; i++ {
			b.Append(0, g.req.Prompt[i], int32(i))
		}
		if end == len(g.req.Prompt) {
			b.WantLogits(b.Rows - 1)
		}
		if err := g.e.model.Forward(); err != nil {
			return err
		}
	}
	return nil
}

// step runs one token at a position.
func (g *generation) step(ctx context.Context, id int32, pos int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := g.e.model.Batch()
	b.Reset()
	b.WantLogits(b.Append(0, id, int32(pos)))
	return g.e.model.Forward()
}

// next chooses the n-th output token from the last pass.
func (g *generation) next(n int) (int32, error) {
	if b := g.e.model.Batch(); g.req.Sampling.Greedy() {
		if l := b.BestLogit[0]; l-l != 0 { // NaN or infinite
			return 0, fmt.Errorf("%w at output position %d: the weights or the input overflow", sample.ErrNonFinite, n)
		}
		return b.Best[0], nil
	}
	logits := g.e.logits
	g.e.model.Logits(logits, 1)
	id, err := g.e.sampler.Sample(&g.req.Sampling, logits, g.history, n)
	if err == nil {
		g.history.Push(id)
	}
	return id, err
}
