package draft

import (
	"fmt"
	"math"
)

// Simulation is acceptance by the dice, for studies of what speculation costs: in a cycle whose deepest draft has depth D, each draft on the
// way to it is accepted, if those before it are, with a probability that makes the mean accept length the one wanted. So
// few drafts are accepted often and many seldom, as with a real drafter.
type Simulation struct {
	AcceptLength float64
	chance       [MaxNodes]float64 // [D]
}

// NewSimulation returns an error unless acceptLength is from 1 to steps+1 (Stats.AcceptLength).
func NewSimulation(acceptLength float64, steps int) (*Simulation, error) {
	s := &Simulation{AcceptLength: acceptLength}
	if err := s.Fits(Chain(steps)); err != nil {
		return nil, err
	}
	for depth := 1; depth < MaxNodes; depth++ {
		s.chance[depth] = chanceFor(acceptLength-1, depth)
	}
	return s, nil
}

// Fits returns an error if drafts of a shape cannot reach the accept length.
func (s *Simulation) Fits(shape Shape) error {
	if most := min(shape.Steps, shape.Rows()-1) + 1; !(s.AcceptLength >= 1 && s.AcceptLength <= float64(most)) {
		return fmt.Errorf("simulated accept length %v: drafts of shape %v reach 1 to %d", s.AcceptLength, shape, most)
	}
	return nil
}

// Chance returns the probability with which each draft of a cycle is accepted, if the deepest has the given depth: 1 where even that is too
// little for the mean.
func (s *Simulation) Chance(depth int) float64 { return s.chance[depth] }

// AppendGuess appends the probabilities with which Builder is to take a node's n candidates, the first to last, in place of the drafter's:
// the tree then fits the simulated acceptance, whatever weights the drafter has. The depth is the shape's. They stay within bounds that let a
// tree have both depth and width.
func (s *Simulation) AppendGuess(dst []float32, n, steps int) []float32 {
	first := min(max(s.chance[steps], 0.05), 0.99)
	for left := 1.0; n > 0; n-- {
		dst = append(dst, float32(left*first))
		left *= 1 - first
	}
	return dst
}

// chanceFor solves a + a² + … + a^depth = sum by bisection.
func chanceFor(sum float64, depth int) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		a := (low + high) / 2
		got := float64(depth)
		if a < 1 {
			got = a * (1 - math.Pow(a, float64(depth))) / (1 - a)
		}
		if got < sum {
			low = a
		} else {
			high = a
		}
	}
	return high
}
