package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"draftlab/lab/campaign/file"
	"draftlab/lab/prompts"
	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// doubt is the kind of note that a result shows as a warning.
const doubt = "doubt"

// planShare is the share of the time that a campaign plans to take: machines are slower than their first readings.
const planShare = 0.8

// driver is a campaign in progress.
type driver struct {
	Config
	*data
	blocks map[trial.Stage][]prompts.Set // by number: what is asked in a turn of the block

	server Server
	boot   *trial.Boot // of the server that runs
	knobs  string      // identity of what it was started with
	ledger *trial.Ledger
	ready  time.Time     // when the first server of this run generated; zero before
	spent  time.Duration // by earlier runs of the same campaign

	request, token time.Duration // what a turn takes outside its tokens, and each of them
	starting       time.Duration // what a start takes, its warm-up included
	watches        map[string]*watch
	left           map[string]bool // blocks that the server does not take, by prompt
	perTurn        time.Duration   // mean so far
	turns          int             // that the mean is of
	ahead          int             // turns still to come
}

// watch follows the pairs of one arm.
type watch struct {
	monitor *stats.Monitor
	looked  int
	decided bool
}

// Run carries out a campaign, or what is left of it. It fails if ctx ends, or if the baseline cannot be measured; what went wrong
// with other arms is in the store.
func Run(ctx context.Context, c Config) error {
	d, err := read(c.Store)
	if err != nil {
		return err
	}
	if d.state.Done {
		return nil
	}
	r := &driver{Config: c, data: d, blocks: map[trial.Stage][]prompts.Set{}, watches: map[string]*watch{}, left: map[string]bool{}, spent: d.elapsed()}
	defer func() {
		if r.boot != nil {
			r.boot.Cause = interrupted // nothing else leaves one running
		}
		r.stop()
	}()
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.rounds(ctx); err != nil {
		return err
	}
	if err := r.confirm(ctx); err != nil {
		return err
	}
	return r.end()
}

// ImpossibleError is a campaign with which no server would come up, or not as it was meant. Nothing was started.
type ImpossibleError struct{ Why string }

func (e *ImpossibleError) Error() string { return e.Why }

// begin checks the arms and writes down what is to be found out.
func (d *driver) begin() error {
	if d.state.Failed == nil {
		d.state.Failed = map[string]string{}
	}
	first := len(d.verdicts) == 0
	for _, f := range d.Engine.Check(d.arms) {
		if f.Fatal {
			return &ImpossibleError{f.About(len(d.arms))}
		}
		if first {
			if err := d.note(doubt, f.About(len(d.arms))); err != nil {
				return err
			}
		}
	}
	if d.state.Boots == 0 {
		boots, err := bootsEach(d.file, d.setup.Seed, d.Engine, d.arms)
		if err != nil {
			return err
		}
		d.state.Boots = boots
		if err := d.save(); err != nil {
			return err
		}
	}
	if first {
		for _, v := range hypotheses(d.arms, time.Now()) {
			if err := d.Store.PutVerdict(&v); err != nil {
				return err
			}
			d.verdicts = append(d.verdicts, v)
		}
	}
	return d.bury()
}

// interrupted is the cause of the end of a server that went with the campaign. It does not count in the budget of boots.
const interrupted = "interrupted"

