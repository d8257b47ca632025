package campaign

import (
	"fmt"
	"strings"

	"draftlab/lab/stats"
)

const (
	// deafBelow is the accept length below which a drafter guesses next to nothing: one that is trained for another model, or
	// wired to the wrong layers, comes out at 1.0 to 1.05, and speed alone does not show why.
	deafBelow = 1.05
	// swingAbove is how much the memory's speed may differ between the best and the worst tenth of the pairs before it is
	// worth a warning: pairs keep it out of the ratio, but a ratio at another speed of memory may be another one.
	swingAbove = 1.5
)

// warn notes what makes the result doubtful.
func (r *Result) warn(o *Outcome) {
	say := func(format string, a ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, a...)) }
	if !o.Steady {
		say("plain decoding was not steady after %d warm-up requests: something else uses this machine", len(o.WarmUp))
	}
	r.Lossless = true
	for i := range r.Arms {
		a := &r.Arms[i]
		r.Lossless = r.Lossless && (i == 0 || len(a.Different) == 0)
		switch {
		case a.Failed > 0:
			say("%s: %d requests failed: %s", a.Name, a.Failed, a.Error)
		case len(a.Different) > 0 && i == 0:
			say("%s: its own outputs differ from one request to the next on %d prompts: %s", a.Name, len(a.Different), strings.Join(a.Different, ", "))
		case len(a.Different) > 0:
			say("%s: OUTPUT IS NOT PLAIN DECODING'S on %d prompts: %s", a.Name, len(a.Different), strings.Join(a.Different, ", "))
		case a.Drafter == "eagle3" && a.Accept <= deafBelow && a.Cycle != nil:
			say("%s: hardly a draft is accepted (accept length %.2f): is this drafter made for this model?", a.Name, a.Accept)
		}
	}
	if r.Confirm != nil {
		if d := o.different(Confirm, r.Confirm.Arm); len(d) > 0 {
			r.Lossless = false
			say("%s: OUTPUT IS NOT PLAIN DECODING'S on %d prompts of the confirm run: %s", r.Confirm.Arm, len(d), strings.Join(d, ", "))
		}
	}
	cached := 0
	var bandwidth []float64
	for _, t := range o.Trials {
		bandwidth = append(bandwidth, t.Bandwidth)
		if t.Sample.CachedTokens > 0 {
			cached++
		}
	}
	if cached > 0 {
		say("%d requests found a part of their prompt in the server's cache", cached)
	}
	if low, high := stats.Quantile(bandwidth, 0.1), stats.Quantile(bandwidth, 0.9); high > swingAbove*low {
		say("the memory's speed swung between %.1f and %.1f GB/s (tenth and ninetieth percentile): another run may see other speed-ups", low/1e9, high/1e9)
	}
}
