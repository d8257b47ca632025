// Package search decides which arms of a campaign to measure where it need not measure all. [Guided] measures a few, has package
// costmodel fitted to those, foretells the others, and measures only what may still be the best.
// [Forecast] is the foretelling, and [Score] holds it to what was measured.
//
// The package is pure (invariant 5): it measures nothing and reads no clock. It chooses no winner: whoever measures does,
// and confirms it.
package search

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// Pair is a request of an arm beside one of the plain arm on the same prompt.
type Pair struct {
	Prompt  string
	Speedup float64 // logarithm of the ratio of their speeds, output tokens after the first a second
	Cycle   float64 // logarithm of the time of a pass over that of a plain one
	Tokens  int     // of the arm's output, after the first chunk
	Passes  int     // in which they came
	Cycles  int64   // that drafted
	// Accepted are the drafts that those accepted, and Histogram counts them by that; nil if the server does not tell.
	Accepted  int64
	Histogram []int64
}

// Measured is what has been seen of an arm.
type Measured struct {
	trial.Arm
	Pairs []Pair
	// Partly says that the search may ask for the arm again, to see it on more prompts.
	Partly bool
	// Shares are the parts of a cycle that the server's ledger gives its phases, without those of prompts; nil if it keeps none.
	Shares map[string]float64
}

// unmeasured are the arms of which nothing is known.
func unmeasured(arms []trial.Arm, done []Measured) (left []trial.Arm) {
	for _, a := range arms {
		if !slices.ContainsFunc(done, func(m Measured) bool { return m.Name == a.Name }) {
			left = append(left, a)
		}
	}
	return left
}

// Guided is the search by a model. Arms that differ in more than their shape (drafter, flags, environment) each have a model of
// their own.
type Guided struct {
	arms []trial.Arm
	most int
	// Predictions are those that were made, of each arm and quantity the last before it was measured. Made is the caller's to fill in.
	Predictions []trial.Prediction
	// Blind says why some arms could not be foretold, nil if all could: they were measured, as far as there was room, in their order.
	Blind error
}

// Most is how many arms the search measures at most.
func (g *Guided) Most() int { return g.most }

// batch is how many contenders are measured before the model is fitted again, and how many that were measured in part are gone on with:
// with more, time goes to arms that the first of them would have ruled out.
const batch = 2

// NewGuided returns a search that measures at most so many arms; 0 leaves it to the search.
func NewGuided(arms []trial.Arm, most int) *Guided {
	if most == 0 {
		most = usualMost(arms)
	}
	return &Guided{arms: arms, most: most}
}

// usualMost is how many arms a guided search measures at most if nobody says: a fifth of them, and some more than it takes to begin with.
func usualMost(arms []trial.Arm) int { return min(len(arms), max(len(arms)/5, len(seeds(arms))+batch)) }

