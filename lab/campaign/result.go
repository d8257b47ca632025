package campaign

import (
	"fmt"
	"math"
	"slices"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/stats"
)

// Outcome is what a campaign has measured, from which results are made.
type Outcome struct {
	Arms    []Arm // the first is the baseline
	Trials  []*Trial
	Seed    uint64
	Size    Size
	WarmUp  []float64 // tokens a second of plain decoding
	Steady  bool
	Doubts  []string
	Elapsed time.Duration
}

func (o *Outcome) doubt(format string, a ...any) {
	o.Doubts = append(o.Doubts, fmt.Sprintf(format, a...))
}

// Confidence is the level of all intervals, and one minus it that of all tests.
const Confidence = 0.95

// Ratio is how many times faster an arm is than the baseline in its pairs: the exponential of the Hodges–Lehmann estimate of the
// logarithms. A pair is a prompt, so that the interval is about prompts like these.
type Ratio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`  // null if there are too few pairs for an interval
	High       *float64 `json:"high"` // likewise
	Confidence float64  `json:"confidence"`
	Pairs      int      `json:"pairs"`
	P          float64  `json:"p"`      // signed-rank test that the ratio is 1
	PHolm      float64  `json:"p_holm"` // corrected for the number of arms
}

// faster reports that the whole interval lies above 1.
func (r *Ratio) faster() bool { return r != nil && r.Low != nil && *r.Low > 1 }

// Spread is a median with the quartiles.
type Spread struct {
	Median float64 `json:"median"`
	P25    float64 `json:"p25"`
	P75    float64 `json:"p75"`
	N      int     `json:"n"`
}

// ArmResult is what was found about one arm.
type ArmResult struct {
	Arm
	TokS      *Spread            `json:"tok_s"`              // output tokens after the first chunk over the time from it to the last
	EndToEnd  *Spread            `json:"end_to_end_tok_s"`   // all output tokens over the time from the request to the last
	TTFT      *Spread            `json:"ttft_ms"`            // from the request to the first text
	Cycle     *Spread            `json:"cycle_ms"`           // time from the first chunk to the last over the target's passes in it
	Speedup   *Ratio             `json:"speedup"`            // null for the baseline
	Accept    float64            `json:"accept_length"`      // 1 + accepted/cycles over all outputs; 1 for plain decoding
	Phases    map[string]float64 `json:"phase_ms,omitempty"` // of the server's ledger, for each cycle; prefill for each request
	Compared  int                `json:"outputs_compared"`   // with the baseline's first on the same prompt
	Different []string           `json:"outputs_different"`  // prompts
	Failed    int                `json:"failed"`             // requests
	Error     string             `json:"error,omitempty"`    // of the first that failed
}

// Acceptance is what became of an arm's drafts.
type Acceptance struct {
	AcceptLength float64   `json:"accept_length"` // 1 + accepted/cycles: the target's own token counts
	Rate         float64   `json:"accept_rate"`   // accepted/drafted
	Survival     []float64 `json:"survival"`      // [k] share of cycles in which the drafts 1 to k+1 were all accepted
	Histogram    []int64   `json:"histogram"`     // [k] cycles that accepted exactly k drafts
	Cycles       int64     `json:"cycles"`
}

// Confirmation is the second measurement of the arm that won the first.
type Confirmation struct {
	Arm     string `json:"arm"`
	Speedup *Ratio `json:"speedup"`
}

// Verdict is a campaign's answer in a word.
type Verdict string

// The verdicts.
const (
	Faster       Verdict = "faster"        // the best arm was faster than plain decoding both times
	NotConfirmed Verdict = "not-confirmed" // the first time only
	NoneFaster   Verdict = "none-faster"   // no arm was, and none can be by more than a twentieth
	Undecided    Verdict = "undecided"     // no arm was beyond doubt, but the pairs are too few or too noisy to exclude it
)

// Result is what a campaign found, as result.json has it.
type Result struct {
	Verdict    Verdict               `json:"verdict"`
	Baseline   string                `json:"baseline"`
	Best       *Arm                  `json:"best"`    // null unless Verdict is faster
	Speedup    *Ratio                `json:"speedup"` // of the best arm, from the confirm run
	Arms       []ArmResult           `json:"arms"`
	Acceptance map[string]Acceptance `json:"acceptance"` // by arm
	Confirm    *Confirmation         `json:"confirm"`    // null if no arm seemed faster
	Lossless   bool                  `json:"lossless"`   // every arm wrote what plain decoding did
	Seed       uint64                `json:"seed"`
	Size       Size                  `json:"size"`
	WarmUp     []float64             `json:"warm_up_tok_s"`
	Bandwidth  *Spread               `json:"bandwidth_gb_s"` // of memory, read before each pair
	ElapsedS   float64               `json:"elapsed_s"`
	Warnings   []string              `json:"warnings"`
}

// Analyse says what an outcome shows.
func Analyse(o *Outcome) *Result {
	r := &Result{Baseline: o.Arms[0].Name, Seed: o.Seed, Size: o.Size, WarmUp: o.WarmUp, ElapsedS: o.Elapsed.Seconds(),
		Arms: o.arms(), Acceptance: map[string]Acceptance{}, Warnings: append([]string{}, o.Doubts...)}
	for _, a := range o.Arms {
		if acc, ok := acceptance(o.of(Measure, a.Name)); ok {
			r.Acceptance[a.Name] = acc
		}
	}
	var bandwidth []float64
	for _, t := range o.Trials {
		bandwidth = append(bandwidth, t.Bandwidth/1e9)
	}
	r.Bandwidth = spread(bandwidth)
	r.judge(o)
	r.warn(o)
	return r
}

// judge finds the verdict.
func (r *Result) judge(o *Outcome) {
	best := leader(r.Arms)
	if best == 0 {
		r.Verdict = NoneFaster
		if r.Open() != nil {
			r.Verdict = Undecided
		}
		return
	}
	r.Confirm = &Confirmation{Arm: o.Arms[best].Name, Speedup: ratio(o.pairs(Confirm, o.Arms[best].Name))}
	r.Verdict = NotConfirmed
	if different := o.different(Confirm, o.Arms[best].Name); r.Confirm.Speedup.faster() && len(different) == 0 {
		r.Verdict, r.Best, r.Speedup = Faster, &o.Arms[best], r.Confirm.Speedup
	}
}

// worthwhile is the speed-up that an undecided campaign could not exclude: less is not worth another one.
const worthwhile = 1.05

// Open returns the likeliest of the arms whose interval reaches above what is worthwhile, nil if none does. An arm without an
// interval reaches anywhere, and one that failed or wrote something else nowhere.
func (r *Result) Open() (open *ArmResult) {
	likeliest := math.Inf(-1)
	for i := range r.Arms[1:] {
		a := &r.Arms[i+1]
		low, high := 0.0, math.Inf(1)
		if a.Speedup != nil && a.Speedup.Low != nil {
			low, high = *a.Speedup.Low, *a.Speedup.High
		}
		if a.Failed == 0 && len(a.Different) == 0 && high > worthwhile && low > likeliest {
			open, likeliest = a, low
		}
	}
	return open
}

// leader returns the arm to confirm, 0 if none is faster than the baseline.
func (o *Outcome) leader() int { return leader(o.arms()) }

// leader returns the arm with the greatest speed-up of those that are faster beyond doubt and wrote what the baseline did.
func leader(arms []ArmResult) (best int) {
	for i, a := range arms {
		if !a.Speedup.faster() || a.Speedup.PHolm >= 1-Confidence || len(a.Different) > 0 || a.Failed > 0 {
			continue
		}
		if best == 0 || a.Speedup.Estimate > arms[best].Speedup.Estimate {
			best = i
		}
	}
	return best
}

// arms are the results of each arm from the first measurement.
func (o *Outcome) arms() []ArmResult {
	var out []ArmResult
	var p []float64
	for i, arm := range o.Arms {
		trials := o.of(Measure, arm.Name)
		a := ArmResult{Arm: arm, Accept: 1, Different: []string{}}
		a.measure(trials)
		a.Different, a.Compared = o.different(Measure, arm.Name), len(trials)-a.Failed
		if acc, ok := acceptance(trials); ok {
			a.Accept = acc.AcceptLength
		}
		a.Phases = phases(trials)
		if i > 0 {
			if a.Speedup = ratio(o.pairs(Measure, arm.Name)); a.Speedup != nil {
				p = append(p, a.Speedup.P)
			}
		}
		out = append(out, a)
	}
	holm := stats.Holm(p)
	for i := range out {
		if out[i].Speedup != nil {
			out[i].Speedup.PHolm, holm = holm[0], holm[1:]
		}
	}
	return out
}

// of returns the trials of an arm in a stage.
func (o *Outcome) of(stage Stage, arm string) (out []*Trial) {
	for _, t := range o.Trials {
		if t.Stage == stage && t.Arm == arm {
			out = append(out, t)
		}
	}
	return out
}

// measure sums up an arm's samples.
func (a *ArmResult) measure(trials []*Trial) {
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
		if usable(s) {
			rate = append(rate, s.DecodeTokS())
			if s.DecodeSteps > 0 {
				cycle = append(cycle, float64(s.LastNS-s.FirstNS)/1e6/float64(s.DecodeSteps))
			}
		}
	}
	a.TokS, a.EndToEnd, a.TTFT, a.Cycle = spread(rate), spread(total), spread(first), spread(cycle)
}

// leastOutput is the shortest output whose decoding speed is taken: that of fewer tokens is a matter of one or two chunks. Arms
// write the same text, so that it leaves out whole pairs.
const leastOutput = 8

// usable reports whether a sample has a speed.
func usable(s *client.Sample) bool {
	return s.Error == "" && s.OutputTokens >= leastOutput && s.DecodeTokS() > 0
}

// pairs returns the logarithms of the ratios of an arm's speed to that of its own baseline requests.
func (o *Outcome) pairs(stage Stage, arm string) (logs []float64) {
	type key struct{ block, pair int }
	base := map[key]*client.Sample{}
	for _, t := range o.Trials {
		if t.Stage == stage && t.Against == arm && t.Arm == o.Arms[0].Name {
			base[key{t.Block, t.Pair}] = t.Sample
		}
	}
	for _, t := range o.of(stage, arm) {
		if b := base[key{t.Block, t.Pair}]; b != nil && usable(b) && usable(t.Sample) {
			logs = append(logs, math.Log(t.Sample.DecodeTokS()/b.DecodeTokS()))
		}
	}
	return logs
}

// ratio compares paired speeds; nil for none.
func ratio(logs []float64) *Ratio {
	if len(logs) == 0 {
		return nil
	}
	iv := stats.HodgesLehmann(logs, Confidence)
	r := &Ratio{Estimate: math.Exp(iv.Estimate), Confidence: Confidence, Pairs: len(logs), P: stats.SignedRank(logs)}
	r.PHolm = r.P
	if !math.IsInf(iv.Low, 0) {
		low, high := math.Exp(iv.Low), math.Exp(iv.High)
		r.Low, r.High = &low, &high
	}
	return r
}

// different returns the prompts on which an arm did not write what the baseline wrote first. For the baseline itself that is its
// own noise.
func (o *Outcome) different(stage Stage, arm string) []string {
	first := map[string]*client.Sample{}
	for _, t := range o.of(stage, o.Arms[0].Name) {
		if first[t.Prompt] == nil {
			first[t.Prompt] = t.Sample
		}
	}
	out := []string{}
	for _, t := range o.of(stage, arm) {
		if b := first[t.Prompt]; t.Sample.Error == "" && b != nil && !same(b, t.Sample) && !slices.Contains(out, t.Prompt) {
			out = append(out, t.Prompt)
		}
	}
	return out
}

// same compares outputs: token by token where both servers tell, else as text.
func same(a, b *client.Sample) bool {
	if len(a.TokenIDs) > 0 && len(b.TokenIDs) > 0 {
		return slices.Equal(a.TokenIDs, b.TokenIDs)
	}
	return a.Text == b.Text
}

// acceptance sums up the drafts of an arm; false if it had none.
func acceptance(trials []*Trial) (a Acceptance, ok bool) {
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
func phases(trials []*Trial) map[string]float64 {
	sum, cycles, requests := map[string]int64{}, int64(0), int64(0)
	for _, t := range trials {
		if t.Ledger == nil || t.Sample.Error != "" {
			continue
		}
		cycles, requests = cycles+t.Ledger.Cycles, requests+1
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
