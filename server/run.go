package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"draftlab/engine"
	"draftlab/openai"
)

// piece is what is new of one choice. The last piece of a choice has an ending.
type piece struct {
	choice int
	text   string
	tokens []entry // those whose text has begun to be sent
	end    *ending
}

// ending says how an output ended.
type ending struct {
	reason  string // stop or length
	matched any    // the stop string or token id, nil for length
	tokens  int    // of the output, up to the end of a stop string
	result  engine.Result
	elapsed time.Duration
}

// simulatedHeader tells that the server simulates acceptance, at this accept length: its texts mean nothing.
const simulatedHeader = "X-Simulated-Accept-Length"

// begin is the common start of a request that uses the engine: it reads the body and decodes it into v, counts the request in,
// and returns its context, which ends with the client, the time limit and the server. The caller calls done when err is nil.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, v any) (e Engine, ctx context.Context, done func(), err *openai.Error) {
	data, err := s.read(w, r)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := openai.Decode(data, v); err != nil {
		return nil, nil, nil, asError(r.Context(), err)
	}
	e, err = s.enter()
	if err != nil {
		return nil, nil, nil, err
	}
	// Before any work on the prompt: a full queue must stay cheap.
	if info := e.Info(); e.Stats().Waiting >= info.MaxWaiting {
		s.leave()
		return nil, nil, nil, s.submitError(fmt.Errorf("%w: %d requests wait", engine.ErrQueueFull, info.MaxWaiting), e)
	}
	if n := e.Info().Simulated; n != 0 {
		w.Header().Set(simulatedHeader, strconv.FormatFloat(n, 'g', -1, 64)) // for streams too, which need not end in a usage
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.hard, func() { cancel(context.Cause(s.hard)) })
	stopTimer := func() bool { return true }
	if s.cfg.RequestTimeout > 0 {
		stopTimer = time.AfterFunc(s.cfg.RequestTimeout, func() { cancel(errTimeout) }).Stop
	}
	return e, ctx, func() {
		stop()
		stopTimer()
		cancel(nil)
		s.leave()
	}, nil
}

// submit hands all choices to the engine, or none.
func (s *Server) submit(j *job) ([]Stream, error) {
	// Before any is handed in: those that are taken back stay in the queue until the engine's loop comes round, and keep others out.
	if waiting, most := j.engine.Stats().Waiting, j.engine.Info().MaxWaiting; waiting+len(j.choices) > most {
		return nil, s.submitError(fmt.Errorf("%w: %d requests wait", engine.ErrQueueFull, waiting), j.engine)
	}
	streams := make([]Stream, 0, len(j.choices))
	for i := range j.choices {
		st, err := j.engine.Submit(j.choices[i].req)
		if err != nil {
			for _, st := range streams {
				st.Cancel()
			}
			return nil, s.submitError(err, j.engine)
		}
		streams = append(streams, st)
	}
	return streams, nil
}

// run runs a job and calls emit, on the caller's goroutine, with its pieces as they come; those of one choice in order.
// An error of emit ends all choices. When run returns, nothing of the job runs any more.
func (s *Server) run(ctx context.Context, j *job, emit func(piece) error) error {
	streams, err := s.submit(j)
	if err != nil {
		return err
	}
	if len(streams) == 1 {
		return s.follow(ctx, j, 0, streams[0], emit)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pieces := make(chan piece)
	var group sync.WaitGroup
	for i, st := range streams {
		group.Go(func() {
			err := s.follow(ctx, j, i, st, func(p piece) error {
				select {
				case pieces <- p:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			if err != nil {
				cancel(asError(ctx, err)) // the first one counts
			}
		})
	}
	go func() {
		group.Wait()
		close(pieces)
	}()
	var failed error
	for p := range pieces {
		if failed == nil {
			if failed = emit(p); failed != nil {
				cancel(failed)
			}
		}
	}
	if failed == nil && ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	return failed
}

// follow reads one output to its end.
func (s *Server) follow(ctx context.Context, j *job, index int, st Stream, emit func(piece) error) error {
	complete := false
	defer func() {
		if !complete { // an output that nobody reads must not use the engine (S2)
			st.Cancel()
		}
	}()
	out := newOutput(j.engine.Tokenizer(), j.stops, !j.keep)
	last := time.Now()
	for {
		tokens, err := st.Next(ctx)
		if errors.Is(err, io.EOF) {
			complete = true
			res := st.Result()
			end := &ending{reason: string(res.Finish), tokens: out.tokens, result: res, elapsed: j.since()}
			if id := *j.choices[index].matched; res.Finish == engine.FinishStop && id >= 0 {
				end.matched = id
			}
			s.account(end)
			return emit(piece{choice: index, text: out.finish(), tokens: out.release(true), end: end})
		}
		if err != nil {
			return asError(ctx, err)
		}
		now := time.Now()
		s.metrics.arrived(out.tokens, len(tokens), now.Sub(last))
		last = now
		p, matched := take(out, tokens)
		p.choice = index
		if matched != "" {
			st.Cancel()
			complete = true
			p.end = &ending{reason: string(engine.FinishStop), matched: matched, tokens: out.tokens, result: st.Result(), elapsed: j.since()}
			s.account(p.end)
			return emit(p)
		}
		if p.text == "" && len(p.tokens) == 0 {
			continue
		}
		if err := emit(p); err != nil {
			return err
		}
	}
}

// take pushes tokens up to the one that completes a stop string.
func take(out *output, tokens []engine.Token) (p piece, matched string) {
	var text strings.Builder
	for _, t := range tokens {
		var part string
		part, matched = out.push(t)
		text.WriteString(part)
		if matched != "" {
			break
		}
	}
	p.text, p.tokens = text.String(), out.release(false)
	return p, matched
}

// account puts a complete output into the metrics.
func (s *Server) account(end *ending) {
	s.retry.done(end.elapsed)
	s.metrics.completed(end)
}

// collect runs a job to its end and returns each choice as one piece.
func (s *Server) collect(ctx context.Context, j *job) ([]piece, error) {
	whole := make([]piece, len(j.choices))
	texts := make([]strings.Builder, len(j.choices))
	err := s.run(ctx, j, func(p piece) error {
		texts[p.choice].WriteString(p.text)
		w := &whole[p.choice]
		w.choice, w.tokens, w.end = p.choice, append(w.tokens, p.tokens...), p.end
		return nil
	})
	for i := range whole {
		whole[i].text = texts[i].String()
	}
	return whole, err
}

// usage counts the tokens of a job. A prompt counts once, however many outputs it has.
func usage(j *job, ends []*ending) *openai.Usage {
	u := &openai.Usage{PromptTokensDetails: &openai.PromptTokenDetails{}}
	for i, end := range ends {
		if end == nil {
			continue
		}
		u.CompletionTokens += end.tokens
		u.Simulated = end.result.Simulated
		if i%j.n == 0 {
			u.PromptTokens += len(j.choices[i].req.Prompt)
			u.PromptTokensDetails.CachedTokens += end.result.Cached
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// endings are the ends of pieces.
func endings(pieces []piece) []*ending {
	ends := make([]*ending, len(pieces))
	for i := range pieces {
		ends[i] = pieces[i].end
	}
	return ends
}

// ids are the token ids of a piece.
func (p *piece) ids() []int32 {
	out := make([]int32, len(p.tokens))
	for i, t := range p.tokens {
		out[i] = t.ID
	}
	return out
}
