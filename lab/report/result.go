package report

import (
	"encoding/json"
	"fmt"

	"draftlab/lab/campaign"
)

// result is a campaign's result as a page reads it. Of a result.json that lacks keys the part of the report that would show them says so.
type result struct {
	campaign.Result
	about map[string]any // its environment
}

// same is the ratio to plain decoding in the same environment, nil if it is not known.
func same(s *campaign.Speedup) *campaign.Ratio {
	if s == nil {
		return nil
	}
	return s.SameEnv
}

// decisive is the ratio that verdicts are about, nil if it is not known.
func decisive(s *campaign.Speedup) *campaign.Ratio {
	if s != nil && s.BestPlain != nil {
		return s.BestPlain
	}
	return same(s)
}

// parseResult reads a result.json.
func parseResult(source []byte) (*result, error) {
	r := new(result)
	r.Complete = true // where it is not said
	if err := json.Unmarshal(source, &r.Result); err != nil {
		return nil, fmt.Errorf("not a campaign's result: %w", err)
	}
	if len(r.Environment) > 0 {
		if err := json.Unmarshal(r.Environment, &r.about); err != nil {
			return nil, fmt.Errorf("not a campaign's result: environment: %w", err)
		}
	}
	if len(r.Arms) == 0 {
		return nil, fmt.Errorf("not a campaign's result: it has no arms")
	}
	return r, nil
}

// arm returns the arm of a name, nil if there is none.
func (r *result) arm(name string) *campaign.ArmResult {
	for i := range r.Arms {
		if r.Arms[i].Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

// base returns the arm that an arm is compared with, nil if there is none.
func (r *result) base(a *campaign.ArmResult) *campaign.ArmResult {
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
