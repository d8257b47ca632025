// Package draft is the arithmetic of drafts: [Shape] says how large a draft may be, [Builder] grows the
// candidate tree of EAGLE-2 level by level, [Tree] holds the candidates for verification, and [Stats] counts what was
// accepted. A chain is a tree in which every node has one child at most.
//
// It knows no model, no tensor and no clock (invariant 5), and not who proposes the tokens; its subpackages
// are drafters.
package draft

import "fmt"

// MaxNodes bounds the nodes of a tree, root included: a verify row names its ancestors in one 64-bit mask.
const MaxNodes = 64

// MaxTopK bounds the candidates of a node. Published settings go up to 10; a level's k² candidates are
// selected by plain insertion, which is no longer negligible beside a small model's pass at several dozens.
const MaxTopK = 16

// Shape bounds a draft. A chain has TopK 1 and DraftTokens Steps+1; plain decoding is the zero Shape or Chain(0).
type Shape struct {
	Steps       int // levels below the root: most tokens accepted in one cycle
	TopK        int // candidates of a node, and nodes of a level that are expanded
	DraftTokens int // rows of the verify pass: nodes of the tree, root included
}

// Chain returns the shape of a chain of n drafted tokens.
func Chain(n int) Shape { return Shape{Steps: n, TopK: 1, DraftTokens: n + 1} }

// Rows returns the rows of a verify pass: DraftTokens, 1 for plain decoding.
func (s Shape) Rows() int { return max(1, s.DraftTokens) }

// IsChain reports whether trees of the shape are chains.
func (s Shape) IsChain() bool { return s.TopK <= 1 }

// String returns the shape in the usual notation, steps-topk-draft_tokens.
func (s Shape) String() string { return fmt.Sprintf("%d-%d-%d", s.Steps, s.TopK, s.DraftTokens) }

// Bound returns how many nodes a tree of the given steps and top-k can have, root included: 1 + topk + (steps−1)·topk².
func Bound(steps, topk int) int {
	if steps < 1 {
		return 1
	}
	return 1 + topk + (steps-1)*topk*topk
}

// Validate returns an error that names the bound which the shape breaks. It never changes a shape.
func (s Shape) Validate() error {
	switch {
	case s.Steps < 0 || s.TopK < 0 || s.DraftTokens < 0:
		return fmt.Errorf("draft shape %v: a negative number", s)
	case s.Steps == 0 && (s.TopK > 1 || s.DraftTokens > 1):
		return fmt.Errorf("draft shape %v: steps 0 is plain decoding: topk and draft_tokens can be at most 1", s)
	case s.Steps == 0:
		return nil
	case s.TopK < 1:
		return fmt.Errorf("draft shape %v: topk must be at least 1 (1 is a chain)", s)
	case s.TopK > MaxTopK:
		return fmt.Errorf("draft shape %v: topk can be at most %d", s, MaxTopK)
	case s.DraftTokens < 2:
		return fmt.Errorf("draft shape %v: draft_tokens counts the root and must be at least 2", s)
	case s.DraftTokens > MaxNodes:
		return fmt.Errorf("draft shape %v: draft_tokens can be at most %d", s, MaxNodes)
	case s.TopK == 1 && s.DraftTokens != s.Steps+1:
		return fmt.Errorf("draft shape %v: a chain (topk 1) of %d steps has draft_tokens %d", s, s.Steps, s.Steps+1)
	case s.TopK > 1 && (s.Steps-1)*s.TopK > MaxNodes:
		return fmt.Errorf("draft shape %v: (steps−1)·topk = %d rows of the drafter's passes; at most %d fit its mask: "+
			"fewer steps or a smaller topk", s, (s.Steps-1)*s.TopK, MaxNodes)
	case s.DraftTokens > Bound(s.Steps, s.TopK):
		return fmt.Errorf("draft shape %v: draft_tokens can be at most 1 + topk + (steps−1)·topk² = %d", s, Bound(s.Steps, s.TopK))
	}
	return nil
}

// Within returns an error if s is larger than limit in any respect; plain decoding is within every limit.
func (s Shape) Within(limit Shape) error {
	if s.Steps > 0 && s.TopK > limit.TopK || s.Steps > limit.Steps || s.Rows() > limit.Rows() {
		return fmt.Errorf("draft shape %v is beyond the limit %v", s, limit)
	}
	return nil
}

// Cap returns the shape for one cycle that may draft at most depth tokens on a path and verify at most rows rows, because
// the output, the context or the memory ends there. The result is valid if s is.
func (s Shape) Cap(depth, rows int) Shape {
	if rows < 1 {
		panic("draft: a cycle needs at least one row")
	}
	steps := min(s.Steps, depth, rows-1)
	if steps < 1 {
		return Shape{}
	}
	if s.IsChain() {
		return Chain(steps)
	}
	return Shape{Steps: steps, TopK: s.TopK, DraftTokens: min(s.DraftTokens, rows, Bound(steps, s.TopK))}
}
