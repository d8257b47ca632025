package engine

import (
	"context"
	"fmt"
	"time"

	"draftlab/engine/draft"
	"draftlab/engine/invariants"
	"draftlab/engine/ledger"
	"draftlab/engine/sample"
	"draftlab/engine/sched"
)

// Run runs steps until ctx ends, and sleeps while there is nothing to do. What still runs then is cancelled.
func (e *Engine) Run(ctx context.Context) error {
	e.driver.Lock()
	defer e.driver.Unlock()
	for {
		for e.step() {
			if ctx.Err() != nil {
				break
			}
		}
		select {
		case <-ctx.Done():
			e.abandon(ctx.Err())
			return ctx.Err()
		case <-e.inbox.wake:
		}
	}
}

// abandon cancels everything.
func (e *Engine) abandon(err error) {
	e.receive()
	for q, s := range e.seqs {
		if s != nil {
			e.sched.Cancel(sched.Seq(q))
			e.end(s, FinishAbort, err)
		}
	}
	e.count.ledger.Rest()
}

// step runs one iteration of the scheduler: prompt chunks in one pass, the cycles of all running sequences in another. It
// returns false if there was nothing to run.
func (e *Engine) step() bool {
	e.count.begin()
	e.receive()
	plan := e.sched.Plan()
	for _, q := range plan.Preempted {
		e.preempted(e.seqs[q])
	}
	for _, a := range plan.Admitted {
		e.admitted(e.seqs[a.Seq], a.Cached)
	}
	if len(plan.Admitted) > 0 {
		e.count.update(e.places) // before the passes, which may be long: their places in the queue are free
	}
	if len(plan.Prefill) > 0 {
		e.prefill(plan.Prefill)
	}
	if len(plan.Decode) > 0 {
		e.cycle(plan.Decode)
	}
	e.count.update(func(c *Stats) {
		e.places(c)
		c.BlocksUsed, c.BlocksCached = e.ledger.Used(), e.ledger.Cached()
	})
	if invariants.Enabled {
		if err := e.ledger.CheckIntegrity(); err != nil {
			panic("engine: " + err.Error())
		}
	}
	if plan.Empty() {
		e.count.ledger.Rest()
		return false
	}
	e.ended()
	e.count.update(func(c *Stats) { c.Steps++ })
	return true
}

// places counts the sequences that run and those that wait.
func (e *Engine) places(c *Stats) { c.Running, c.Waiting = e.sched.Running(), e.sched.Waiting() }

// preempted notes that a sequence lost its blocks: it will run its tokens again.
func (e *Engine) preempted(s *sequence) {
	s.tree.Reset(0)
	s.h.mu.Lock()
	s.h.res.Preempted++
	s.h.mu.Unlock()
	e.count.update(func(c *Stats) { c.Preemptions++ })
}

// admitted notes that a sequence starts to run, for the first time or again.
func (e *Engine) admitted(s *sequence, cached int) {
	s.resumed = cached > 0
	if !s.started.IsZero() {
		return
	}
	s.started = time.Now()
	e.leaveQueue()
	s.h.mu.Lock()
	s.h.res.Cached, s.h.res.Queued = cached, s.started.Sub(s.submitted)
	s.reserve()
	s.h.mu.Unlock()
	e.count.update(func(c *Stats) {
		c.PromptTokens += int64(len(s.req.Prompt))
		c.CachedTokens += int64(cached)
	})
}

