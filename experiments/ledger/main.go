// Command ledger shows what the cycle ledger is worth on the default target with its drafter: that keeping it costs under 0.5 % of
// throughput (invariant 4), and that its verify times are those of an independent measurement, the CPU profile of the same run.
//
//	go run ./experiments/ledger
//	go run ./experiments/ledger --pairs 200 --seconds 20
//
// Overhead: while requests are answered the ledger is switched on and off over blocks of cycles, in random order within each pair
// of adjacent blocks; the ratio of a pair's times cancels what drifts. On a machine that others use, time on the clock swings by itself; the
// books are kept by the loop's thread alone and wait for nobody, so that what they cost shows in its processor time as well, which is given where the
// system tells it. Share: runtime/pprof samples the loop's stack, and those
// samples that lie in the target's pass of a cycle are counted.
//
// Progress goes to standard error, the table to standard output. The exit status is 0 if the whole interval of the overhead, on the clock or in
// processor time, lies below 0.5 %, neither lies above, and the shares agree within 3 %; and 1 otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/prompts"
	"draftlab/lab/stats"
)

const (
	mostOverhead = 0.005 // of throughput: invariant 4
	tolerance    = 0.03  // of the verify share, relative
	level        = 0.95  // of the interval
	answer       = 256   // tokens of each request
	steps        = 3     // drafted tokens of a cycle
)

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("ledger", flag.ContinueOnError)
	pairs := f.Int("pairs", 1000, "compare `N` pairs of blocks")
	block := f.Int("block", 10, "cycles of a block")
	seconds := f.Float64("seconds", 60, "sample the profile for this `TIME` in seconds")
	threads := f.Int("threads", 0, "compute on `N` threads; 0 is one a processor")
	seed := f.Uint64("seed", 1, "order the blocks by this `SEED`")
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	if *pairs < 6 || *block < 1 || *seconds <= 0 || *threads < 0 {
		return rig.Usage("--pairs: at least 6; --block: at least 1; --seconds: more than 0; --threads: at least 0")
	}
	target, drafter, err := rig.Files()
	if err != nil {
		return err
	}
	spec := engine.Spec{Drafter: engine.DraftModel, Shape: draft.Chain(steps)}
	e, err := rig.Load(engine.Options{Model: target, Drafter: drafter, Threads: *threads, Context: 2048, Spec: spec})
	if err != nil {
		return err
	}
	defer e.Close()
	m := measurement{e: e, log: os.Stderr}
	if m.prompts, err = rig.Encode(e.Tokenizer(), prompts.All().Of(prompts.HeldOut)); err != nil {
		return err
	}
	o, err := m.overhead(ctx, *pairs, *block, rand.New(rand.NewPCG(*seed, 0)))
	if err != nil {
		return err
	}
	s, err := m.shares(ctx, time.Duration(*seconds*float64(time.Second)))
	if err != nil {
		return err
	}
	return report(os.Stdout, o, s)
}

// measurement is a run.
type measurement struct {
	e       *engine.Engine
	log     io.Writer
	prompts [][]int32
	next    int // prompt
}

// request answers the next prompt, whatever its text, and calls emit with each token.
func (m *measurement) request(ctx context.Context, emit func(engine.Token) error) error {
	p := m.prompts[m.next%len(m.prompts)]
	m.next++
	_, err := m.e.Generate(ctx, engine.Request{Prompt: p, MaxTokens: answer, Sampling: sample.Defaults(), NoCache: true}, emit)
	return err
}

// report prints the table and judges.
func report(w io.Writer, o overhead, s shares) error {
	wall, cpu := o.intervals()
	off := s.profile/s.ledger - 1
	span := func(i stats.Interval) string {
		return fmt.Sprintf("%s (%s to %s)", percent(i.Estimate), percent(i.Low), percent(i.High))
	}
	columns := []ui.Column{{Head: "LEDGER"}, {Head: "VALUE"}, {Head: "WANTED"}}
	rows := [][]string{
		{"overhead, " + strconv.Itoa(len(o.wall)) + " pairs", span(wall), "below " + percent(mostOverhead)},
		{"verify share, ledger", percent(s.ledger), ""},
		{"verify share, " + strconv.Itoa(s.samples) + " samples", fmt.Sprintf("%s (%+.2f %%)", percent(s.profile), 100*off), "within " + percent(tolerance)},
	}
	if len(o.cpu) > 0 {
		rows = slices.Insert(rows, 1, []string{"in the loop's processor time", span(cpu), "below " + percent(mostOverhead)})
	}
	if err := ui.Table(w, 0, columns, rows); err != nil {
		return err
	}
	errs := []error{o.judge()}
	if math.Abs(off) > tolerance {
		errs = append(errs, fmt.Errorf("%w: the profile's verify share is %+.2f %% from the ledger's", rig.ErrClaim, 100*off))
	}
	return errors.Join(errs...)
}
