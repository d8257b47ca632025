package campaign

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"draftlab/lab/client"
	"draftlab/lab/search"
	"draftlab/lab/trial"
)

// chainsOf has a fake server draft in chains whose drafts are accepted at 70 %, and whose cycles cost 13 % of a plain step more for each
// draft: three or four drafts are best, and are 1.82 times as fast as none. A mute server tells the sum of the accepted drafts only.
func chainsOf(noise float64, mute bool) *fakeEngine {
	e := newFake(3, noise, nil)
	e.spoil = func(_ int, arm string, s *client.Sample) {
		var steps int
		if n, _ := fmt.Sscanf(arm, "eagle3%d", &steps); n == 0 || steps == 0 {
			return
		}
		cycles, alive := 40.0, 1.0
		s.Spec = &client.Speculation{Cycles: int64(cycles), Histogram: make([]int64, steps+1)}
		for k := range steps + 1 {
			next := alive * 0.7
			if k == steps {
				next = 0
			}
			s.Spec.Histogram[k] = int64(math.Round(cycles * (alive - next)))
			s.Spec.Accepted += int64(k) * s.Spec.Histogram[k]
			alive = next
		}
		if mute {
			s.Spec.Histogram = nil
		}
		length := 1 + float64(s.Spec.Accepted)/cycles
		s.DecodeSteps = int(math.Round(float64(s.OutputTokens-1) / length))
		s.LastNS = s.FirstNS + int64(float64(s.LastNS-s.FirstNS)/length*(1+0.13*float64(steps)))
		s.EndNS, s.Chunks[1].AtNS = s.LastNS, s.LastNS
	}
	return e
}

const manyChains = "drafter: d\nworkload: {count: 12, confirm: 12, max_tokens: 100}\nfactors: {steps: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\nsearch: {kind: model}\n"

// TestModelSearch: of twelve chains five at most are measured, the winner is as good as the best, and what was foretold stands beside
// what was measured then; of the others it stands alone.
func TestModelSearch(t *testing.T) {
	for name, mute := range map[string]bool{"histograms": false, "sums": true} {
		t.Run(name, func(t *testing.T) { modelSearch(t, chainsOf(0.02, mute)) })
	}
}

func modelSearch(t *testing.T, e *fakeEngine) {
	r, d := finish(t, e, manyChains, nil)
	var measured []string
	for _, a := range r.Arms[1:] {
		if a.Decided != Unmeasured {
			measured = append(measured, a.Name)
		}
	}
	if len(measured) < 4 || len(measured) > 5 || !slices.Contains(measured, "chain-12") || !slices.Contains(measured, "chain-1") {
		t.Errorf("%v were measured", measured)
	}
	if r.Best == nil || r.Best.Steps < 3 || r.Best.Steps > 5 || math.Abs(r.Speedup.SameEnv.Estimate-1.82) > 0.1 {
		t.Errorf("best %+v at %+v", r.Best, r.Speedup)
	}
	for i := range r.Arms[1:] {
		a := &r.Arms[1+i]
		pairs := len(d.of(trial.Measure, a.Name))
		if a.Decided == Partly && pairs != 6 || a.Decided == Full && pairs != 12 || a.Decided == Partly && a.Name == r.Best.Name {
			t.Errorf("%s was measured %s, in %d pairs", a.Name, a.Decided, pairs)
		}
	}
	if d.state.Scouted != 6 || len(d.of(trial.Measure, "chain-12")) > 6 {
		t.Errorf("%d prompts scouted, chain-12 measured in %d pairs", d.state.Scouted, len(d.of(trial.Measure, "chain-12")))
	}
	first := strings.Join(d.state.Rounds[0], " ")
	scored, alone := 0, 0
	for _, p := range r.Predictions {
		known := slices.Contains(measured, p.Arm)
		switch {
		case known && p.Measured == nil || !known && p.Measured != nil || strings.Contains(first+" ", p.Arm+" ") && p.Quantity == search.Cycle:
			t.Errorf("%+v", p)
		case known:
			scored++
			if low := p.Measured.Estimate / p.Estimate; low < 0.85 || low > 1.15 {
				t.Errorf("%s of %s was foretold as %.2f, and measured as %.2f", p.Quantity, p.Arm, p.Estimate, p.Measured.Estimate)
			}
		default:
			alone++
		}
	}
	if scored == 0 || alone == 0 {
		t.Errorf("%d predictions were measured, %d not", scored, alone)
	}
}

