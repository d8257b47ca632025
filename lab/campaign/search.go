package campaign

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"draftlab/lab/campaign/file"
	"draftlab/lab/client"
	"draftlab/lab/search"
	"draftlab/lab/stats"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// Seen is what a store holds of its speculative arms that were measured, as a search wants it.
func Seen(s *store.Store) ([]search.Measured, error) {
	d, err := read(s)
	if err != nil {
		return nil, err
	}
	return d.seen(), nil
}

// seen are the arms that have been measured, or given up, in the order of the arms.
func (d *data) seen() (out []search.Measured) {
	for _, a := range d.arms {
		trials := d.of(trial.Measure, a.Name)
		if _, failed := d.state.Failed[a.Name]; a.Plain() || len(trials) == 0 && !failed {
			continue
		}
		out = append(out, search.Measured{Arm: a, Pairs: d.seenPairs(&a), Shares: shares(phases(trials)), Partly: d.scouted(a.Name)})
	}
	return out
}

// scout has the first round of a guided search see half of the prompts: most of its arms are there for the model alone, and it comes back
// to those that may be the best. Where arms have starts of their own that would cost more than it saves.
func (d *driver) scout() {
	if d.file.Search.Kind != file.Model || d.state.Size.Prompts < 2*leastPrompts {
		return
	}
	var all []int
	for i := range d.arms[1:] {
		all = append(all, i+1)
	}
	if len(group(d.Engine, d.arms, all)) == 1 {
		d.state.Scouted = (d.state.Size.Prompts + 1) / 2
	}
}

// scouted reports that an arm has been measured in the first round, has not been given up there, and that the search has not come back to it.
func (d *data) scouted(arm string) bool {
	if _, failed := d.state.Failed[arm]; failed || d.state.Scouted == 0 {
		return false
	}
	for n, names := range d.state.Rounds {
		if slices.Contains(names, arm) != (n == 0) {
			return false
		}
	}
	stop, _ := d.decided(arm, d.most())
	return stop == stats.GoOn
}

// seenPairs are the turns of an arm with its baseline beside each: that of the same pair, or where the baseline has a server of its own,
// the one that was sent the same block there. Turns of several requests are left out, as their cycles have no one length.
func (d *data) seenPairs(a *trial.Arm) (out []search.Pair) {
	turns := d.turnsOf(trial.Measure)
	beside, alone := map[place]*turn{}, map[int][]*turn{}
	for _, t := range turns {
		switch {
		case t.arm == a.Baseline && t.against == a.Name:
			beside[t.place] = t
		case t.arm == a.Baseline && t.against == "":
			alone[t.block] = append(alone[t.block], t)
		}
	}
	times := map[int]int{} // that the arm was sent a block
	for _, t := range turns {
		if t.arm != a.Name {
			continue
		}
		base := beside[t.place]
		if others := alone[t.block]; base == nil && len(others) > 0 {
			base = others[times[t.block]%len(others)]
		}
		times[t.block]++
		if p, ok := d.seenPair(t, base); ok {
			out = append(out, p)
		}
	}
	return out
}

// seenPair compares a turn with the baseline's; false if that is missing or either tells too little.
func (d *data) seenPair(t, base *turn) (p search.Pair, ok bool) {
	if base == nil || len(t.trials) != 1 || len(base.trials) != 1 {
		return p, false
	}
	own, other := t.trials[0].Sample, base.trials[0].Sample
	value, against := t.value(&d.file.Objective), base.value(&d.file.Objective)
	if value <= 0 || against <= 0 || own.DecodeSteps < 1 || other.DecodeSteps < 1 || own.Spec == nil || own.Spec.Cycles < 1 {
		return p, false
	}
	pass := func(s *client.Sample) float64 { return float64(s.LastNS-s.FirstNS) / float64(s.DecodeSteps) }
	return search.Pair{
		Prompt: t.prompt, Speedup: math.Log(value / against), Cycle: math.Log(pass(own) / pass(other)),
		Tokens: own.OutputTokens - max(1, own.Chunks[0].Tokens), Passes: own.DecodeSteps,
		Cycles: own.Spec.Cycles, Accepted: own.Spec.Accepted, Histogram: own.Spec.Histogram,
	}, true
}

// shares are the parts of a cycle that its phases have; nil if nothing is known of them.
func shares(phases map[string]float64) map[string]float64 {
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(phases)) { // in one order, for the same digits
		if !strings.HasPrefix(name, "prefill") {
			total += phases[name]
		}
	}
	if total == 0 {
		return nil
	}
	out := map[string]float64{}
	for name, ms := range phases {
		if !strings.HasPrefix(name, "prefill") {
			out[name] = ms / total
		}
	}
	return out
}

// guide is the guided search of a campaign.
func guide(c *file.Campaign, arms []trial.Arm) *search.Guided {
	return search.NewGuided(slices.DeleteFunc(slices.Clone(arms), func(a trial.Arm) bool { return a.Plain() }), c.Search.Arms)
}

// allRounds is how many there are at most over all rounds of a search of what its first round has so many of.
func allRounds(c *file.Campaign, seed uint64, arms []trial.Arm, first int) int {
	if c.Search.Kind != file.Model {
		return first
	}
	n := len(firstRound(c, seed, arms))
	return (first*max(n, guide(c, arms).Most()) + n - 1) / n
}

// guided asks the search by a model, and writes down what it foretells of the arms that are measured next, and at its end of those
// that are left out.
func (d *driver) guided(now time.Time) (names []string, err error) {
	g := guide(d.file, d.arms)
	for _, a := range g.Next(d.seen()) {
		names = append(names, a.Name)
	}
	for _, p := range g.Predictions {
		if len(names) > 0 && !slices.Contains(names, p.Arm) {
			continue // it will be foretold better
		}
		p.Made = now
		if err := d.Store.AddPrediction(&p); err != nil {
			return nil, err
		}
		d.predictions = append(d.predictions, p)
	}
	if len(names) == 0 && g.Blind != nil {
		err = d.note(doubt, fmt.Sprintf("the search could foretell nothing of some arms (%v), and measured as many as it may in their order", g.Blind))
	}
	return names, err
}

// foretoldBeforehand reports that an arm was foretold before it was first measured.
func (d *data) foretoldBeforehand(p *trial.Prediction) bool {
	trials := d.of(trial.Measure, p.Arm)
	return len(trials) > 0 && p.Made.UnixNano() <= trials[0].Sample.StartUnixNS
}
