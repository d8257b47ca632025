// Package selfcheck measures the benchmark client itself: [Run] sends the load that a benchmark would send to a [Mock] on this
// machine, whose answers come at known times, and says how far off the client's readings are, how late it sends, and at which rate
// this machine can no longer keep up. A [Mock] by itself serves other load generators as well.
//
// The mock runs in the same process and takes its share of the processors, so what Run finds is worse than what a server on another
// machine would see. What is the mock's own error is told apart: it knows when it wrote.
package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/stats"
)

// Spread is a quantity's quantiles, in milliseconds.
type Spread struct {
	Median float64 `json:"median_ms"`
	P90    float64 `json:"p90_ms"`
	P99    float64 `json:"p99_ms"`
}

func spreadOf(xs []float64) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	return Spread{stats.Quantile(xs, .5), stats.Quantile(xs, .9), stats.Quantile(xs, .99)}
}

// Reading is the client at one load.
type Reading struct {
	Rate        float64 `json:"request_rate,omitempty"` // per second; 0 for a closed loop
	Concurrency int     `json:"max_concurrency,omitempty"`
	Requests    int64   `json:"requests"`
	Failed      int64   `json:"failed"`
	Achieved    float64 `json:"achieved_rate"` // starts per second
	TokS        float64 `json:"output_tok_s"`

	// What the client read less what the mock did, without sign: the client's own error.
	TTFTError Spread `json:"ttft_error"`
	TPOTError Spread `json:"tpot_error"`
	// What the client read less what the mock was to do, without sign: the mock's lateness included.
	TTFTInjected Spread `json:"ttft_injected_error"`
	TPOTInjected Spread `json:"tpot_injected_error"`

	Lag       Spread `json:"send_lag"`   // from when a request was due until it reached the mock, by the mock's account
	MockError Spread `json:"mock_error"` // how late the mock's first token was written
}

// The limits of a load that the client can stand: a median error that is small against any latency which people compare, and
// as many starts as the plan has.
const (
	maxError  = 0.2 // milliseconds
	maxLag    = 1.0 // milliseconds, the median
	minReach  = 0.95
	maxRungs  = 12
	rungTime  = 2 * time.Second
	fine      = 1.2 // the knee lies between two loads of at most this ratio
	maxStalls = 10 * time.Second
	maxConns  = 4096        // at a time; each takes two descriptors here, of some 20,000 that systems allow
	openAhead = 1024        // of an open loop's
	spread    = time.Second // over which the streams of a closed loop begin, since those that begin together want all their tokens together
)

// Holds reports whether the client stood the load, and the mock beside it: where the mock is late, this machine has more to do than it can.
func (r *Reading) Holds() bool {
	most := max(r.TTFTError.Median, r.TPOTError.Median, r.TTFTInjected.Median, r.TPOTInjected.Median)
	return r.Failed == 0 && most <= maxError && r.Lag.Median <= maxLag && (r.Rate == 0 || r.Achieved >= minReach*r.Rate)
}

// Result is what Run found.
type Result struct {
	Timing  Timing    `json:"mock"`
	Chosen  Reading   `json:"chosen"`
	Rungs   []Reading `json:"rungs"`              // other loads, in the order in which they were tried
	Knee    float64   `json:"knee"`               // the highest rate, or number of streams, that held; 0 if the chosen load was too much
	TooMuch float64   `json:"too_much,omitempty"` // the lowest that did not; 0 if the knee lies higher than any that was tried
}

// Run measures the client under a plan that load accepts, then under twice the load, and so on until a load is too much, and at last
// between the last two. note is told what is being measured.
func Run(ctx context.Context, plan load.Plan, timing Timing, note func(string)) (*Result, error) {
	if timing.Tokens < 2 {
		return nil, fmt.Errorf("%d tokens an answer: the time between tokens needs at least 2", timing.Tokens)
	}
	res := &Result{Timing: timing}
	chosen := height(plan)
	for rung := 0; rung <= maxRungs; rung++ {
		note(fmt.Sprintf("self-check: %s", describe(plan)))
		r, err := measure(ctx, plan, timing)
		if err != nil {
			return nil, err
		}
		if rung == 0 {
			res.Chosen = *r
		} else {
			res.Rungs = append(res.Rungs, *r)
		}
		if r.Holds() {
			res.Knee = height(plan)
		} else {
			res.TooMuch = height(plan)
		}
		if res.TooMuch == chosen || res.TooMuch > 0 && res.TooMuch <= fine*res.Knee {
			break
		}
		next := 2 * res.Knee
		if res.TooMuch > 0 {
			next = math.Sqrt(res.Knee * res.TooMuch)
		}
		plan = raised(plan, next)
	}
	return res, nil
}

// height is a plan's load: its rate, or its streams.
func height(p load.Plan) float64 {
	if p.Rate > 0 {
		return p.Rate
	}
	return float64(p.Concurrency)
}

