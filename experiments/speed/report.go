package main

import (
	"errors"
	"fmt"
	"io"
	"math"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/stats"
)

// confidence is the level of the intervals.
const confidence = 0.95

// result is what came of one way of drafting.
type result struct {
	rates, ratios, bandwidths []float64 // ratios: over plain decoding of the same prompt and repetition
	speedup                   stats.Interval
	cycles                    int
	times                     ledger.Times
	draft                     draft.Stats
}

// results sums the samples up by way of drafting.
func (m *measurement) results() []result {
	type pair struct{ prompt, rep int }
	plain := map[pair]float64{}
	for _, p := range m.samples {
		if isPlain(p.way) {
			plain[pair{p.prompt, p.rep}] = p.rate
		}
	}
	out := make([]result, len(m.ways))
	logs := make([]map[int][]float64, len(m.ways)) // of ratios, by prompt
	for _, p := range m.samples {
		r := &out[p.way]
		r.rates, r.bandwidths = append(r.rates, p.rate), append(r.bandwidths, p.bandwidth)
		r.cycles += p.cycles
		r.times.Add(&p.times)
		r.draft.Add(&p.draft)
		base, ok := plain[pair{p.prompt, p.rep}]
		if !ok {
			continue
		}
		r.ratios = append(r.ratios, p.rate/base)
		if logs[p.way] == nil {
			logs[p.way] = map[int][]float64{}
		}
		logs[p.way][p.prompt] = append(logs[p.way][p.prompt], math.Log(p.rate/base))
	}
	for way := range out {
		out[way].speedup = interval(logs[way])
	}
	return out
}

// interval estimates a speed-up for prompts like these: each prompt counts once, by the mean of its repetitions.
func interval(byPrompt map[int][]float64) stats.Interval {
	var means []float64
	for _, v := range byPrompt {
		means = append(means, sum(v)/float64(len(v)))
	}
	i := stats.HodgesLehmann(means, confidence)
	return stats.Interval{Estimate: math.Exp(i.Estimate), Low: math.Exp(i.Low), High: math.Exp(i.High)}
}

// write prints the tables. Its error wraps rig.ErrClaim if no way of drafting is want times as fast as plain decoding.
func (m *measurement) write(w io.Writer, want float64) error {
	results := m.results()
	if m.simulated > 0 {
		fmt.Fprintf(w, "ACCEPTANCE IS SIMULATED (accept length %g): the texts mean nothing\n\n", m.simulated)
	}
	err := m.speeds(w, results)
	fmt.Fprintln(w)
	err = errors.Join(err, m.phases(w, results))
	best := 0
	for way, r := range results {
		if r.speedup.Estimate > results[best].speedup.Estimate {
			best = way
		}
	}
	fmt.Fprintf(w, "\nbest: %s, %.2f times plain decoding\n", name(m.ways[best]), results[best].speedup.Estimate)
	if !(results[best].speedup.Estimate >= want) {
		err = errors.Join(err, fmt.Errorf("%w: %.2f times plain decoding at best, want %.1f", rig.ErrClaim, results[best].speedup.Estimate, want))
	}
	return err
}

// speeds prints rates and ratios.
func (m *measurement) speeds(w io.Writer, results []result) error {
	fmt.Fprintf(w, "%d prompts, %d samples of each; output tokens a second after the first; median (10 %% – 90 %%)\n", len(m.prompts), len(results[0].rates))
	columns := []ui.Column{{Head: "DRAFT"}, {Head: "TOK/S"}, {Head: "TIMES PLAIN"}, {Head: "FOR PROMPTS LIKE THESE, 95 %"},
		{Head: "ACCEPT LENGTH", Right: true}, {Head: "READ BANDWIDTH, GB/S"}}
	var rows [][]string
	for way, r := range results {
		length := ""
		if !isPlain(way) {
			length = fmt.Sprintf("%.2f", r.draft.AcceptLength())
		}
		rows = append(rows, []string{name(m.ways[way]), spread(r.rates, 1, 1), spread(r.ratios, 1, 2),
			fmt.Sprintf("%.2f (%.2f – %.2f)", r.speedup.Estimate, r.speedup.Low, r.speedup.High), length, spread(r.bandwidths, 1e-9, 1)})
	}
	return ui.Table(w, 0, columns, rows)
}

