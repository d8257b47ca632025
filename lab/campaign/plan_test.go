package campaign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"draftlab/lab/campaign/file"
	"draftlab/lab/prompts"
	"draftlab/lab/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func held() prompts.Set { return prompts.All().Of(prompts.HeldOut) }

func TestPick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(0, 130).Draw(t, "n"), rapid.Uint64().Draw(t, "seed")
		picked, rest := Pick(rand.New(rand.NewPCG(seed, 0)), held(), n)
		if len(picked) != min(n, len(held())) || len(picked)+len(rest) != len(held()) {
			t.Fatalf("%d picked, %d left of %d", len(picked), len(rest), len(held()))
		}
		seen := map[string]bool{}
		for _, p := range slices.Concat(picked, rest) {
			if seen[p.ID] {
				t.Fatalf("%s comes twice", p.ID)
			}
			seen[p.ID] = true
		}
		for _, c := range prompts.Categories() { // as even as it can be: all categories have as many prompts
			if got, want := len(picked.In(c)), len(picked)/len(prompts.Categories()); got != want && got != want+1 {
				t.Fatalf("%d of %s among %d", got, c, len(picked))
			}
		}
	})
}

// TestPickOfAnySet: prompts of a file may have categories of their own, or none.
func TestPickOfAnySet(t *testing.T) {
	set := prompts.Set{{ID: "a", Text: "a"}, {ID: "b", Text: "b", Category: "poems"}, {ID: "c", Text: "c"}, {ID: "d", Text: "d", Category: prompts.Code}}
	picked, rest := Pick(rand.New(rand.NewPCG(1, 0)), set, 3)
	if len(picked) != 3 || len(rest) != 1 {
		t.Errorf("%v %v", picked, rest)
	}
}

// TestBlocks: every block has its prompts, and the winner's are none of those that chose it, unless there are too few.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := held()[:rapid.IntRange(1, len(held())).Draw(t, "prompts")]
		want := Size{Prompts: rapid.IntRange(1, 40).Draw(t, "count"), Confirm: rapid.IntRange(1, 40).Draw(t, "confirm")}
		concurrency := rapid.IntRange(1, 8).Draw(t, "concurrency")
		measure, confirm := blocks(7, set, want, concurrency)
		if len(measure) != want.Prompts || len(confirm) != want.Confirm {
			t.Fatalf("%d and %d blocks", len(measure), len(confirm))
		}
		each, used := 1, map[string]bool{}
		if concurrency > 1 {
			each = 2 * concurrency
		}
		for _, b := range measure {
			if len(b) != each {
				t.Fatalf("a block of %d", len(b))
			}
			for _, p := range b {
				used[p.ID] = true
			}
		}
		if len(set) > 1 {
			for _, b := range confirm {
				for _, p := range b {
					if used[p.ID] {
						t.Fatalf("%s helped to choose", p.ID)
					}
				}
			}
		}
		if len(set) >= (want.Prompts+want.Confirm)*each && len(used) != want.Prompts*each {
			t.Fatalf("%d prompts in use, though there are enough for %d", len(used), want.Prompts*each)
		}
	})
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Size{rapid.IntRange(1, 30).Draw(t, "want"), rapid.IntRange(1, 30).Draw(t, "confirm"), rapid.IntRange(1, 256).Draw(t, "tokens")}
		per := rapid.IntRange(1, 40).Draw(t, "per block")
		budget := time.Duration(rapid.IntRange(0, 600).Draw(t, "s")) * time.Second
		fixed := time.Duration(rapid.IntRange(0, 100).Draw(t, "fixed")) * time.Second
		request := time.Duration(rapid.IntRange(0, 500).Draw(t, "request")) * time.Millisecond
		token := time.Duration(rapid.IntRange(10, 300_000).Draw(t, "token")) * time.Microsecond
		s, fits := Fit(want, per, budget, fixed, request, token)
		took := func(s Size) time.Duration {
			return fixed + time.Duration(s.requests(per))*(request+time.Duration(s.MaxTokens)*token)
		}
		if fits != (took(s) <= budget) {
			t.Fatalf("%+v takes %v of %v, fits: %v", s, took(s), budget, fits)
		}
		if s.Prompts < min(leastPrompts, want.Prompts) || s.Confirm < min(leastPrompts, want.Confirm) || s.MaxTokens < min(leastTokens, want.MaxTokens) {
			t.Fatalf("too small: %+v of %+v", s, want)
		}
		if s.Prompts > want.Prompts || s.Confirm > want.Confirm || s.MaxTokens > want.MaxTokens {
			t.Fatalf("larger than wanted: %+v of %+v", s, want)
		}
		if s != want && took(want) <= budget {
			t.Fatalf("cut to %+v for nothing", s)
		}
	})
}

