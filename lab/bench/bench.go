// Package bench carries out a benchmark: [Run] warms a server up, empties its prefix cache, sends the load of a [Config] and returns
// what came of it. It ties together lab/load, lab/client, lab/probe and lab/measure, and decides nothing that these decide.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/measure"
	"draftlab/lab/probe"
	"draftlab/lab/prompts"
)

// Config is a benchmark. Hooks may be nil.
type Config struct {
	Server    *probe.Server
	API       client.API
	Dataset   string
	Prompts   prompts.Set // in the order in which they are sent; when all were, they are sent anew
	Plan      load.Plan
	MaxTokens int
	Extra     map[string]any // further fields of each request: see [client.Request]
	IgnoreEOS bool
	Turns     bool          // the prompts are what users say in chats, without a template
	Repeat    bool          // send a prompt that was sent before as it is, and keep the prefix cache
	Stall     time.Duration // of silence, after which a request has failed
	SLO       measure.SLO
	Warmups   int64     // requests before the measurement; negative is until the reading has settled
	Raw       io.Writer // gets a line of JSON for each request
	Version   string    // of draftlab

	Note     func(text string)
	Progress func(State) // about once a second, while the measurement runs
}

// State is how far a run is.
type State struct {
	Ended, Failed, Output int64
	Elapsed               time.Duration
}

// giveUpAfter is the number of connections in a row that a server refuses until it counts as gone. A restart within a run would
// make the measurement worthless anyway.
const giveUpAfter = 20

// openConns is the number of connections that an open loop without a bound keeps between bursts.
const openConns = 4096

// lastRead is the time that the server has for its counters at the end of a run.
const lastRead = 10 * time.Second

// errGone ends a run whose server has gone.
var errGone = errors.New("the server has gone")

// Run carries out a benchmark. The error is that of the context or of the raw file; requests that fail are results. If ctx ends
// while it measures, there are both a summary of what had been measured and the error.
func Run(ctx context.Context, cfg *Config) (*measure.Summary, error) {
	if err := cfg.Plan.Check(); err != nil {
		return nil, err
	}
	conns := max(cfg.Plan.Concurrency, 64)
	if cfg.Plan.Rate > 0 && cfg.Plan.Concurrency == 0 {
		conns = openConns
	}
	h := client.NewHTTP(conns, cfg.Stall)
	defer h.CloseIdleConnections()
	b := &bench{cfg: cfg, client: &client.Client{Base: cfg.Server.Base, HTTP: h, Key: cfg.Server.Key, Header: cfg.Server.Header}}
	environment := measure.ReadEnvironment(cfg.Version)
	warmup, err := b.warmUp(ctx)
	if err != nil {
		return nil, err
	}
	if !cfg.Repeat && cfg.Server.Kind != probe.LlamaCPP && !cfg.Server.Flush(ctx) {
		b.mark = time.Now().Unix()
		b.note("the server does not empty its prefix cache when asked: each prompt gets a mark of this run in front")
	}
	before, counts := cfg.Server.Drafts(ctx)
	cachedBefore, tellsCached := cfg.Server.Cached(ctx)
	var cached int64
	s, err := b.measure(ctx, func() *measure.Acceptance {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastRead) // an interrupted run has counts, too
		defer stop()
		if n, ok := cfg.Server.Cached(ctx); ok && tellsCached {
			cached = n - cachedBefore
		}
		after, ok := cfg.Server.Drafts(ctx)
		if !counts || !ok {
			return nil
		}
		return probe.Between(before, after)
	})
	if s == nil {
		return nil, err
	}
	s.CountCached(cached)
	s.Backend, s.Model, s.Dataset, s.API = string(cfg.Server.Kind), cfg.Server.Model, cfg.Dataset, string(cfg.API)
	b.doubt(s)
	s.ServerVersion, s.ServerInfo = cfg.Server.Version, cfg.Server.Info
	s.Plan, s.Warmup, s.Environment = cfg.Plan, warmup, environment
	return s, err
}

// bench is a benchmark that is being carried out.
type bench struct {
	cfg    *Config
	client *client.Client
	mark   int64 // what is put before the prompts of a run whose server may have seen them, 0 if nothing: another number in each run
}

