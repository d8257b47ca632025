// Package campaign finds out whether speculation pays on a server, and which depth of it pays most: it plans pairs of requests,
// runs them, and says what they show. [Run] does it all; [NewPlan], [Fit] and [Analyse] are its pure parts.
//
// An arm is a way of decoding, plain decoding the baseline. On each prompt every arm is paired with a plain request of its own, sent
// right before or after it in random order, so that both meet the same machine; what is compared is the logarithm of their
// speeds' ratio. The winner is measured again, on prompts that did not help to choose it.
//
// The package starts no server and reads no clock but to keep its budget.
package campaign

import "fmt"

// Knobs are how one request is decoded.
type Knobs struct {
	Drafter     string `json:"drafter"` // none, eagle3 or ngram
	Steps       int    `json:"steps"`
	TopK        int    `json:"topk"`
	DraftTokens int    `json:"draft_tokens"`
}

// plain reports plain decoding.
func (k Knobs) plain() bool { return k.Steps == 0 }

// body is the field of a request to draftlab's server.
func (k Knobs) body() map[string]any {
	if k.plain() {
		return map[string]any{"drafter": "none"}
	}
	return map[string]any{"drafter": k.Drafter, "steps": k.Steps, "topk": k.TopK, "draft_tokens": k.DraftTokens}
}

// Arm is a way of decoding with its name in tables.
type Arm struct {
	Name string `json:"name"`
	Knobs
}

// Baseline is the name of the arm that all are compared with.
const Baseline = "plain"

// Chain is an arm that drafts up to so many tokens in a row.
func Chain(name, drafter string, steps int) Arm {
	return Arm{fmt.Sprintf("%s-%d", name, steps), Knobs{drafter, steps, 1, steps + 1}}
}

// DefaultArms returns plain decoding, look-up of the text so far, and if the server has a drafter's model chains and a tree of it. The
// depths: each of the first three drafts is the one that pays last somewhere, five shows what deeper ones would do, and the tree is a
// small one, since on a processor each further row costs.
func DefaultArms(model bool) []Arm {
	arms := []Arm{{Baseline, Knobs{Drafter: "none"}}, Chain("ngram", "ngram", 3)}
	if !model {
		return append(arms, Chain("ngram", "ngram", 1), Chain("ngram", "ngram", 5))
	}
	for _, steps := range []int{1, 2, 3, 5} {
		arms = append(arms, Chain("chain", "eagle3", steps))
	}
	return append(arms, Arm{"tree-3-2-6", Knobs{"eagle3", 3, 2, 6}})
}
