package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/engine/tokenizer"
	"draftlab/engine/trace"
	"draftlab/internal/obs"
)

// fake is an engine that writes what a script says: one token a byte.
type fake struct {
	tok  *tokenizer.Tokenizer
	info Info

	// script returns the output of a request, cut into what arrives at once. "\x00" is the end-of-text token.
	script func(req engine.Request) []string
	// gate, if not nil, holds each arrival back until it can send.
	gate <-chan struct{}
	free int   // tokens of each output that the gate lets pass
	fail error // what outputs end with instead of io.EOF

	mu        sync.Mutex
	submitErr error
	stats     engine.Stats
	ledger    *ledger.Ledger
	trace     *trace.Trace
	streams   []*fakeStream
}

const fakeEnd = 256 // <|im_end|>

// newFake returns an engine that answers every prompt with "Hello, world".
func newFake(t testing.TB) *fake {
	t.Helper()
	var tokens []string
	for b := range 256 {
		tokens = append(tokens, symbol(b))
	}
	types := make([]int32, 259)
	for i := range types {
		types[i] = tokenizer.TypeNormal
	}
	types[256], types[257], types[258] = tokenizer.TypeControl, tokenizer.TypeControl, tokenizer.TypeNormal
	tok, err := tokenizer.FromVocab(tokenizer.Spec{
		Tokens: append(tokens, "<|im_end|>", "<|im_start|>", "He"), Types: types, Merges: []string{"H e"}, Pre: "gpt-2",
		BOS: -1, EOS: fakeEnd, EOT: -1, PAD: -1, UNK: -1,
		ChatTemplate: "{% for m in messages %}{% if m.role == 'assistant' and m.content == 'refuse' %}{{ raise_exception('no') }}{% endif %}" +
			"<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fake{
		tok:    tok,
		info:   Info{Vocab: tok.Vocab(), Context: 200, MaxRunning: 2, MaxWaiting: 4, Spec: engine.Spec{Drafter: engine.DraftNone}, Limit: draft.Shape{Steps: 8, TopK: 4, DraftTokens: 16}, Arch: "llama"},
		script: func(engine.Request) []string { return []string{"H", "ello, ", "world\x00"} },
		stats:  engine.Stats{Blocks: 8},
		ledger: ledger.New(ledger.Size, 0),
	}
}

// symbol is GPT-2's character for a byte.
func symbol(b int) string {
	seen := func(b int) bool { return b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad }
	if seen(b) {
		return string(rune(b))
	}
	free := 256
	for c := range b {
		if !seen(c) {
			free++
		}
	}
	return string(rune(free))
}

func (f *fake) Tokenizer() *tokenizer.Tokenizer { return f.tok }
func (f *fake) Info() Info                      { return f.info }
func (f *fake) Flush() int                      { return 3 }
func (f *fake) StartTrace(first int64, cycles int) (*trace.Trace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trace != nil {
		return nil, engine.ErrTracing
	}
	f.trace = trace.New(0, first, cycles)
	return f.trace, nil
}

func (f *fake) StopTrace() *trace.Trace {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trace
	if f.trace = nil; t != nil {
		t.Finish(0)
	}
	return t
}

func (f *fake) Ledger() *ledger.Ledger { return f.ledger }

func (f *fake) Stats() engine.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// set changes the counters, or what Submit says.
func (f *fake) set(change func(*engine.Stats), submitErr error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
	f.submitErr = submitErr
}

// last returns the newest stream.
func (f *fake) last() *fakeStream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams[len(f.streams)-1]
}

// Submit cuts the script's output as an engine would.
func (f *fake) Submit(req engine.Request) (Stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.submitErr != nil {
		return nil, f.submitErr
	}
	s := &fakeStream{f: f, req: req, end: f.fail, cancelled: make(chan struct{}), gate: f.gate}
	s.res.Finish, s.res.Cached = engine.FinishLength, 1
	s.res.Draft.Record(2, 2, 1)
	s.res.Simulated = f.info.Simulated
	s.res.Queued, s.res.First = time.Millisecond, 2*time.Millisecond
	left := req.MaxTokens
	for _, text := range f.script(req) {
		var batch []engine.Token
		for _, b := range []byte(text) {
			t := engine.Token{ID: int32(b), Logprob: -0.5}
			if b == 0 {
				t.ID = fakeEnd
			}
			if req.Stop != nil && req.Stop(t.ID) {
				s.res.Finish, left = engine.FinishStop, 0
			}
			if left == 0 {
				break
			}
			left--
			for i := range req.TopLogprobs {
				t.Top = append(t.Top, engine.Logprob{ID: t.ID + int32(i), Logprob: -0.5 - float32(i)})
			}
			batch = append(batch, t)
		}
		if len(batch) > 0 {
			s.batches = append(s.batches, batch)
		}
	}
	f.streams = append(f.streams, s)
	return s, nil
}

// fakeStream is one output of a fake.
type fakeStream struct {
	f         *fake
	req       engine.Request
	gate      <-chan struct{}
	end       error
	batches   [][]engine.Token
	res       engine.Result
	once      sync.Once
	cancelled chan struct{}
}

func (s *fakeStream) Next(ctx context.Context) ([]engine.Token, error) {
	if s.gate != nil && len(s.res.Tokens) >= s.f.free {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.cancelled:
			return nil, context.Canceled
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(s.batches) == 0 {
		if s.end != nil {
			return nil, s.end
		}
		return nil, io.EOF
	}
	batch := s.batches[0]
	s.batches = s.batches[1:]
	s.res.Tokens = append(s.res.Tokens, batch...)
	s.f.set(func(st *engine.Stats) { st.LastToken, st.OutputTokens = time.Now(), st.OutputTokens+int64(len(batch)) }, nil)
	return batch, nil
}

func (s *fakeStream) Result() engine.Result { return s.res }
func (s *fakeStream) Cancel()               { s.once.Do(func() { close(s.cancelled) }) }

// logBuffer is a log that tests read while it grows.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// started returns a server that serves f under the name "fake".
func started(t testing.TB, f *fake, cfg Config) (*Server, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	cfg.Model, cfg.Log = "fake", obs.NewLogger(log, slog.LevelInfo)
	s := New(cfg)
	script, gate, fail := f.script, f.gate, f.fail
	f.script, f.gate, f.fail = func(engine.Request) []string { return []string{"warm-up."} }, nil, nil
	if err := s.Start(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	f.script, f.gate, f.fail = script, gate, fail
	return s, log
}

// call sends a request to the handler.
func call(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var errBroken = errors.New("a broken engine")

func fullQueue(n int) error { return fmt.Errorf("%w: %d requests wait", engine.ErrQueueFull, n) }
