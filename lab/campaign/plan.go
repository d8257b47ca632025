package campaign

import (
	"math/rand/v2"
	"time"

	"draftlab/lab/prompts"
)

// Size is how much a campaign measures.
type Size struct {
	Prompts   int `json:"prompts"`         // that all arms are measured on
	Confirm   int `json:"confirm_prompts"` // further ones for the winner
	MaxTokens int `json:"max_tokens"`      // of an output
}

// The least that still tells something: below 6 pairs there is no interval at 95 %, and the rate of a few tokens is
// mostly that of their first one.
const (
	leastPrompts = 6
	leastTokens  = 16
)

// requests is the number of requests of a campaign of so many arms, the baseline one of them.
func (s Size) requests(arms int) int { return 2 * (s.Prompts*(arms-1) + s.Confirm) }

// Fit cuts a campaign down to what its time allows, given what a request and each of its tokens take: fewer prompts first, then
// shorter outputs. It reports false if even the least is too much.
func Fit(want Size, arms int, budget, request, token time.Duration) (Size, bool) {
	for s := want; ; s.MaxTokens /= 2 {
		each := request + time.Duration(s.MaxTokens)*token
		for s.Prompts = want.Prompts; s.Prompts >= leastPrompts; s.Prompts-- {
			s.Confirm = max(leastPrompts, want.Confirm*s.Prompts/want.Prompts)
			if time.Duration(s.requests(arms))*each <= budget {
				return s, true
			}
		}
		if s.MaxTokens/2 < leastTokens {
			s.Prompts = leastPrompts
			return s, false
		}
	}
}

// Pair is an arm and a baseline request, one right after the other.
type Pair struct {
	Arm      int // index of the arm
	ArmFirst bool
}

// Block is all pairs on one prompt, in their order.
type Block struct {
	Prompt prompts.Prompt
	Pairs  []Pair
}

// Pick takes n prompts of a set, the categories in turn and within one at random, and returns the others as well. It returns fewer
// if the set has no more.
func Pick(rng *rand.Rand, set prompts.Set, n int) (picked, rest prompts.Set) {
	var byCategory []prompts.Set
	for _, c := range prompts.Categories() {
		s := append(prompts.Set{}, set.In(c)...)
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		byCategory = append(byCategory, s)
	}
	for round := 0; ; round++ {
		before := len(picked) + len(rest)
		for _, s := range byCategory {
			switch {
			case round >= len(s):
			case len(picked) < n:
				picked = append(picked, s[round])
			default:
				rest = append(rest, s[round])
			}
		}
		if len(picked)+len(rest) == before {
			return picked, rest
		}
	}
}

// NewPlan pairs every one of the given arms with the baseline on each prompt: arms in random order, and each pair the one or the other
// way round at random.
func NewPlan(rng *rand.Rand, set prompts.Set, arms []int) []Block {
	plan := make([]Block, len(set))
	for i, p := range set {
		plan[i].Prompt = p
		for _, k := range rng.Perm(len(arms)) {
			plan[i].Pairs = append(plan[i].Pairs, Pair{arms[k], rng.IntN(2) == 0})
		}
	}
	return plan
}

// steadyWithin is how close the last readings of a warm-up must lie together, as a ratio; a machine that nobody else uses keeps
// within 1.03, a shared one seldom within less than this.
const steadyWithin = 1.1

// steady reports whether a server that is warming up has reached its speed: the last three readings agree, and so do not rise any
// more. It takes four, since the first has the cost of first times.
func steady(readings []float64) bool {
	if len(readings) < 4 {
		return false
	}
	last := readings[len(readings)-3:]
	low, high := last[0], last[0]
	for _, x := range last {
		low, high = min(low, x), max(high, x)
	}
	return high <= steadyWithin*low
}
