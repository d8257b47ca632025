package campaign

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"draftlab/lab/campaign/file"
	"draftlab/lab/costmodel"
	"draftlab/lab/explain"
	"draftlab/lab/probe"
	"draftlab/lab/stats"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// data is what a store holds: all that results are made of.
type data struct {
	file   *file.Campaign
	setup  *store.Campaign
	state  state
	arms   []trial.Arm // the first is the baseline
	trials []*trial.Trial
	boots  []trial.Boot
	notes  []store.Note
	// verdicts and predictions as they were written down
	verdicts    []trial.Verdict
	predictions []trial.Prediction

	gathered *memo
}

// read reads a store.
func read(s *store.Store) (d *data, err error) {
	d = new(data)
	if d.setup, err = s.Campaign(); err != nil {
		return nil, err
	}
	if d.file, err = file.Parse("the campaign file in "+s.Dir(), []byte(d.setup.File)); err != nil {
		return nil, err
	}
	if d.arms, _, err = Arms(d.file); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(d.setup.State, &d.state); err != nil {
		return nil, fmt.Errorf("%s: the state of the campaign: %w", s.Dir(), err)
	}
	for t, err := range s.Trials() {
		if err != nil {
			return nil, err
		}
		d.trials = append(d.trials, t)
	}
	if d.boots, err = s.Boots(); err != nil {
		return nil, err
	}
	if d.notes, err = s.Notes(); err != nil {
		return nil, err
	}
	if d.verdicts, err = s.Verdicts(); err != nil {
		return nil, err
	}
	d.predictions, err = s.Predictions()
	return d, err
}

// arm returns the arm of a name, nil if there is none.
func (d *data) arm(name string) *trial.Arm {
	if i := slices.IndexFunc(d.arms, func(a trial.Arm) bool { return a.Name == name }); i >= 0 {
		return &d.arms[i]
	}
	return nil
}

// Verdict is a campaign's answer in a word.
type Verdict string

// The verdicts.
const (
	Faster       Verdict = "faster"        // the best arm was faster than the best plain decoding both times
	NotConfirmed Verdict = "not-confirmed" // the first time only
	NoneFaster   Verdict = "none-faster"   // no arm was, and none can be by more than a twentieth
	Undecided    Verdict = "undecided"     // no arm was beyond doubt, but what was measured is too little or too noisy to exclude it
)

// Spread is a median with the quartiles.
type Spread struct {
	Median float64 `json:"median"`
	P25    float64 `json:"p25"`
	P75    float64 `json:"p75"`
	N      int     `json:"n"`
}

// Speedup is how much faster an arm is: than plain decoding with the same flags and environment, and than the best plain decoding of
// all. Null is: not measured.
type Speedup struct {
	SameEnv   *Ratio `json:"same_env"`
	BestPlain *Ratio `json:"best_plain"`
}

// Confirmation is the second measurement of the arm that won. Where the first did not tell two arms apart both were measured again, and the
// one that is faster over both measurements won; the other is its rival.
type Confirmation struct {
	Arm     string        `json:"arm"`
	Speedup *Speedup      `json:"speedup"`
	Rival   *Confirmation `json:"rival,omitempty"`
}

// of is the second measurement of an arm, nil if it has none.
func (c *Confirmation) of(arm string) *Confirmation {
	for ; c != nil && c.Arm != arm; c = c.Rival {
	}
	return c
}

// Planned is what the plan could find out.
type Planned struct {
	Boots            int     `json:"boots"`             // starts that were planned for each way of starting the server
	Pairs            int     `json:"pairs"`             // of each arm
	CV               float64 `json:"cv"`                // of one reading about its truth, as the pairs showed it
	DetectableEffect float64 `json:"detectable_effect"` // smallest difference that is found in 80 of 100 campaigns, as a share
}

// Drift is how plain decoding changed within a boot: the last third of its readings over the first.
type Drift struct {
	Boot  int     `json:"boot"`
	Ratio float64 `json:"ratio"`
}

