package main

import (
	"io"
	"strings"
	"testing"

	"draftlab/engine/draft"
)

// TestCard reads the shipped drafter's card.
func TestCard(t *testing.T) {
	c, err := readCard("../../drafters/smollm2-135m-instruct-eagle3/README.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for name, f := range c {
		if name != all {
			sum += f.conversations
		}
	}
	if len(c) != 7 || sum != c[all].conversations {
		t.Errorf("%d rows, %d conversations in the categories and %d in all", len(c), sum, c[all].conversations)
	}
	for name, f := range c {
		for k, length := range f.length {
			if length < 1 || length > float64(k+1) {
				t.Errorf("%s: accept length %g at K=%d", name, length, k)
			}
		}
	}
}

const table = "| held out | conversations | conditional acceptance, steps | K=1 | K=3 | K=5 |\n|---|---|---|---|---|---|\n"

func TestCardRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no row"},
		{"| **real prompts, all** | 5 | 0.7 · 0.8 · 0.8 · 0.8 · 0.8 | 1.7 | 2.6 | 3.0 |\n", "no row"},
		{table + "| real prompts, all | 5 | 0.7 · 0.8 | 1.7 | 2.6 | 3.0 |\n", "conditional"},
		{table + "| real prompts, all | 5 | 0.7 · x | 1.7 | 2.6 | 3.0 |\n", `column "conditional acceptance`},
		{table + "| real prompts, all | 5 | 0.7 | 1.7 |\n", "line 3: 4 cells"},
		{table + "| real prompts, all | many | 0.7 | 1.7 | 2.6 | 3.0 |\n", `column "conversations"`},
	} {
		if _, err := parseCard(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if c, err := parseCard(table + "| **real prompts, all** | 5 | 0.7 · 0.8 · 0.8 · 0.8 · 0.8 | 1.7 | 2.6 | 3.0 |\n"); err != nil || c[all].length[3] != 2.6 {
		t.Errorf("%v, %v", c, err)
	}
}

// FuzzCard: no text makes the parser panic, and what it takes has all that is compared.
func FuzzCard(f *testing.F) {
	f.Add(table + "| real prompts, all | 5 | 0.7 · 0.8 · 0.8 · 0.8 · 0.8 | 1.7 | 2.6 | 3.0 |\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCard(text)
		if err == nil && (len(c[all].conditional) < 5 || c[all].length[5] < 1) {
			t.Errorf("took %+v", c)
		}
	})
}

// TestLoops holds loops to the trainer's rule at its edges.
func TestLoops(t *testing.T) {
	cycle := func(period, n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(i % period)
		}
		return out
	}
	for _, c := range []struct {
		period, n int
		want      bool
	}{
		{1, 48, false}, {1, 49, true}, {10, 57, false}, {10, 58, true}, {24, 72, true}, {24, 71, false}, {30, 89, false}, {30, 90, true},
		{64, 191, false}, {64, 192, true}, {65, 384, false}, {384, 384, false},
	} {
		if got := loops(cycle(c.period, c.n)); got != c.want {
			t.Errorf("period %d over %d tokens: %t, want %t", c.period, c.n, got, c.want)
		}
	}
	broken := cycle(1, 90)
	broken[45] = 9
	if loops(broken) {
		t.Error("two short stretches are no loop")
	}
}

// TestLengthsTooFarApart: the total decides, within 5 %.
func TestLengthsTooFarApart(t *testing.T) {
	for simulated, ok := range map[float64]bool{1.95: true, 1.905: true, 1.88: false, 2.1: true, 2.12: false} {
		m := measurement{stats: map[key]*draft.Stats{}}
		want := card{all: {length: map[int]float64{}}}
		for _, depth := range depths {
			s := &draft.Stats{}
			s.Record(depth, depth, 2)
			s.Record(depth, depth, 0)
			m.stats[key{depth, ""}], want[all].length[depth] = s, simulated
		}
		if err := m.lengths(io.Discard, want); (err == nil) != ok {
			t.Errorf("2.0 against %g: %v", simulated, err)
		}
	}
}
