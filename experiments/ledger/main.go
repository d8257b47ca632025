// Command ledger shows what the cycle ledger is worth on the default target with its drafter: that keeping it costs under 0.5 % of
// throughput (invariant 4), and that its verify times are those of an independent measurement, the CPU profile of the same run.
//
//	go run ./experiments/ledger
//	go run ./experiments/ledger --pairs 200 --seconds 20
//
// Overhead: while requests are answered the ledger is switched on and off over blocks of cycles, in random order within each pair
// of adjacent blocks; the ratio of a pair's times cancels what drifts. Share: runtime/pprof samples the loop's stack, and those
// samples that lie in the target's pass of a cycle are counted.
//
// Progress goes to standard error, the table to standard output. The exit status is 0 if the whole interval of the overhead lies below 0.5 % and
// the shares agree within 3 %, and 1 otherwise.
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
	ratios, err := m.overhead(ctx, *pairs, *block, rand.New(rand.NewPCG(*seed, 0)))
	if err != nil {
		return err
	}
	s, err := m.shares(ctx, time.Duration(*seconds*float64(time.Second)))
	if err != nil {
		return err
	}
	return report(os.Stdout, ratios, s)
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

// errEnough ends a request that has given what is wanted.
var errEnough = errors.New("enough")

// overhead returns the logarithms of the ratios of paired blocks' times, ledger on over ledger off.
func (m *measurement) overhead(ctx context.Context, pairs, block int, rng *rand.Rand) ([]float64, error) {
	defer m.e.Ledger().Switch(true)
	var out []float64
	for len(out) < pairs {
		b := blocks{e: m.e, rng: rng, size: block}
		err := m.request(ctx, func(engine.Token) error {
			b.token()
			if len(out)+len(b.ratios) >= pairs {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
		out = append(out, b.ratios...)
		fmt.Fprintf(m.log, "\roverhead: %d of %d pairs", len(out), pairs)
	}
	fmt.Fprintln(m.log)
	return out, nil
}

// blocks cuts the cycles of one request into pairs of blocks.
type blocks struct {
	e    *engine.Engine
	rng  *rand.Rand
	size int

	cycles int64 // steps of the engine at the last token
	left   int   // cycles of the block in progress
	began  time.Time
	first  float64 // seconds of the pair's first block; 0 while that runs
	on     bool    // in the block in progress
	ratios []float64
}

// warmUp is the number of a request's first cycles that belong to no block: the prompt's pass is among them.
const warmUp = 3

// token is told of each output token.
func (b *blocks) token() {
	now := b.e.Stats().Steps
	if now == b.cycles {
		return // of the same cycle
	}
	if b.cycles == 0 {
		b.left = warmUp
	}
	b.cycles = now
	if b.left--; b.left > 0 {
		return
	}
	at := time.Now()
	took := at.Sub(b.began).Seconds()
	switch {
	case b.began.IsZero(): // after warming up
		b.on = b.rng.IntN(2) == 0
	case b.first == 0:
		b.first = took
		b.on = !b.on
	default:
		b.ratios = append(b.ratios, logRatio(b.first, took, b.on))
		b.first, b.on = 0, b.rng.IntN(2) == 0
	}
	b.e.Ledger().Switch(b.on)
	b.left, b.began = b.size, time.Now()
}

// logRatio is ln(on/off) of a pair whose second block ran with the ledger on or not.
func logRatio(first, second float64, on bool) float64 {
	if on {
		return math.Log(second / first)
	}
	return math.Log(first / second)
}

// report prints the table and judges.
func report(w io.Writer, ratios []float64, s shares) error {
	o := stats.HodgesLehmann(ratios, level)
	low, mid, high := math.Expm1(o.Low), math.Expm1(o.Estimate), math.Expm1(o.High)
	off := s.profile/s.ledger - 1
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }
	columns := []ui.Column{{Head: "LEDGER"}, {Head: "VALUE"}, {Head: "WANTED"}}
	rows := [][]string{
		{"overhead, " + strconv.Itoa(len(ratios)) + " pairs", fmt.Sprintf("%s (%s to %s)", percent(mid), percent(low), percent(high)), "below " + percent(mostOverhead)},
		{"verify share, ledger", percent(s.ledger), ""},
		{"verify share, " + strconv.Itoa(s.samples) + " samples", fmt.Sprintf("%s (%+.2f %%)", percent(s.profile), 100*off), "within " + percent(tolerance)},
	}
	if err := ui.Table(w, false, columns, rows); err != nil {
		return err
	}
	var errs []error
	switch {
	case low > mostOverhead:
		errs = append(errs, fmt.Errorf("%w: the ledger costs at least %s", rig.ErrClaim, percent(low)))
	case high > mostOverhead:
		errs = append(errs, fmt.Errorf("%w: it may cost up to %s; a quieter machine or more --pairs would tell", rig.ErrClaim, percent(high)))
	}
	if math.Abs(off) > tolerance {
		errs = append(errs, fmt.Errorf("%w: the profile's verify share is %+.2f %% from the ledger's", rig.ErrClaim, 100*off))
	}
	return errors.Join(errs...)
}