// Next returns the arms to measure now, given all that have been measured, and none once the search is over. The caller measures them
// all before it asks again; one that failed counts as measured, without pairs. First come those that a model can be fitted to,
// and then contenders: arms whose speed-up may, by the upper bound that was foretold, reach the best lower bound of any, those first
// that are expected to improve most on the best that was measured. What was measured in part is foretold as well, from itself and the others.
func (g *Guided) Next(done []Measured) (next []trial.Arm) {
	if first := unmeasured(seeds(g.arms), done); len(first) > 0 && len(done) < g.most {
		return first[:min(len(first), g.most-len(done))]
	}
	left := unmeasured(g.arms, done)
	least, best := math.Inf(-1), math.Inf(-1) // the best lower bound, and the best that was measured
	var begun []trial.Arm
	for _, m := range done {
		if low, ok := m.lower(); ok {
			least, best = max(least, low), max(best, stats.HodgesLehmann(m.speedups(), 0.95).Estimate)
		}
		if m.Partly {
			begun = append(begun, m.Arm)
		}
	}
	foretold := map[string]trial.Prediction{}
	for _, p := range append(g.foretell(left, done), g.predict(begun, done)...) {
		if p.Quantity == Speedup {
			foretold[p.Arm] = p
			least = max(least, *p.Low)
		}
	}
	contenders := slices.DeleteFunc(append(begun, left...), func(a trial.Arm) bool {
		p, ok := foretold[a.Name]
		return ok && *p.High < least // of what cannot be foretold anything may be true
	})
	hope := func(a trial.Arm) float64 {
		if p, ok := foretold[a.Name]; ok {
			return improvement(p, best)
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(contenders, func(a, b trial.Arm) int { return cmp.Compare(hope(b), hope(a)) })
	again, fresh := batch, max(0, min(batch, g.most-len(done)))
	for _, a := range contenders {
		room := &fresh
		if slices.ContainsFunc(begun, func(b trial.Arm) bool { return b.Name == a.Name }) {
			room = &again
		}
		if *room > 0 {
			*room--
			next = append(next, a)
		}
	}
	return next
}

// improvement is by how much the logarithm of what was foretold is expected to be above the best one that was measured, no improvement
// counting as none (Jones, Schonlau and Welch 1998, Efficient Global Optimization, equation 15).
func improvement(p trial.Prediction, best float64) float64 {
	center, sd := math.Log(p.Estimate), math.Log(*p.High / *p.Low)/2/within
	switch {
	case math.IsInf(best, -1):
		return center // nothing to improve on
	case sd == 0:
		return max(0, center-best)
	}
	z := (center - best) / sd
	return sd * (z*math.Erfc(-z/math.Sqrt2)/2 + math.Exp(-z*z/2)/math.Sqrt(2*math.Pi))
}

// foretell replaces the predictions of what is still to be measured, and returns those.
func (g *Guided) foretell(left []trial.Arm, done []Measured) []trial.Prediction {
	waiting := map[string]bool{}
	for _, a := range left {
		waiting[a.Name] = true
	}
	g.Predictions = slices.DeleteFunc(g.Predictions, func(p trial.Prediction) bool { return waiting[p.Arm] })
	made := g.predict(left, done)
	g.Predictions = append(g.Predictions, made...)
	return made
}

// predict foretells arms from those that were measured of the same kind.
func (g *Guided) predict(arms []trial.Arm, done []Measured) (made []trial.Prediction) {
	for _, group := range groups(arms) {
		var known []Measured
		for _, m := range done {
			if kin(m.Arm) == kin(group[0]) {
				known = append(known, m)
			}
		}
		f, err := NewForecast(known)
		if err != nil {
			g.Blind = err // and the group's arms stay contenders
			continue
		}
		for _, a := range group {
			made = append(made, f.Predict(a)...)
		}
	}
	return made
}

// kin is what arms have in common that one model is for: all but the shape.
func kin(a trial.Arm) string {
	k := a.Knobs
	k.Steps, k.TopK, k.DraftTokens = 0, 0, 0
	text, err := json.Marshal(k)
	if err != nil {
		panic("search: " + err.Error()) // knobs come from files of this kind
	}
	return string(text)
}

// groups cuts arms by what they have in common.
func groups(arms []trial.Arm) (out [][]trial.Arm) {
	place := map[string]int{}
	for _, a := range arms {
		k := kin(a)
		if _, ok := place[k]; !ok {
			place[k] = len(out)
			out = append(out, nil)
		}
		out[place[k]] = append(out[place[k]], a)
	}
	return out
}

// seeds are the arms that a model can be fitted to, of each group: its deepest chain, which has the acceptance of all shallower ones in
// it, its shallowest and one in between, a largest tree, a smallest and one in between, of middling depth, so that what is foretold lies between what was seen.
func seeds(arms []trial.Arm) (out []trial.Arm) {
	for _, group := range groups(arms) {
		var chains, trees []trial.Arm
		for _, a := range group {
			if isChain(a) {
				chains = append(chains, a)
			} else {
				trees = append(trees, a)
			}
		}
		slices.SortStableFunc(chains, func(a, b trial.Arm) int { return b.Steps - a.Steps })
		out = append(out, spread(chains)...)
		out = append(out, sizes(trees)...)
	}
	return out
}

// spread are the deepest, the shallowest, and of the others the one whose depth is nearest the middle on a scale of ratios.
func spread(chains []trial.Arm) []trial.Arm {
	if len(chains) < 4 {
		return chains
	}
	deep, shallow := chains[0], chains[len(chains)-1]
	middle := math.Log(float64(deep.Steps)*float64(shallow.Steps)) / 2
	between := slices.MinFunc(chains[1:len(chains)-1], func(a, b trial.Arm) int {
		return cmp.Compare(math.Abs(math.Log(float64(a.Steps))-middle), math.Abs(math.Log(float64(b.Steps))-middle))
	})
	return []trial.Arm{deep, shallow, between}
}

// sizes are a tree of the most nodes, one of the fewest, and one halfway between, of each the one of middling depth: a line through both
// ends alone missed the cycles of those between by up to a tenth.
func sizes(trees []trial.Arm) (out []trial.Arm) {
	if len(trees) < 4 {
		return trees
	}
	var all []int
	for _, a := range trees {
		all = append(all, a.DraftTokens)
	}
	most, fewest := slices.Max(all), slices.Min(all)
	middle := slices.MinFunc(all, func(a, b int) int { return abs(2*a-most-fewest) - abs(2*b-most-fewest) })
	sizes := []int{most, fewest, middle}
	for i, tokens := range sizes {
		if slices.Contains(sizes[:i], tokens) {
			continue
		}
		alike := slices.DeleteFunc(slices.Clone(trees), func(a trial.Arm) bool { return a.DraftTokens != tokens })
		slices.SortStableFunc(alike, func(a, b trial.Arm) int { return a.Steps - b.Steps })
		out = append(out, alike[(len(alike)-1)/2])
	}
	return out
}

func abs(n int) int { return max(n, -n) }
