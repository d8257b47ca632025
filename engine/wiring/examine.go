package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
)

// A plan is how much text is drafted over. The target writes the texts, which for the default target and the largest plan takes some seconds; what a
// wiring costs after that is the drafter's passes alone.
type plan struct {
	choose, judge int  // texts that wirings are chosen on, and judged on
	tokens        int  // of an answer
	sweep         bool // try every layer
	wirings       int  // how many are tried then, about: what a drafter with one fault came to
}

// plans from the largest to the least that gives an interval.
var plans = []plan{{8, 16, 64, true, 80}, {8, 8, 64, false, 30}, {4, 8, 32, false, 30}}

const (
	groupTexts = 8    // most texts of a pass
	groupRows  = 1280 // most tokens of a pass: buffers for the states of all layers grow with them
	maxPrompt  = 512  // longest prompt in tokens
	maxTokens  = 64
	// tapBytes bounds the memory for states: beyond it not all of the target's layers are kept, and the search leaves the others out.
	tapBytes = 1 << 30
)

// Sizes are what the target must be loaded with.
type Sizes struct {
	Rows, Seqs, Outs, Blocks int
	Taps                     []int
}

// SizesFor returns the sizes that examining a drafter wants of its target.
func SizesFor(r *Reading, target model.Config) Sizes {
	n := target.Layers
	s := Sizes{
		Rows: groupRows, Seqs: groupTexts, Outs: groupTexts,
		Blocks: groupRows/compute.BlockSlots + groupTexts*(1+spareBlocks(maxTokens)),
	}
	for layer := range n + 1 {
		s.Taps = append(s.Taps, layer)
	}
	if (n+1)*groupRows*target.Hidden*4 > tapBytes {
		all := space{layers: n, kept: s.Taps, configured: r.wiring(n), listed: r.Listed}
		sets, _ := all.named()
		s.Taps = slices.Clone(all.configured.Layers[:])
		for _, l := range sets {
			s.Taps = append(s.Taps, l[:]...)
		}
		slices.Sort(s.Taps)
		s.Taps = slices.Compact(s.Taps)
	}
	return s
}

// Options say on what to examine, and how long.
type Options struct {
	Prompts [][]int32        // encoded; those beyond the plan's need are not used
	Stop    func(int32) bool // the tokens that end a text
	Quick   bool             // less text, and not every layer
	// Budget bounds the whole: text is cut down to what can be written in half of it, and nothing new is tried after it.
	// At least twelve short answers are written, and the verdict is measured, however long that takes.
	Budget   time.Duration
	Progress func(Stage)
}

// Stage is what Progress is told.
type Stage struct {
	Text  string        // what is being done
	About time.Duration // how long it will take, 0 where that is not known
}

// CheckpointError is why a drafter's tensors cannot be run.
type CheckpointError struct{ Err error }

func (e *CheckpointError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CheckpointError) Unwrap() error { return e.Err }

// Examine measures which wiring of the drafter the target's acceptance supports. The target has been loaded with SizesFor, and its taps ascend.
func Examine(ctx context.Context, dev compute.Device, m *model.Model, r *Reading, o Options) (*Result, error) {
	start := time.Now()
	d, err := eagle3.LoadOpen(dev, r.Dir, r.Config, m, eagle3.Options{
		MaxRows: groupRows, MaxSeqs: groupTexts * (maxTokens/compute.BlockSlots + 2), MaxOut: groupTexts * maxTokens,
	})
	if err != nil {
		return nil, &CheckpointError{err}
	}
	x := &examiner{o: o, b: bench{m: m, d: d}, space: r.space(m, d)}
	if l := x.space.configured.Layers; !slices.Contains(x.space.kept, slices.Min(l[:])) || !slices.Contains(x.space.kept, slices.Max(l[:])) {
		return nil, &CheckpointError{fmt.Errorf("its hidden states, the inputs of layers %s, are not those of a target of %d layers", join(l[:]), x.space.layers)}
	}
	if err := x.plan(ctx); err != nil {
		return nil, err
	}
	if err := x.write(ctx, x.p.choose); err != nil {
		return nil, err
	}
	deadline := start.Add(o.Budget)
	if least := time.Now().Add(o.Budget / 2); least.After(deadline) { // of a target that took longer to write than was thought
		deadline = least
	}
	s := &search{space: x.space, sweep: x.p.sweep, deadline: deadline, try: x.score, progress: x.tried()}
	best, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	j := x.contenders(s, best)
	for look := 0; ; look++ {
		if err := x.judge(ctx, j); err != nil {
			return nil, err
		}
		res := j.result(x, s, r)
		if res.Verdict != Undecided || look == looks-1 || len(x.queue) == 0 || s.late() {
			return res, nil
		}
	}
}

// space is what may be wrong with the drafter.
func (r *Reading) space(m *model.Model, d *eagle3.Drafter) *space {
	c, t := d.Config(), m.Config()
	s := &space{layers: t.Layers, listed: r.Listed, kept: m.Options().TapLayers, configured: r.wiring(t.Layers), hasMap: c.DraftVocab < c.Vocab}
	s.gains.beforeFC, s.gains.fc = c.NormBeforeFC, c.FCNorm
	s.configured.NormBeforeFC = s.configured.NormBeforeFC && s.gains.beforeFC
	s.configured.FCNorm = s.configured.FCNorm && s.gains.fc
	for _, theta := range []float64{r.Config.Rope.Theta, t.Rope.Theta, 10000} {
		if !slices.Contains(s.thetas, theta) {
			s.thetas = append(s.thetas, theta)
		}
	}
	return s
}

// examiner carries an examination.
type examiner struct {
	o     Options
	b     bench
	space *space
	p     plan
	queue [][]int32 // prompts to come
	used  int       // prompts written to
	long  int       // prompts left out as too long
}

