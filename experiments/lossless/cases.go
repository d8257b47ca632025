package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"draftlab/engine"
	"draftlab/engine/compute"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
	"draftlab/lab/prompts"
)

// ways are the ways of drafting that must not change a text. Plain decoding is among them for the company that it gives
// to drafts in a batch.
var ways = []engine.Spec{
	{Drafter: engine.DraftNone},
	{Drafter: engine.DraftNgram, Shape: draft.Chain(3)},
	{Drafter: engine.DraftNgram, Shape: draft.Chain(7)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(1)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(2)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(3)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(4)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(5)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(6)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(7)},
	{Drafter: engine.DraftModel, Shape: draft.Chain(7), PMin: 0.3},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 1, TopK: 8, DraftTokens: 9}},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 2, TopK: 2, DraftTokens: 6}},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 3, TopK: 4, DraftTokens: 12}},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 5, TopK: 2, DraftTokens: 10}},
	{Drafter: engine.DraftModel, Shape: draft.Shape{Steps: 7, TopK: 8, DraftTokens: 32}, PMin: 0.01},
}

// limit covers all ways.
var limit = draft.Shape{Steps: 7, TopK: 8, DraftTokens: 32}

// wayName names a way of drafting in tables.
func wayName(i int) string {
	s := ways[i]
	if s.Drafter == engine.DraftNone {
		return "none"
	}
	name := fmt.Sprintf("%s %s", s.Drafter, s.Shape)
	if s.PMin > 0 {
		name += fmt.Sprintf(" p-min %g", s.PMin)
	}
	return name
}

// sampledWays is how many ways of drafting each prompt is sampled with at each width; greedily it runs with all.
const sampledWays = 4

// text is a prompt with sampling parameters, and plain decoding's output.
type text struct {
	prompt prompts.Prompt
	params sample.Params

	ids    []int32 // of the prompt
	want   []int32 // plain output
	finish engine.FinishReason
}

// testCase is a text to be written by one way of drafting. It begins behind the first from tokens of the plain output,
// which join the prompt: an output must not depend on whether its beginning was a prompt.
type testCase struct {
	text    *text
	way     int
	from    float64 // share of the plain output; greedy texts alone, as draws belong to output positions
	noCache bool
}

// start returns testCase.from in tokens; at least one token is left to write.
func (c *testCase) start() int { return int(c.from * float64(len(c.text.want))) }

// group is cases that share an engine.
type group struct {
	width int  // index of options.widths
	tight bool // few blocks, so that sequences are preempted
	cases []*testCase
}

const (
	// samplesPerPrompt is how many cases of a random sample share a prompt: plain decoding of a text costs more than a case, and
	// prompts that come again are found in the prefix cache.
	samplesPerPrompt = 8
	// narrow is the widest batch that needs short prompts to run out of blocks: one long prompt must fit in any case.
	narrow = 4
)

// plan makes the cases in random order: at every width all prompts × all ways greedily, and a few ways of each prompt
// sampled. Half of a width's cases get few blocks.
func plan(rng *rand.Rand, set prompts.Set, o options) []*group {
	if o.sample > 0 {
		rng.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
		set = set[:min(len(set), o.sample/samplesPerPrompt+1)]
	}
	greedy, sampled := make([]*text, len(set)), make([]*text, len(set))
	sizes := make([]int, len(set))
	for i, p := range set {
		greedy[i] = &text{prompt: p, params: sample.Defaults()}
		sampled[i] = &text{prompt: p, params: draw(rng)}
		sizes[i] = len(p.Text)
	}
	slices.Sort(sizes)
	var groups []*group
	for w, width := range o.widths {
		var cases []*testCase
		for i := range set {
			for way := range ways {
				cases = append(cases, newCase(rng, greedy[i], way))
			}
			for _, way := range rng.Perm(len(ways))[:sampledWays] {
				cases = append(cases, newCase(rng, sampled[i], way))
			}
		}
		rng.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		if o.sample > 0 {
			cases = cases[:min(len(cases), (o.sample+len(o.widths)-1)/len(o.widths))]
		}
		ample, tight := &group{w, false, nil}, &group{w, true, nil}
		for _, c := range cases {
			g := ample
			if size := len(c.text.prompt.Text); len(tight.cases) < len(cases)/2 && (width > narrow || size <= sizes[len(sizes)/2]) {
				g = tight
			}
			g.cases = append(g.cases, c)
		}
		groups = append(groups, ample, tight)
	}
	return groups
}

// newCase decides what is left to chance.
func newCase(rng *rand.Rand, t *text, way int) *testCase {
	c := &testCase{text: t, way: way, noCache: rng.IntN(4) == 0}
	if t.params.Greedy() && rng.IntN(4) == 0 {
		c.from = rng.Float64()
	}
	return c
}

// draw returns parameters of a sampled text: temperature 0.3 to 1.2, top-p, and penalties for half of them.
func draw(rng *rand.Rand) sample.Params {
	p := sample.Defaults()
	p.Seed, p.Temperature, p.TopP = rng.Uint64(), 0.3+0.9*rng.Float64(), 0.5+0.5*rng.Float64()
	if rng.IntN(2) == 0 {
		p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = rng.Float64(), rng.Float64(), 1+rng.Float64()/2
	}
	return p
}

// blocks returns engine.Options.Blocks for the group, whose outputs have the given length at most: few are those that the
// longest sequence of the group needs by itself.
func (g *group) blocks(tokens int) int {
	if !g.tight {
		return 0 // enough for all
	}
	longest := 0
	for _, c := range g.cases {
		longest = max(longest, len(c.text.ids)+tokens)
	}
	return longest/compute.BlockSlots + 1
}
