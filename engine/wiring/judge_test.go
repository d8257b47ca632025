package wiring

import (
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/engine/draft/eagle3"
)

// judged makes a measurement in which each of eight texts has 100 positions, of which a share is accepted at each depth, a little more in some texts.
func judged(role Role, layers layers3, share float64, swing ...float64) *Measured {
	w := trained()
	w.Layers = layers
	m := &Measured{Role: role, Wiring: w, Text: join(layers[:])}
	for i := range 8 {
		own := share
		if len(swing) > 0 {
			own += swing[i%len(swing)]
		}
		a := make(accepted, 100+Steps-1)
		for j := range 100 {
			if float64(j) < 100*own {
				a[j] = Steps
			}
		}
		m.add([]accepted{a})
	}
	return m
}

func TestVerdicts(t *testing.T) {
	a, b, c := layers3{2, 15, 27}, layers3{3, 16, 28}, layers3{0, 15, 27}
	control := func() *Measured { return judged(Control, a, 0.05) }
	wild := []float64{0.2, -0.2}
	for name, x := range map[string]struct {
		list  []*Measured
		want  Verdict
		first layers3
	}{
		"the configured one is best":            {[]*Measured{judged(Configured, a, 0.6), judged(Rival, b, 0.5), judged(Rival, c, 0.4), control()}, Confirmed, a},
		"another was chosen and is no better":   {[]*Measured{judged(Supported, b, 0.605, wild...), judged(Configured, a, 0.6), control()}, Confirmed, a},
		"another is better":                     {[]*Measured{judged(Supported, b, 0.6), judged(Configured, a, 0.5), judged(Rival, c, 0.55), control()}, Wrong, b},
		"a rival is better than the one chosen": {[]*Measured{judged(Supported, b, 0.55), judged(Configured, a, 0.5), judged(Rival, c, 0.7), control()}, Wrong, c},
		"another is a hair better":              {[]*Measured{judged(Supported, b, 0.6), judged(Configured, a, 0.5), judged(Rival, c, 0.61), control()}, Wrong, b},
		"another may be better":                 {[]*Measured{judged(Supported, b, 0.6, wild...), judged(Configured, a, 0.5), control()}, Undecided, a},
		"nothing is above the control":          {[]*Measured{judged(Configured, a, 0.06), judged(Rival, b, 0.05), control()}, None, a},
		"nothing at all is accepted":            {[]*Measured{judged(Configured, a, 0), judged(Rival, b, 0), judged(Control, a, 0)}, None, a},
	} {
		j := &judgement{list: x.list}
		got := j.verdict()
		if got != x.want || j.list[0].Wiring.Layers != x.first || j.list[len(j.list)-1].Role != Control {
			t.Errorf("%s: %s, first %v", name, got, j.list[0].Wiring.Layers)
		}
		supported := slices.ContainsFunc(j.list, func(m *Measured) bool { return m.Role == Supported })
		if configured := j.list[0].Role == Configured; supported && got != Undecided && got != Wrong || got == Wrong && !supported || configured == (got == Wrong) {
			t.Errorf("%s: %s, and the first is %s", name, got, j.list[0].Role)
		}
		if len(j.list[0].Accepted) != Steps || j.list[0].Less != (Interval{}) {
			t.Errorf("%s: %+v", name, j.list[0])
		}
	}
}