// Result is what a campaign found, as result.json has it. docs/campaign.md says what each key is.
type Result struct {
	Verdict     Verdict                       `json:"verdict"`
	Baseline    string                        `json:"baseline"`
	Best        *trial.Arm                    `json:"best"`
	BestPlain   string                        `json:"best_plain"`
	Speedup     *Speedup                      `json:"speedup"`
	Arms        []ArmResult                   `json:"arms"`
	Phases      map[string]map[string]float64 `json:"phases"`
	Acceptance  map[string]Acceptance         `json:"acceptance"`
	CostModel   *explain.CostModel            `json:"cost_model"`
	Predictions []trial.Prediction            `json:"predictions"`
	Verdicts    []trial.Verdict               `json:"verdicts"`
	Boots       []trial.Boot                  `json:"boots"`
	Confirm     *Confirmation                 `json:"confirm"`
	Lossless    bool                          `json:"lossless"`
	Objective   Objective                     `json:"objective"`
	Plan        Planned                       `json:"plan"`
	Drift       []Drift                       `json:"drift"`
	Bandwidth   *Spread                       `json:"bandwidth_gb_s"`
	Seed        uint64                        `json:"seed"`
	Size        Size                          `json:"size"`
	WarmUp      []float64                     `json:"warm_up_tok_s"`
	ElapsedS    float64                       `json:"elapsed_s"`
	Environment json.RawMessage               `json:"environment"`
	Warnings    []string                      `json:"warnings"`
	Campaign    string                        `json:"campaign"`
	Complete    bool                          `json:"complete"`
}

// Objective is what the arms were compared by.
type Objective struct {
	Kind        string  `json:"kind"`
	Concurrency int     `json:"concurrency"`
	TTFTMs      float64 `json:"ttft_ms,omitempty"`
	TPOTMs      float64 `json:"tpot_ms,omitempty"`
	E2EMs       float64 `json:"e2e_ms,omitempty"`
}

// shown is the text of a campaign file without the values of variables and flags that are secret, for results are passed on.
func shown(c *file.Campaign) string {
	text := c.Text
	for _, settings := range []map[string]string{c.Target.Env, c.Target.Flags} {
		for name, value := range settings {
			switch {
			case value == "" || !probe.Secret(name):
			case strings.Contains(text, value):
				text = strings.ReplaceAll(text, value, "…")
			default: // it is written with escapes
				return "# The file is left out, since " + name + " in it is secret.\n"
			}
		}
	}
	return text
}

// Analyse says what a store shows.
func Analyse(s *store.Store) (*Result, error) {
	d, err := read(s)
	if err != nil {
		return nil, err
	}
	return d.result(), nil
}

func (d *data) result() *Result {
	o := d.file.Objective
	r := &Result{Baseline: d.arms[0].Name, Seed: d.setup.Seed, WarmUp: d.state.WarmUp, Environment: d.setup.Build, Campaign: shown(d.file), Complete: d.state.Done,
		Objective: Objective{o.Kind, d.file.Workload.Concurrency, o.TTFTMs, o.TPOTMs, o.E2E},
		Phases:    map[string]map[string]float64{}, Acceptance: map[string]Acceptance{}, Boots: d.boots, Drift: d.drift(),
		Verdicts: d.verdicts, Predictions: d.predictions, Warnings: []string{}}
	if d.state.Size != nil {
		r.Size = *d.state.Size
	}
	if r.WarmUp == nil {
		r.WarmUp = []float64{}
	}
	r.BestPlain = d.bestPlain()
	r.Arms = d.armResults(r.BestPlain)
	for i := range r.Arms {
		a := &r.Arms[i]
		if acc, ok := acceptance(d.of(trial.Measure, a.Name)); ok {
			r.Acceptance[a.Name] = acc
		}
		if a.Phases != nil {
			r.Phases[a.Name] = a.Phases
		}
	}
	r.Bandwidth, r.ElapsedS = d.bandwidth(), d.elapsed().Seconds()
	r.judge(d)
	r.score(d)
	r.Plan = d.planned(r)
	r.CostModel = r.costModel()
	r.warn(d)
	return r
}

// judge finds the verdict.
func (r *Result) judge(d *data) {
	r.Lossless = d.lossless()
	best := leader(r.Arms, d.state.Confirm)
	if best == nil {
		r.Verdict = NoneFaster
		drafting := slices.DeleteFunc(slices.Clone(r.Arms), func(a ArmResult) bool { return a.Plain() })
		measured := slices.ContainsFunc(drafting, func(a ArmResult) bool { return a.Decided != Unmeasured && a.Decided != Failed })
		if r.Open() != nil || len(drafting) > 0 && !measured {
			r.Verdict = Undecided
		}
		return
	}
	r.Confirm = &Confirmation{Arm: best.Name, Speedup: d.speedup(trial.Confirm, d.arm(best.Name), r.BestPlain)}
	if rival := d.arm(d.state.Rival); rival != nil && best.Name == d.state.Confirm {
		other := &Confirmation{Arm: rival.Name, Speedup: d.speedup(trial.Confirm, rival, r.BestPlain)}
		if o := d.outputs(trial.Confirm, rival); !o.wrong() && d.overall(rival.Name) > d.overall(best.Name) {
			r.Confirm, other = other, r.Confirm
		}
		r.Confirm.Rival = other
	}
	arm := d.arm(r.Confirm.Arm)
	r.Verdict = NotConfirmed
	if o := d.outputs(trial.Confirm, arm); r.Confirm.holds() && !o.wrong() {
		r.Verdict, r.Best, r.Speedup = Faster, arm, r.Confirm.Speedup
	}
}

