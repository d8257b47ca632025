package campaign

import (
	"math"
	"slices"

	"draftlab/lab/client"
	"draftlab/lab/trial"
)

// outputs is a comparison of what an arm wrote with what its baseline wrote.
type outputs struct {
	compared  int      // outputs
	different []string // prompts on which the baseline never wrote that
	noise     []string // prompts on which the baseline did not always write the same
	repeated  int      // prompts that the baseline answered more than once
	prompts   int      // that were compared
}

// outputs compares an arm's outputs of a stage with all that its baseline wrote on the same prompts; a plain arm's with each other. How often
// the baseline differs from itself is counted over all stages: engines may choose other kernels at each start, or for another batch.
func (d *data) outputs(stage trial.Stage, arm *trial.Arm) (o outputs) {
	base := arm.Baseline
	if base == "" {
		base = arm.Name
	}
	wrote := map[string][]*client.Sample{}
	for _, t := range d.trials {
		if t.Arm == base && t.Stage != trial.WarmUp && t.Sample.Error == "" {
			wrote[t.Prompt] = append(wrote[t.Prompt], t.Sample)
		}
	}
	for prompt, all := range wrote {
		if len(all) > 1 {
			o.repeated++
		}
		if slices.ContainsFunc(all, func(s *client.Sample) bool { return !same(all[0], s) }) {
			o.noise = append(o.noise, prompt)
		}
	}
	seen := map[string]bool{}
	o.different = []string{}
	for _, t := range d.of(stage, arm.Name) {
		all := wrote[t.Prompt]
		if t.Sample.Error != "" || len(all) == 0 {
			continue
		}
		o.compared++
		seen[t.Prompt] = true
		if !slices.ContainsFunc(all, func(s *client.Sample) bool { return same(s, t.Sample) }) && !slices.Contains(o.different, t.Prompt) {
			o.different = append(o.different, t.Prompt)
		}
	}
	o.prompts = len(seen)
	slices.Sort(o.noise)
	if o.noise == nil {
		o.noise = []string{}
	}
	return o
}

// wrong reports that an arm writes something else more often than its baseline differs from itself. A baseline that never does
// leaves no room for any difference.
func (o *outputs) wrong() bool {
	switch {
	case len(o.different) == 0:
		return false
	case len(o.noise) == 0:
		return true
	}
	share := float64(len(o.noise)+1) / float64(o.repeated+1)
	return atLeast(len(o.different), o.prompts, min(share, 1)) < 1-Confidence
}

// atLeast is the chance of k or more successes of n, each with probability p.
func atLeast(k, n int, p float64) (sum float64) {
	logGamma := func(x int) float64 { v, _ := math.Lgamma(float64(x)); return v }
	if p >= 1 {
		return 1
	}
	for i := k; i <= n; i++ {
		sum += math.Exp(logGamma(n+1) - logGamma(i+1) - logGamma(n-i+1) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return min(sum, 1)
}

// same compares outputs: token by token where both servers tell, else as text.
func same(a, b *client.Sample) bool {
	if len(a.TokenIDs) > 0 && len(b.TokenIDs) > 0 {
		return slices.Equal(a.TokenIDs, b.TokenIDs)
	}
	return a.Text == b.Text
}

// lossless reports that no arm wrote anything but what plain decoding does.
func (d *data) lossless() bool {
	for i := range d.arms {
		for _, stage := range []trial.Stage{trial.Measure, trial.Confirm} {
			if o := d.outputs(stage, &d.arms[i]); d.arms[i].Baseline != "" && o.wrong() {
				return false
			}
		}
	}
	return true
}