// bury marks boots whose end nobody saw, because the campaign was killed while they ran.
func (d *driver) bury() error {
	for i := range d.boots {
		b := &d.boots[i]
		if !b.Ended.IsZero() {
			continue
		}
		b.Ended = b.Started.Add(d.ran(*b))
		b.Cause, b.Detail = interrupted, "the campaign was killed while it ran"
		if err := d.Store.PutBoot(b); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) note(kind, text string) error {
	if err := d.Store.Note(kind, text); err != nil {
		return err
	}
	notes, err := d.Store.Notes()
	d.notes = notes
	return err
}

func (d *driver) save() error {
	text, err := json.Marshal(d.state)
	if err != nil {
		return err
	}
	return d.Store.SetState(text)
}

// rounds measures what the search proposes, round by round.
func (d *driver) rounds(ctx context.Context) error {
	for n := 0; !d.state.Ended; n++ {
		if n == len(d.state.Rounds) {
			names, err := d.propose(n)
			if err != nil {
				return err
			}
			if len(names) == 0 || d.over(trial.Measure) {
				d.state.Ended = true
				return d.save()
			}
			d.state.Rounds = append(d.state.Rounds, names)
			if err := d.save(); err != nil {
				return err
			}
		}
		if err := d.carryOut(ctx, d.round(n)); err != nil {
			return err
		}
	}
	return nil
}

// round plans a round.
func (d *driver) round(n int) Plan {
	var which []int
	for i, a := range d.arms {
		if slices.Contains(d.state.Rounds[n], a.Name) {
			which = append(which, i)
		}
	}
	p := NewPlan(source(d.setup.Seed, fmt.Sprint("round ", n)), d.Engine, d.arms, which, d.state.Boots, trial.Measure)
	if n > 0 {
		for i := range p.Slots {
			p.Slots[i].Round = n
			p.Slots[i].Name += fmt.Sprintf("-round%d", n+1)
		}
	}
	return p
}

// confirm measures the winner again, and what may be as fast, beside the best plain decoding.
func (d *driver) confirm(ctx context.Context) error {
	if d.state.Confirm == "" && !d.state.Done {
		r := d.result()
		best := leader(r.Arms, "")
		if best == nil {
			return nil
		}
		for _, p := range r.foretell(&best.Arm, float64(d.file.Workload.Concurrency), time.Now()) {
			if err := d.Store.AddPrediction(&p); err != nil {
				return err
			}
			d.predictions = append(d.predictions, p)
		}
		d.state.Confirm, d.state.Rival = best.Name, d.rival(r, best)
		if err := d.save(); err != nil {
			return err
		}
	}
	if d.state.Confirm == "" {
		return nil
	}
	return d.carryOut(ctx, d.confirmation())
}

// rival is the runner-up, if it may be as fast as the winner and a start of the server measures both; "" if there is none. To start
// one more server for it would take longer than what is at stake is worth.
func (d *driver) rival(r *Result, best *ArmResult) string {
	others := slices.DeleteFunc(slices.Clone(r.Arms), func(a ArmResult) bool { return a.Name == best.Name })
	next := leader(others, "")
	if next == nil || *next.Speedup.best().High < best.Speedup.best().Estimate {
		return ""
	}
	own, _ := d.Engine.Split(best.Knobs)
	other, _ := d.Engine.Split(next.Knobs)
	if identity(own) != identity(other) {
		return ""
	}
	return next.Name
}

// confirmation plans the confirm run.
func (d *driver) confirmation() Plan {
	best := d.bestPlain()
	var which []int
	for i, a := range d.arms {
		if a.Name == d.state.Confirm || a.Name == d.state.Rival || a.Name == best {
			which = append(which, i)
		}
	}
	p := NewPlan(source(d.setup.Seed, "confirm"), d.Engine, d.arms, which, 1, trial.Confirm)
	for i := range p.Slots {
		p.Slots[i].Name = "confirm-" + p.Slots[i].Name
	}
	return p
}

// end concludes the verdict log.
func (d *driver) end() error {
	d.stop()
	d.state.Done = true
	r := d.result()
	for _, v := range r.conclude(d.verdicts, time.Now()) {
		if err := d.Store.PutVerdict(&v); err != nil {
			return err
		}
	}
	return d.save()
}

// carryOut goes through the slots of a plan.
func (d *driver) carryOut(ctx context.Context, p Plan) error {
	for i := range p.Slots {
		d.ahead = d.turnsAhead(p.Slots[i:])
		if err := d.slot(ctx, &p.Slots[i], p.Slots[i+1:]); err != nil {
			return err
		}
	}
	return nil
}

// turnsAhead is the number of turns that slots and, before it, the confirm run have.
func (d *driver) turnsAhead(slots []Slot) (n int) {
	if d.state.Size == nil || len(slots) == 0 {
		return 0
	}
	for i := range slots {
		n += d.turnsIn(&slots[i])
	}
	if slots[0].Stage != trial.Confirm {
		n += d.state.Size.Confirm
	}
	return n
}

// used is what the campaign has taken of its time: from the first token of its first server on.
func (d *driver) used() time.Duration {
	if d.ready.IsZero() {
		return d.spent
	}
	return d.spent + time.Since(d.ready)
}

// over reports that a stage has used its time. The confirm run's share is kept for it.
func (d *driver) over(stage trial.Stage) bool {
	limit := d.file.Budget.Time
	if stage == trial.Measure && d.state.Size != nil {
		arms := len(firstRound(d.file, d.setup.Seed, d.arms))
		measure := float64(allRounds(d.file, d.setup.Seed, d.arms, arms) * d.most())
		limit = time.Duration(float64(limit) * measure / (measure + float64(d.state.Size.Confirm)))
	}
	return d.used() > limit
}

// propose returns the names of the arms that are measured next; none if nothing is left. A guided search writes down what it foretells
// of them, and at its end of those that it leaves out.
func (d *driver) propose(round int) (names []string, err error) {
	if d.file.Search.Kind == file.Model {
		return d.guided(time.Now())
	}
	if round > 0 {
		return nil, nil
	}
	for _, i := range firstRound(d.file, d.setup.Seed, d.arms) {
		names = append(names, d.arms[i].Name)
	}
	return names, nil
}

// firstRound are the arms that are measured first: all, as many as a random search has, or what a model can be fitted to.
func firstRound(c *file.Campaign, seed uint64, arms []trial.Arm) (which []int) {
	for i := range arms[1:] {
		which = append(which, i+1)
	}
	switch c.Search.Kind {
	case file.Model:
		first := guide(c, arms).Next(nil)
		which = slices.DeleteFunc(which, func(i int) bool {
			return !slices.ContainsFunc(first, func(a trial.Arm) bool { return a.Name == arms[i].Name })
		})
	case file.Random:
		source(seed, "search").Shuffle(len(which), func(i, k int) { which[i], which[k] = which[k], which[i] })
		which = which[:min(len(which), c.Search.Arms)]
		slices.Sort(which)
	}
	if slices.ContainsFunc(which, func(i int) bool { return arms[i].Plain() }) {
		which = slices.Insert(which, 0, 0) // plain decoding of another environment is compared with the baseline
	}
	return which
}

// giveUp marks arms that cannot be measured. Without the baseline the campaign has nothing to compare with.
func (d *driver) giveUp(names []string, why error) error {
	for _, name := range names {
		switch {
		case name != d.arms[0].Name:
			d.state.Failed[name] = why.Error()
		case len(d.of(trial.Measure, name)) == 0:
			return why
		default:
			if err := d.note(doubt, fmt.Sprintf("%s was measured less than planned: %v", name, why)); err != nil {
				return err
			}
		}
	}
	return d.save()
}

// fit decides how much is measured, once it is known how long that takes.
func (d *driver) fit(p []Slot) error {
	want := d.wanted()
	plan := Plan{Slots: p}
	fixed := time.Duration(len(p)-1) * d.starting
	if len(p) > 1 {
		fixed += 2 * d.starting // for the confirm run
	}
	left := time.Duration(planShare*float64(d.file.Budget.Time)) - d.used()
	size, fits := Fit(want, allRounds(d.file, d.setup.Seed, d.arms, plan.perBlock()), left, fixed, d.request, d.token)
	d.state.Size = &size
	d.scout()
	if !fits {
		if err := d.note(doubt, fmt.Sprintf("even the smallest campaign takes longer than the %v that are left: it may end early", left.Round(time.Second))); err != nil {
			return err
		}
	}
	d.ahead = d.turnsAhead(p)
	return d.save()
}

// wanted is the size that the file asks for.
func (d *driver) wanted() Size {
	w := d.file.Workload
	return Size{Prompts: w.Count, Confirm: w.Confirm, MaxTokens: w.MaxTokens}
}

// block returns what a block of a stage asks.
func (d *driver) block(stage trial.Stage, n int) prompts.Set {
	if d.blocks[trial.Measure] == nil {
		d.blocks[trial.Measure], d.blocks[trial.Confirm] = blocks(d.setup.Seed, d.Set, d.wanted(), d.file.Workload.Concurrency)
	}
	return d.blocks[stage][n]
}

// blocks deals the prompts out: so many blocks for the arms to be measured on, and further ones with other prompts for the winner. A block is one
// prompt, or at a concurrency above 1 two for each request that runs at once. Where there are too few prompts, they come more than once.
func blocks(seed uint64, set prompts.Set, want Size, concurrency int) (measure, confirm []prompts.Set) {
	each := 1
	if concurrency > 1 {
		each = 2 * concurrency
	}
	n := want.Prompts * each
	if total := (want.Prompts + want.Confirm) * each; total > len(set) {
		n = max(1, min(len(set)-1, int(math.Ceil(float64(len(set))*float64(want.Prompts)/float64(want.Prompts+want.Confirm)))))
	}
	picked, fresh := Pick(source(seed, "prompts"), set, n)
	if len(fresh) == 0 {
		fresh = picked
	}
	deal := func(from prompts.Set, blocks int) (out []prompts.Set) {
		for i := range blocks {
			var b prompts.Set
			for k := range each {
				b = append(b, from[(i*each+k)%len(from)])
			}
			out = append(out, b)
		}
		return out
	}
	return deal(picked, want.Prompts), deal(fresh, want.Confirm)
}

// errLeftOut ends a turn whose prompt the server does not take.
var errLeftOut = errors.New("the prompt is left out")
