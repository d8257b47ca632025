package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/prompts"
	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// Server is the server that is measured.
type Server interface {
	Ask(ctx context.Context, r *client.Request) *client.Sample
	Flush(ctx context.Context) error                   // empties the prefix cache
	Ledger(ctx context.Context) (*trial.Ledger, error) // nil if it keeps none
	Failure() error                                    // why it has ended, nil while it runs
}

// Config is a campaign.
type Config struct {
	Arms   []Arm // the first is the baseline
	Set    prompts.Set
	Seed   uint64
	Want   Size
	Budget time.Duration // for warm-up, measurement and confirm run; Want is cut down to it
	// Limit is when the campaign ends even if it goes slower than it was planned for: after the pair that runs then. The confirm
	// run's share of it is kept for the confirm run.
	Limit time.Duration

	Server    Server
	Bandwidth func() float64     // reads memory and returns bytes a second
	Record    func(*Trial) error // keeps the raw sample
	Progress  func(Progress)
}

// Progress is how far a campaign has come.
type Progress struct {
	Stage       Stage
	Done, Total int           // requests of the stage
	Left        time.Duration // that the whole campaign will take; 0 if it is not known yet
}

// Stage is a part of a campaign.
type Stage string

// The stages.
const (
	WarmUp  Stage = "warm-up"
	Measure Stage = "measure"
	Confirm Stage = "confirm"
)

// Trial is one request of a campaign, as it is stored: all that results are made of.
type Trial struct {
	Stage     Stage            `json:"stage"`
	Block     int              `json:"block"` // number of the prompt in its stage
	Pair      int              `json:"pair"`  // number within the block
	Arm       string           `json:"arm"`
	Against   string           `json:"against"` // the arm of the pair that is not the baseline
	Prompt    string           `json:"prompt"`
	Category  prompts.Category `json:"category"`
	Bandwidth float64          `json:"bandwidth_bytes_s"` // of memory, read right before the pair
	Ledger    *trial.Ledger    `json:"ledger,omitempty"`  // what the server spent
	Sample    *client.Sample   `json:"sample"`
}

// run is a campaign in progress.
type run struct {
	Config
	rng     *rand.Rand
	start   time.Time
	trials  []*Trial
	out     Outcome
	ahead   int           // requests that are still to come
	perPair time.Duration // mean time so far
	ledger  *trial.Ledger
}

// Run runs a campaign. It fails if ctx ends, the server ends, or the baseline fails.
func Run(ctx context.Context, c Config) (*Outcome, error) {
	r := &run{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 0)), start: time.Now()}
	r.out.Seed, r.out.Arms = c.Seed, c.Arms
	request, token, err := r.warmUp(ctx)
	if err != nil {
		return nil, err
	}
	var fits bool
	left := c.Budget - time.Since(r.start)
	if r.out.Size, fits = Fit(c.Want, len(c.Arms), left, request, token); !fits {
		r.out.doubt("even the smallest campaign takes longer than the %v that are left: it may end early", left.Round(time.Second))
	}
	picked, rest := Pick(r.rng, c.Set, r.out.Size.Prompts)
	others := make([]int, len(c.Arms)-1)
	for i := range others {
		others[i] = i + 1
	}
	r.ahead = r.out.Size.requests(len(c.Arms)) / 2
	until := c.Limit * time.Duration(r.ahead-r.out.Size.Confirm) / time.Duration(r.ahead)
	if err := r.blocks(ctx, Measure, NewPlan(r.rng, picked, others), until); err != nil {
		return nil, err
	}
	r.out.Trials = r.trials
	if best := r.out.leader(); best > 0 {
		fresh, _ := Pick(r.rng, rest, r.out.Size.Confirm)
		r.ahead = len(fresh)
		if err := r.blocks(ctx, Confirm, NewPlan(r.rng, fresh, []int{best}), c.Limit); err != nil {
			return nil, err
		}
		r.out.Trials = r.trials
	}
	r.out.Elapsed = time.Since(r.start)
	return &r.out, nil
}

// maxWarmUp bounds the readings of a warm-up, as does a quarter of the budget; what is not steady then is a shared machine rather than a cold server.
const maxWarmUp = 10

