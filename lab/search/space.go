package search

import (
	"fmt"
	"slices"

	"draftlab/lab/costmodel"
	"draftlab/lab/trial"
)

// Space is a range of drafts: every combination of its depths, widths and sizes that is a shape.
type Space struct {
	Drafter     string
	Steps       []int
	TopK        []int // 1 is a chain
	DraftTokens []int // of trees; a chain has one more than its steps
}

// Default is the space that a campaign searches if it is told nothing else. Depths and sizes go past what pays anywhere that has been
// measured, so that a winner lies inside.
func Default(drafter string) Space {
	return Space{drafter, []int{1, 2, 3, 4, 5, 6}, []int{1, 2, 4}, []int{4, 6, 8, 12}}
}

// Arms returns the space's arms: chains by depth, then trees. A tree has to hold more than the chain of its depth, or nothing of it
// would branch.
func (s Space) Arms() (arms []trial.Arm) {
	if slices.Contains(s.TopK, 1) {
		for _, steps := range s.Steps {
			arms = append(arms, Arm(s.Drafter, steps, 1, steps+1))
		}
	}
	for _, steps := range s.Steps {
		for _, topk := range s.TopK {
			for _, tokens := range s.DraftTokens {
				shape := costmodel.Shape{Steps: steps, TopK: topk, DraftTokens: tokens, Batch: 1}
				if topk > 1 && tokens > steps+1 && shape.Check() == nil {
					arms = append(arms, Arm(s.Drafter, steps, topk, tokens))
				}
			}
		}
	}
	return arms
}

// Arm is a way of drafting under the name that tables give it: such as chain-3, ngram-3 or tree-3-2-6.
func Arm(drafter string, steps, topk, tokens int) trial.Arm {
	name := "chain"
	if drafter == "ngram" {
		name = drafter
	}
	name = fmt.Sprintf("%s-%d", name, steps)
	if topk > 1 {
		name = fmt.Sprintf("tree-%d-%d-%d", steps, topk, tokens)
	}
	return trial.Arm{Name: name, Knobs: trial.Knobs{Drafter: drafter, Steps: steps, TopK: topk, DraftTokens: tokens}}
}

// shapeOf is what of an arm decides a cycle's work.
func shapeOf(a trial.Arm, batch float64) costmodel.Shape {
	return costmodel.Shape{Steps: a.Steps, TopK: a.TopK, DraftTokens: a.DraftTokens, Batch: batch}
}

// isChain reports that nothing branches.
func isChain(a trial.Arm) bool { return a.TopK == 1 }