// prefill runs prompt chunks: rows of known tokens, with logits behind the last one.
func (e *Engine) prefill(chunks []sched.Chunk) {
	from := e.count.enter(ledger.Prefill)
	b := e.model.Batch()
	b.Reset()
	for i, c := range chunks {
		s := e.seqs[c.Seq]
		b.Blocks[i] = s.table.Blocks
		for slot := c.From; slot < c.From+c.N; slot++ {
			b.Append(int32(i), s.tokens[slot], int32(slot))
		}
		if c.Last {
			b.WantLogits(b.Rows - 1)
		}
	}
	e.count.ledger.Work.PrefillRows = int32(b.Rows)
	err := e.model.Forward()
	e.count.enter(ledger.Accept)
	out := 0
	for _, c := range chunks {
		s := e.seqs[c.Seq]
		o := outcome{err: err}
		if c.Last {
			if err == nil {
				s.tree.Reset(0)
				o = e.walk(s, &s.tree, out)
				e.count.enter(ledger.Stream)
				s.deliver(e.fresh)
				e.count.enter(ledger.Accept)
				e.emitted(o.emitted)
			}
			out++
		}
		s.last = o
	}
	if err == nil {
		e.extendPrefill(chunks)
	}
	e.count.enter(ledger.Bookkeeping)
	spent := e.count.since(from)
	for _, c := range chunks {
		e.report(e.seqs[c.Seq], c.From+c.N, &spent)
	}
}

// outcome is what a pass gave one sequence.
type outcome struct {
	emitted int
	ended   bool
	reason  FinishReason
	err     error
}

// report tells the scheduler what came of a sequence's rows, of which the first ran slots have run now, in passes that took
// the time spent.
func (e *Engine) report(s *sequence, ran int, spent *ledger.Times) {
	o := s.last
	s.spent.Add(spent)
	if o.err == nil {
		e.commit(s, ran)
	}
	over := e.sched.Report(s.id, o.emitted, o.ended || o.err != nil)
	if !over {
		return
	}
	if o.err != nil {
		e.end(s, FinishAbort, o.err)
		return
	}
	if o.reason == "" {
		o.reason = FinishLength
	}
	e.end(s, o.reason, nil)
}

// cycle runs one cycle of the sequences past their prompts: verify their candidates in one target pass, accept, re-extend
// the drafters' rows and draft the next candidates. A sequence without a draft decodes plainly in the same pass.
func (e *Engine) cycle(steps []sched.Step) {
	phase := ledger.Decode
	for _, st := range steps {
		if t := &e.seqs[st.Seq].tree; st.Depth > 0 && t.N > 1 {
			phase = ledger.Verify
		}
	}
	from := e.count.enter(phase)
	e.model.Batch().Reset()
	for i, st := range steps {
		s := e.seqs[st.Seq]
		s.tree.Cut(st.Rows, st.Depth)
		e.rows(i, s, int32(st.Root))
		e.count.ledger.Work.Sequence(s.spec.Shape, s.tree.N, st.Root)
	}
	err := e.model.Forward()
	e.count.enter(ledger.Accept)
	out := 0
	for _, st := range steps {
		s := e.seqs[st.Seq]
		s.last = outcome{err: err}
		s.out = out
		out += s.tree.N
		if err == nil {
			e.acceptCycle(s, st)
		}
	}
	if err == nil {
		e.extendCycle(steps)
	}
	e.count.enter(ledger.Bookkeeping)
	spent := e.count.since(from)
	for _, st := range steps {
		s := e.seqs[st.Seq]
		ran := st.Root + s.last.emitted
		if s.drafter && s.over() {
			ran = st.Root // the drafter's rows behind were not made any more
		}
		e.report(s, ran, &spent)
	}
}

// rows appends the rows of a sequence's candidates, all with logits.
func (e *Engine) rows(i int, s *sequence, root int32) {
	b := e.model.Batch()
	b.Blocks[i] = s.table.Blocks
	chain := s.tree.IsChain()
	for n := range s.tree.N {
		r := b.Append(int32(i), s.tree.Token[n], root+int32(n))
		if !chain {
			b.Pos[r] = root + s.tree.Depth[n]
			b.Tail[r], b.Mask[r] = root, s.tree.Mask[n]
		}
		b.WantLogits(r)
	}
}

