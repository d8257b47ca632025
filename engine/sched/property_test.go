package sched

import (
	"slices"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/kvcache"
	"pgregory.net/rapid"
)

// job is a sequence of the simulation. Its text is a function of its prompt, as a greedy model's is.
type job struct {
	number int // order of Submit
	req    Request
	tokens []int32 // known tokens
	table  kvcache.Table
	first  bool // it has emitted
	over   bool
}

// world is a scheduler over a real ledger and a storage that holds, in each slot, a digest of all tokens up to it.
type world struct {
	t     *rapid.T
	cfg   Config
	l     *kvcache.Ledger
	s     *Scheduler
	store [][compute.BlockSlots]uint64
	jobs  []*job // by handle

	submitted, preempted int
	firsts               []int // numbers of jobs in the order of their first tokens
}

func (w *world) Capacity() int { return w.l.Blocks() * compute.BlockSlots }

func (w *world) Match(q Seq) int { return w.l.Match(&w.jobs[q].table, w.jobs[q].tokens, 0) }

func (w *world) Extend(q Seq, slots int) bool { return w.l.Extend(&w.jobs[q].table, slots) }

func (w *world) Truncate(q Seq, slots int) { w.l.Truncate(&w.jobs[q].table, slots) }

func (w *world) Release(q Seq) { w.l.Release(&w.jobs[q].table) }

// digest continues a digest by one token.
func digest(h uint64, t int32) uint64 { return (h^uint64(t)+1)*0x9e3779b97f4a7c15 ^ h>>29 }

// next is the text's next token: a function of all before it.
func next(tokens []int32) int32 {
	h := uint64(0)
	for _, t := range tokens {
		h = digest(h, t)
	}
	return int32(h >> 62)
}

// rows runs the rows of known tokens in slots [from, to): what they see must be what their own tokens made.
func (w *world) rows(j *job, from, to int) {
	h := uint64(0)
	for i := range to {
		h = digest(h, j.tokens[i])
		slot := &w.store[j.table.Blocks[i/compute.BlockSlots]][i%compute.BlockSlots]
		if i < from && *slot != h {
			w.t.Fatalf("job %d reads a stranger's slot %d", j.number, i)
		}
		*slot = h
	}
}

// emit adds n tokens of the text and tells the scheduler.
func (w *world) emit(q Seq, n int, ended bool) {
	j := w.jobs[q]
	for range n {
		j.tokens = append(j.tokens, next(j.tokens))
	}
	if n > 0 && !j.first {
		j.first = true
		w.firsts = append(w.firsts, j.number)
	}
	if j.over = w.s.Report(q, n, ended); j.over && len(j.table.Blocks) != 0 {
		w.t.Fatalf("job %d is over and holds blocks", j.number)
	}
}

// step plans, checks the plan and runs it.
func (w *world) step() {
	p := w.s.Plan()
	w.checkPlan(p)
	w.preempted += len(p.Preempted)
	for _, c := range p.Prefill {
		j := w.jobs[c.Seq]
		w.rows(j, c.From, c.From+c.N)
		w.l.Commit(&j.table, j.tokens[:c.From+c.N])
		n := 0
		if c.Last {
			n = 1
		}
		w.emit(c.Seq, n, false)
	}
	for _, d := range p.Decode {
		j := w.jobs[d.Seq]
		for i := d.Root; i < d.Root+d.Rows; i++ { // the drafts' rows; the accepted ones are written below
			w.store[j.table.Blocks[i/compute.BlockSlots]][i%compute.BlockSlots] = 0xbad
		}
		accepted := rapid.IntRange(0, d.Depth).Draw(w.t, "accepted")
		ended := rapid.IntRange(0, 19).Draw(w.t, "stop") == 0
		tokens := j.tokens
		for range accepted {
			j.tokens = append(j.tokens, next(j.tokens))
		}
		w.rows(j, d.Root, d.Root+1+accepted)
		w.l.Commit(&j.table, j.tokens)
		j.tokens = tokens
		w.emit(d.Seq, accepted+1, ended)
	}
}

// checkPlan holds a plan to S2, S3, S4 and S5.
func (w *world) checkPlan(p *Plan) {
	prompts, rows := 0, 0
	for _, c := range p.Prefill {
		j := w.jobs[c.Seq]
		prompts += c.N
		if c.N < 1 || c.From+c.N > j.table.Slots() || c.Last != (c.From+c.N == len(j.tokens)) {
			w.t.Fatalf("chunk %+v of %d known tokens over %d slots", c, len(j.tokens), j.table.Slots())
		}
	}
	for _, d := range p.Decode {
		j := w.jobs[d.Seq]
		rows += d.Rows
		if d.Root != len(j.tokens)-1 || d.Rows < 1 || d.Rows > j.req.Rows || d.Root+d.Rows > min(j.table.Slots(), w.cfg.Context) {
			w.t.Fatalf("step %+v of %d known tokens over %d slots", d, len(j.tokens), j.table.Slots())
		}
		if d.Depth > j.req.Depth || d.Depth >= d.Rows || d.Depth >= w.s.Left(d.Seq) {
			w.t.Fatalf("step %+v with %d tokens left", d, w.s.Left(d.Seq))
		}
	}
	if prompts > w.cfg.PrefillRows || rows > w.cfg.DecodeRows || w.s.Running() > w.cfg.MaxRunning {
		w.t.Fatalf("S3: %d prompt rows, %d decode rows, %d running; bounds %+v", prompts, rows, w.s.Running(), w.cfg)
	}
	decoding := 0
	for _, q := range w.s.running {
		if w.s.seqs[q].state == decode {
			decoding++
		}
		for _, gone := range p.Preempted {
			if w.jobs[gone].number < w.jobs[q].number {
				w.t.Fatalf("S5: job %d was preempted, the younger job %d runs", w.jobs[gone].number, w.jobs[q].number)
			}
		}
	}
	if decoding != len(p.Decode) {
		w.t.Fatalf("S2: %d sequences decode, %d are planned", decoding, len(p.Decode))
	}
	order := append(slices.Clone(w.s.running), w.s.queue...)
	if !slices.IsSortedFunc(order, func(a, b Seq) int { return w.jobs[a].number - w.jobs[b].number }) {
		w.t.Fatalf("S1: running %v and waiting %v are not in order of arrival", w.s.running, w.s.queue)
	}
}