func TestFixes(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		change func(w *eagle3.Wiring)
		want   []string // "key value"
	}{
		"nothing":            {plain + "}", func(*eagle3.Wiring) {}, nil},
		"the default":        {plain + `, "eagle_aux_hidden_state_layer_ids": [3, 16, 28]}`, func(*eagle3.Wiring) {}, []string{layerKey + " [2, 15, 27]"}},
		"outputs":            {plain + `, "eagle_aux_hidden_state_layer_ids": [4, 12, 20]}`, func(w *eagle3.Wiring) { w.Layers = layers3{5, 13, 21} }, []string{layerKey + " [5, 13, 21]"}},
		"a wrong order":      {plain + `, "eagle_aux_hidden_state_layer_ids": [15, 2, 27]}`, func(*eagle3.Wiring) {}, []string{layerKey + " [2, 15, 27]"}},
		"order of fc":        {plain + "}", func(w *eagle3.Wiring) { w.Layers = layers3{15, 2, 27} }, []string{"fc.weight "}},
		"map":                {plain + "}", func(w *eagle3.Wiring) { w.AbsoluteMap = true }, []string{"d2t "}},
		"ambiguous, and off": {plain + `, "norm_output": true}`, func(*eagle3.Wiring) {}, []string{"norm_output false"}},
		"ambiguous, and on":  {plain + `, "norm_output": true}`, func(w *eagle3.Wiring) { w.NormOutput = true }, []string{"norm_output true"}},
		"unsaid":             {speculators + "}", func(*eagle3.Wiring) {}, []string{"norm_before_residual false"}},
		"residual and theta": {plain + "}", func(w *eagle3.Wiring) { w.NormBeforeResidual, w.RopeTheta = true, 1e6 }, []string{"norm_before_residual true", "rope_theta 1e+06"}},
	} {
		r, err := readText(t, c.config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w := trained()
		w.RopeTheta = r.Config.Rope.Theta
		c.change(&w)
		var got []string
		for _, f := range r.fixes(&Measured{Wiring: w}, newSpace(r.wiring(30), r.Listed)) {
			got = append(got, f.Key+" "+f.Value)
			if f.Text == "" {
				t.Errorf("%s: %s without a text", name, f.Key)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestDescribe: a wiring is told by its states and by what else is otherwise.
func TestDescribe(t *testing.T) {
	s := newSpace(trained(), []int{3, 16, 28})
	w := trained()
	w.Layers, w.NormOutput, w.AbsoluteMap, w.RopeTheta = layers3{17, 4, 29}, true, true, 10000
	if got, want := s.describe(w), "inputs of layers 4, 17, 29 (the listed ids as outputs) in the order 17, 4, 29, d2t as ids, drafting on from the normed state, rope theta 10000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := s.describe(trained()); !strings.HasPrefix(got, "inputs of layers 2, 15, 27 (every engine's default)") || strings.Contains(got, "norm") {
		t.Errorf("%q", got)
	}
}

// TestWalk: a cycle begins behind the target's own token of the one before, and none drafts the last token.
func TestWalk(t *testing.T) {
	for _, c := range []struct {
		a              accepted
		cycles, drafts int
	}{
		{nil, 0, 0}, {accepted{1}, 1, 0}, {accepted{0, 0, 0}, 3, 0}, {accepted{3, 0, 0, 0, 1, 1}, 2, 4}, {accepted{0, 3, 2, 1}, 2, 2},
	} {
		if cycles, drafts := c.a.walk(); cycles != c.cycles || drafts != c.drafts {
			t.Errorf("%v: %d cycles, %d drafts; want %d, %d", c.a, cycles, drafts, c.cycles, c.drafts)
		}
	}
	if got := (accepted{3, 1, 0, 2, 2}).count(3); !slices.Equal(got, []float64{3, 2, 1, 1}) {
		t.Errorf("counted %v", got)
	}
}

// TestPlanFits: text is cut down to what half the budget can write and to the prompts there are, and never below the least.
func TestPlanFits(t *testing.T) {
	prompt := make([]int32, 60)
	prompts := func(n int) (list [][]int32) {
		for range n {
			list = append(list, prompt)
		}
		return list
	}
	for name, c := range map[string]struct {
		prompts int
		quick   bool
		decode  time.Duration
		want    plan
	}{
		"fast":            {100, false, time.Millisecond, plans[0]},
		"quick":           {100, true, time.Millisecond, plans[1]},
		"slower":          {100, false, 150 * time.Millisecond, plans[1]},
		"slow":            {100, false, time.Second, plans[2]},
		"very slow":       {100, false, time.Minute, plans[2]},
		"few prompts":     {13, false, time.Millisecond, plan{6, 7, 64, true, 80}},
		"many but not 24": {20, false, time.Millisecond, plan{8, 12, 64, true, 80}},
	} {
		got, about := fit(prompts(c.prompts), c.quick, 2*time.Minute, c.decode, c.decode/20)
		if got != c.want || about <= 0 {
			t.Errorf("%s: %+v (%v), want %+v", name, got, about, c.want)
		}
	}
}
