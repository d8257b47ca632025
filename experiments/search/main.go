// Command search holds the model-guided search of package search to the exhaustive grid, in whole campaigns against draftlab's own server.
// In each of --campaigns, with prompts of its own,
//
//   - the grid measures every chain and tree of the default space on --prompts prompts, and confirms its winner;
//   - the guided search does the same on the same prompts with the arms that it asks for, and ends one early once it cannot be faster than
//     plain decoding by 5 %, as every campaign does unless it is told not to;
//   - both winners are compared with each other, request by request, in --head pairs.
//
// The guided search is to take a quarter of the grid's time at most, the start of the server and the confirm run included, and
// its winner is to be as fast as the grid's but for 3 %: the lower bound of the 95 % interval of the ratio at 0.97 or above. What a random
// choice of as many arms would have found is worked out from the grid's figures.
//
//	go build -o bin/ ./cmd/draftlab ./experiments/search && bin/search
//
// Progress goes to standard error, the table to standard output. What is in --out already is not measured again. The exit status is 0 if
// the claims hold in every campaign, and 1 otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"draftlab/experiments/field"
	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/search"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// options are the command line.
type options struct {
	field.Lab
	campaigns, prompts, confirm, head int
	most                              int
}

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("search", flag.ContinueOnError)
	o.Register(f, "search-campaigns", 96)
	f.IntVar(&o.campaigns, "campaigns", 3, "compare both searches `N` times")
	f.IntVar(&o.prompts, "prompts", 18, "measure each arm on `N` prompts")
	f.IntVar(&o.confirm, "confirm", 24, "confirm each winner on `N` further prompts")
	f.IntVar(&o.head, "head", 200, "compare both winners in `N` pairs")
	f.IntVar(&o.most, "most", 0, "let the guided search measure `N` arms at most; 0 leaves it to the search")
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	if o.campaigns < 1 || min(o.prompts, o.confirm, o.head) < 6 || o.most < 0 {
		return rig.Usage("--campaigns: at least 1; --prompts, --confirm, --head: at least 6; --most: at least 0")
	}
	if err := o.Open(); err != nil {
		return err
	}
	goOn, err := o.Run(ctx, o.campaigns, o.campaign)
	if err != nil || !goOn {
		return err
	}
	var all []outcome
	for i := range o.campaigns {
		one, err := o.read(i)
		if err != nil {
			return err
		}
		all = append(all, *one)
	}
	return write(os.Stdout, all)
}

// plan is one of both searches.
func (o *options) plan(i int, kind string) *field.Plan {
	p := &field.Plan{
		Name: fmt.Sprintf("%02d-%s", i+1, kind), Arms: search.Default("eagle3").Arms(), Pairs: o.prompts, Confirm: o.confirm,
		Search: kind, Seed: o.Seed<<16 + uint64(i),
	}
	if kind == file.Model {
		p.Most, p.EarlyStop = o.most, true
	}
	return p
}

// headToHead compares the winners on prompts in another order.
func (o *options) headToHead(i int, grid, model trial.Arm) (*field.Plan, field.Twins) {
	twins := field.Twins{A: grid.Knobs, B: model.Knobs}
	return &field.Plan{
		Name: fmt.Sprintf("%02d-head-%s-%s", i+1, grid.Name, model.Name), Arms: []trial.Arm{twins.Arm()}, Pairs: o.head, Confirm: 1,
		Seed: o.Seed<<16 + uint64(i) + 1<<15,
	}, twins
}

// campaign runs both searches and the comparison.
func (o *options) campaign(ctx context.Context, i int) error {
	for _, kind := range []string{file.Grid, file.Model} {
		if err := o.Campaign(ctx, o.plan(i, kind), nil); err != nil {
			return err
		}
	}
	grid, model, err := o.winners(i)
	if err != nil {
		return err
	}
	p, twins := o.headToHead(i, grid.winner, model.winner)
	return o.Campaign(ctx, p, twins.Wrap)
}

// searched is what a search found.
type searched struct {
	winner   trial.Arm
	seconds  float64
	measured map[string]float64 // speed-ups
}

func (o *options) winners(i int) (grid, model *searched, err error) {
	if grid, err = o.searched(o.plan(i, file.Grid)); err != nil {
		return nil, nil, err
	}
	model, err = o.searched(o.plan(i, file.Model))
	return grid, model, err
}

// searched reads a search. Its winner is the arm that it confirmed, or if none was faster than plain decoding beyond doubt, the fastest.
func (o *options) searched(p *field.Plan) (*searched, error) {
	s := &searched{measured: map[string]float64{}}
	err := o.Read(p, func(_ *store.Store, r *campaign.Result) error {
		s.seconds = r.ElapsedS
		for _, a := range r.Arms {
			if a.Speedup == nil || a.Speedup.SameEnv == nil || a.Plain() {
				continue
			}
			speedup := a.Speedup.SameEnv.Estimate
			s.measured[a.Name] = speedup
			confirmed := r.Confirm != nil && r.Confirm.Arm == a.Name
			if confirmed || r.Confirm == nil && speedup > s.measured[s.winner.Name] || s.winner.Name == "" {
				s.winner = a.Arm
			}
		}
		if s.winner.Name == "" {
			return fmt.Errorf("%s measured no arm", p.Name)
		}
		return nil
	})
	return s, err
}

// outcome is one comparison of both searches.
type outcome struct {
	grid, model *searched
	head        *campaign.Ratio // of the guided search's winner to the grid's
	random      float64         // how fast the best of as many arms at random is beside the grid's winner, on average
}

func (o *options) read(i int) (*outcome, error) {
	var out outcome
	var err error
	if out.grid, out.model, err = o.winners(i); err != nil {
		return nil, err
	}
	out.random = atRandom(out.grid.measured, len(out.model.measured), rand.New(rand.NewPCG(o.Seed, uint64(i))))
	p, twins := o.headToHead(i, out.grid.winner, out.model.winner)
	err = o.Read(p, func(_ *store.Store, r *campaign.Result) error {
		for _, a := range r.Arms {
			if a.Name == twins.Arm().Name && a.Speedup != nil {
				out.head = a.Speedup.SameEnv
			}
		}
		return nil
	})
	return &out, err
}
