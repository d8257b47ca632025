package engine

import (
	"context"
	"errors"
	"io"
)

// Generate submits a request and calls emit, if not nil, with each output token as it comes. Where nobody runs steps, it
// runs them itself. When ctx ends or emit fails, the request is cancelled, and Generate returns what there is of it with the error.
func (e *Engine) Generate(ctx context.Context, req Request, emit func(Token) error) (Result, error) {
	h, err := e.Submit(req)
	if err != nil {
		return Result{}, err
	}
	next := h.Next
	driving := e.driver.TryLock()
	if driving {
		defer func() {
			e.count.ledger.Rest() // until someone runs steps again
			e.driver.Unlock()
		}()
		next = func(ctx context.Context) ([]Token, error) { return e.drive(ctx, h) }
	}
	for {
		tokens, err := next(ctx)
		if errors.Is(err, io.EOF) {
			return h.Result(), nil
		}
		for _, t := range tokens {
			if emit != nil && err == nil {
				err = emit(t)
			}
		}
		if err != nil {
			h.Cancel()
			if driving {
				e.receive() // takes the cancellation: no step is in progress
			}
			return h.Result(), err
		}
	}
}

// drive runs steps until h has news.
func (e *Engine) drive(ctx context.Context, h *Handle) ([]Token, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if tokens, err, ok := h.poll(); ok {
			return tokens, err
		}
		e.step()
	}
}