func TestSteady(t *testing.T) {
	for _, c := range []struct {
		readings []float64
		want     bool
	}{
		{nil, false},
		{[]float64{100, 100, 100}, false},
		{[]float64{50, 100, 101, 99}, true},
		{[]float64{50, 80, 90, 100}, false},
		{[]float64{50, 80, 90, 100, 102, 101}, true},
		{[]float64{100, 100, 0, 100}, false},
	} {
		if got := steady(c.readings); got != c.want {
			t.Errorf("%v: %v", c.readings, got)
		}
	}
}

// parsed reads a campaign on a fake target.
func parsed(t interface {
	Helper()
	Fatal(...any)
}, text string) *file.Campaign {
	t.Helper()
	c, err := file.Parse("c.yaml", []byte("target: {kind: draftlab}\nmodel: m\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func armNames(arms []trial.Arm) (names []string) {
	for _, a := range arms {
		names = append(names, a.Name)
	}
	return names
}

func TestArms(t *testing.T) {
	for text, want := range map[string]string{
		"drafter: d\nfactors: {steps: [0, 1, 3], topk: [1, 2], draft_tokens: [6]}": "plain chain-1 chain-3 tree-3-2-6", // tree-1-2-6 cannot be
		"factors: {steps: [3], env.A: [null, x]}":                                  "plain ngram-3 plain,A=x ngram-3,A=x",
		"drafter: d\narms: [{steps: 3, drafter: ngram}, {name: deep, steps: 9}]":   "plain ngram-3 deep",
		"drafter: d\nfactors: {steps: [2], drafter: [eagle3, nextn, draft-mtp]}":   "plain chain-2 nextn-2 draft-mtp-2",
		"drafter: d\nfactors: {steps: [2], flags.spec-mode: [a, b]}":               "plain chain-2,spec-mode=a chain-2,spec-mode=b", // of drafts: no baseline of its own
		"baseline: {env.A: x}\nfactors: {steps: [1], env.A: [x, y]}":               "plain ngram-1 plain,A=y ngram-1,A=y",
		"drafter: d\nfactors: {steps: [1], drafter.config.k: [[1], [2]]}":          "plain chain-1,k=[1] chain-1,k=[2]",
		"factors: {env.A: [null, x]}":                                              "plain plain,A=x",
	} {
		arms, _, err := Arms(parsed(t, text))
		if got := strings.Join(armNames(arms), " "); err != nil || got != want {
			t.Errorf("%s:\n%s %v\nwant %s", text, got, err, want)
		}
		for _, a := range arms {
			base := slices.IndexFunc(arms, func(b trial.Arm) bool { return b.Name == a.Baseline })
			if a.Plain() != (a.Baseline == "") || !a.Plain() && (base < 0 || !arms[base].Plain() || !maps.Equal(arms[base].Env, a.Env)) {
				t.Errorf("%s: %+v", text, a)
			}
		}
	}
	for text, want := range map[string]string{
		"arms: [{steps: 0}]": "no arm is left",
		"arms: [{name: a, steps: 1}, {name: a, steps: 2}]":                `two arms have the name "a"`,
		"drafter: d\nfactors: {steps: [1], topk: [2], draft_tokens: [9]}": "draft_tokens must be 2 to 3",
	} {
		if _, _, err := Arms(parsed(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAFlagOfAFactorIsNobodysElse: what a factor sets is taken out of the flags of all arms, so that null really leaves it out.
func TestAFlagOfAFactorIsNobodysElse(t *testing.T) {
	c, err := file.Parse("c.yaml", []byte("target: {kind: draftlab, flags: {a: 1, b: 2}, env: {A: 1, B: 2}}\nmodel: m\nfactors: {steps: [1], flags.a: [null, 3], env.A: [null]}\narms: [{name: usual, steps: 2}]"))
	if err != nil {
		t.Fatal(err)
	}
	flags, env := Base(c)
	if !maps.Equal(flags, map[string]string{"b": "2"}) || !maps.Equal(env, map[string]string{"B": "2"}) {
		t.Errorf("%v %v", flags, env)
	}
	arms, _, err := Arms(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(armNames(arms), "; "); got != "plain; usual; plain,a unset,A unset; ngram-1,a unset,A unset; plain,a=3,A unset; ngram-1,a=3,A unset" {
		t.Error(got)
	}
	if k := arms[1]; k.Flags["a"] != "1" || k.Env["A"] != "1" || arms[2].Flags != nil || arms[4].Flags["a"] != "3" {
		t.Errorf("%+v", arms)
	}
}

// shared decodes as each request asks; apart has to be started for every way of drafting. Both start anew for flags and variables.
type shared struct{ Engine }
type apart struct{ Engine }

func (shared) Split(k trial.Knobs) (trial.Knobs, map[string]any) {
	boot := k
	boot.Drafter, boot.Steps, boot.TopK, boot.DraftTokens = "", 0, 0, 0
	return boot, map[string]any{"drafter": k.Drafter, "steps": k.Steps}
}

func (apart) Split(k trial.Knobs) (trial.Knobs, map[string]any) { return k, nil }

// TestPlans: every arm is measured as often as planned, with its baseline on the same server or, if that cannot be, on one of its own,
// and no way of starting the server is started more often than planned.
func TestPlans(t *testing.T) {
	text := "drafter: d\nfactors: {steps: [0, 1, 3], env.A: [null, x], drafter.config.k: [1, 2]}"
	arms, _, err := Arms(parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var e Engine = shared{}
		if rapid.Bool().Draw(t, "apart") {
			e = apart{}
		}
		which := rapid.SliceOfNDistinct(rapid.IntRange(1, len(arms)-1), 1, -1, rapid.ID).Draw(t, "which")
		boots := rapid.IntRange(1, 4).Draw(t, "boots")
		p := NewPlan(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), e, arms, which, boots, trial.Measure)
		measured, starts, names := map[int]int{}, map[string]int{}, map[string]bool{}
		for _, s := range p.Slots {
			starts[identity(s.Group.Boot)]++
			if names[s.Name] {
				t.Fatalf("two starts called %s", s.Name)
			}
			names[s.Name] = true
			for _, u := range s.Group.Units {
				measured[u.Arm]++
				if u.Base >= 0 {
					measured[u.Base]++
					if arms[u.Base].Name != arms[u.Arm].Baseline {
						t.Fatalf("%s beside %s", arms[u.Arm].Name, arms[u.Base].Name)
					}
				}
				boot, _ := e.Split(arms[u.Arm].Knobs)
				if identity(boot) != identity(s.Group.Boot) {
					t.Fatalf("%s on a server that was started for something else", arms[u.Arm].Name)
				}
			}
		}
		for _, n := range starts {
			if n != boots {
				t.Fatalf("%d starts of one way, want %d", n, boots)
			}
		}
		for _, i := range which {
			if measured[i] < boots {
				t.Fatalf("%s is measured %d times in %d boots", arms[i].Name, measured[i], boots)
			}
			for k, a := range arms {
				if a.Name == arms[i].Baseline && measured[k] < boots {
					t.Fatalf("%s is measured without its baseline", arms[i].Name)
				}
			}
		}
	})
}

func TestTurns(t *testing.T) {
	s := Slot{Name: "plain-1", Stage: trial.Measure, Group: Group{Units: []Unit{{1, 0}, {2, 0}, {3, 0}}}}
	first, armFirst, orders := map[int]int{}, 0, map[string]bool{}
	const blocks = 108
	for n := range blocks {
		turns := s.turns(7, n)
		if fmt.Sprint(turns) != fmt.Sprint(s.turns(7, n)) {
			t.Fatal("a plan that is not the same the second time")
		}
		var order []int
		for _, u := range turns {
			if u.Unit != s.Group.Units[u.Number] {
				t.Fatalf("%+v", u)
			}
			order = append(order, u.Arm)
			if u.ArmFirst {
				armFirst++
			}
		}
		first[order[0]]++
		orders[fmt.Sprint(order)] = true
	}
	// Each arm first in a third of 108 blocks, either way round in half of 324 pairs, within five standard deviations.
	for arm, n := range first {
		if n < 12 || n > 60 {
			t.Errorf("arm %d comes first %d times of %d", arm, n, blocks)
		}
	}
	if len(orders) != 6 || armFirst < 117 || armFirst > 207 {
		t.Errorf("%d orders, the arm first in %d pairs", len(orders), armFirst)
	}
}

func TestBootsEach(t *testing.T) {
	for text, want := range map[string]struct {
		shared, apart int
		err           string
	}{
		"factors: {steps: [1, 2, 3]}":                                           {1, 2, ""}, // (12 - 2) / 4
		"factors: {steps: [1]}":                                                 {1, 3, ""},
		"boots: 4\nfactors: {steps: [1]}":                                       {4, 4, ""},
		"budget: {boots: 3}\nfactors: {steps: [1]}":                             {1, 0, "2 ways to start the server, 1 times each, and 2 starts for the confirm run"},
		"search: {kind: random, arms: 1}\nfactors: {steps: [1, 2, 3, 4, 5, 6]}": {1, 3, ""},
		"search: {kind: model}\nfactors: {steps: [1, 2, 3, 4, 5, 6]}":           {1, 1, ""}, // (12 - 2) / (5 + 1)
	} {
		c := parsed(t, text)
		arms, _, err := Arms(c)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := bootsEach(c, 1, shared{}, arms); err != nil || n != want.shared {
			t.Errorf("%s: shared %d %v", text, n, err)
		}
		n, err := bootsEach(c, 1, apart{}, arms)
		if n != want.apart || (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: apart %d %v", text, n, err)
		}
	}
	c := parsed(t, "boots: 20\nfactors: {steps: [1]}")
	arms, _, _ := Arms(c)
	if _, err := bootsEach(c, 1, shared{}, arms); err == nil {
		t.Error("more starts than the budget has")
	}
}
