package search

import (
	"errors"
	"maps"
	"math"
	"slices"

	"draftlab/lab/costmodel"
	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// Quantities that are foretold of an arm.
const (
	Speedup      = "speedup"           // Hodges–Lehmann estimate over the pairs
	AcceptLength = "accept_length"     // one and the accepted drafts over the cycles, of all pairs
	Cycle        = "cycle_plain_steps" // time of a pass over that of a plain one, Hodges–Lehmann estimate over the pairs
)

// Confidence is the level of what is foretold.
const Confidence = 0.9

// within is how many standard deviations hold it.
const within = 1.6449

// leastPairs is what an arm needs to tell anything: an interval at 95 % takes six.
const leastPairs = 6

// Forecast foretells arms of one drafter in one environment from those that have been measured, as they would come out on the same
// prompts and as many pairs. Three things are put together: the time of a cycle from package costmodel, the acceptance from what the deepest
// chain counted on each prompt and from how much the measured trees gained over it, and what both got wrong about
// the arms that were measured, as far as others resemble them. An interval holds how far the models are off between measured
// arms, the noise of pairs, of the foretold arm's own as well, and the drift of the machine between one arm and the next.
type Forecast struct {
	from     []string
	cost     *costmodel.Model
	chains   []Measured // the measured ones, the shallowest first
	all      chains     // their acceptance over all prompts
	each     []chains   // and on each one
	siblings float64

	cycle, gain, length *residuals[trial.Arm]

	prompt map[string]float64 // logarithm of what a prompt does to cycles
	noise  float64            // standard error of an arm's logarithms of cycles, over its pairs
	own    float64            // standard deviation of an arm's accept length for its cycles' places in the text
}

var errNoChain = errors.New("no chain has been measured whose accepted drafts were counted")

// NewForecast fits to what has been measured.
func NewForecast(done []Measured) (*Forecast, error) {
	var known []Measured
	for _, m := range done {
		if len(m.Pairs) >= leastPairs && m.acceptLength() > 0 {
			known = append(known, m)
		}
	}
	f := &Forecast{siblings: siblings}
	for _, m := range known {
		f.from = append(f.from, m.Name)
	}
	if f.count(known); len(f.all) == 0 {
		return nil, errNoChain
	}
	f.measurePrompts(known)
	f.measureNoise(known)
	f.fitSiblings(known)
	if err := f.fitCost(known); err != nil {
		return nil, err
	}
	f.fitResiduals(known)
	return f, nil
}

// count takes from the chains how often drafts are accepted.
func (f *Forecast) count(known []Measured) {
	f.chains = slices.DeleteFunc(slices.Clone(known), func(m Measured) bool { return !isChain(m.Arm) })
	slices.SortFunc(f.chains, func(a, b Measured) int { return a.Steps - b.Steps })
	f.all, f.each = f.on(nil), f.onEach(nil)
}

// on is what the chains tell of acceptance on some prompts, nil standing for all: an arm that was given up early has seen the first ones
// only, and prompts differ by more than arms do. Chains that saw none of them tell nothing.
func (f *Forecast) on(prompts map[string]bool) (out chains) {
	for i := range f.chains {
		m := &f.chains[i]
		if d := m.acceptance(prompts); d != nil {
			out = append(out, counted{m.Steps, d})
		}
	}
	return out
}

// onEach is the acceptance on each of some prompts, nil standing for all, that the deepest chain saw.
func (f *Forecast) onEach(prompts map[string]bool) (out []chains) {
	if len(f.chains) == 0 {
		return nil
	}
	deepest := f.chains[len(f.chains)-1]
	for _, prompt := range slices.Sorted(maps.Keys(deepest.prompts())) {
		if prompts != nil && !prompts[prompt] {
			continue
		}
		if c := f.on(map[string]bool{prompt: true}); len(c) > 0 && c[len(c)-1].steps == deepest.Steps {
			out = append(out, c)
		}
	}
	return out
}

// measurePrompts finds by how much each prompt's cycles lie off the arms' centres: texts differ in length, and an arm that saw some of the
// prompts only is not to be taken for slower. It is median polish (Tukey 1977, Exploratory Data Analysis, chapter 11), which settles in a few turns.
func (f *Forecast) measurePrompts(known []Measured) {
	f.prompt = map[string]float64{}
	for range 4 {
		off := map[string][]float64{}
		for i := range known {
			center := stats.Median(f.cycles(&known[i]))
			for _, p := range known[i].Pairs {
				off[p.Prompt] = append(off[p.Prompt], p.Cycle-center)
			}
		}
		for prompt, by := range off {
			f.prompt[prompt] = stats.Median(by)
		}
	}
}

// cycles are the logarithms of an arm's cycles without what prompts do to them.
func (f *Forecast) cycles(m *Measured) []float64 {
	return m.each(func(p *Pair) float64 { return p.Cycle - f.prompt[p.Prompt] })
}

// measureNoise takes the noise of pairs from their scatter within arms: the standard error of an arm's centre. Each arm has moved the prompts'
// own part by its share.
func (f *Forecast) measureNoise(known []Measured) {
	noise, n := 0.0, float64(len(known))
	for i := range known {
		noise += square(standardError(f.cycles(&known[i])))
	}
	f.noise = math.Sqrt(noise / max(1, n-1))
}

// standardError is that of a centre, from the interval that the signed-rank test gives it.
func standardError(logs []float64) float64 {
	iv := stats.HodgesLehmann(logs, 0.95)
	return (iv.High - iv.Low) / 2 / 1.96
}

// fitSiblings takes the exponent from the trees that were measured, each having the same say.
func (f *Forecast) fitSiblings(known []Measured) {
	sum, n := 0.0, 0.0
	for i := range known {
		if m := &known[i]; !isChain(m.Arm) {
			if on := f.on(m.prompts()); len(on) > 0 {
				sum += on.at(m.Steps).fitSiblings(shapeOf(m.Arm, 1), m.acceptLength())
				n++
			}
		}
	}
	if n > 0 {
		f.siblings = sum / n
	}
}

// fitCost gives the cost model cycles in plain steps, and the ledger's shares of them.
func (f *Forecast) fitCost(known []Measured) (err error) {
	var seen []costmodel.Observation
	for i := range known {
		m := &known[i]
		logs := f.cycles(m)
		cycle := math.Exp(stats.HodgesLehmann(logs, 0.95).Estimate)
		o := costmodel.Observation{Shape: shapeOf(m.Arm, 1), Cycle: costmodel.Measured(cycle, cycle*standardError(logs))}
		for _, p := range m.Pairs {
			o.Cycles += float64(p.Passes)
		}
		if m.Shares != nil {
			// A cycle whose sequence may emit one more token only has no drafts: it is a verification of one row.
			o.VerifyShare = costmodel.Exact(m.Shares["verify"] + m.Shares["decode"])
			o.Draft = costmodel.Exact(cycle * m.Shares["draft"])
		}
		seen = append(seen, o)
	}
	f.cost, err = costmodel.Fit(costmodel.Exact(1), 1, seen)
	return err
}

// modelCycle is the logarithm of the cost model's cycle, in plain steps.
func (f *Forecast) modelCycle(a trial.Arm) float64 {
	p, err := f.cost.Predict(shapeOf(a, 1), costmodel.Change{})
	if err != nil {
		panic("search: " + err.Error()) // arms are shapes
	}
	return math.Log(p.CycleMs.Value)
}

// modelGain is the logarithm of the tokens that a pass yields: the centre over prompts.
func (f *Forecast) modelGain(a trial.Arm, prompts []chains) float64 {
	logs := make([]float64, len(prompts))
	for i, c := range prompts {
		logs[i] = math.Log(c.at(a.Steps).length(shapeOf(a, 1), f.siblings))
	}
	return stats.HodgesLehmann(logs, 0.95).Estimate
}

// modelLength is the logarithm of the accept length over prompts.
func (f *Forecast) modelLength(a trial.Arm, all chains) float64 {
	return math.Log(all.at(a.Steps).length(shapeOf(a, 1), f.siblings))
}

// fitResiduals notes what the models get wrong about the measured arms.
func (f *Forecast) fitResiduals(known []Measured) {
	var arms, counted []trial.Arm
	var cycle, gain, length, noise, own []float64
	for i := range known {
		m := &known[i]
		logs := f.cycles(m)
		arms = append(arms, m.Arm)
		cycle = append(cycle, stats.HodgesLehmann(logs, 0.95).Estimate-f.modelCycle(m.Arm))
		noise = append(noise, square(standardError(logs)))
		all, each := f.on(m.prompts()), f.onEach(m.prompts())
		if len(all) == 0 || len(each) == 0 {
			continue
		}
		counted = append(counted, m.Arm)
		gain = append(gain, stats.HodgesLehmann(m.gains(), 0.95).Estimate-f.modelGain(m.Arm, each))
		length = append(length, math.Log(m.acceptLength())-f.modelLength(m.Arm, all))
		cycles, _ := m.drafted(nil)
		own = append(own, square(gainOwn)/cycles)
	}
	f.own = math.Sqrt(stats.Median(own))
	f.cycle = newResiduals(likeCycle, arms, cycle, noise)
	f.gain = newResiduals(likeGain, counted, gain, own)
	f.length = newResiduals(likeGain, counted, length, own)
}

// Predict foretells an arm; Made is the caller's to fill in.
func (f *Forecast) Predict(a trial.Arm) []trial.Prediction {
	cycle, cycleOff := f.cycle.at(a)
	gain, gainOff := f.gain.at(a)
	length, lengthOff := f.length.at(a)
	cycle += f.modelCycle(a)
	gain += f.modelGain(a, f.each)
	length += f.modelLength(a, f.all)
	cycleOff += square(f.noise) + square(drift)
	gainOff, lengthOff = gainOff+square(f.own), lengthOff+square(f.own)
	make := func(quantity string, log, variance float64) trial.Prediction {
		low, high := math.Exp(log-within*math.Sqrt(variance)), math.Exp(log+within*math.Sqrt(variance))
		return trial.Prediction{Arm: a.Name, Quantity: quantity, From: f.from,
			Interval: trial.Interval{Estimate: math.Exp(log), Low: &low, High: &high, Confidence: Confidence}}
	}
	return []trial.Prediction{
		make(Speedup, gain-cycle, gainOff+cycleOff),
		make(AcceptLength, length, lengthOff),
		make(Cycle, cycle, cycleOff),
	}
}