// holds reports that the second measurement shows the arm to be faster than the best plain decoding. Of two, one is by chance twice as often.
func (c *Confirmation) holds() bool {
	again := c.Speedup.BestPlain
	return again.faster() && (c.Rival == nil || 2*again.P < 1-Confidence)
}

// overall is the logarithm of an arm's speed-up over its baseline in both measurements together; nothing is less than any if there are no pairs.
func (d *data) overall(arm string) float64 {
	_, all, _ := d.pairs(trial.Measure, arm)
	_, again, _ := d.pairs(trial.Confirm, arm)
	if len(again) == 0 {
		return math.Inf(-1)
	}
	return stats.HodgesLehmann(append(all, again...), Confidence).Estimate
}

// leader returns the arm with the greatest speed-up of those that are faster than the best plain decoding beyond doubt and wrote what
// it did, nil if there is none. One whose server failed is none, unless it was in the confirm run that it did.
func leader(arms []ArmResult, confirmed string) (best *ArmResult) {
	for i := range arms {
		a := &arms[i]
		r := a.Speedup.best()
		if a.Plain() || !r.faster() || r.PHolm >= 1-Confidence || a.Failed > 0 || a.Decided == Failed && a.Name != confirmed || a.Decided == Early || a.Wrong {
			continue
		}
		if best == nil || r.Estimate > best.Speedup.best().Estimate {
			best = a
		}
	}
	return best
}

// best is the ratio to the best plain decoding, nil if there is none.
func (s *Speedup) best() *Ratio {
	if s == nil {
		return nil
	}
	return s.BestPlain
}

// Open returns the likeliest of the arms whose interval reaches above what is worthwhile, nil if none does. An arm without an
// interval reaches anywhere, and one that failed, was given up or wrote something else nowhere.
func (r *Result) Open() (open *ArmResult) {
	likeliest := -1.0
	for i := range r.Arms {
		a := &r.Arms[i]
		if a.Plain() || a.Wrong || a.Decided == Failed || a.Decided == Early || a.Decided == Unmeasured {
			continue
		}
		low, high := 0.0, worthwhile+1
		if x := a.Speedup.best(); x != nil && x.Low != nil {
			low, high = *x.Low, *x.High
		}
		if high > worthwhile && low > likeliest {
			open, likeliest = a, low
		}
	}
	return open
}

// speedup compares an arm with both baselines.
func (d *data) speedup(stage trial.Stage, arm *trial.Arm, bestPlain string) *Speedup {
	s := &Speedup{}
	if arm.Baseline != "" {
		s.SameEnv = d.ratio(stage, arm, arm.Baseline)
	}
	if s.BestPlain = s.SameEnv; arm.Baseline != bestPlain {
		s.BestPlain = d.ratio(stage, arm, bestPlain)
	}
	return s
}

// bestPlain is the plain arm with the greatest median.
func (d *data) bestPlain() string {
	name, most := d.arms[0].Name, 0.0
	for _, a := range d.arms {
		if !a.Plain() {
			continue
		}
		var logs []float64
		for _, x := range d.readingsOf(trial.Measure, a.Name).byBlock() {
			logs = append(logs, x)
		}
		if len(logs) == 0 {
			continue
		}
		if m := stats.Median(logs); most == 0 || m > most {
			name, most = a.Name, m
		}
	}
	return name
}

// costModel fits what a cycle costs to the arms that were measured; nil where that cannot be.
func (r *Result) costModel() *explain.CostModel {
	m, err := r.fit()
	if err != nil {
		return nil
	}
	report, err := explain.Analyse(m)
	if err != nil {
		return nil
	}
	return &report.CostModel
}

// fit reads the result as the cost model does, from its own JSON.
func (r *Result) fit() (*explain.Case, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return explain.Read("the result", text)
}

// model fits the cost model to the result.
func (r *Result) model() (*costmodel.Model, error) {
	c, err := r.fit()
	if err != nil {
		return nil, err
	}
	return c.Model()
}
