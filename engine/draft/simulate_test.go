package draft

import (
	"math"
	"strings"
	"testing"
)

func TestSimulation(t *testing.T) {
	for _, c := range []struct {
		length float64
		steps  int
		want   float64
	}{{1, 3, 0}, {4, 3, 1}, {1.5, 1, 0.5}, {1.75, 2, 0.5}, {1.875, 3, 0.5}, {2.3, 3, 0.6366}} {
		s, err := NewSimulation(c.length, c.steps)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Chance(c.steps); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("length %v, %d steps: chance %v, want %v", c.length, c.steps, got, c.want)
		}
	}
	s, err := NewSimulation(3, 5)
	if err != nil || s.Chance(1) != 1 || s.Chance(2) < 0.999 || s.Chance(3) > 0.9 {
		t.Errorf("too short a draft: %v", s.chance[:6])
	}
	for _, length := range []float64{0.99, 4.01, math.NaN(), math.Inf(1), -1} {
		if _, err := NewSimulation(length, 3); err == nil || !strings.Contains(err.Error(), "reach 1 to 4") {
			t.Errorf("%v: error %v", length, err)
		}
	}
	if err := s.Fits(Shape{8, 2, 3}); err != nil {
		t.Errorf("3 nodes are enough for 3 tokens: %v", err)
	}
	if s.Fits(Shape{8, 2, 2}) == nil || s.Fits(Chain(1)) == nil {
		t.Error("2 nodes are not enough for 3 tokens")
	}
}

// TestSimulationShapesTrees: a tree of guessed probabilities is deep enough for the accept length, from one end of its range to the other.
func TestSimulationShapesTrees(t *testing.T) {
	for _, shape := range []Shape{{3, 4, 12}, {5, 4, 16}, {8, 4, 16}, {2, 2, 6}, {6, 2, 7}, {5, 10, 60}} {
		b := NewBuilder(shape)
		tokens := make([]int32, shape.TopK)
		for length := 1.0; length <= float64(shape.Steps)+1; length += 0.25 {
			s, err := NewSimulation(length, shape.Steps)
			if err != nil {
				t.Fatal(err)
			}
			guess := s.AppendGuess(nil, shape.TopK, shape.Steps)
			b.Start(shape, 0, 0)
			b.Propose(0, tokens, guess)
			for rows := b.Next(); len(rows) > 0; rows = b.Next() {
				for i := range rows {
					b.Propose(i, tokens, guess)
				}
			}
			var tree Tree
			b.Tree(&tree)
			if float64(tree.MaxDepth()) < length-1 || tree.N != shape.Rows() {
				t.Errorf("%v, accept length %v: a tree of %d nodes and depth %d", shape, length, tree.N, tree.MaxDepth())
			}
		}
	}
}
