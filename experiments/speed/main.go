// Command speed measures how much faster speculation is than plain decoding, in one process, greedy, one request at a time: on the
// held-out chat prompts with the default target and its shipped drafter, or on a random target with a random drafter whose
// acceptance is simulated.
//
//	go run ./experiments/speed
//	go run ./experiments/speed --model random:llama-3.2-1b-q4_0 --accept 2.63
//
// Ways of drafting take turns in random order within each prompt, and the memory's read bandwidth is probed before each request.
// Progress goes to standard error, the tables to standard output. The exit status is 0 if the best way of drafting is as much faster
// as claimed (1.3 times on the default target, 1.5 times with simulated acceptance), and 1 otherwise. Measure on an idle machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
	"draftlab/experiments/rig"
	"draftlab/lab/prompts"
)

const (
	wantDefault   = 1.3 // times plain decoding, default target
	wantSimulated = 1.5 // likewise, random target
)

// options are the command line.
type options struct {
	model                         string // "" is the default target
	accept                        float64
	steps                         int
	prompts, reps, tokens, length int
	threads                       int
	format                        eagle3.Format
}

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("speed", flag.ContinueOnError)
	f.StringVar(&o.model, "model", "", "a random `MODEL`, such as random:llama-3.2-1b-q4_0; without it, the default target")
	f.Float64Var(&o.accept, "accept", 0, "with a random model: simulate this accept `LENGTH`")
	f.IntVar(&o.steps, "steps", 3, "with a random model: draft `N` tokens")
	f.IntVar(&o.prompts, "prompts", 12, "take `N` prompts")
	f.IntVar(&o.reps, "reps", 3, "take each prompt `N` times")
	f.IntVar(&o.tokens, "tokens", 128, "write at most `N` tokens")
	f.IntVar(&o.length, "length", 64, "with a random model: prompts of `N` tokens")
	f.IntVar(&o.threads, "threads", 0, "compute on `N` threads; 0 is one a processor")
	format := rig.DrafterFormat(f)
	err := rig.Parse(f, args)
	if err == nil {
		o.format, err = format()
	}
	if err != nil {
		return err
	}
	random := o.model != ""
	switch {
	case min(o.prompts, o.reps, o.length, o.steps) < 1 || o.tokens < 2 || o.threads < 0:
		return rig.Usage("--tokens: at least 2; --threads: at least 0; the other counts: at least 1")
	case random && !strings.HasPrefix(o.model, model.RandomPrefix):
		return rig.Usage("--model %s: want %sSHAPE-FORMAT", o.model, model.RandomPrefix)
	case random != (o.accept != 0):
		return rig.Usage("--model and --accept go together: random weights accept nothing")
	}
	m, err := o.open()
	if err != nil {
		return err
	}
	defer m.e.Close()
	if err := m.run(ctx, o.reps); err != nil {
		return err
	}
	want := wantDefault
	if random {
		want = wantSimulated
	}
	return m.write(os.Stdout, want)
}

// open loads the target with its drafter and makes the prompts.
func (o options) open() (*measurement, error) {
	m := &measurement{log: os.Stderr, tokens: o.tokens}
	if o.model != "" {
		return m, o.openRandom(m)
	}
	target, drafter, err := rig.Files()
	if err != nil {
		return nil, err
	}
	m.ways = ways
	if m.e, err = rig.Load(engine.Options{Model: target, Drafter: drafter, DrafterFormat: o.format, Threads: o.threads, Limit: limit}); err != nil {
		return nil, err
	}
	set := prompts.All().Of(prompts.HeldOut).In(prompts.Chat)
	set = set[:min(len(set), o.prompts)]
	ids, err := rig.Encode(m.e.Tokenizer(), set)
	if err != nil {
		_ = m.e.Close()
		return nil, err
	}
	m.prompts, m.stop = ids, m.e.Tokenizer().IsEOG
	return m, nil
}

// openRandom does so for a random target.
func (o options) openRandom(m *measurement) (err error) {
	spec := engine.Spec{Drafter: engine.DraftModel, Shape: draft.Chain(o.steps)}
	m.ways = []engine.Spec{{Drafter: engine.DraftNone}, spec}
	m.simulated = o.accept
	m.e, err = rig.Load(engine.Options{
		Model: o.model, Drafter: engine.RandomDrafter, DrafterFormat: o.format, Threads: o.threads,
		Context: o.length + o.tokens, Spec: spec, SimulateAcceptLength: o.accept,
	})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range o.prompts {
		ids := make([]int32, o.length)
		for i := range ids {
			ids[i] = rng.Int32N(int32(m.e.Model().Config().Vocab))
		}
		m.prompts = append(m.prompts, ids)
	}
	return nil
}

// ways are what is compared on the default target; the first is plain decoding.
var ways = []engine.Spec{
	{Drafter: engine.DraftNone},
	{Drafter: engine.DraftModel, Shape: draft.Chain(1)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(2)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(3)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(4)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(5)},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 3, TopK: 2, DraftTokens: 6}},
	{Drafter: engine.DraftNgram, Shape: draft.Chain(3)},
}

// limit covers all ways.
var limit = draft.Shape{Steps: 5, TopK: 2, DraftTokens: 6}

// name names a way of drafting.
func name(s engine.Spec) string {
	switch {
	case s.Drafter == engine.DraftNone:
		return "plain"
	case s.Drafter == engine.DraftNgram:
		return fmt.Sprintf("ngram %d", s.Shape.Steps)
	case s.Shape.IsChain():
		return fmt.Sprintf("chain %d", s.Shape.Steps)
	}
	return "tree " + s.Shape.String()
}

// isPlain reports whether the way is that of index 0, which others are compared with.
func isPlain(way int) bool { return way == 0 }

// sum adds numbers.
func sum(v []float64) (total float64) {
	for x := range slices.Values(v) {
		total += x
	}
	return total
}