// TestModelSearchBlind: where a server does not count drafts the search says so, and measures in the arms' order.
func TestModelSearchBlind(t *testing.T) {
	e := chainsOf(0.02, false)
	count := e.spoil
	e.spoil = func(n int, arm string, s *client.Sample) {
		count(n, arm, s)
		s.Spec = nil
	}
	r, _ := finish(t, e, manyChains, nil)
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "could foretell nothing") }) {
		t.Errorf("warnings %q", r.Warnings)
	}
	if len(r.Predictions) > 2 { // those of the confirm run
		t.Errorf("%d predictions", len(r.Predictions))
	}
}

// TestEveryPair: without early_stop an arm that is far slower than plain decoding gets all its pairs.
func TestEveryPair(t *testing.T) {
	for _, stop := range []bool{true, false} {
		text := fmt.Sprintf("drafter: d\nworkload: {count: 24, confirm: 6, max_tokens: 64}\narms: [{steps: 1}]\nsearch: {kind: grid, early_stop: %t}\n", stop)
		r, _ := finish(t, newFake(1, 0.02, map[string]float64{"eagle31": 50}), text, nil)
		a := r.Arms[1]
		if early := a.Decided == Early; early != stop || (a.Speedup.SameEnv.Pairs == 24) == stop {
			t.Errorf("early_stop %t: %s after %d pairs", stop, a.Decided, a.Speedup.SameEnv.Pairs)
		}
	}
}

// TestRival: of two arms that the first measurement does not tell apart both are measured again, and the faster one over all wins; an arm that is
// slower beyond doubt is not.
func TestRival(t *testing.T) {
	const two = "drafter: d\nworkload: {count: 12, confirm: 12, max_tokens: 100}\nfactors: {steps: [%s]}\n"
	r, d := finish(t, chainsOf(0.02, false), fmt.Sprintf(two, "3, 4"), nil)
	c := r.Confirm
	if c == nil || c.Rival == nil {
		t.Fatalf("confirmed: %+v", c)
	}
	for _, again := range []*Confirmation{c, c.Rival} {
		if n := len(d.of(trial.Confirm, again.Arm)); n != 12 || again.Speedup.SameEnv.Pairs != 12 {
			t.Errorf("%s was measured again in %d pairs: %+v", again.Arm, n, again.Speedup.SameEnv)
		}
	}
	if r.Verdict != Faster || r.Best.Name != c.Arm || d.overall(c.Arm) < d.overall(c.Rival.Arm) {
		t.Errorf("%s: best %v, overall %v and %v", r.Verdict, r.Best, d.overall(c.Arm), d.overall(c.Rival.Arm))
	}
	for _, v := range r.Verdicts {
		if strings.HasPrefix(v.Hypothesis, c.Rival.Arm+" decodes faster") && v.Next != "measured again beside "+c.Arm+", which is faster over both measurements" {
			t.Errorf("%+v", v)
		}
	}
	if r, _ := finish(t, chainsOf(0.02, false), fmt.Sprintf(two, "3, 12"), nil); r.Confirm == nil || r.Confirm.Rival != nil {
		t.Errorf("confirmed: %+v", r.Confirm)
	}
	slow := &Confirmation{Speedup: &Speedup{BestPlain: &Ratio{Low: new(float64), P: 0.03}}, Rival: &Confirmation{}}
	*slow.Speedup.BestPlain.Low = 1.01
	if slow.holds() {
		t.Error("one of two holds at 3 %")
	}
	if slow.Rival = nil; !slow.holds() {
		t.Error("a single one does not hold at 3 %")
	}
}