func (b *bench) note(text string) {
	if b.cfg.Note != nil {
		b.cfg.Note(text)
	}
}

// measure sends the plan's load and sums it up; counted is called when it has ended.
func (b *bench) measure(ctx context.Context, counted func() *measure.Acceptance) (*measure.Summary, error) {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	begin := time.Now()
	m := measure.NewMeter(begin, b.cfg.SLO)
	raw := &rawFile{w: b.cfg.Raw}
	defer b.report(m, begin)()
	var refused atomic.Int64
	tally := load.Run(running, b.cfg.Plan, func(ctx context.Context, n int64, due time.Time) {
		r := b.send(ctx, n, due)
		if r.Failure == client.Cancelled && running.Err() != nil {
			return // by us: it says nothing about the server
		}
		m.Add(r)
		if err := raw.write(r); err != nil {
			stop(err)
		}
		if r.Failure != client.Unreachable {
			refused.Store(0)
		} else if refused.Add(1) >= giveUpAfter {
			stop(errGone)
		}
	})
	cause := context.Cause(running)
	if cause != nil && ctx.Err() == nil && !errors.Is(cause, errGone) {
		return nil, cause // what is not in the raw file cannot be in the summary
	}
	s := m.Summary(tally, counted())
	s.Date = begin
	switch {
	case ctx.Err() != nil:
		s.Warnings = append(s.Warnings, "interrupted: this is what had been measured until then")
	case cause != nil:
		s.Warnings = append(s.Warnings, fmt.Sprintf("the server has gone: the run ended after %d refused connections in a row", giveUpAfter))
	}
	return s, ctx.Err()
}

// send carries out request n.
func (b *bench) send(ctx context.Context, n int64, due time.Time) *measure.Record {
	if b.cfg.Plan.Rate == 0 {
		due = time.Time{} // in a closed loop a request is due when it is sent, and no sooner
	}
	set := b.cfg.Prompts
	p := set[n%int64(len(set))]
	round := n / int64(len(set))
	text := p
	if !b.cfg.Repeat {
		text = p.Salted(b.mark + round)
	}
	return &measure.Record{N: n, PromptID: p.ID, Round: round, Mark: b.mark, Category: string(p.Category), Sample: b.client.Do(ctx, due, b.request(text.Text))}
}

// sampling are the fields that SGLang's own API has apart, among its sampling parameters.
var sampling = []string{"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "stop", "stop_token_ids"}

// request returns the request for a prompt.
func (b *bench) request(prompt string) *client.Request {
	outer := map[string]any{}
	if b.cfg.API != client.Generate {
		switch b.cfg.Server.Kind {
		case probe.Draftlab:
			outer["return_token_ids"], outer["return_meta_info"] = true, true
		case probe.VLLM:
			outer["return_token_ids"] = true
		case probe.SGLang:
			outer["return_spec_tokens_details"] = true // from mid-2026; earlier ones pass it over
		case probe.LlamaCPP:
			outer["cache_prompt"] = b.cfg.Repeat // it cannot empty its cache, but leave it out
		}
	}
	params := map[string]any{}
	if b.cfg.IgnoreEOS {
		params["ignore_eos"] = true
	}
	for k, v := range b.cfg.Extra {
		if slices.Contains(sampling, k) {
			params[k] = v
		} else {
			outer[k] = v
		}
	}
	return &client.Request{API: b.cfg.API, Model: b.cfg.Server.Model, Prompt: prompt, MaxTokens: b.cfg.MaxTokens, Extra: params, Outer: outer}
}

// report tells of progress until the function that it returns is called.
func (b *bench) report(m *measure.Meter, begin time.Time) func() {
	if b.cfg.Progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			s := State{Elapsed: time.Since(begin)}
			s.Ended, s.Failed, s.Output = m.Progress()
			b.cfg.Progress(s)
		}
	}()
	return func() { close(done); <-ended }
}

// rawFile takes one record at a time.
type rawFile struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *rawFile) write(r *measure.Record) error {
	if f.w == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.w.Write(append(line, '\n'))
	return err
}
