package search

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"draftlab/lab/trial"
)

// TestSpace: the default space has shapes only, each once, under the names that tables use.
func TestSpace(t *testing.T) {
	arms := Default("eagle3").Arms()
	seen := map[string]bool{}
	for _, a := range arms {
		if err := shapeOf(a, 1).Check(); err != nil || seen[a.Name] {
			t.Errorf("%s: %v, twice: %v", a.Name, err, seen[a.Name])
		}
		seen[a.Name] = true
	}
	for name, want := range map[string]bool{"chain-1": true, "chain-6": true, "tree-3-2-6": true, "tree-6-4-12": true, "tree-3-2-4": false, "tree-1-2-4": false} {
		if seen[name] != want {
			t.Errorf("%s is among the arms: %v", name, seen[name])
		}
	}
	if a := Arm("ngram", 3, 1, 4); a.Name != "ngram-3" || a.DraftTokens != 4 {
		t.Errorf("%+v", a)
	}
}

// TestSeeds: each group has its own, and of few arms all are.
func TestSeeds(t *testing.T) {
	arms := append(Default("eagle3").Arms(), Arm("ngram", 1, 1, 2), Arm("ngram", 5, 1, 6))
	var names []string
	for _, a := range seeds(arms) {
		names = append(names, a.Name)
	}
	want := []string{"chain-6", "chain-1", "chain-3", "tree-4-4-12", "tree-2-2-4", "tree-4-4-8", "ngram-5", "ngram-1"}
	if len(names) != len(want) {
		t.Fatalf("seeds %v", names)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("seeds %v, want %v", names, want)
			break
		}
	}
}

// TestTheSearchEnds: if all fails, the search asks for each arm once at most, and ends.
func TestTheSearchEnds(t *testing.T) {
	g := NewGuided(Default("eagle3").Arms(), 0)
	var done []Measured
	for next := g.Next(nil); len(next) > 0; next = g.Next(done) {
		for _, a := range next {
			done = append(done, Measured{Arm: a}) // failed
		}
	}
	seen := map[string]bool{}
	for _, m := range done {
		if seen[m.Name] {
			t.Errorf("%s twice", m.Name)
		}
		seen[m.Name] = true
	}
	if len(done) != 8 {
		t.Errorf("%d arms were measured, want 8", len(done))
	}
}

func TestForecastNeedsAChain(t *testing.T) {
	m := newMachine(1, 12, 0.01)
	if _, err := NewForecast([]Measured{m.measure(Arm("eagle3", 3, 2, 6))}); !errors.Is(err, errNoChain) {
		t.Errorf("err = %v", err)
	}
	f, err := NewForecast([]Measured{m.measure(Arm("eagle3", 5, 1, 6)), m.measure(Arm("eagle3", 2, 1, 3))})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Predict(Arm("eagle3", 4, 1, 5)) {
		if !(*p.Low < p.Estimate && p.Estimate < *p.High) || len(p.From) != 2 {
			t.Errorf("%+v", p)
		}
	}
}

// TestArmsThatWereGivenUp: arms that saw the first prompts only, and easy ones at that, tell of the others what they would have with all prompts.
func TestArmsThatWereGivenUp(t *testing.T) {
	m := newMachine(3, 18, 0.01)
	for _, text := range m.texts[:7] {
		for i := range text {
			text[i] /= 2 // nearly every draft is accepted
		}
	}
	whole := m.all(seeds(Default("eagle3").Arms()))
	short := slices.Clone(whole)
	for i := range short {
		if short[i].DraftTokens >= 8 {
			short[i].Pairs = short[i].Pairs[:7]
		}
	}
	foretell := func(done []Measured) trial.Prediction {
		f, err := NewForecast(done)
		if err != nil {
			t.Fatal(err)
		}
		return f.Predict(Arm("eagle3", 4, 2, 8))[1]
	}
	with, without := foretell(whole), foretell(short)
	if math.Abs(without.Estimate/with.Estimate-1) > 0.06 || without.Quantity != AcceptLength {
		t.Errorf("%s %.3f, and %.3f with all prompts", without.Quantity, without.Estimate, with.Estimate)
	}
}

// TestImprovement: against draws.
func TestImprovement(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, c := range []struct{ center, sd, best float64 }{{0.4, 0.05, 0.42}, {0.3, 0.1, 0.42}, {0.5, 0.02, 0.4}, {0.1, 0.03, 0.4}} {
		low, high := math.Exp(c.center-within*c.sd), math.Exp(c.center+within*c.sd)
		p := trial.Prediction{Quantity: Speedup, Interval: trial.Interval{Estimate: math.Exp(c.center), Low: &low, High: &high}}
		sum, draws := 0.0, 200_000
		for range draws {
			sum += max(0, c.center+c.sd*rng.NormFloat64()-c.best)
		}
		if got, want := improvement(p, c.best), sum/float64(draws); math.Abs(got-want) > 5e-4 {
			t.Errorf("%+v: %v, by draws %v", c, got, want)
		}
	}
	point := 1.5
	exact := trial.Prediction{Interval: trial.Interval{Estimate: point, Low: &point, High: &point}}
	if got := improvement(exact, math.Log(2)); got != 0 {
		t.Errorf("an arm that is certainly slower improves by %v", got)
	}
}

