package server

import (
	"context"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/engine/tokenizer"
	"draftlab/engine/trace"
)

// Engine is what the server needs of an engine. All methods may be called by any goroutine.
type Engine interface {
	// Submit hands in a request. An error wraps engine.ErrQueueFull, or says what is wrong with the request.
	Submit(engine.Request) (Stream, error)
	Stats() engine.Stats
	// Ledger is where the loop's time goes.
	Ledger() *ledger.Ledger
	// Flush drops cached prefixes and returns the number of blocks.
	Flush() int
	// StartTrace records what the engine does from a step on, for a number of cycles or, with 0, until StopTrace. Its error is
	// engine.ErrTracing.
	StartTrace(first int64, cycles int) (*trace.Trace, error)
	// StopTrace ends the trace that is being recorded and returns it, nil if there is none.
	StopTrace() *trace.Trace
	// Tokenizer is nil for a model of random weights, which speaks token ids alone.
	Tokenizer() *tokenizer.Tokenizer
	Info() Info
}

// Stream is the output of a request, as engine.Handle has it.
type Stream interface {
	Next(context.Context) ([]engine.Token, error)
	Result() engine.Result
	Cancel()
}

// Info is what does not change about an engine.
type Info struct {
	Vocab       int // token ids lie below it
	Context     int // longest sequence, prompt and output together
	MaxRunning  int
	MaxWaiting  int
	Spec        engine.Spec // how a request speculates that does not say
	Limit       draft.Shape // the largest draft that one may ask for
	Simulated   float64     // accept length of simulated acceptance, 0 where it is real
	Device      string      // for people, such as "cpu avx512vnni, 2 threads"
	Arch        string      // the model's architecture
	WeightBytes int64       // that one token reads
	ClockOrigin time.Time   // from which the ledger's times count
}
