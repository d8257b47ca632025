package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"draftlab/engine"
	"draftlab/experiments/rig"
	"draftlab/lab/stats"
)

// errEnough ends a request that has given what is wanted.
var errEnough = errors.New("enough")

// overhead is the logarithms of the ratios of paired blocks' times, ledger on over ledger off: on the clock, and of the loop's
// thread, none if the system does not tell.
type overhead struct{ wall, cpu []float64 }

// intervals are those of the overhead relative to the time without the ledger.
func (o *overhead) intervals() (wall, cpu stats.Interval) {
	interval := func(d []float64) stats.Interval {
		i := stats.HodgesLehmann(d, level)
		return stats.Interval{Estimate: math.Expm1(i.Estimate), Low: math.Expm1(i.Low), High: math.Expm1(i.High)}
	}
	return interval(o.wall), interval(o.cpu)
}

// judge returns an error that wraps rig.ErrClaim unless the ledger has been shown to cost less than it may.
func (o *overhead) judge() error {
	wall, cpu := o.intervals()
	if len(o.cpu) == 0 {
		cpu = wall
	}
	switch {
	case wall.Low > mostOverhead || cpu.Low > mostOverhead:
		return fmt.Errorf("%w: the ledger costs at least %s", rig.ErrClaim, percent(max(wall.Low, cpu.Low)))
	case min(wall.High, cpu.High) > mostOverhead:
		return fmt.Errorf("%w: it may cost up to %s; a quieter machine or more --pairs would tell", rig.ErrClaim, percent(min(wall.High, cpu.High)))
	}
	return nil
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }

// overhead compares so many pairs of blocks.
func (m *measurement) overhead(ctx context.Context, pairs, block int, rng *rand.Rand) (out overhead, err error) {
	runtime.LockOSThread() // the loop runs on this goroutine
	defer runtime.UnlockOSThread()
	defer m.e.Ledger().Switch(true)
	for len(out.wall) < pairs {
		b := blocks{l: m.e.Ledger(), rng: rng, size: block, out: &out}
		err := m.request(ctx, func(engine.Token) error {
			b.token(m.e.Stats().Steps)
			if len(out.wall) >= pairs {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return out, err
		}
		fmt.Fprintf(m.log, "\roverhead: %d of %d pairs", len(out.wall), pairs)
	}
	fmt.Fprintln(m.log)
	return out, nil
}

// blocks cuts the cycles of one request into pairs of blocks.
type blocks struct {
	l    interface{ Switch(on bool) }
	rng  *rand.Rand
	size int
	out  *overhead

	cycles int64   // steps of the engine at the last token
	left   int     // cycles of the block in progress
	from   instant // of the block in progress
	first  instant // what the pair's first block took; zero while that runs
	on     bool    // in the block in progress
}

// instant is a time in seconds on both clocks.
type instant struct {
	wall time.Time
	took float64
	cpu  float64
	ok   bool // the system tells cpu
}

func now() instant {
	cpu, ok := threadSeconds()
	return instant{wall: time.Now(), cpu: cpu, ok: ok}
}

// since is the time from one instant to another.
func (i instant) since(from instant) instant {
	return instant{took: i.wall.Sub(from.wall).Seconds(), cpu: i.cpu - from.cpu, ok: i.ok}
}

// warmUp is the number of a request's first cycles that belong to no block: the prompt's pass is among them.
const warmUp = 3

// token is told of each output token, with the engine's steps so far.
func (b *blocks) token(steps int64) {
	if steps == b.cycles {
		return // of the same cycle
	}
	if b.cycles == 0 {
		b.left = warmUp
	}
	b.cycles = steps
	if b.left--; b.left > 0 {
		return
	}
	took := now().since(b.from)
	switch {
	case b.from.wall.IsZero(): // after warming up
		b.on = b.rng.IntN(2) == 0
	case b.first.took == 0:
		b.first, b.on = took, !b.on
	default:
		b.out.wall = append(b.out.wall, logRatio(b.first.took, took.took, b.on))
		if took.ok {
			b.out.cpu = append(b.out.cpu, logRatio(b.first.cpu, took.cpu, b.on))
		}
		b.first, b.on = instant{}, b.rng.IntN(2) == 0
	}
	b.l.Switch(b.on)
	b.left, b.from = b.size, now()
}

// logRatio is ln(on/off) of a pair whose second block ran with the ledger on or not.
func logRatio(first, second float64, on bool) float64 {
	if on {
		return math.Log(second / first)
	}
	return math.Log(first / second)
}
