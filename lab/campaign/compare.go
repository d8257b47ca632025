package campaign

import (
	"maps"
	"math"
	"slices"
	"time"

	"draftlab/lab/campaign/file"
	"draftlab/lab/stats"
	"draftlab/lab/trial"
)

// Confidence is the level of all intervals, and one minus it that of all tests.
const Confidence = 0.95

// Ratio is how many times as much an arm gives as another one. How it was found is Method: "paired", from requests side by side on one
// server, where a prompt is an observation and the interval goes with the signed-rank test on the logarithms (Hodges and Lehmann);
// or "boots", from servers that were started for each, where both prompts and starts are observations.
type Ratio struct {
	Against    string   `json:"against"` // the other arm
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`  // for prompts like these; null if there is too little for an interval
	High       *float64 `json:"high"` // likewise
	TheseLow   *float64 `json:"these_prompts_low"`
	TheseHigh  *float64 `json:"these_prompts_high"` // for these very prompts, where some have several pairs
	Confidence float64  `json:"confidence"`
	Pairs      int      `json:"pairs"`
	Boots      int      `json:"boots"` // starts of the server of the arm that has fewer
	Method     string   `json:"method"`
	P          float64  `json:"p"`      // that the ratio is 1
	PHolm      float64  `json:"p_holm"` // corrected for the number of arms
}

// faster reports that the whole interval lies above 1.
func (r *Ratio) faster() bool { return r != nil && r.Low != nil && *r.Low > 1 }

// place is where a unit was measured.
type place struct {
	boot        int
	stage       trial.Stage
	block, pair int
}

// turn is what was measured of one arm at a place: a request, or several at once.
type turn struct {
	place
	arm, against string
	prompt       string // the first one's
	trials       []*trial.Trial
	held         bool // not kept yet: the server refused it, and may refuse the baseline's as well
}

// memo keeps what was gathered of the trials as long as no new ones come in.
type memo struct {
	trials   int // that there were
	turns    map[trial.Stage][]*turn
	readings map[[2]string]readings // by stage and arm
}

// memo returns what was gathered so far.
func (d *data) memo() *memo {
	if d.gathered == nil || d.gathered.trials != len(d.trials) {
		d.gathered = &memo{len(d.trials), map[trial.Stage][]*turn{}, map[[2]string]readings{}}
	}
	return d.gathered
}

// turnsOf returns the trials of a stage by where they were measured, in their order.
func (d *data) turnsOf(stage trial.Stage) []*turn {
	m := d.memo()
	if _, ok := m.turns[stage]; !ok {
		m.turns[stage] = d.gatherTurns(stage)
	}
	return m.turns[stage]
}

func (d *data) gatherTurns(stage trial.Stage) []*turn {
	type key struct {
		place
		arm string
	}
	var out []*turn
	at := map[key]*turn{}
	for _, t := range d.trials {
		if t.Stage != stage {
			continue
		}
		k := key{place{t.Boot, t.Stage, t.Block, t.Pair}, t.Arm}
		u := at[k]
		if u == nil {
			u = &turn{place: k.place, arm: t.Arm, against: t.Against, prompt: t.Prompt}
			at[k] = u
			out = append(out, u)
		}
		u.trials = append(u.trials, t)
	}
	return out
}

// leastOutput is the shortest output whose decoding speed is taken: that of fewer tokens is a matter of one or two chunks. Arms
// write the same text, so that it leaves out whole pairs.
const leastOutput = 8

// value is what the objective is about; 0 if there is none to be had.
func (t *turn) value(o *file.Objective) float64 {
	for _, x := range t.trials {
		if x.Sample.Error != "" && o.Kind != file.Goodput {
			return 0
		}
	}
	switch {
	case o.Kind == file.Goodput:
		good := 0.5 // so that a turn without a good request has a logarithm
		for _, x := range t.trials {
			if meets(x, o) {
				good++
			}
		}
		return perSecond(good, t.span())
	case len(t.trials) > 1:
		return perSecond(float64(t.tokens()), t.span())
	}
	if s := t.trials[0].Sample; s.OutputTokens >= leastOutput {
		return s.DecodeTokS()
	}
	return 0
}

func perSecond(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}

func (t *turn) tokens() (n int) {
	for _, x := range t.trials {
		n += x.Sample.OutputTokens
	}
	return n
}

// span is the time from the first request's start to the last one's end.
func (t *turn) span() time.Duration {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, x := range t.trials {
		first, last = min(first, x.Sample.StartUnixNS), max(last, x.Sample.StartUnixNS+x.Sample.EndNS)
	}
	return time.Duration(last - first)
}

// meets reports whether a request kept within the objective's limits.
func meets(t *trial.Trial, o *file.Objective) bool {
	s := t.Sample
	within := func(limit, ms float64) bool { return limit == 0 || ms <= limit }
	perToken := float64(s.LastNS-s.FirstNS) / 1e6 / float64(max(1, s.OutputTokens-1))
	return s.Error == "" && within(o.TTFTMs, float64(s.FirstNS)/1e6) && within(o.TPOTMs, perToken) && within(o.E2E, float64(s.LastNS)/1e6)
}

// pairs are the logarithms of an arm's ratios to its baseline beside it, grouped by prompt, in the order of time. All of them, too.
func (d *data) pairs(stage trial.Stage, arm string) (byPrompt [][]float64, all []float64, boots int) {
	base := map[place]*turn{}
	turns := d.turnsOf(stage)
	for _, t := range turns {
		if t.against == arm && t.arm != arm {
			base[t.place] = t
		}
	}
	at := map[string]int{}
	seen := map[int]bool{}
	for _, t := range turns {
		b := base[t.place]
		if t.arm != arm || b == nil {
			continue
		}
		v, w := t.value(&d.file.Objective), b.value(&d.file.Objective)
		if v == 0 || w == 0 {
			continue
		}
		if _, ok := at[t.prompt]; !ok {
			at[t.prompt] = len(byPrompt)
			byPrompt = append(byPrompt, nil)
		}
		log := math.Log(v / w)
		byPrompt[at[t.prompt]] = append(byPrompt[at[t.prompt]], log)
		all = append(all, log)
		seen[t.boot] = true
	}
	return byPrompt, all, len(seen)
}

// paired compares an arm with its baseline beside it; nil if they never were side by side.
func (d *data) paired(stage trial.Stage, arm *trial.Arm) *Ratio {
	byPrompt, all, boots := d.pairs(stage, arm.Name)
	if len(all) == 0 {
		return nil
	}
	these, like := stats.Scopes(byPrompt, Confidence)
	r := &Ratio{Against: arm.Baseline, Estimate: math.Exp(like.Estimate), Confidence: Confidence, Pairs: len(all), Boots: boots, Method: "paired"}
	means := make([]float64, len(byPrompt))
	for i, g := range byPrompt {
		for _, x := range g {
			means[i] += x / float64(len(g))
		}
	}
	r.P = stats.SignedRank(means)
	r.PHolm = r.P
	r.Low, r.High = bounds(like)
	r.TheseLow, r.TheseHigh = bounds(these)
	return r
}

// bounds are an interval's of ratios, nil where it has none.
func bounds(iv stats.Interval) (low, high *float64) {
	if math.IsInf(iv.Low, 0) || math.IsInf(iv.High, 0) || math.IsNaN(iv.Low) {
		return nil, nil
	}
	l, h := math.Exp(iv.Low), math.Exp(iv.High)
	return &l, &h
}

// readings are the mean logarithms of an arm's values by boot and block.
type readings map[int]map[int]float64

// readingsOf are those of an arm in a stage.
func (d *data) readingsOf(stage trial.Stage, arm string) readings {
	m, key := d.memo(), [2]string{string(stage), arm}
	if m.readings[key] == nil {
		m.readings[key] = d.gatherReadings(stage, arm)
	}
	return m.readings[key]
}

func (d *data) gatherReadings(stage trial.Stage, arm string) readings {
	sums, counts := readings{}, map[int]map[int]float64{}
	for _, t := range d.turnsOf(stage) {
		v := t.value(&d.file.Objective)
		if t.arm != arm || v == 0 {
			continue
		}
		if sums[t.boot] == nil {
			sums[t.boot], counts[t.boot] = map[int]float64{}, map[int]float64{}
		}
		sums[t.boot][t.block] += math.Log(v)
		counts[t.boot][t.block]++
	}
	for boot, blocks := range sums {
		for block := range blocks {
			blocks[block] /= counts[boot][block]
		}
	}
	return sums
}

// byBlock are the means over boots.
func (r readings) byBlock() map[int]float64 {
	sum, n := map[int]float64{}, map[int]float64{}
	for _, boot := range slices.Sorted(maps.Keys(r)) { // sums of one order, so that the same store gives the same digits
		for block, x := range r[boot] {
			sum[block] += x
			n[block]++
		}
	}
	for block := range sum {
		sum[block] /= n[block]
	}
	return sum
}

// residuals are each boot's mean difference from the blocks' means: what starting it again changes.
func (r readings) residuals() (out []float64) {
	mean := r.byBlock()
	for _, boot := range slices.Sorted(maps.Keys(r)) {
		sum := 0.0
		for _, block := range slices.Sorted(maps.Keys(r[boot])) {
			sum += r[boot][block] - mean[block]
		}
		out = append(out, sum/float64(len(r[boot])))
	}
	return out
}

// acrossBoots compares two arms that were measured on servers of their own, block by block; nil if they share no block. The variance between
// starts is pooled over all arms that were started more than once, and adds to that between prompts.
func (d *data) acrossBoots(stage trial.Stage, arm, other string) *Ratio {
	a, b := d.readingsOf(stage, arm), d.readingsOf(stage, other)
	x, y := a.byBlock(), b.byBlock()
	var blocks []int
	for block := range x {
		if _, ok := y[block]; ok {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	slices.Sort(blocks)
	diffs := make([]float64, len(blocks))
	for i, block := range blocks {
		diffs[i] = x[block] - y[block]
	}
	iv := stats.HodgesLehmann(diffs, Confidence)
	r := &Ratio{Against: other, Estimate: math.Exp(iv.Estimate), Confidence: Confidence, Pairs: len(diffs), Boots: min(len(a), len(b)), Method: "boots",
		P: stats.SignedRank(diffs)}
	if square, free := d.betweenBoots(stage); free > 0 {
		se := math.Sqrt(square * (1/float64(len(a)) + 1/float64(len(b))))
		half := stats.StudentUpper((1-Confidence)/2, free) * se
		iv.Low, iv.High = iv.Estimate-math.Hypot(iv.Estimate-iv.Low, half), iv.Estimate+math.Hypot(iv.High-iv.Estimate, half)
		r.P = max(r.P, within(iv, free))
	}
	r.PHolm = r.P
	r.Low, r.High = bounds(iv)
	return r
}

// betweenBoots is the pooled variance of a start's effect, with its degrees of freedom.
func (d *data) betweenBoots(stage trial.Stage) (square float64, free int) {
	for _, a := range d.arms {
		res := d.readingsOf(stage, a.Name).residuals()
		if len(res) < 2 {
			continue
		}
		for _, x := range res {
			square += x * x
		}
		free += len(res) - 1
	}
	if free == 0 {
		return 0, 0
	}
	return square / float64(free), free
}

// within is the p-value that goes with an interval of Student's t: that of the widest interval which leaves 0 out.
func within(iv stats.Interval, free int) float64 {
	half := (iv.High - iv.Low) / 2
	if !(half > 0) || math.IsInf(half, 0) {
		return 1
	}
	t := math.Abs(iv.Estimate) / half * stats.StudentUpper((1-Confidence)/2, free)
	lo, hi := 1e-12, 0.5-1e-9
	for range 60 {
		if mid := (lo + hi) / 2; stats.StudentUpper(mid, free) > t {
			lo = mid
		} else {
			hi = mid
		}
	}
	return min(1, 2*hi)
}

// ratio compares two arms as well as it was measured: side by side, or else across boots.
func (d *data) ratio(stage trial.Stage, arm *trial.Arm, other string) *Ratio {
	if arm.Name == other {
		return nil
	}
	if arm.Baseline == other {
		if r := d.paired(stage, arm); r != nil {
			return r
		}
	}
	return d.acrossBoots(stage, arm.Name, other)
}

// worthwhile is the speed-up that an undecided campaign could not exclude: less is not worth another one.
const worthwhile = 1.05

// due reports whether pairs are looked at when there are n of them: eight to sixteen times.
func due(n, most int) bool { return n >= leastPrompts && n%max(1, most/8) == 0 }

// decided replays the pairs of an arm: at which of them it was clear that it cannot be the best. Only an arm that is slower than
// its baseline, or cannot be faster by what is worthwhile, is given up; the others are measured to the end, so that the best of them is
// told from the second.
func (d *data) decided(arm string, most int) (stop stats.Stop, look stats.Look) {
	_, all, _ := d.pairs(trial.Measure, arm)
	if most < 2*leastPrompts || len(all) >= most || !d.file.Search.EarlyStop {
		return stats.GoOn, look
	}
	m := stats.NewMonitor(most, Confidence, math.Log(worthwhile))
	for n := range len(all) + 1 {
		if !due(n, most) {
			continue // a look more would have spent some of the others' level
		}
		if look = m.Look(all[:n]); givenUp(look) {
			return look.Stop, look
		}
	}
	return stats.GoOn, look
}