// warmUp decodes plainly, and at the greatest depth in between, until the speed is steady, and returns what a plain request takes,
// outside its tokens and for each.
func (r *run) warmUp(ctx context.Context) (request, token time.Duration, err error) {
	var readings, outside, each []float64
	set := r.Set
	for i := 0; i < maxWarmUp && !steady(readings) && (i == 0 || time.Since(r.start) < r.Budget/4); i++ {
		r.Progress(Progress{Stage: WarmUp, Done: i, Total: maxWarmUp})
		begin := time.Now()
		pair, err := r.pair(ctx, WarmUp, i, 0, &Block{Prompt: set[0]}, Pair{Arm: len(r.Arms) - 1})
		if refused := (*refusal)(nil); errors.As(err, &refused) && len(set) > 1 {
			set, i = set[1:], i-1
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		s := pair[0].Sample
		readings = append(readings, s.DecodeTokS())
		tokens := time.Duration(s.LastNS - s.FirstNS)
		each = append(each, float64(tokens)/float64(max(1, s.OutputTokens)))
		outside = append(outside, float64(time.Since(begin))/2-float64(tokens))
	}
	r.out.WarmUp, r.out.Steady = readings, steady(readings)
	return time.Duration(max(0, stats.Median(outside))), time.Duration(stats.Median(each)), nil
}

// blocks runs a plan, until so long after the campaign's start. Pairs that are left out then are a random choice.
func (r *run) blocks(ctx context.Context, stage Stage, plan []Block, until time.Duration) error {
	total := 0
	for i := range plan {
		total += len(plan[i].Pairs)
	}
	done, out := 0, 0
	for i := range plan {
		before := len(r.trials)
		for k, p := range plan[i].Pairs {
			if time.Since(r.start) > until {
				r.out.doubt("%s: the time was up after %d of %d pairs", stage, done, total)
				return nil
			}
			r.Progress(Progress{Stage: stage, Done: done, Total: total, Left: time.Duration(r.ahead) * r.perPair})
			begin := time.Now()
			_, err := r.pair(ctx, stage, i, k, &plan[i], p)
			if refused := (*refusal)(nil); errors.As(err, &refused) && out+1 < len(plan) {
				r.out.doubt("%s: a prompt is left out: %v", stage, err)
				left := len(plan[i].Pairs) - k
				r.trials, out, total, r.ahead = r.trials[:before], out+1, total-left, r.ahead-left
				break
			}
			if err != nil {
				return err
			}
			done++
			r.ahead--
			r.perPair += (time.Since(begin) - r.perPair) / time.Duration(done)
		}
	}
	return nil
}

// pair sends both requests of a pair and returns the trials, the baseline's first.
func (r *run) pair(ctx context.Context, stage Stage, block, number int, b *Block, p Pair) (pair [2]*Trial, err error) {
	bandwidth := r.Bandwidth()
	order := [2]int{0, p.Arm}
	if p.ArmFirst {
		order = [2]int{p.Arm, 0}
	}
	for _, arm := range order {
		t := &Trial{Stage: stage, Block: block, Pair: number, Arm: r.Arms[arm].Name, Against: r.Arms[p.Arm].Name,
			Prompt: b.Prompt.ID, Category: b.Prompt.Category, Bandwidth: bandwidth}
		if err := r.trial(ctx, t, b.Prompt.Text, r.Arms[arm].Knobs); err != nil {
			return pair, err
		}
		pair[min(arm, 1)] = t
	}
	return pair, nil
}

// trial sends one request to a server whose cache is empty, so that no arm profits from what another left there.
func (r *run) trial(ctx context.Context, t *Trial, prompt string, k Knobs) error {
	if err := r.Server.Flush(ctx); err != nil {
		return r.why(ctx, fmt.Errorf("cannot empty the server's cache: %w", err))
	}
	tokens := r.Want.MaxTokens
	if t.Stage != WarmUp {
		tokens = r.out.Size.MaxTokens
	}
	t.Sample = r.Server.Ask(ctx, &client.Request{API: client.Chat, Prompt: prompt, MaxTokens: tokens, Extra: map[string]any{
		"temperature": 0, "speculative": k.body(),
	}})
	now, err := r.Server.Ledger(ctx)
	if err != nil {
		return r.why(ctx, fmt.Errorf("cannot read the server's ledger: %w", err))
	}
	if now != nil && r.ledger != nil {
		t.Ledger = now.Minus(r.ledger)
	}
	r.ledger = now
	if t.Sample.Error != "" && (k.plain() || ctx.Err() != nil || r.Server.Failure() != nil) {
		err := r.why(ctx, fmt.Errorf("arm %s on prompt %s: %s", t.Arm, t.Prompt, t.Sample.Error))
		if t.Sample.Failure == client.Refused && ctx.Err() == nil && r.Server.Failure() == nil {
			return &refusal{err}
		}
		return err
	}
	r.trials = append(r.trials, t)
	return r.Record(t)
}

// refusal is the error for a prompt that the server does not take even without drafts: one that is too long for its context, for instance. The
// campaign goes on without it, unless it is the last.
type refusal struct{ error }

// why prefers the reasons that others follow from: an interrupt, and a server that has ended.
func (r *run) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failure := r.Server.Failure(); failure != nil {
		return failure
	}
	return err
}
