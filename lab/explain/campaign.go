package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// campaignArm is what explain needs of an arm in a result.json.
type campaignArm struct {
	Name        string `json:"name"`
	Drafter     string `json:"drafter"`
	Steps       int64  `json:"steps"`
	TopK        int64  `json:"topk"`
	DraftTokens int64  `json:"draft_tokens"`
	Baseline    string `json:"baseline"` // plain decoding in the same environment
	// Config are keys of the drafter's configuration that were changed.
	Config map[string]any `json:"drafter_config"`
	TokS   *struct {
		Median float64 `json:"median"`
	} `json:"tok_s"`
	Accept  float64            `json:"accept_length"`
	Phases  map[string]float64 `json:"phase_ms"`
	Speedup *struct {
		SameEnv *campaignRatio `json:"same_env"`
	} `json:"speedup"`
}

// campaignRatio is a speed-up with its interval.
type campaignRatio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
	Pairs      int      `json:"pairs"`
	Boots      int      `json:"boots"` // starts of the server that it rests on
}

// hasInterval reports whether the pairs sufficed for one.
func (r *campaignRatio) hasInterval() bool { return r.Low != nil && r.High != nil }

// confirmation is the second measurement of the arm that won a campaign.
type confirmation struct {
	Arm     string `json:"arm"`
	Speedup *struct {
		BestPlain *campaignRatio `json:"best_plain"`
	} `json:"speedup"`
	agrees bool // with the first one: the arm is faster than plain decoding
}

// words are the second measurement's outcome: "1.60× plain decoding (95 % interval 1.45 to 1.78, 24 pairs)".
func (c *confirmation) words() string {
	if c.Speedup == nil || c.Speedup.BestPlain == nil {
		return "no usable pair"
	}
	r := c.Speedup.BestPlain
	text := fmt.Sprintf("%.2f× plain decoding (", r.Estimate)
	if r.hasInterval() {
		text += fmt.Sprintf("%.0f %% interval %.2f to %.2f, ", 100*r.Confidence, *r.Low, *r.High)
	}
	return text + fmt.Sprintf("%d pairs)", r.Pairs)
}

// speedup is that over plain decoding in the same environment, nil if it is not known.
func (a *campaignArm) speedup() *campaignRatio {
	if a.Speedup == nil {
		return nil
	}
	return a.Speedup.SameEnv
}

// drafter names the arm's drafter. One whose configuration is changed is another: it drafts otherwise.
func (a *campaignArm) drafter() string {
	if len(a.Config) == 0 {
		return a.Drafter
	}
	text, _ := json.Marshal(a.Config) // it came from a document of the kind
	return a.Drafter + " with " + string(text)
}

// fromCampaign makes a case of a campaign's result. A cost model is of one drafter: that of most arms.
func fromCampaign(source []byte) (*Case, error) {
	var doc struct {
		Verdict    string        `json:"verdict"`
		Baseline   string        `json:"baseline"`
		Confirm    *confirmation `json:"confirm"`
		Arms       []campaignArm `json:"arms"`
		Acceptance map[string]struct {
			Histogram []int64 `json:"histogram"`
		} `json:"acceptance"`
		Objective struct {
			Concurrency float64 `json:"concurrency"`
		} `json:"objective"`
	}
	if err := json.Unmarshal(source, &doc); err != nil {
		return nil, fmt.Errorf("the result: %w", err)
	}
	c := &Case{confirmed: doc.Confirm}
	if c.confirmed != nil {
		c.confirmed.agrees = doc.Verdict == "faster"
	}
	batch := max(1, doc.Objective.Concurrency)
	if batch > 1 {
		c.Batch = exactly(batch)
	}
	count, drafter := map[string]int{}, ""
	for _, a := range doc.Arms {
		switch {
		case a.Name == doc.Baseline && a.TokS != nil:
			c.PlainTokS = exactly(batch * a.TokS.Median) // tok_s is of one request
		case a.Steps > 0:
			name := a.drafter()
			if count[name]++; count[name] > count[drafter] {
				drafter = name
			}
		}
	}
	if !(c.PlainTokS.value > 0) {
		return nil, fmt.Errorf("the result has no speed of its baseline %q", doc.Baseline)
	}
	c.lookup = drafter == "ngram"
	for _, a := range doc.Arms {
		switch {
		case a.Name == doc.Baseline || a.Steps == 0:
		case a.drafter() != drafter:
			c.doubt("other_drafter", "%s drafts with %s and was left out: a cost model is of one drafter (%s here)", a.Name, a.drafter(), drafter)
		case a.Baseline != "" && a.Baseline != doc.Baseline:
			c.doubt("other_environment", "%s ran in another environment than %s and was left out: a cost model is of one environment", a.Name, doc.Baseline)
		case a.speedup() == nil || !(a.speedup().Estimate > 0) || !(a.Accept >= 1):
			c.doubt("arm_failed", "%s was not compared with the baseline and was left out", a.Name)
		case !a.speedup().hasInterval():
			c.doubt("too_few_pairs", "%s was left out: its %d pairs are too few for an interval, so that its speed-up may be anything", a.Name, a.speedup().Pairs)
		default:
			c.Arms = append(c.Arms, a.arm(1000*batch/c.PlainTokS.value, doc.Acceptance[a.Name].Histogram))
		}
	}
	if len(c.Arms) == 0 {
		return nil, fmt.Errorf("the result has no speculative arm that was compared with the baseline, on pairs enough for an interval: measure for longer")
	}
	return c, nil
}

// arm takes the cycle from the paired ratio, as accept length over speed-up in plain steps: a pair ran side by side, so
// that the ratio holds where the machine's speed drifted between arms and means of times do not. The phases are the ledger's shares of that.
func (a *campaignArm) arm(plainMs float64, histogram []int64) arm {
	speedup := a.speedup()
	cycle := plainMs * a.Accept / speedup.Estimate
	out := arm{
		Steps: whole{a.Steps, true}, TopK: whole{a.TopK, true}, DraftTokens: whole{a.DraftTokens, true},
		AcceptLength: exactly(a.Accept), CycleMs: exactly(cycle), speedup: exactly(speedup.Estimate), boots: speedup.Boots,
	}
	if lo, hi := *speedup.Low, *speedup.High; lo > 0 && hi > lo && speedup.Confidence > 0 && speedup.Confidence < 1 {
		z := math.Sqrt2 * math.Erfinv(speedup.Confidence)
		out.CycleMs.stderr = cycle * math.Log(hi/lo) / (2 * z)
	}
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(a.Phases)) { // sums of one order, so that the same file gives the same digits
		if name != "prefill" && name != "prefill.draft" {
			total += a.Phases[name]
		}
	}
	if total > 0 {
		of := func(ms float64) number { return exactly(cycle * ms / total) }
		// A cycle whose sequence may emit one more token only has no drafts: it is a verification of one row.
		out.VerifyShare = exactly((a.Phases["verify"] + a.Phases["decode"]) / total)
		out.DraftMs, out.AcceptMs, out.ExtendMs, out.OtherMs = of(a.Phases["draft"]), of(a.Phases["accept"]), of(a.Phases["draft_extend"]), of(a.Phases["other"])
	}
	if len(histogram) > 0 && slices.Max(histogram) > 0 && a.TopK == 1 {
		out.setHistogram(histogram)
	}
	return out
}
