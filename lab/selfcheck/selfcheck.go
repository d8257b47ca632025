// Package selfcheck measures the benchmark client itself: [Run] sends the load that a benchmark would send to a [Mock] on this
// machine, whose answers come at known times, and says how far off the client's readings are, how late it sends, and at which rate
// this machine can no longer keep up.
//
// The mock runs in the same process and takes its share of the processors, so what Run finds is worse than what a server on another
// machine would see.
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

func spread(xs []float64) Spread {
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

	TTFTError Spread `json:"ttft_error"` // what the client read less what the mock did, without sign
	TPOTError Spread `json:"tpot_error"`
	Lag       Spread `json:"send_lag"`
	MockError Spread `json:"mock_error"` // how late the mock's first token was written: the limit of the machine's timers
}

// The limits of a load that the client can stand: a median error that is small against any latency which people compare, and
// as many starts as the plan has.
const (
	maxError  = 0.2 // milliseconds
	maxLag    = 1.0 // milliseconds, the median
	minReach  = 0.95
	maxRungs  = 12
	rungTime  = 2 * time.Second
	maxStalls = 30 * time.Second
	maxConns  = 1024 // opened ahead of an open loop, so that descriptors last
)

// Holds reports whether the client stood the load.
func (r *Reading) Holds() bool {
	return r.Failed == 0 && r.TTFTError.Median <= maxError && r.TPOTError.Median <= maxError && r.Lag.Median <= maxLag &&
		(r.Rate == 0 || r.Achieved >= minReach*r.Rate)
}

// Result is what Run found.
type Result struct {
	Timing  Timing    `json:"mock"`
	Chosen  Reading   `json:"chosen"`
	Rungs   []Reading `json:"rungs"`   // higher loads, each twice the last, until one was too much
	Knee    float64   `json:"knee"`    // the highest rate, or number of streams, that held; 0 if the chosen load was too much
	Reached bool      `json:"reached"` // a load was too much; else the knee lies higher
}

// Run measures the client under a plan that load accepts, and then under twice the load, and so on. note is told what is being measured.
func Run(ctx context.Context, plan load.Plan, timing Timing, note func(string)) (*Result, error) {
	if timing.Tokens < 2 {
		return nil, fmt.Errorf("%d tokens an answer: the time between tokens needs at least 2", timing.Tokens)
	}
	res := &Result{Timing: timing}
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
		if !r.Holds() {
			res.Reached = true
			break
		}
		res.Knee = max(plan.Rate, 0)
		if plan.Rate == 0 {
			res.Knee = float64(plan.Concurrency)
		}
		plan = doubled(plan)
	}
	return res, nil
}

func describe(p load.Plan) string {
	if p.Rate > 0 {
		return fmt.Sprintf("%.6g requests/s", p.Rate)
	}
	return fmt.Sprintf("%d streams", p.Concurrency)
}

// doubled returns a plan of twice the load for a fixed time.
func doubled(p load.Plan) load.Plan {
	p.Requests, p.Duration = 0, rungTime
	if p.Rate > 0 {
		p.Rate *= 2
	} else {
		p.Concurrency *= 2
	}
	return p
}

// deviations collects the deviations of a load.
type deviations struct {
	mu                    sync.Mutex
	ttft, tpot, lag, mock []float64
	failed, tokens        int64
}

// add takes in one request.
func (d *deviations) add(s *client.Sample, truth sent, known bool, t Timing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lag = append(d.lag, float64(s.StartUnixNS-s.DueUnixNS)/1e6)
	if s.Error != "" || !known || s.OutputTokens != t.Tokens {
		d.failed++
		return
	}
	d.tokens += int64(s.OutputTokens)
	gaps := float64(t.Tokens - 1)
	d.ttft = append(d.ttft, math.Abs(float64(s.FirstNS-truth.first))/1e6)
	d.tpot = append(d.tpot, math.Abs(float64(s.LastNS-s.FirstNS)-float64(truth.last-truth.first))/gaps/1e6)
	d.mock = append(d.mock, float64(truth.first-t.First.Nanoseconds())/1e6)
}

// expected is the number of requests that run at a time under a plan, with room for the bursts of an open loop.
func expected(plan load.Plan, t Timing) int {
	if plan.Rate == 0 {
		return plan.Concurrency
	}
	most := maxConns
	if plan.Requests > 0 {
		most = int(min(maxConns, plan.Requests))
	}
	mean := plan.Rate * (t.First + time.Duration(t.Tokens-1)*t.Gap).Seconds()
	return min(most, 1+int(mean+4*math.Sqrt(mean))) // of a Poisson number, four standard deviations
}

// measure sends one load to a mock of its own.
func measure(ctx context.Context, plan load.Plan, timing Timing) (*Reading, error) {
	m, err := NewMock(timing)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	streams := expected(plan, timing)
	c := &client.Client{Base: m.URL, HTTP: client.NewHTTP(2*streams, maxStalls)}
	defer c.HTTP.CloseIdleConnections()
	ask := func(ctx context.Context, prompt string, due time.Time) *client.Sample {
		return c.Do(ctx, due, &client.Request{API: client.Completion, Model: "mock", Prompt: prompt, MaxTokens: timing.Tokens})
	}
	// A benchmark's warm-up opens the connections, too: a thousand that open at once are no reading of the client.
	load.Run(ctx, load.Plan{Concurrency: streams, Requests: int64(streams)}, func(ctx context.Context, n int64, due time.Time) {
		prompt := "warm-up " + strconv.FormatInt(n, 10)
		ask(ctx, prompt, due)
		m.take(prompt)
	})
	var d deviations
	tally := load.Run(ctx, plan, func(ctx context.Context, n int64, due time.Time) {
		prompt := strconv.FormatInt(n, 10)
		s := ask(ctx, prompt, due)
		truth, known := m.take(prompt)
		d.add(s, truth, known, timing)
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if tally.Started == 0 {
		return nil, errors.New("nothing was due in the time given")
	}
	r := &Reading{Rate: plan.Rate, Concurrency: plan.Concurrency, Requests: tally.Started, Failed: d.failed,
		TTFTError: spread(d.ttft), TPOTError: spread(d.tpot), Lag: spread(d.lag), MockError: spread(d.mock)}
	if s := tally.LastStart.Seconds(); s > 0 {
		r.Achieved = float64(tally.Started) / s
	}
	r.TokS = float64(d.tokens) / tally.Elapsed.Seconds()
	return r, nil
}
