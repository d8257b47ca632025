package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/prompts"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// turnLimit bounds a turn's requests against a server that has stopped answering.
const turnLimit = 15 * time.Minute

// turn measures a unit on a block: both sides of a pair, or an arm alone. The baseline's side is the first of those that it returns.
func (d *driver) turn(ctx context.Context, stage trial.Stage, block int, t Turn, set prompts.Set) (sides []*turn, err error) {
	bandwidth := 0.0
	if d.Bandwidth != nil {
		bandwidth = d.Bandwidth()
	}
	order := []int{t.Arm}
	against := ""
	if t.Base >= 0 {
		against = d.arms[t.Arm].Name
		if order = []int{t.Base, t.Arm}; t.ArmFirst {
			order = []int{t.Arm, t.Base}
		}
	}
	sides = make([]*turn, len(order))
	for _, arm := range order {
		side := &turn{place: place{d.boot.ID, stage, block, t.Number}, arm: d.arms[arm].Name, against: against, prompt: set[0].ID}
		for _, p := range set {
			side.trials = append(side.trials, &trial.Trial{Boot: d.boot.ID, Stage: stage, Block: block, Pair: t.Number, Arm: side.arm, Against: against,
				Prompt: p.ID, Category: string(p.Category), Bandwidth: bandwidth})
		}
		if err := d.ask(ctx, side, d.arms[arm].Knobs, set); err != nil {
			return nil, err
		}
		if k := len(order) - 1; arm == t.Arm {
			sides[k] = side
		} else {
			sides[0] = side
		}
	}
	for _, side := range sides {
		if side.held {
			if err := d.keep(side); err != nil {
				return nil, err
			}
		}
	}
	return sides, nil
}

// keep makes the trials of a side a part of the campaign.
func (d *driver) keep(side *turn) error {
	d.trials = append(d.trials, side.trials...)
	return d.Store.AddTrials(side.trials...)
}

// ask sends the requests of one side to a server whose cache is empty, so that no arm profits from what another left there, and keeps
// what became of them.
func (d *driver) ask(ctx context.Context, side *turn, k trial.Knobs, set prompts.Set) error {
	if err := d.server.Flush(ctx); err != nil {
		return d.why(ctx, fmt.Errorf("cannot empty the server's cache: %w", err))
	}
	limited, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	d.send(limited, side, k, set)
	if limited.Err() != nil && ctx.Err() == nil {
		return &target.BootError{Cause: target.Stalled, Detail: fmt.Sprintf("no answer to a request of arm %s within %v", side.arm, turnLimit)}
	}
	now, err := d.server.Ledger(ctx)
	if err != nil {
		return d.why(ctx, fmt.Errorf("cannot read the server's ledger: %w", err))
	}
	if now != nil && d.ledger != nil {
		side.trials[0].Ledger = now.Minus(d.ledger) // of all of the side's requests
	}
	d.ledger = now
	side.count(k)
	for _, t := range side.trials {
		if t.Sample.Error == "" {
			continue
		}
		if ctx.Err() != nil || d.server.Failure() != nil {
			return d.why(ctx, errors.New(t.Sample.Error))
		}
		if k.Plain() && len(side.trials) == 1 {
			return d.refused(side, t)
		}
		side.held = side.held || t.Sample.Failure == client.Refused
	}
	if side.held {
		return nil
	}
	return d.keep(side)
}

// refused makes an error of a plain request that failed: of the server, which another start may mend, or of the campaign. A prompt that the server does not take even without drafts is left out: one that
// is too long for its context, for instance.
func (d *driver) refused(side *turn, t *trial.Trial) error {
	why := fmt.Errorf("arm %s on prompt %s: %s", t.Arm, t.Prompt, t.Sample.Error)
	switch t.Sample.Failure {
	case client.Refused:
	case client.Stalled, client.Cut, client.Unreachable, client.ServerFault:
		return &target.BootError{Cause: target.Stalled, Detail: why.Error()}
	default:
		return why
	}
	d.left[side.prompt] = true
	if len(d.left) >= len(d.blocks[trial.Measure]) {
		return why
	}
	if err := d.note(doubt, fmt.Sprintf("a prompt is left out: %v", why)); err != nil {
		return err
	}
	return errLeftOut
}

// send sends the requests of one side, as many at a time as the workload has.
func (d *driver) send(ctx context.Context, side *turn, k trial.Knobs, set prompts.Set) {
	tokens := d.file.Workload.MaxTokens
	if d.state.Size != nil {
		tokens = d.state.Size.MaxTokens
	}
	_, fields := d.Engine.Split(k)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(d.file.Workload.Concurrency, len(set)) {
		workers.Go(func() {
			for i := range next {
				extra := map[string]any{"temperature": 0}
				maps.Copy(extra, fields)
				side.trials[i].Sample = d.server.Ask(ctx, &client.Request{API: client.Chat, Prompt: set[i].Text, MaxTokens: tokens, Extra: extra})
			}
		})
	}
	for i := range set {
		next <- i
	}
	close(next)
	workers.Wait()
}