// acceptCycle walks one sequence's candidates and moves the accepted path's keys and values together.
func (e *Engine) acceptCycle(s *sequence, st sched.Step) {
	s.last = e.walk(s, &s.tree, s.out)
	s.path = append(s.path[:0], e.path...)
	if m := &e.moves; !s.tree.IsChain() {
		m.from, m.to = draft.AppendMoves(s.path, int32(st.Root), m.from[:0], m.to[:0])
		e.dev.CopyKV(e.model.KV(), s.table.Blocks, m.from, m.to)
	}
	depth, nodes := s.tree.MaxDepth(), s.tree.N-1
	accepted := min(len(s.path)-1, s.last.emitted)
	e.count.ledger.Work.Accept(s.last.emitted, s.spec.Drafter != DraftNone, nodes, accepted)
	e.count.enter(ledger.Stream)
	s.deliverCycle(e.fresh, nodes, depth, accepted)
	e.count.enter(ledger.Accept)
	e.emitted(s.last.emitted)
	if s.spec.Drafter != DraftNone {
		e.count.update(func(c *Stats) { c.Draft.Record(nodes, depth, accepted) })
	}
}

// emitted counts output tokens.
func (e *Engine) emitted(n int) {
	e.count.update(func(c *Stats) {
		c.OutputTokens += int64(n)
		c.LastToken = time.Now()
	})
}

// walk follows the target's choices through a tree whose rows have logits from output row out on: each choice is a token of the
// output, and where it is a child of the node, the walk goes on there. The tokens are left in e.fresh, the nodes in e.path.
func (e *Engine) walk(s *sequence, t *draft.Tree, out int) (o outcome) {
	e.fresh, e.path = e.fresh[:0], append(e.path[:0], 0)
	if s.guess != nil && t.N > 1 {
		return e.walkBlindly(s, t, out)
	}
	for node := 0; ; {
		token, child, err := e.next(s, t, node, out)
		if err != nil {
			o.err = err
			return o
		}
		if s.req.Stop != nil && s.req.Stop(token.ID) {
			o.ended, o.reason = true, FinishStop
			return o
		}
		e.take(s, token)
		o.emitted++
		if s.emitted() == s.limit {
			return o
		}
		if node = child; node < 0 {
			return o
		}
		e.path = append(e.path, int32(node))
	}
}

// next takes the next token at a node, and the child that it is, −1 if none.
func (e *Engine) next(s *sequence, t *draft.Tree, node, out int) (token Token, child int, err error) {
	if s.fixed != nil && t.FirstChild(node) >= 0 {
		return e.verify(s, t, node, out+node)
	}
	token, err = e.choose(s, out+node) // rule A: sample and match
	return token, t.Child(node, token.ID), err
}

// choose takes the next token of a sequence from an output row of the last pass.
func (e *Engine) choose(s *sequence, out int) (t Token, err error) {
	p, b := &s.req.Sampling, e.model.Batch()
	if p.Greedy() && !s.req.Logprobs {
		if l := b.BestLogit[out]; l-l != 0 { // NaN or infinite
			return t, e.failed(s, sample.ErrNonFinite)
		}
		return Token{ID: b.Best[out]}, nil
	}
	e.model.LogitRow(out, e.logits)
	t.ID, err = e.sampler.Sample(p, e.logits, s.history, s.emitted())
	if err != nil {
		return t, e.failed(s, err)
	}
	return e.withLogprobs(s, t.ID), nil
}

// withLogprobs is a token with what the request wants to know of the row in e.logits.
func (e *Engine) withLogprobs(s *sequence, id int32) Token {
	t := Token{ID: id}
	if s.req.Logprobs {
		t.Logprob, t.Top = e.logprobs(id, s.req.TopLogprobs)
	}
	return t
}

func (e *Engine) failed(s *sequence, err error) error {
	return fmt.Errorf("output position %d: %w: the weights or the input overflow", s.emitted(), err)
}
