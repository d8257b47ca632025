package campaign

import (
	"math"
	"time"

	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// How much of an arm was measured.
const (
	Full       = "full"         // as planned
	Early      = "early"        // it was clear before that it cannot be the best
	Failed     = "failed"       // its server, or a request
	Unmeasured = "not measured" // the search passed it over, or the campaign has not come to it
	Partly     = "partly"       // the time was up, the campaign goes on, or a guided search has seen enough
)

// ArmResult is what was found about one arm.
type ArmResult struct {
	trial.Arm
	Boots     []int              `json:"boots"`              // numbers of those that it was measured on
	Value     *Spread            `json:"objective"`          // what the objective is about, by turn
	TokS      *Spread            `json:"tok_s"`              // output tokens after the first chunk over the time from it to the last, by request
	EndToEnd  *Spread            `json:"end_to_end_tok_s"`   // all output tokens over the time from the request to the last
	TTFT      *Spread            `json:"ttft_ms"`            // from the request to the first text
	Cycle     *Spread            `json:"cycle_ms"`           // time from the first chunk to the last over the target's passes in it
	Speedup   *Speedup           `json:"speedup"`            // null for the baseline
	Accept    float64            `json:"accept_length"`      // 1 + accepted/cycles over all outputs; 1 for plain decoding
	Phases    map[string]float64 `json:"phase_ms,omitempty"` // of the server's ledger, for each cycle; prefill for each request
	Compared  int                `json:"outputs_compared"`   // with the baseline's on the same prompt
	Different []string           `json:"outputs_different"`  // prompts on which it wrote something else
	Noise     []string           `json:"baseline_noise"`     // prompts on which the baseline itself did not always write the same
	Wrong     bool               `json:"wrong"`              // it differs by more than the baseline from itself
	Failed    int                `json:"failed"`             // requests
	Error     string             `json:"error,omitempty"`    // of the first that failed, or of its server
	Decided   string             `json:"decided"`            // full, early, partly, failed or not measured
	Effect    *Ratio             `json:"over_baseline"`      // of an arm of another environment, over the campaign's baseline
}

// armResults are the results of each arm from the first measurement.
func (d *data) armResults(bestPlain string) (out []ArmResult) {
	var p []float64
	var held []*Ratio
	for i := range d.arms {
		a := d.armResult(&d.arms[i], bestPlain)
		if r := a.Speedup.best(); r != nil {
			p, held = append(p, r.P), append(held, r)
			if a.Decided == Early { // looked at more than once, and not up for choice any more
				p[len(p)-1] = 1
			}
		}
		out = append(out, a)
	}
	for i, x := range stats.Holm(p) {
		held[i].PHolm = x
	}
	return out
}

func (d *data) armResult(arm *trial.Arm, bestPlain string) ArmResult {
	trials := d.of(trial.Measure, arm.Name)
	a := ArmResult{Arm: *arm, Accept: 1, Boots: []int{}}
	a.measure(trials)
	a.values(d)
	for _, t := range trials {
		if len(a.Boots) == 0 || a.Boots[len(a.Boots)-1] != t.Boot {
			a.Boots = append(a.Boots, t.Boot)
		}
	}
	if acc, ok := acceptance(trials); ok {
		a.Accept = acc.AcceptLength
	}
	a.Phases = phases(trials)
	outputs := d.outputs(trial.Measure, arm)
	a.Compared, a.Different, a.Noise, a.Wrong = outputs.compared, outputs.different, outputs.noise, outputs.wrong()
	if arm.Baseline != "" {
		a.Speedup = d.speedup(trial.Measure, arm, bestPlain)
	}
	if base := d.arms[0].Name; arm.Name != base && arm.Baseline != base {
		a.Effect = d.ratio(trial.Measure, arm, base)
	}
	a.decide(d, trials)
	return a
}

// decide says how much of the arm was measured. An arm that was given up early has the interval that allows for having looked, if there is one.
func (a *ArmResult) decide(d *data, trials []*trial.Trial) {
	most := d.most()
	stop, look := d.decided(a.Name, most)
	failure := d.state.Failed[a.Name]
	switch turns := len(trials) / max(1, d.perTurn()); {
	case a.Failed > 0 || failure != "":
		if a.Decided = Failed; a.Error == "" {
			a.Error = failure
		}
	case len(trials) == 0:
		a.Decided = Unmeasured
	case stop != stats.GoOn:
		a.Decided = Early
		if low, high := bounds(look.Interval); a.Speedup.SameEnv != nil && low != nil { // with so few pairs it may have none
			a.Speedup.SameEnv.Low, a.Speedup.SameEnv.High = low, high
		}
	case turns < most && !(a.Plain() && d.state.Done): // it has as many turns as stand beside it
		a.Decided = Partly
	default:
		a.Decided = Full
	}
}

// most is how many turns each arm has in the first measurement.
func (d *data) most() int {
	if d.state.Size == nil {
		return 0
	}
	return d.state.Size.Prompts * d.state.Boots
}

// perTurn is how many requests a turn has.
func (d *data) perTurn() int {
	if c := d.file.Workload.Concurrency; c > 1 {
		return 2 * c
	}
	return 1
}

// of returns the trials of an arm in a stage.
func (d *data) of(stage trial.Stage, arm string) (out []*trial.Trial) {
	for _, t := range d.trials {
		if t.Stage == stage && t.Arm == arm {
			out = append(out, t)
		}
	}
	return out
}

// values sums up the objective.
func (a *ArmResult) values(d *data) {
	var xs []float64
	for _, t := range d.turnsOf(trial.Measure) {
		if v := t.value(&d.file.Objective); t.arm == a.Name && v > 0 {
			xs = append(xs, v)
		}
	}
	a.Value = spread(xs)
}

// measure sums up an arm's samples.
func (a *ArmResult) measure(trials []*trial.Trial) {
	var rate, total, first, cycle []float64
	for _, t := range trials {
		s := t.Sample
		if s.Error != "" {
			if a.Failed++; a.Failed == 1 {
				a.Error = s.Error
			}
			continue
		}
		total, first = append(total, s.EndToEndTokS()), append(first, float64(s.FirstNS)/1e6)
		if v := s.DecodeTokS(); v > 0 && s.OutputTokens >= leastOutput {
			rate = append(rate, v)
			if s.DecodeSteps > 0 {
				cycle = append(cycle, float64(s.LastNS-s.FirstNS)/1e6/float64(s.DecodeSteps))
			}
		}
	}
	a.TokS, a.EndToEnd, a.TTFT, a.Cycle = spread(rate), spread(total), spread(first), spread(cycle)
}

// Acceptance is what became of an arm's drafts.
type Acceptance struct {
	AcceptLength float64   `json:"accept_length"` // 1 + accepted/cycles: the target's own token counts
	Rate         float64   `json:"accept_rate"`   // accepted/drafted
	Survival     []float64 `json:"survival"`      // [k] share of cycles in which the drafts 1 to k+1 were all accepted
	Histogram    []int64   `json:"histogram"`     // [k] cycles that accepted exactly k drafts
	Cycles       int64     `json:"cycles"`
}

// acceptance sums up the drafts of an arm; false if it had none.
func acceptance(trials []*trial.Trial) (a Acceptance, ok bool) {
	var drafted, accepted int64
	for _, t := range trials {
		sp := t.Sample.Spec
		if sp == nil {
			continue
		}
		a.Cycles, drafted, accepted = a.Cycles+sp.Cycles, drafted+sp.Drafted, accepted+sp.Accepted
		for k, n := range sp.Histogram {
			if k == len(a.Histogram) {
				a.Histogram = append(a.Histogram, 0)
			}
			a.Histogram[k] += n
		}
	}
	if a.Cycles == 0 {
		return a, false
	}
	a.AcceptLength = 1 + float64(accepted)/float64(a.Cycles)
	if drafted > 0 {
		a.Rate = float64(accepted) / float64(drafted)
	}
	for k := 1; k < len(a.Histogram); k++ {
		var n int64
		for _, m := range a.Histogram[k:] {
			n += m
		}
		a.Survival = append(a.Survival, float64(n)/float64(a.Cycles))
	}
	return a, true
}

// phases returns what the server's ledger says about an arm: milliseconds for each cycle, of prefill for each request.
func phases(trials []*trial.Trial) map[string]float64 {
	sum, cycles, requests := map[string]int64{}, int64(0), int64(0)
	for _, t := range trials {
		if t.Sample.Error != "" {
			continue
		}
		if requests++; t.Ledger == nil {
			continue
		}
		if cycles += t.Ledger.Cycles; t.Ledger.Cycles == 0 { // counters of drafts alone count no plain passes
			cycles += int64(t.Sample.DecodeSteps)
		}
		for phase, ns := range t.Ledger.PhaseNS {
			sum[phase] += ns
		}
	}
	if cycles == 0 {
		return nil
	}
	out := map[string]float64{}
	for phase, ns := range sum {
		each := cycles
		if phase == "prefill" || phase == "prefill.draft" {
			each = requests
		}
		out[phase] = float64(ns) / 1e6 / float64(each)
	}
	return out
}

// spread sums up values, nil for none.
func spread(xs []float64) *Spread {
	if len(xs) == 0 {
		return nil
	}
	return &Spread{stats.Median(xs), stats.Quantile(xs, 0.25), stats.Quantile(xs, 0.75), len(xs)}
}

// bandwidth sums up how fast this machine's memory was beside the measurement.
func (d *data) bandwidth() *Spread {
	var xs []float64
	for _, t := range d.trials {
		if t.Bandwidth > 0 {
			xs = append(xs, t.Bandwidth/1e9)
		}
	}
	return spread(xs)
}

// elapsed is the time that the servers of the campaign ran, up to the last thing that was measured on each.
func (d *data) elapsed() (sum time.Duration) {
	for _, b := range d.boots {
		sum += d.ran(b)
	}
	return sum
}

// ran is the time from a boot's start to the last thing known of it.
func (d *data) ran(b trial.Boot) time.Duration {
	last := b.Started.Add(time.Duration(b.ReadyS * float64(time.Second)))
	if b.Ended.After(last) {
		last = b.Ended
	}
	for _, t := range d.trials {
		if at := time.Unix(0, t.Sample.StartUnixNS+t.Sample.EndNS); t.Boot == b.ID && at.After(last) {
			last = at
		}
	}
	return last.Sub(b.Started)
}

// drift compares the last third of each boot's plain readings with the first, block by block means left in: blocks are in random order
// of prompts, and the baseline's own.
func (d *data) drift() []Drift {
	out := []Drift{}
	for _, b := range d.boots {
		var logs []float64
		for _, t := range d.turnsOf(trial.Measure) {
			if arm := d.arm(t.arm); t.boot == b.ID && arm != nil && arm.Plain() {
				if v := t.value(&d.file.Objective); v > 0 {
					logs = append(logs, math.Log(v))
				}
			}
		}
		if third := len(logs) / 3; third >= 3 {
			out = append(out, Drift{b.ID, math.Exp(stats.Median(logs[len(logs)-third:]) - stats.Median(logs[:third]))})
		}
	}
	return out
}
