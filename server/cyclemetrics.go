package server

import (
	"fmt"
	"log/slog"
	"math"
	"strings"

	"draftlab/engine/ledger"
	"draftlab/internal/obs"
)

// categories are the phases behind SGLang's categories of sglang:forward_execution_seconds_total.
var categories = []struct {
	name   string
	phases []ledger.Phase
}{
	{"eagle_draft", []ledger.Phase{ledger.Draft}},
	{"target_verify", []ledger.Phase{ledger.Verify}},
	{"eagle_draft_extend", []ledger.Phase{ledger.DraftExtend}},
	{"extend", []ledger.Phase{ledger.Prefill, ledger.PrefillDraft}}, // SGLang counts the drafter's prefill here too
	{"decode", []ledger.Phase{ledger.Decode}},
}

// The upper bounds of cycle_seconds are powers of two of a nanosecond, which the ledger's own buckets have among theirs: 8 µs to 17 s.
const firstCycleLog, lastCycleLog = 13, 34

// appendCycleSamples appends what the ledger says.
func appendCycleSamples(out []obs.Sample, sums *ledger.Snapshot) []obs.Sample {
	for _, c := range categories {
		var d int64
		for _, p := range c.phases {
			d += sums.Phase[p]
		}
		out = append(out, obs.Sample{Metric: mForward, Label: c.name, Value: float64(d) / 1e9})
	}
	out = append(out, obs.Sample{Metric: mForward, Label: "idle", Value: float64(sums.Idle) / 1e9})
	for p := range sums.Phases {
		out = append(out, distribution(phaseNames[p], &sums.Phases[p]))
	}
	return append(out, distribution("other", &sums.Others), distribution("wall", &sums.Walls))
}

// distribution is a phase's sample of cycle_seconds.
func distribution(name string, h *ledger.Histogram) obs.Sample {
	c := &obs.Counts{All: uint64(h.Count), Below: map[float64]uint64{}}
	for log := firstCycleLog; log <= lastCycleLog; log++ {
		c.Below[math.Ldexp(1e-9, log)] = uint64(h.Below(log))
	}
	return obs.Sample{Metric: mCycle, Label: name, Value: float64(h.Sum) / 1e9, Counts: c}
}

// cycleLog writes a line about where the time went every so many cycles.
type cycleLog struct {
	log   *slog.Logger
	every int64 // cycles between lines; 0 writes none
	seen  ledger.Totals
}

// observe takes the ledger's sums and writes the line that is due: means of a cycle in milliseconds, the phases in a cycle's order.
func (c *cycleLog) observe(t *ledger.Totals) {
	n := t.Cycles - c.seen.Cycles
	if c.every == 0 || n < c.every {
		return
	}
	ms := func(now, before int64) float64 { return float64(now-before) / 1e6 / float64(n) }
	var b strings.Builder
	fmt.Fprintf(&b, "Cycle ledger, #cycle: %d, wall (ms): %.3f", n, ms(t.Phase.Sum(), c.seen.Phase.Sum()))
	for p, name := range phaseNames[:ledger.Schedule] {
		if d := ms(t.Phase[p], c.seen.Phase[p]); d > 0 {
			fmt.Fprintf(&b, ", %s: %.3f", name, d)
		}
	}
	fmt.Fprintf(&b, ", other: %.3f", ms(t.Phase.Other(), c.seen.Phase.Other()))
	if cycles := t.Drafting - c.seen.Drafting; cycles > 0 {
		fmt.Fprintf(&b, ", accept len: %.2f", 1+float64(t.Accepted-c.seen.Accepted)/float64(cycles))
	}
	c.log.Info(b.String())
	c.seen = *t
}

// phaseSeconds is times for people and for meta_info, those of a zero omitted.
func phaseSeconds(t *ledger.Times) map[string]float64 {
	m := map[string]float64{}
	for p, d := range t {
		if d > 0 {
			m[ledger.Phase(p).String()] = float64(d) / 1e9
		}
	}
	return m
}