// submit draws a sequence; prompts meet in common prefixes.
func (w *world) submit() {
	r := Request{
		Prompt: rapid.IntRange(1, w.cfg.Context).Draw(w.t, "prompt"),
		Output: rapid.IntRange(1, w.cfg.Context).Draw(w.t, "output"),
		Depth:  rapid.IntRange(0, 5).Draw(w.t, "depth"), Rows: 1,
	}
	if r.Depth > 0 {
		r.Rows = rapid.IntRange(2, 12).Draw(w.t, "rows")
	}
	j := &job{number: w.submitted, req: r}
	for i := range r.Prompt {
		j.tokens = append(j.tokens, int32(i/32))
	}
	j.tokens[r.Prompt/2] += rapid.Int32Range(0, 1).Draw(w.t, "difference")
	q, err := w.s.Submit(r)
	if err != nil {
		return
	}
	w.submitted++
	w.jobs[q] = j
}

// cancel cancels a sequence that lives.
func (w *world) cancel() (slots int) {
	live := append(slices.Clone(w.s.running), w.s.queue...)
	if len(live) == 0 {
		return 0
	}
	q := rapid.SampledFrom(live).Draw(w.t, "cancelled")
	w.s.Cancel(q)
	w.jobs[q].over = true
	return w.jobs[q].table.Slots()
}

// TestEverySequenceEnds runs random loads over random budgets: all that was admitted ends, in at most as many steps as
// the sequences have slots in all (S5: the oldest advances in every step), and nothing is left behind.
func TestEverySequenceEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Context:    rapid.IntRange(1, 100).Draw(t, "context"),
			MaxRunning: rapid.IntRange(1, 5).Draw(t, "running"), MaxWaiting: rapid.IntRange(1, 5).Draw(t, "waiting"),
			PrefillRows: rapid.IntRange(1, 64).Draw(t, "prefill"),
		}
		cfg.DecodeRows = cfg.MaxRunning + rapid.IntRange(0, 30).Draw(t, "decode")
		blocks := rapid.IntRange(1, 16).Draw(t, "blocks")
		w := &world{t: t, cfg: cfg, l: kvcache.New(blocks), store: make([][compute.BlockSlots]uint64, blocks)}
		var err error
		if w.s, err = New(cfg, w); err != nil {
			t.Fatal(err)
		}
		w.jobs = make([]*job, w.s.Handles())
		cancelled := false
		limit := 0 // most steps that are left
		for todo := rapid.IntRange(1, 12).Draw(t, "sequences"); todo > 0 || w.s.Running()+w.s.Waiting() > 0; {
			for ; todo > 0 && rapid.Bool().Draw(t, "submit"); todo-- {
				before := w.submitted
				if w.submit(); w.submitted > before {
					limit += cfg.Context
				}
			}
			if rapid.IntRange(0, 30).Draw(t, "cancel") == 0 {
				cancelled = true
				if slots := w.cancel(); slots != 0 {
					t.Fatalf("a cancelled sequence holds %d slots", slots)
				}
			}
			if w.s.Running()+w.s.Waiting() == 0 {
				continue
			}
			w.step()
			if limit--; limit < 0 {
				t.Fatal("S5: the oldest sequence does not advance")
			}
			w.checkTables()
		}
		if err := w.l.CheckTables(); err != nil {
			t.Fatal(err)
		}
		if w.preempted == 0 && !slices.IsSorted(w.firsts) {
			t.Fatalf("S1: first tokens came in the order %v", w.firsts)
		}
		if !cancelled && len(w.firsts) != w.submitted {
			t.Fatalf("%d sequences emitted, %d were admitted", len(w.firsts), w.submitted)
		}
	})
}

// checkTables holds the ledger to its invariants.
func (w *world) checkTables() {
	var tables []*kvcache.Table
	for _, j := range w.jobs {
		if j != nil && !j.over {
			tables = append(tables, &j.table)
		}
	}
	if err := w.l.CheckTables(tables...); err != nil {
		w.t.Fatal(err)
	}
}

// TestStepAllocatesNothing covers planning and reporting in the steady state.
func TestStepAllocatesNothing(t *testing.T) {
	mem := &counter{total: 1000, free: 1000, held: map[Seq]int{}, cached: map[Seq]int{}}
	s, err := New(Config{Context: 4000, MaxRunning: 4, MaxWaiting: 4, PrefillRows: 64, DecodeRows: 16}, mem)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := s.Submit(Request{Prompt: 10, Output: 3000, Depth: 3, Rows: 4}); err != nil {
			t.Fatal(err)
		}
	}
	step := func() {
		p := s.Plan()
		for _, c := range p.Prefill {
			s.Report(c.Seq, 1, false)
		}
		for _, d := range p.Decode {
			s.Report(d.Seq, 1+d.Depth, false)
		}
	}
	step()
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
