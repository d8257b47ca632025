// Command aa holds the comparisons of package campaign to what they claim, on whole campaigns against draftlab's own server:
//
//   - comparing a way of decoding with itself, they alarm as seldom as they should (--campaigns of --pairs pairs);
//   - so does the paired test on those readings put together anew, their order in time kept (--comparisons);
//   - and they find an arm that is slower by --slow (--slow-campaigns of --slow-pairs pairs).
//
// Both arms of a pair are the same request to the same server: plain decoding in every other campaign, chains of three drafts in those in
// between. The slowed arm is asked through a proxy that hands answers on later than they came: what arrived a time t after the first
// piece at 1.03·t, so that the whole timeline of the answer is stretched as slower cycles would stretch it. The other arm's proxy hands on
// at once, and the server runs at its own pace; campaign and test cannot tell.
//
//	go build -o bin/ ./cmd/draftlab ./experiments/aa && bin/aa --jobs 2
//
// Progress goes to standard error, the tables to standard output. What is in --out already is not measured again. The exit status is 0 if
// all claims hold, and 1 otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"draftlab/experiments/field"
	"draftlab/experiments/rig"
	"draftlab/lab/trial"
)

// options are the command line.
type options struct {
	field.Lab
	campaigns, pairs         int
	slowCampaigns, slowPairs int
	slow                     float64
	comparisons              int
}

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("aa", flag.ContinueOnError)
	o.Register(f, "aa-campaigns", 64)
	f.IntVar(&o.campaigns, "campaigns", 40, "compare a way of decoding with itself in `N` campaigns")
	f.IntVar(&o.pairs, "pairs", 24, "of `N` pairs each")
	f.IntVar(&o.slowCampaigns, "slow-campaigns", 10, "look for the slowed arm in `N` campaigns")
	f.IntVar(&o.slowPairs, "slow-pairs", 108, "of `N` pairs each: as many as there are prompts, since very short answers do not count")
	f.Float64Var(&o.slow, "slow", 0.03, "slow the arm down by this `SHARE`")
	f.IntVar(&o.comparisons, "comparisons", 20000, "put `N` comparisons together anew")
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	if o.campaigns < 1 || o.slowCampaigns < 0 || min(o.pairs, o.slowPairs) < window || o.comparisons < 1 || !(o.slow > 0 && o.slow < 1) {
		return rig.Usage("--campaigns, --comparisons: at least 1; --pairs, --slow-pairs: at least %d; --slow: between 0 and 1", window)
	}
	if err := o.Open(); err != nil {
		return err
	}
	tasks := o.tasks()
	goOn, err := o.Run(ctx, len(tasks), func(ctx context.Context, i int) error {
		return o.Lab.Campaign(ctx, &tasks[i].Plan, tasks[i].Wrap)
	})
	if err != nil || !goOn {
		return err
	}
	found, err := o.read(tasks)
	if err != nil {
		return err
	}
	return found.write(os.Stdout, &o)
}

// task is a campaign.
type task struct {
	field.Plan
	field.Twins
}

// ways are what is compared with itself.
var ways = []trial.Knobs{
	{Drafter: "none"},
	{Drafter: "eagle3", Steps: 3, TopK: 1, DraftTokens: 4},
}

// tasks are all campaigns, the long ones first.
func (o *options) tasks() (tasks []task) {
	add := func(name string, n, pairs int, slow float64) {
		for i := range n {
			twins := field.Twins{A: ways[i%len(ways)], B: ways[i%len(ways)], Slow: slow}
			tasks = append(tasks, task{field.Plan{
				Name: fmt.Sprintf("%s-%02d", name, i+1), Arms: []trial.Arm{twins.Arm()}, Pairs: pairs, Confirm: 1,
				Seed: o.Seed<<16 + uint64(len(tasks)),
			}, twins})
		}
	}
	add("slow", o.slowCampaigns, o.slowPairs, o.slow)
	add("same", o.campaigns, o.pairs, 0)
	return tasks
}