// raised returns a plan of another load for a fixed time.
func raised(p load.Plan, height float64) load.Plan {
	p.Requests, p.Duration = 0, rungTime
	if p.Rate > 0 {
		p.Rate = math.Round(height)
	} else {
		p.Concurrency = int(height)
	}
	return p
}

func describe(p load.Plan) string {
	if p.Rate > 0 {
		return fmt.Sprintf("%.6g requests/s", p.Rate)
	}
	return fmt.Sprintf("%d streams", p.Concurrency)
}

// deviations collects the deviations of a load, in milliseconds.
type deviations struct {
	timing Timing
	truth  sync.Map // prompt → Answer

	mu                                                sync.Mutex
	ttft, tpot, ttftInjected, tpotInjected, lag, mock []float64
	failed, tokens                                    int64
}

// add takes in one request, which was due at a time; zero is when it was sent.
func (d *deviations) add(prompt string, due time.Time, s *client.Sample) {
	v, known := d.truth.LoadAndDelete(prompt)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Error != "" || !known || s.OutputTokens != d.timing.Tokens {
		d.failed++
		return
	}
	truth := v.(Answer)
	ms := func(t time.Duration) float64 { return float64(t) / 1e6 }
	gaps := time.Duration(d.timing.Tokens - 1)
	ttft, tpot := time.Duration(s.FirstNS), time.Duration(s.LastNS-s.FirstNS)/gaps
	d.tokens += int64(s.OutputTokens)
	d.ttft = append(d.ttft, ms((ttft - truth.First).Abs()))
	d.tpot = append(d.tpot, ms((tpot - (truth.Last-truth.First)/gaps).Abs()))
	d.ttftInjected = append(d.ttftInjected, ms((ttft - d.timing.First).Abs()))
	d.tpotInjected = append(d.tpotInjected, ms((tpot - d.timing.Gap).Abs()))
	d.mock = append(d.mock, ms(truth.First-d.timing.First))
	if !due.IsZero() {
		d.lag = append(d.lag, ms(truth.Arrived.Sub(due)))
	}
}

// expected is the number of requests that run at a time under a plan, with room for the bursts of an open loop.
func expected(plan load.Plan, t Timing) int {
	if plan.Rate == 0 {
		return plan.Concurrency
	}
	most := openAhead
	if plan.Requests > 0 {
		most = int(min(openAhead, plan.Requests))
	}
	mean := plan.Rate * (t.First + time.Duration(t.Tokens-1)*t.Gap).Seconds()
	return min(most, 1+int(mean+4*math.Sqrt(mean))) // of a Poisson number, four standard deviations
}

// measure sends one load to a mock of its own.
func measure(ctx context.Context, plan load.Plan, timing Timing) (*Reading, error) {
	d := deviations{timing: timing}
	m, err := NewMock("127.0.0.1:0", timing, func(a Answer) { d.truth.Store(a.Prompt, a) })
	if err != nil {
		return nil, err
	}
	defer m.Close()
	streams := expected(plan, timing)
	c := &client.Client{Base: m.URL, HTTP: client.NewHTTP(max(maxConns, plan.Concurrency), maxStalls)}
	defer c.HTTP.CloseIdleConnections()
	ask := func(ctx context.Context, prompt string, due time.Time) *client.Sample {
		return c.Do(ctx, due, &client.Request{API: client.Completion, Model: "mock", Prompt: prompt, MaxTokens: timing.Tokens})
	}
	// A benchmark's warm-up opens the connections, too: a thousand that open at once are no reading of the client.
	load.Run(ctx, load.Plan{Concurrency: streams, Requests: int64(streams)}, func(ctx context.Context, n int64, due time.Time) {
		prompt := "warm-up " + strconv.FormatInt(n, 10)
		ask(ctx, prompt, due)
		d.truth.Delete(prompt)
	})
	if plan.Rate == 0 {
		plan.Spread = spread
	}
	tally := load.Run(ctx, plan, func(ctx context.Context, n int64, due time.Time) {
		if plan.Rate == 0 {
			due = time.Time{}
		}
		prompt := strconv.FormatInt(n, 10)
		d.add(prompt, due, ask(ctx, prompt, due))
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if tally.Started == 0 {
		return nil, errors.New("nothing was due in the time given")
	}
	return d.reading(plan, tally), nil
}

// reading sums up.
func (d *deviations) reading(plan load.Plan, tally load.Tally) *Reading {
	r := &Reading{Rate: plan.Rate, Concurrency: plan.Concurrency, Requests: tally.Started, Failed: d.failed,
		TTFTError: spreadOf(d.ttft), TPOTError: spreadOf(d.tpot), TTFTInjected: spreadOf(d.ttftInjected), TPOTInjected: spreadOf(d.tpotInjected),
		Lag: spreadOf(d.lag), MockError: spreadOf(d.mock)}
	if s := tally.LastStart.Seconds(); s > 0 {
		r.Achieved = float64(tally.Started) / s
	}
	r.TokS = float64(d.tokens) / tally.Elapsed.Seconds()
	return r
}
