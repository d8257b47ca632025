package campaign

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"draftlab/lab/prompts"
	"draftlab/lab/trial"
)

// Size is how much a campaign measures.
type Size struct {
	Prompts   int `json:"prompts"`         // blocks, each of a prompt, that all arms are measured on
	Confirm   int `json:"confirm_prompts"` // further ones for the winner
	MaxTokens int `json:"max_tokens"`      // of an output
}

// The least that still tells something: below 6 pairs there is no interval at 95 %, and the rate of a few tokens is
// mostly that of their first one.
const (
	leastPrompts = 6
	leastTokens  = 16
)

// Fit cuts a campaign down to what its time allows, given how many requests each block has over all boots, what a request and each of its
// tokens take, and what is spent whatever the size: fewer blocks first, then shorter outputs. It reports false if even the least is too much.
func Fit(want Size, perBlock int, budget, fixed, request, token time.Duration) (Size, bool) {
	for s := want; ; s.MaxTokens = max(leastTokens, s.MaxTokens/2) {
		each := request + time.Duration(s.MaxTokens)*token
		for s.Prompts = want.Prompts; s.Prompts >= min(leastPrompts, want.Prompts); s.Prompts-- {
			s.Confirm = min(want.Confirm, max(leastPrompts, want.Confirm*s.Prompts/want.Prompts))
			if fixed+time.Duration(s.requests(perBlock))*each <= budget {
				return s, true
			}
		}
		if s.MaxTokens <= leastTokens {
			s.Prompts = min(leastPrompts, want.Prompts)
			return s, false
		}
	}
}

// requests is the number of requests of a campaign.
func (s Size) requests(perBlock int) int { return s.Prompts*perBlock + 2*s.Confirm }

// Group is the arms that one server can serve without a restart.
type Group struct {
	Name  string
	Boot  trial.Knobs // what is fixed at its start
	Units []Unit      // what is measured on it
}

// Unit is what is measured in one go: an arm with plain decoding beside it, or an arm alone where its baseline needs a server of its
// own.
type Unit struct {
	Arm  int // index of the arm
	Base int // of its baseline, -1 if that is not on this server
}

// Slot is a start of the server that the plan provides for.
type Slot struct {
	Name  string
	Stage trial.Stage
	Round int // of the search, from 0
	Group Group
}

// Plan is the order of starts.
type Plan struct {
	Slots []Slot
	Boots int // of each group
}

// NewPlan plans one round of a campaign: the given arms and their baselines, in groups that share a boot, each group started so many
// times, the groups in random order each time.
func NewPlan(rng *rand.Rand, e Engine, arms []trial.Arm, which []int, boots int, stage trial.Stage) Plan {
	groups := group(e, arms, which)
	p := Plan{Boots: boots}
	for i := range boots {
		for _, k := range rng.Perm(len(groups)) {
			p.Slots = append(p.Slots, Slot{Name: fmt.Sprintf("%s-%d", groups[k].Name, i+1), Stage: stage, Group: groups[k]})
		}
	}
	return p
}

// group gathers the arms by what is fixed at the start.
func group(e Engine, arms []trial.Arm, which []int) (groups []Group) {
	at := map[string]int{}
	to := func(arm int, boot trial.Knobs) *Group {
		key := identity(boot)
		if _, ok := at[key]; !ok {
			at[key] = len(groups)
			groups = append(groups, Group{Name: clean(arms[arm].Name), Boot: boot})
		}
		return &groups[at[key]]
	}
	for _, i := range withBaselines(arms, which) {
		boot, _ := e.Split(arms[i].Knobs)
		g := to(i, boot)
		g.Units = append(g.Units, Unit{i, -1})
		base := slices.IndexFunc(arms, func(a trial.Arm) bool { return a.Name == arms[i].Baseline })
		if base < 0 {
			continue
		}
		baseBoot, request := e.Split(arms[base].Knobs)
		if len(request) > 0 || identity(baseBoot) == identity(boot) {
			g.Units[len(g.Units)-1].Base = base
		}
	}
	for i := range groups { // plain decoding needs no turn of its own where it has one beside each arm
		g := &groups[i]
		g.Units = slices.DeleteFunc(g.Units, func(u Unit) bool {
			return arms[u.Arm].Plain() && slices.ContainsFunc(g.Units, func(v Unit) bool { return v.Base == u.Arm })
		})
	}
	return groups
}

// withBaselines adds the baselines of arms, and keeps the arms' order.
func withBaselines(arms []trial.Arm, which []int) (out []int) {
	for i, a := range arms {
		needed := slices.Contains(which, i)
		for _, k := range which {
			needed = needed || arms[k].Baseline == a.Name
		}
		if needed {
			out = append(out, i)
		}
	}
	return out
}

// clean makes a name of a file of an arm's name.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.=", r) {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 80)]
}

// perBlock is how many requests a plan sends for each block.
func (p *Plan) perBlock() (n int) {
	for _, s := range p.Slots {
		for _, u := range s.Group.Units {
			n++
			if u.Base >= 0 {
				n++
			}
		}
	}
	return n
}

// Turn is one unit's turn in a block.
type Turn struct {
	Unit
	Number   int  // of the turn's pair in its block: that of the unit, so that it has the same one on each boot
	ArmFirst bool // the order within the pair
}

// turns puts the units of a block in random order, pairs one way round or the other. It hangs on nothing but the seed and the
// block's place, so that a campaign which goes on finds the same.
func (s *Slot) turns(seed uint64, block int) []Turn {
	rng := source(seed, fmt.Sprintf("%s %s %d", s.Name, s.Stage, block))
	out := make([]Turn, len(s.Group.Units))
	for i, k := range rng.Perm(len(out)) {
		out[i] = Turn{s.Group.Units[k], k, rng.IntN(2) == 0}
	}
	return out
}

// source is a source of random numbers for one purpose.
func source(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Pick takes n prompts of a set, the categories in turn and within one at random, and returns the others as well. It returns fewer
// if the set has no more.
func Pick(rng *rand.Rand, set prompts.Set, n int) (picked, rest prompts.Set) {
	var byCategory []prompts.Set
	for _, c := range categories(set) {
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

// categories are those of a set, the project's own ones in their usual order.
func categories(set prompts.Set) (out []prompts.Category) {
	for _, p := range set {
		if !slices.Contains(out, p.Category) {
			out = append(out, p.Category)
		}
	}
	order := prompts.Categories()
	slices.SortStableFunc(out, func(a, b prompts.Category) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	return out
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
