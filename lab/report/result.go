package report

import (
	"encoding/json"
	"fmt"

	"draftlab/lab/trial"
)

// result is what a report needs of a result.json (docs/campaign.md). Keys beside these are for others; what is absent stays zero, and
// the part of the report that would show it says so.
type result struct {
	Verdict     string                `json:"verdict"`
	Baseline    string                `json:"baseline"`
	Best        *trial.Arm            `json:"best"`
	BestPlain   string                `json:"best_plain"`
	Speedup     *speedup              `json:"speedup"` // of the confirm run
	Arms        []armResult           `json:"arms"`
	Acceptance  map[string]acceptance `json:"acceptance"`
	Confirm     *confirmation         `json:"confirm"`
	Lossless    bool                  `json:"lossless"`
	Bandwidth   *spread               `json:"bandwidth_gb_s"`
	ElapsedS    float64               `json:"elapsed_s"`
	Seed        json.Number           `json:"seed"`
	Environment map[string]any        `json:"environment"`
	Warnings    []string              `json:"warnings"`
	Complete    *bool                 `json:"complete"` // null: it is not said
	Objective   struct {
		Kind        string `json:"kind"` // tok_s or goodput
		Concurrency int    `json:"concurrency"`
	} `json:"objective"`
	Plan struct {
		Pairs      int     `json:"pairs"`
		Boots      int     `json:"boots"`
		CV         float64 `json:"cv"`
		Detectable float64 `json:"detectable_effect"` // share
	} `json:"plan"`
	Boots       []trial.Boot       `json:"boots"`
	Verdicts    []trial.Verdict    `json:"verdicts"`
	Predictions []trial.Prediction `json:"predictions"`
	Campaign    string             `json:"campaign"` // the text of its file
	Drift       []struct {
		Boot  int     `json:"boot"`
		Ratio float64 `json:"ratio"`
	} `json:"drift"`
}

// speedup is an arm against plain decoding: with the same flags and variables, and the fastest of all.
type speedup struct {
	SameEnv   *ratio `json:"same_env"`
	BestPlain *ratio `json:"best_plain"`
}

// same is the ratio to plain decoding in the same environment, nil if it is not known.
func (s *speedup) same() *ratio {
	if s == nil {
		return nil
	}
	return s.SameEnv
}

// decisive is the ratio that verdicts are about, nil if it is not known.
func (s *speedup) decisive() *ratio {
	if s != nil && s.BestPlain != nil {
		return s.BestPlain
	}
	return s.same()
}

// ratio is how many times faster an arm is than its baseline.
type ratio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
	Pairs      int      `json:"pairs"`
	Boots      int      `json:"boots"`
	Method     string   `json:"method"` // paired, or boots: of servers that were started for each arm
}

type spread struct {
	Median float64 `json:"median"`
	P25    float64 `json:"p25"`
	P75    float64 `json:"p75"`
	N      int     `json:"n"`
}

type armResult struct {
	trial.Arm
	TokS      *spread            `json:"tok_s"`
	TTFT      *spread            `json:"ttft_ms"`
	Cycle     *spread            `json:"cycle_ms"`
	Speedup   *speedup           `json:"speedup"`
	Effect    *ratio             `json:"over_baseline"` // of an arm of another environment, over the campaign's baseline
	Decided   string             `json:"decided"`       // how much of it was measured
	Accept    float64            `json:"accept_length"`
	Phases    map[string]float64 `json:"phase_ms"`
	Compared  int                `json:"outputs_compared"`
	Different []string           `json:"outputs_different"`
	Failed    int                `json:"failed"`
	Error     string             `json:"error"`
}

type acceptance struct {
	AcceptLength float64   `json:"accept_length"`
	Rate         float64   `json:"accept_rate"`
	Survival     []float64 `json:"survival"`
	Cycles       int64     `json:"cycles"`
}

type confirmation struct {
	Arm     string   `json:"arm"`
	Speedup *speedup `json:"speedup"`
}

// parseResult reads a result.json.
func parseResult(source []byte) (*result, error) {
	r := new(result)
	if err := json.Unmarshal(source, r); err != nil {
		return nil, fmt.Errorf("not a campaign's result: %w", err)
	}
	if len(r.Arms) == 0 {
		return nil, fmt.Errorf("not a campaign's result: it has no arms")
	}
	return r, nil
}

// arm returns the arm of a name, nil if there is none.
func (r *result) arm(name string) *armResult {
	for i := range r.Arms {
		if r.Arms[i].Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

// base returns the arm that an arm is compared with, nil if there is none.
func (r *result) base(a *armResult) *armResult {
	name := a.Baseline
	if name == "" {
		name = r.Baseline
	}
	return r.arm(name)
}

// best is the name of the arm that won, "" if none did.
func (r *result) best() string {
	if r.Best == nil {
		return ""
	}
	return r.Best.Name
}
