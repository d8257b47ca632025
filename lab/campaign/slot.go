package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"draftlab/lab/stats"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

const (
	stopGrace = 10 * time.Second
	// retries is how often a start is tried again that failed for a reason which may pass, and how often a server may die under an arm.
	retries = 1
	// maxWarmUp bounds the readings of a warm-up, as does a quarter of the time; what is not steady then is a shared machine rather
	// than a cold server.
	maxWarmUp = 10
)

// slot starts a server as the plan says and measures on it what is still to be measured there; later are the slots behind it.
func (d *driver) slot(ctx context.Context, s *Slot, later []Slot) error {
	deaths := map[int]int{} // of servers, by the arm that they died under
	for d.anyLeft(s) && !d.over(s.Stage) {
		err := d.ensure(ctx, s)
		if err == nil && d.state.Size == nil {
			err = d.fit(append([]Slot{*s}, later...))
		}
		if failed := (*target.BootError)(nil); ctx.Err() == nil && (errors.As(err, &failed) || errors.Is(err, errBoots)) {
			cold := (*coldError)(nil)
			if !errors.As(err, &cold) || len(d.done(s)) == 0 {
				return d.giveUp(d.namesOf(&s.Group), err)
			}
			if err := d.giveUp([]string{d.arms[cold.arm].Name}, err); err != nil { // the others were served before
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		arm, err := d.measure(ctx, s)
		if failed := (*target.BootError)(nil); err == nil || ctx.Err() != nil || !errors.As(err, &failed) {
			return err
		}
		d.died(err)
		if deaths[arm]++; deaths[arm] > retries {
			if err := d.giveUp([]string{d.arms[arm].Name}, err); err != nil {
				return err
			}
			deaths[arm] = 0
		}
	}
	return nil
}

// namesOf are the arms that a group measures, baselines among them.
func (d *driver) namesOf(g *Group) (names []string) {
	for _, u := range g.Units {
		names = append(names, d.arms[u.Arm].Name)
		if u.Base >= 0 && !slices.Contains(names, d.arms[u.Base].Name) {
			names = append(names, d.arms[u.Base].Name)
		}
	}
	return names
}

// anyLeft reports whether a slot has turns that were not taken.
func (d *driver) anyLeft(s *Slot) bool {
	if d.state.Size == nil {
		return len(d.live(s)) > 0
	}
	done := d.done(s)
	for n := range d.blocksOf(s.Stage) {
		if !d.left[d.block(s.Stage, n)[0].ID] && slices.ContainsFunc(d.live(s), func(u int) bool { return d.has(s, u, n) && !done[[2]int{n, u}] }) {
			return true
		}
	}
	return false
}

// live are the numbers of a slot's units that are neither given up nor decided.
func (d *driver) live(s *Slot) (units []int) {
	for i, u := range s.Group.Units {
		name := d.arms[u.Arm].Name
		if _, failed := d.state.Failed[name]; !failed && (s.Stage == trial.Confirm || !d.watch(name).decided) {
			units = append(units, i)
		}
	}
	return units
}

// blocksOf is the number of blocks of a stage.
func (d *driver) blocksOf(stage trial.Stage) int {
	if stage == trial.Confirm {
		return d.state.Size.Confirm
	}
	return d.state.Size.Prompts
}

// has reports whether a unit of a slot is sent a block.
func (d *driver) has(s *Slot, unit, block int) bool {
	a := &d.arms[s.Group.Units[unit].Arm]
	switch {
	case d.state.Scouted == 0 || s.Stage == trial.Confirm || a.Plain():
		return true
	case s.Round == 0:
		return block < d.state.Scouted
	}
	return block >= d.state.Scouted || !slices.Contains(d.state.Rounds[0], a.Name)
}

// turnsIn is how many turns a slot has.
func (d *driver) turnsIn(s *Slot) (turns int) {
	for block := range d.blocksOf(s.Stage) {
		for unit := range s.Group.Units {
			if d.has(s, unit, block) {
				turns++
			}
		}
	}
	return turns
}

// done are the turns, by block and unit, that were measured whole on any start of a slot. Half a pair does not count: its other half
// belongs to another start.
func (d *driver) done(s *Slot) map[[2]int]bool {
	starts := map[int]bool{}
	for _, b := range d.boots {
		starts[b.ID] = b.Slot == s.Name || s.Stage == trial.Confirm && identity(b.Knobs) == identity(s.Group.Boot)
	}
	arms := map[place]map[string]bool{}
	for _, t := range d.trials {
		if t.Stage != s.Stage || !starts[t.Boot] {
			continue
		}
		at := place{t.Boot, t.Stage, t.Block, t.Pair}
		if arms[at] == nil {
			arms[at] = map[string]bool{}
		}
		arms[at][t.Arm] = true
	}
	out := map[[2]int]bool{}
	for at, seen := range arms {
		if at.pair >= len(s.Group.Units) {
			continue
		}
		if u := s.Group.Units[at.pair]; seen[d.arms[u.Arm].Name] && (u.Base < 0 || seen[d.arms[u.Base].Name]) {
			out[[2]int{at.block, at.pair}] = true
		}
	}
	return out
}

// ensure has a server run that was started for the slot, and warm. The confirm run takes the one that runs, if it was started
// in the same way.
func (d *driver) ensure(ctx context.Context, s *Slot) error {
	if d.server != nil && d.server.Failure() == nil && d.knobs == identity(s.Group.Boot) && (s.Stage == trial.Confirm || d.boot.Slot == s.Name) {
		return nil
	}
	d.stop()
	for try := 0; ; try++ {
		began := time.Now()
		err := d.start(ctx, s)
		if err == nil {
			err = d.warmUp(ctx, s)
			d.starting = time.Since(began)
		}
		if err == nil {
			err = d.readEnvironment(ctx)
		}
		if err == nil {
			return nil
		}
		failed := (*target.BootError)(nil)
		if ctx.Err() != nil || !errors.As(err, &failed) {
			return err
		}
		d.died(err)
		if try >= retries || !passing(failed.Cause) {
			return err
		}
	}
}

// passing reports whether the same start may go well the next time.
func passing(c target.Cause) bool {
	return c != target.BadFlag && c != target.MissingFile && c != target.TooLate
}

// errBoots is the end of the budget of boots.
var errBoots = errors.New("the budget of boots is used up")

// start starts a server and writes down what it says of itself.
func (d *driver) start(ctx context.Context, s *Slot) error {
	used := 0
	for _, b := range d.boots {
		if b.Cause != interrupted {
			used++
		}
	}
	if used >= d.file.Budget.Boots {
		return fmt.Errorf("%w (%d)", errBoots, d.file.Budget.Boots)
	}
	command, err := d.Engine.Command(s.Group.Boot)
	if err != nil {
		return err
	}
	b := &trial.Boot{Slot: s.Name, Name: s.Name, Knobs: s.Group.Boot, Command: command, Started: time.Now().UTC()}
	for again := 2; slices.ContainsFunc(d.boots, func(o trial.Boot) bool { return o.Name == b.Name }); again++ {
		b.Name = fmt.Sprintf("%s-again%d", s.Name, again)
	}
	b.Log = b.Name + ".log"
	if err := d.Store.AddBoot(b); err != nil {
		return err
	}
	d.boots = append(d.boots, *b)
	d.boot = &d.boots[len(d.boots)-1]
	server, err := d.Engine.Boot(ctx, target.BootOptions{Name: b.Name, Knobs: b.Knobs, Dir: d.Store.Dir(), Limit: d.file.Target.Ready, Status: d.Boots})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		d.died(err)
		return err
	}
	d.server, d.knobs, d.ledger = server, identity(b.Knobs), nil
	d.boot.ReadyS = time.Since(b.Started).Seconds()
	if d.ready.IsZero() {
		d.ready = time.Now()
	}
	if d.boot.Info, err = server.Info(ctx); err != nil {
		return d.why(ctx, fmt.Errorf("cannot read the server's configuration: %w", err))
	}
	d.boot.Differences = server.Differences(d.boot.Info)
	return d.Store.PutBoot(d.boot)
}

// readEnvironment writes down what became of variables. Libraries tell of theirs with their first use, and so after the warm-up.
func (d *driver) readEnvironment(ctx context.Context) (err error) {
	if d.boot.Environment, err = d.server.Environment(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return d.note(doubt, fmt.Sprintf("%s: cannot read back the variables of the server's processes: %v", d.boot.Name, err))
	}
	return d.Store.PutBoot(d.boot)
}

// died writes down how a server ended.
func (d *driver) died(why error) {
	if d.boot == nil {
		return
	}
	d.boot.Ended = time.Now().UTC()
	d.boot.Detail = why.Error()
	if failed := (*target.BootError)(nil); errors.As(why, &failed) {
		d.boot.Cause, d.boot.Detail, d.boot.Lines = string(failed.Cause), failed.Detail, failed.Lines
	}
	_ = d.Store.PutBoot(d.boot) // what follows fails for the same reason, and says so
	if d.server != nil {
		d.server.Stop(0)
	}
	d.server, d.boot = nil, nil
}

// stop ends the server that runs.
func (d *driver) stop() {
	if d.server == nil {
		return
	}
	d.server.Stop(stopGrace)
	d.boot.Ended = time.Now().UTC()
	_ = d.Store.PutBoot(d.boot) // a campaign that goes on marks it
	d.server, d.boot = nil, nil
}

// coldError is a server that failed while it was warmed up with an arm.
type coldError struct {
	arm int
	error
}

func (e *coldError) Unwrap() error { return e.error }

// warmUp takes turns until the speed is steady, and measures what a turn takes.
func (d *driver) warmUp(ctx context.Context, s *Slot) error {
	units := d.live(s)
	if len(units) == 0 {
		return nil
	}
	unit := s.Group.Units[units[len(units)-1]]
	start := time.Now()
	var readings, outside, each []float64
	for i, n := 0, 0; i < maxWarmUp && !steady(readings) && (i == 0 || time.Since(start) < d.file.Budget.Time/4); i++ {
		d.Progress(Progress{Stage: trial.WarmUp, Boot: d.boot.Name, Done: i, Total: maxWarmUp})
		begin := time.Now()
		turn := Turn{Unit: unit, Number: units[len(units)-1], ArmFirst: false}
		pair, err := d.turn(ctx, trial.WarmUp, i, turn, d.block(trial.Measure, n))
		if errors.Is(err, errLeftOut) && n+1 < len(d.blocks[trial.Measure]) {
			n, i = n+1, i-1
			continue
		}
		if err != nil {
			return &coldError{unit.Arm, err}
		}
		value, tokens, count := reading(pair[0], d)
		readings = append(readings, value)
		each = append(each, float64(tokens)/float64(max(1, count)))
		outside = append(outside, float64(time.Since(begin))/float64(len(pair))-float64(tokens))
	}
	if d.state.WarmUp == nil {
		d.state.WarmUp, d.state.Steady = readings, steady(readings)
	}
	d.request, d.token = time.Duration(max(0, stats.Median(outside))), time.Duration(stats.Median(each))
	return nil
}

// reading is what the first request of a warm-up's turn shows: its speed, the time from its first chunk to its last, and the tokens.
func reading(t *turn, d *driver) (value float64, tokens time.Duration, count int) {
	s := t.trials[0].Sample
	return t.value(&d.file.Objective), time.Duration(s.LastNS - s.FirstNS), s.OutputTokens
}

// measure takes the turns that are left. Where it fails it says which arm was at it.
func (d *driver) measure(ctx context.Context, s *Slot) (arm int, err error) {
	total, done := d.turnsIn(s), d.done(s)
	for n := range d.blocksOf(s.Stage) {
		for _, t := range s.turns(d.setup.Seed, n) {
			if !d.has(s, t.Number, n) || done[[2]int{n, t.Number}] || d.left[d.block(s.Stage, n)[0].ID] || !slices.Contains(d.live(s), t.Number) {
				continue
			}
			if d.over(s.Stage) {
				return 0, d.note(doubt, fmt.Sprintf("%s, boot %s: the time was up after %d of %d pairs", s.Stage, d.boot.Name, len(d.done(s)), total))
			}
			d.Progress(Progress{Stage: s.Stage, Boot: d.boot.Name, Done: len(done), Total: total, Left: time.Duration(d.ahead) * d.perTurn})
			begin := time.Now()
			_, err := d.turn(ctx, s.Stage, n, t, d.block(s.Stage, n))
			if errors.Is(err, errLeftOut) && len(d.left) < d.blocksOf(s.Stage) {
				break
			}
			if err != nil {
				return t.Arm, err
			}
			done[[2]int{n, t.Number}] = true
			d.ahead--
			d.turns++
			d.perTurn += (time.Since(begin) - d.perTurn) / time.Duration(d.turns)
			d.look(d.arms[t.Arm].Name)
		}
	}
	return 0, nil
}

// watch returns how an arm's pairs are followed.
func (d *driver) watch(arm string) *watch {
	if d.watches[arm] == nil {
		d.watches[arm] = &watch{}
		d.look(arm)
	}
	return d.watches[arm]
}

// look judges the pairs of an arm that came in since the last time, as decided does afterwards.
func (d *driver) look(arm string) {
	w := d.watches[arm]
	most := d.most()
	if w == nil {
		w = &watch{}
		d.watches[arm] = w
	}
	if w.decided || most < 2*leastPrompts || !d.file.Search.EarlyStop {
		return
	}
	if w.monitor == nil {
		w.monitor = stats.NewMonitor(most, Confidence, math.Log(worthwhile))
	}
	_, all, _ := d.pairs(trial.Measure, arm)
	for w.looked < min(len(all), most-1) && !w.decided { // the last one gives up nothing
		if w.looked++; due(w.looked, most) {
			w.decided = givenUp(w.monitor.Look(all[:w.looked]))
		}
	}
}

// givenUp reports that a look shows an arm which cannot be the best.
func givenUp(l stats.Look) bool {
	return l.Stop == stats.Futile || l.Stop == stats.Different && l.Interval.High < 0
}

// why prefers the reasons that others follow from: an interrupt, and a server that has ended. A server that lives and does not answer has
// failed as well, so that the campaign goes on with another start; one that answers with a refusal would do so on every start.
func (d *driver) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.server != nil {
		if failure := d.server.Failure(); failure != nil {
			return failure
		}
	}
	if silent := net.Error(nil); errors.As(err, &silent) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &target.BootError{Cause: target.Stalled, Detail: err.Error()}
	}
	return err
}
