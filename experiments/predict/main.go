// Command predict scores the forecasts of package search: in each of --campaigns, with prompts of its own, a few arms are measured against
// draftlab's own server, the speed-up, the accept length and the cycle of --arms other chains and trees of the default space, chosen at random, are
// foretold and written down, and then those are measured on the same prompts.
//
// Over all campaigns, 90 % intervals are to hold what was measured in 84 to 96 % of the cases, with a median half-width of 5 % at
// most, over 100 predictions and five campaigns or more.
//
//	go build -o bin/ ./cmd/draftlab ./experiments/predict && bin/predict
//
// Progress goes to standard error, the tables to standard output. What is in --out already is not measured again, and predictions
// that were written down are not made again. The exit status is 0 if the claims hold, and 1 otherwise.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"draftlab/experiments/field"
	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
	"draftlab/lab/search"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// options are the command line.
type options struct {
	field.Lab
	campaigns, prompts, arms int
	verbose                  bool
}

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("predict", flag.ContinueOnError)
	o.Register(f, "predict-campaigns", 96)
	f.IntVar(&o.campaigns, "campaigns", 5, "foretell and measure `N` times")
	f.IntVar(&o.prompts, "prompts", 24, "measure each arm on `N` prompts")
	f.IntVar(&o.arms, "arms", 12, "foretell `N` arms in each campaign; 0 is all")
	f.BoolVar(&o.verbose, "each", false, "print every prediction")
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	if o.campaigns < 1 || o.prompts < 6 || o.arms < 0 {
		return rig.Usage("--campaigns: at least 1; --prompts: at least 6; --arms: at least 0")
	}
	if err := o.Open(); err != nil {
		return err
	}
	goOn, err := o.Run(ctx, o.campaigns, o.campaign)
	if err != nil || !goOn {
		return err
	}
	var all []trial.Prediction
	for i := range o.campaigns {
		scored, err := o.scored(i)
		if err != nil {
			return err
		}
		all = append(all, scored...)
	}
	return write(os.Stdout, all, o.campaigns, o.verbose)
}

// plan is one half of a campaign: the same seed has the same prompts.
func (o *options) plan(i int, half string, arms []trial.Arm) *field.Plan {
	return &field.Plan{Name: fmt.Sprintf("%02d-%s", i+1, half), Arms: arms, Pairs: o.prompts, Confirm: 1, Seed: o.Seed<<16 + uint64(i)}
}

// halves are the arms that a campaign measures first, as the guided search chooses them, and those that are foretold.
func (o *options) halves(i int) (first, later []trial.Arm) {
	arms := search.Default("eagle3").Arms()
	first = search.NewGuided(arms, len(arms)).Next(nil)
	later = slices.DeleteFunc(arms, func(a trial.Arm) bool {
		return slices.ContainsFunc(first, func(f trial.Arm) bool { return f.Name == a.Name })
	})
	if o.arms > 0 {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		rng.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
		later = later[:min(o.arms, len(later))]
	}
	return first, later
}

// campaign measures, foretells, and measures again.
func (o *options) campaign(ctx context.Context, i int) error {
	first, later := o.halves(i)
	if err := o.Campaign(ctx, o.plan(i, "first", first), nil); err != nil {
		return err
	}
	if err := o.foretell(i, first, later); err != nil {
		return err
	}
	return o.Campaign(ctx, o.plan(i, "later", later), nil)
}

// written is where the predictions of a campaign are.
func (o *options) written(i int) string {
	return filepath.Join(o.Out, fmt.Sprintf("%02d-predictions.json", i+1))
}

// foretell writes predictions down, unless they are there.
func (o *options) foretell(i int, first, later []trial.Arm) error {
	if _, err := os.Stat(o.written(i)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var done []search.Measured
	err := o.Read(o.plan(i, "first", first), func(s *store.Store, _ *campaign.Result) (err error) {
		done, err = campaign.Seen(s)
		return err
	})
	if err != nil {
		return err
	}
	forecast, err := search.NewForecast(done)
	if err != nil {
		return err
	}
	var made []trial.Prediction
	for _, a := range later {
		for _, p := range forecast.Predict(a) {
			p.Made = time.Now()
			made = append(made, p)
		}
	}
	text, err := json.MarshalIndent(made, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(o.written(i), text, 0o644)
}

// scored are a campaign's predictions beside what was measured.
func (o *options) scored(i int) (made []trial.Prediction, err error) {
	text, err := os.ReadFile(o.written(i))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &made); err != nil {
		return nil, fmt.Errorf("%s: %w", o.written(i), err)
	}
	_, later := o.halves(i)
	err = o.Read(o.plan(i, "later", later), func(s *store.Store, _ *campaign.Result) error {
		done, err := campaign.Seen(s)
		search.Score(made, done)
		return err
	})
	return made, err
}
