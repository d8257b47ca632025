package campaign

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"draftlab/lab/prompts"
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

func TestPlan(t *testing.T) {
	set := held()
	plan := NewPlan(rand.New(rand.NewPCG(1, 0)), set, []int{1, 2, 3})
	first, armFirst, orders := map[int]int{}, 0, map[[3]int]bool{}
	for i, b := range plan {
		if b.Prompt.ID != set[i].ID || len(b.Pairs) != 3 {
			t.Fatalf("block %d: %+v", i, b)
		}
		var order [3]int
		for k, p := range b.Pairs {
			order[k] = p.Arm
			if p.ArmFirst {
				armFirst++
			}
		}
		first[order[0]]++
		orders[order] = true
		if slices.Sort(order[:]); order != [3]int{1, 2, 3} {
			t.Fatalf("block %d has the arms %v", i, order)
		}
	}
	// 108 blocks: each arm first in a third of them, either way round in half of 324 pairs, within five standard deviations.
	for arm, n := range first {
		if n < 12 || n > 60 {
			t.Errorf("arm %d comes first %d times of %d", arm, n, len(plan))
		}
	}
	if len(orders) != 6 || armFirst < 117 || armFirst > 207 {
		t.Errorf("%d orders, the arm first in %d pairs", len(orders), armFirst)
	}
}

func TestFit(t *testing.T) {
	want := Size{18, 24, 128}
	rapid.Check(t, func(t *rapid.T) {
		arms := rapid.IntRange(2, 9).Draw(t, "arms")
		budget := time.Duration(rapid.IntRange(0, 600).Draw(t, "s")) * time.Second
		request := time.Duration(rapid.IntRange(0, 500).Draw(t, "request")) * time.Millisecond
		token := time.Duration(rapid.IntRange(10, 300_000).Draw(t, "token")) * time.Microsecond
		s, fits := Fit(want, arms, budget, request, token)
		took := func(s Size) time.Duration {
			return time.Duration(s.requests(arms)) * (request + time.Duration(s.MaxTokens)*token)
		}
		if fits != (took(s) <= budget) {
			t.Fatalf("%+v takes %v of %v, fits: %v", s, took(s), budget, fits)
		}
		if s.Prompts < leastPrompts || s.Confirm < leastPrompts || s.MaxTokens < leastTokens {
			t.Fatalf("too small: %+v", s)
		}
		if more := (Size{s.Prompts + 1, max(leastPrompts, want.Confirm*(s.Prompts+1)/want.Prompts), s.MaxTokens}); s.Prompts < want.Prompts && fits && took(more) <= budget {
			t.Fatalf("%+v, where %+v would do", s, more)
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
