package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"draftlab/engine"
	"draftlab/experiments/rig"
	"draftlab/lab/prompts"
)

const (
	// report is the time between two lines of progress.
	report = 5 * time.Second
	// shown is how many mismatches are kept: one is enough to look into, and a broken engine has thousands.
	shown = 10
)

// mismatch is a case whose output is not plain decoding's.
type mismatch struct {
	*testCase
	width     int
	tight     bool
	position  int // of the first token that differs, in the plain output
	want, got []int32
	ended     engine.FinishReason
}

func (m mismatch) String() string {
	how := "greedy"
	if p := m.text.params; !p.Greedy() {
		how = fmt.Sprintf("temperature %g, top-p %g, penalties %g %g %g, seed %d",
			p.Temperature, p.TopP, p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty, p.Seed)
	}
	return fmt.Sprintf("MISMATCH prompt %s, draft %s, batch %d, few blocks %t, no cache %t, %s: at output token %d:\n  plain %v (%s)\n  got   %v (%s)",
		m.text.prompt.ID, wayName(m.way), m.width, m.tight, m.noCache, how, m.position, m.want, m.text.finish, m.got, m.ended)
}

// decodePlainly writes the plain outputs of all texts that cases use, one after the other and without the prefix cache. It returns the
// longest sequence, in tokens.
func decodePlainly(ctx context.Context, target string, groups []*group, o options, log io.Writer) (int, error) {
	texts := map[*text]bool{}
	for _, g := range groups {
		for _, c := range g.cases {
			texts[c.text] = true
		}
	}
	e, err := rig.Load(engine.Options{Model: target, Threads: o.threads})
	if err != nil {
		return 0, err
	}
	defer e.Close()
	longest, last := 0, time.Now()
	for t := range texts {
		ids, err := rig.Encode(e.Tokenizer(), prompts.Set{t.prompt})
		if err != nil {
			return 0, err
		}
		t.ids = ids[0]
		res, err := e.Generate(ctx, request(e, t, t.ids, o.tokens), nil)
		if err != nil {
			return 0, fmt.Errorf("plain decoding of prompt %s: %w", t.prompt.ID, err)
		}
		t.want, t.finish = res.IDs(), res.Finish
		longest = max(longest, len(t.ids)+o.tokens)
		delete(texts, t)
		if time.Since(last) > report {
			last = time.Now()
			fmt.Fprintf(log, "plain decoding: %d texts left\n", len(texts))
		}
	}
	return longest, nil
}

// request asks for n tokens at most behind a prompt, with a text's parameters.
func request(e *engine.Engine, t *text, prompt []int32, n int) engine.Request {
	return engine.Request{Prompt: prompt, MaxTokens: n, Sampling: t.params, Stop: e.Tokenizer().IsEOG, NoCache: true, Spec: &engine.Spec{}}
}

// runGroup runs a group's cases on an engine of their own, a few more at a time than run, so that batches are of random company
// and some requests wait.
func (p *proof) runGroup(ctx context.Context, o engine.Options, g *group, log io.Writer) error {
	e, err := rig.Load(o)
	if err != nil {
		return err
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(ctx)
	loop := make(chan struct{})
	go func() {
		defer close(loop)
		_ = e.Run(ctx) // its error is the context's
	}()
	defer func() { cancel(); <-loop }()

	const waiting = 2
	todo := make(chan *testCase)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards p and failed
	var failed error
	last := time.Now()
	for range o.MaxRunning + waiting {
		wg.Go(func() {
			for c := range todo {
				res, err := e.Generate(ctx, c.request(e), nil)
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("prompt %s, draft %s: %w", c.text.prompt.ID, wayName(c.way), err))
					cancel()
				} else {
					p.judge(c, g, &res)
				}
				if time.Since(last) > report {
					last = time.Now()
					p.progress(log, g)
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range g.cases {
		select {
		case todo <- c:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(todo)
	wg.Wait()
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	return settled(e)
}

// request is the case's request.
func (c *testCase) request(e *engine.Engine) engine.Request {
	t, from := c.text, c.start()
	r := request(e, t, slices.Concat(t.ids, t.want[:from]), max(1, t.limit()-from))
	r.NoCache, r.Spec = c.noCache, &ways[c.way]
	return r
}

// limit is the number of tokens after which the plain output was cut, or one more than it has if it ended by itself.
func (t *text) limit() int {
	if t.finish == engine.FinishStop {
		return len(t.want) + 1
	}
	return len(t.want)
}

// judge compares an output with plain decoding's.
func (p *proof) judge(c *testCase, g *group, res *engine.Result) {
	got, want := res.IDs(), c.text.want[c.start():]
	wrong := !slices.Equal(got, want) || res.Finish != c.text.finish
	p.done++
	p.byWay[c.way].add(c, res, wrong)
	p.byWidth[g.width].add(c, res, wrong)
	if !wrong || len(p.mismatches) == shown {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	p.mismatches = append(p.mismatches, mismatch{c, p.widths[g.width], g.tight, c.start() + at, want, got, res.Finish})
}

// progress writes a line.
func (p *proof) progress(log io.Writer, g *group) {
	spent := time.Since(p.started)
	left := time.Duration(float64(spent) / float64(p.done) * float64(p.all-p.done))
	fmt.Fprintf(log, "batch %d: %d of %d cases, %d mismatches, about %s left\n", p.widths[g.width], p.done, p.all, len(p.mismatches), left.Round(time.Second))
}

// settled holds the engine to an empty ledger: what has ended holds no blocks.
func settled(e *engine.Engine) error {
	end := time.Now().Add(5 * time.Second)
	for {
		s := e.Stats()
		if s.BlocksUsed == 0 && s.Running == 0 && s.Waiting == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: %d blocks in use after the last case, %d sequences run, %d wait", rig.ErrClaim, s.BlocksUsed, s.Running, s.Waiting)
		}
		time.Sleep(time.Millisecond)
	}
}
