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
	Speedup     *ratio                `json:"speedup"`
	Arms        []armResult           `json:"arms"`
	Acceptance  map[string]acceptance `json:"acceptance"`
	Confirm     *confirmation         `json:"confirm"`
	Lossless    bool                  `json:"lossless"`
	Bandwidth   *spread               `json:"bandwidth_gb_s"`
	ElapsedS    float64               `json:"elapsed_s"`
	Seed        json.Number           `json:"seed"`
	Environment map[string]any        `json:"environment"`
	Warnings    []string              `json:"warnings"`
}

// ratio is how many times faster an arm is than its baseline.
type ratio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
	Pairs      int      `json:"pairs"`
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
	Speedup   *ratio             `json:"speedup"`
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
	Arm     string `json:"arm"`
	Speedup *ratio `json:"speedup"`
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
