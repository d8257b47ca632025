package eagle3

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"draftlab/engine/compute"
)

// TestProposals compares candidates with the soft-max of the logits.
func TestProposals(t *testing.T) {
	s := newBench(t, 2, false, func(*Config) {})
	c := s.d.Config()
	tokens, probs := make([]int32, 8), make([]float32, 8)
	for top := range 9 {
		s.d.Batch().Top = top
		for i, r := range s.whole() {
			var sum float64
			order := make([]int, len(r.logits))
			for j, x := range r.logits {
				order[j] = j
				sum += math.Exp(float64(x))
			}
			slices.SortStableFunc(order, func(a, b int) int {
				switch {
				case r.logits[a] > r.logits[b]:
					return -1
				case r.logits[a] < r.logits[b]:
					return 1
				}
				return 0
			})
			if got, want := s.d.Best(i), s.d.TargetIDs()[order[0]]; got != want {
				t.Fatalf("row %d: best %d, want %d", i, got, want)
			}
			if n := s.d.Propose(i, tokens, probs); n != top {
				t.Fatalf("row %d: %d candidates of %d", i, n, top)
			}
			for j := range top {
				want := math.Exp(float64(r.logits[order[j]])) / sum
				if tokens[j] != s.d.TargetIDs()[order[j]] || math.Abs(float64(probs[j])-want) > 1e-5 {
					t.Fatalf("row %d candidate %d: %d with %v, want %d with %v", i, j, tokens[j], probs[j], s.d.TargetIDs()[order[j]], want)
				}
			}
		}
	}
	if c.DraftVocab == c.Vocab {
		t.Error("the draft vocabulary is the target's: nothing is mapped")
	}
}

// TestRunChecks: what comes from a request is an error, a broken contract panics, and a cycle allocates nothing.
func TestRunChecks(t *testing.T) {
	s := newBench(t, 1, false, func(*Config) {})
	s.whole()
	for _, c := range []struct {
		name   string
		change func(b *compute.Batch)
		want   string
	}{
		{"token", func(b *compute.Batch) { b.Token[0] = 320 }, "token id 320: the vocabulary has 320"},
		{"position", func(b *compute.Batch) { b.Pos[0] = 2048 }, "position 2048 is beyond the context of 2048 tokens"},
		{"slot 0", func(b *compute.Batch) { b.Slot[0] = 0 }, "panic: eagle3: row 0 writes slot 0"},
		{"feature", func(b *compute.Batch) { b.From[0] = textLen }, "panic: eagle3: row 0 takes state 21"},
		{"restored", func(b *compute.Batch) { b.From[0] = 32 }, "panic: eagle3: row 0 takes state 32"},
		{"output", func(b *compute.Batch) { b.From[0] = ^textLen }, "panic: eagle3: row 0 takes state -22"},
	} {
		b := s.reset()
		s.extend(5, 6)
		c.change(b)
		got := func() (text string) {
			defer func() {
				if p := recover(); p != nil {
					text = fmt.Sprint("panic: ", p)
				}
			}()
			return fmt.Sprint(s.d.Run())
		}()
		if len(got) < len(c.want) || got[:len(c.want)] != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	rows, tokens, probs := []int32{0, 1, 2}, make([]int32, 4), make([]float32, 4)
	s.d.Batch().Top = 4
	if n := testing.AllocsPerRun(20, func() {
		s.d.Features(rows)
		s.d.Save(2, 2)
		s.reset()
		s.extend(1, 4)
		s.run()
		s.d.Propose(0, tokens, probs)
	}); n != 0 {
		t.Errorf("a cycle allocates %v times, want 0 (invariant 6)", n)
	}
}