// spread writes the median and two quantiles of values in a unit.
func spread(v []float64, unit float64, digits int) string {
	return fmt.Sprintf("%.*f (%.*f – %.*f)", digits, unit*stats.Median(v), digits, unit*stats.Quantile(v, 0.1), digits, unit*stats.Quantile(v, 0.9))
}

// phases prints where a cycle's time goes, beside the arithmetic: the time that reading its weights once takes at the bandwidth probed
// beside it. The drafter's weights are small enough to stay in a cache, so its phases may take less.
func (m *measurement) phases(w io.Writer, results []result) error {
	fmt.Fprintf(w, "milliseconds of a cycle by phase, and (in brackets) over the time that its weights take at the probed bandwidth: %.1f MB for the target",
		1e-6*float64(m.e.Model().WeightBytesPerToken()))
	drafter := m.e.Drafter()
	if drafter != nil {
		fmt.Fprintf(w, ", %.1f MB for a draft step, %.1f MB more for draft_extend", 1e-6*float64(drafter.WeightBytesPerPass()), 1e-6*float64(drafter.FeatureBytesPerPass()))
	}
	fmt.Fprintln(w)
	columns := []ui.Column{{Head: "DRAFT"}, {Head: "DECODE OR VERIFY", Right: true}, {Head: "ACCEPT", Right: true}, {Head: "DRAFT_EXTEND", Right: true},
		{Head: "DRAFT", Right: true}, {Head: "OTHER", Right: true}, {Head: "CYCLE", Right: true}, {Head: "OVER PLAIN", Right: true}}
	var rows [][]string
	for way, r := range results {
		perCycle := func(ns int64) float64 { return 1e-6 * float64(ns) / float64(r.cycles) }
		bandwidth := stats.Median(r.bandwidths)
		against := func(ms float64, bytes int64) string {
			return fmt.Sprintf("%.3f (%.2f)", ms, ms/(1e3*float64(bytes)/bandwidth))
		}
		t := &r.times
		extend, steps := fmt.Sprintf("%.3f", perCycle(t[ledger.DraftExtend])), fmt.Sprintf("%.3f", perCycle(t[ledger.Draft]))
		if s := m.ways[way]; s.Drafter == engine.DraftModel {
			extend = against(perCycle(t[ledger.DraftExtend]), drafter.WeightBytesPerPass()+drafter.FeatureBytesPerPass())
			if s.Shape.Steps > 1 {
				steps = against(perCycle(t[ledger.Draft]), int64(s.Shape.Steps-1)*drafter.WeightBytesPerPass())
			}
		}
		rows = append(rows, []string{name(m.ways[way]), against(perCycle(t[ledger.Decode]+t[ledger.Verify]), m.e.Model().WeightBytesPerToken()),
			fmt.Sprintf("%.3f", perCycle(t[ledger.Accept])), extend, steps, fmt.Sprintf("%.3f", perCycle(t.Other())),
			fmt.Sprintf("%.3f", perCycle(cycleTime(t))), fmt.Sprintf("%.2f", perCycle(cycleTime(t))/(1e-6*float64(cycleTime(&results[0].times))/float64(results[0].cycles)))})
	}
	return ui.Table(w, 0, columns, rows)
}

// cycleTime is the time of all phases but the prompts'. The first token's sampling is in it: one of some hundred.
func cycleTime(t *ledger.Times) int64 { return t.Sum() - t[ledger.Prefill] - t[ledger.PrefillDraft] }