// TestRates: a histogram gives the rates that made it, and a depth that was never reached has the rate before it.
func TestRates(t *testing.T) {
	d := ofChain([]int64{30, 28, 0, 0})
	want := []float64{28.0 / 58, 0, 0}
	for k := range want {
		if math.Abs(d[k]-want[k]) > 1e-12 {
			t.Errorf("rates %v, want %v", d, want)
		}
	}
	even := ofMean(3, 100, 100*(0.6+0.36+0.216))
	for k := range even {
		if math.Abs(even[k]-0.6) > 1e-6 || len(even) != 3 {
			t.Errorf("one rate for all depths: %v", even)
		}
	}
	if ofMean(3, 0, 0) != nil || ofChain([]int64{0, 0}) != nil {
		t.Error("rates of no cycles")
	}
	all := chains{{1, drafts{0.8}}, {4, drafts{0.6, 0.5, 0.4, 0.3}}}
	mixed := all.at(2) // in the middle of the logarithms
	if math.Abs(mixed[0]-0.7) > 1e-12 || mixed[1] != 0.5 {
		t.Errorf("rates in cycles of depth 2: %v", mixed)
	}
	if all.at(7)[3] != 0.3 || all.at(1)[0] != 0.8 {
		t.Error("rates at or past the ends")
	}
}

// TestLength: chains by hand, a tree that holds all candidates of one level, and the exponent that a tree gives back.
func TestLength(t *testing.T) {
	d := drafts{0.8, 0.5}
	if got := d.length(shapeOf(Arm("", 2, 1, 3), 1), 0.6); math.Abs(got-(1+0.8+0.4)) > 1e-12 {
		t.Errorf("a chain of two: %v", got)
	}
	if got, want := d.length(shapeOf(Arm("", 1, 4, 5), 1), 0.5), 1+1-0.2*(0.3+0.7*0.5); math.Abs(got-want) > 1e-12 {
		t.Errorf("four siblings: %v, want %v", got, want)
	}
	tree := shapeOf(Arm("", 3, 3, 9), 1)
	if got := d.fitSiblings(tree, d.length(tree, 0.9)); math.Abs(got-0.9) > 1e-6 {
		t.Errorf("the exponent came back as %v", got)
	}
}

// TestResiduals: an arm that was measured exactly is foretold exactly, one far away not at all.
func TestResiduals(t *testing.T) {
	like := func(a, b trial.Arm) float64 { return 0.01 * near(float64(a.Steps-b.Steps), 1) }
	arms := []trial.Arm{Arm("", 1, 1, 2), Arm("", 4, 1, 5)}
	r := newResiduals(like, arms, []float64{0.1, -0.05}, []float64{0, 0.01})
	if x, v := r.at(arms[0]); math.Abs(x-0.1) > 1e-3 || v > 1e-6 {
		t.Errorf("a measured arm: %v ± %v", x, v)
	}
	if x, v := r.at(arms[1]); math.Abs(x+0.025) > 2e-3 || math.Abs(v-0.005) > 1e-3 {
		t.Errorf("an arm measured with noise as large as the spread: %v ± %v", x, v)
	}
	if x, v := r.at(Arm("", 30, 1, 31)); math.Abs(x) > 1e-9 || math.Abs(v-0.01) > 1e-9 {
		t.Errorf("an arm far away: %v ± %v", x, v)
	}
}

func TestAssess(t *testing.T) {
	low, high := 0.9, 1.1
	at := func(x float64) *trial.Interval { return &trial.Interval{Estimate: x} }
	p := trial.Prediction{Quantity: Cycle, Interval: trial.Interval{Estimate: 1, Low: &low, High: &high}}
	inside, outside := p, p
	inside.Measured, outside.Measured = at(1.05), at(1.2)
	c := Assess([]trial.Prediction{p, inside, outside}, "")
	if c.Predictions != 2 || c.Covered != 1 || math.Abs(c.HalfWidth-0.1) > 1e-12 || math.Abs(c.Bias-0.125) > 1e-12 {
		t.Errorf("%+v", c)
	}
	if c := Assess([]trial.Prediction{inside}, Speedup); c.Predictions != 0 {
		t.Errorf("%+v", c)
	}
}