// plan takes the prompts that fit and the largest plan that they and the budget allow.
func (x *examiner) plan(ctx context.Context) error {
	limit := min(maxPrompt, x.b.m.Options().Context-maxTokens)
	for _, p := range x.o.Prompts {
		if len(p) < 1 || len(p) > limit {
			x.long++
			continue
		}
		x.queue = append(x.queue, p)
	}
	least := plans[len(plans)-1]
	if need := least.choose + least.judge; len(x.queue) < need {
		return fmt.Errorf("%d prompts of at most %d tokens: at least %d are needed", len(x.queue), limit, need)
	}
	decode, row, err := x.time(ctx)
	if err != nil {
		return err
	}
	var about time.Duration
	x.p, about = fit(x.queue, x.o.Quick, x.o.Budget, decode, row)
	x.o.Progress(Stage{Text: fmt.Sprintf("the target writes %d answers of up to %d tokens to draft over", x.p.choose+x.p.judge, x.p.tokens), About: about})
	return nil
}

// fit returns the largest plan whose text the target writes in half the budget, or else the least, cut down to the prompts that there are, and how
// long the writing takes, given the times of a decode step and of a row of a long pass.
func fit(prompts [][]int32, quick bool, budget, decode, row time.Duration) (p plan, about time.Duration) {
	list := plans
	if quick {
		list = plans[1:]
	}
	for _, p = range list {
		if have := len(prompts); p.choose+p.judge > have {
			p.choose = min(p.choose, have/2)
			p.judge = have - p.choose
		}
		if about = p.cost(prompts, decode, row); about <= budget/2 {
			break
		}
	}
	return p, about
}

// tried returns what is told of wirings tried: after the first of them, how long the others will take.
func (x *examiner) tried() func(n int) {
	start := time.Now()
	return func(n int) {
		if n == 1 {
			one := time.Since(start)
			x.o.Progress(Stage{Text: fmt.Sprintf("trying some %d wirings", x.p.wirings), About: min(time.Duration(x.p.wirings)*one, x.o.Budget)})
			return
		}
		x.o.Progress(Stage{Text: fmt.Sprintf("tried %d wirings", n)})
	}
}

// cost estimates what the target's passes of a plan take.
func (p plan) cost(prompts [][]int32, decode, row time.Duration) time.Duration {
	n := p.choose + p.judge
	tokens := 0
	for _, q := range prompts[:min(n, len(prompts))] {
		tokens += len(q)
	}
	passes := (n + groupTexts - 1) / groupTexts * p.tokens
	return time.Duration(passes)*decode + time.Duration(2*tokens+n*p.tokens)*row
}

// time measures a decode step of a group and a row of a long pass.
func (x *examiner) time(ctx context.Context) (decode, row time.Duration, err error) {
	prompts := x.queue[:1]
	short := make([][]int32, groupTexts)
	for i := range short {
		short[i] = prompts[0][:1]
	}
	pass := func(prompts [][]int32) (least time.Duration, err error) {
		for i := range 3 { // the first pass is slower, and others may disturb any
			at := time.Now()
			if _, err := write(ctx, x.b.m, prompts, 1, x.o.Stop); err != nil {
				return 0, err
			}
			if took := time.Since(at); i == 0 || took < least {
				least = took
			}
			if least > time.Second {
				break
			}
		}
		return least, nil
	}
	if row, err = pass(prompts); err != nil {
		return 0, 0, err
	}
	decode, err = pass(short)
	return decode, row / time.Duration(len(prompts[0])), err
}

// write has the target answer the next prompts, at most n of them and as many as fit one pass, and makes them the bench's group.
func (x *examiner) write(ctx context.Context, n int) error {
	var group [][]int32
	for rows := 0; len(group) < min(n, groupTexts) && len(x.queue) > 0; {
		p := x.queue[0]
		if rows += len(p) + x.p.tokens; rows > groupRows {
			break
		}
		group, x.queue = append(group, p), x.queue[1:]
	}
	if len(group) == 0 {
		return errors.New("no prompts are left")
	}
	x.used += len(group)
	x.o.Progress(Stage{Text: fmt.Sprintf("writing %d answers", len(group))})
	texts, err := write(ctx, x.b.m, group, x.p.tokens, x.o.Stop)
	if err != nil {
		return err
	}
	return x.b.load(texts)
}

// score measures a wiring on the group: drafts accepted, from positions with enough text behind them for a whole chain.
func (x *examiner) score(w eagle3.Wiring, steps int) (s score, err error) {
	traces, err := x.b.measure(w, steps, false)
	if err != nil {
		return s, err
	}
	for _, t := range traces {
		c := t.count(steps)
		s.positions = append(s.positions, c[0])
		sum := 0.0
		for _, n := range c[1:] {
			sum += n
		}
		s.accepted = append(s.accepted, sum)
	}
	return s, nil
}

// count returns from how many positions a whole chain fits the text, and from how many of those at least 1, 2, … drafts were accepted.
func (a accepted) count(steps int) []float64 {
	c := make([]float64, 1+steps)
	for i := range max(0, len(a)-steps+1) {
		c[0]++
		for j := range int(a[i]) {
			c[1+j]++
		}
	}
	return c
}

// walk returns how many cycles a server's greedy decoding takes over the text, and the drafts that it accepts: each cycle begins behind the
// target's own token of the one before, and drafts no further than one token before the end.
func (a accepted) walk() (cycles, drafts int) {
	for at := 0; at < len(a); cycles++ {
		n := min(int(a[at]), len(a)-at-1)
		drafts += n
		at += n + 1
	}
	return cycles, drafts
}
