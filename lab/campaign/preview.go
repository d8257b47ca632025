package campaign

import (
	"fmt"
	"math"

	"draftlab/lab/campaign/file"
	"draftlab/lab/stats"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// Preview is what a campaign would do, before any time is spent.
type Preview struct {
	Arms     []trial.Arm      `json:"arms"`
	Dropped  []string         `json:"dropped"` // combinations of factors that cannot be, and why
	Findings []target.Finding `json:"findings"`
	Boots    []PreviewBoot    `json:"boots"`
	Size     Size             `json:"size"`     // as the file asks for; the first server's speed may cut it down
	Requests int              `json:"requests"` // of that size, the confirm run's among them
	Tokens   int              `json:"tokens"`   // of output at most
	TimeS    float64          `json:"time_s"`   // from the first server's first token on, at most
	// NeededTokS is the speed at which the whole size takes four fifths of the time, starts of a server left out.
	NeededTokS       float64 `json:"needed_tok_s"`
	Pairs            int     `json:"pairs"` // of each arm
	CV               float64 `json:"assumed_cv"`
	DetectableEffect float64 `json:"detectable_effect"`
}

// PreviewBoot is a start of a server.
type PreviewBoot struct {
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Arms    []string `json:"arms"`
}

// assumedCV is how much one reading is taken to scatter about its truth before any has been seen: between the 5 % of plain decoding beside
// itself and the 15 % of drafts, which prompts accept differently, on two cores of a virtual machine (docs/LOG.md, 2026-11-30).
const assumedCV = 0.1

// NewPreview says what a campaign would do.
func NewPreview(c *file.Campaign, seed uint64, e Engine) (*Preview, error) {
	arms, dropped, err := Arms(c)
	if err != nil {
		return nil, err
	}
	if c.Seed != nil {
		seed = *c.Seed
	}
	boots, err := bootsEach(c, seed, e, arms)
	if err != nil {
		return nil, err
	}
	plan := NewPlan(source(seed, "round 0"), e, arms, firstRound(c, seed, arms), boots, trial.Measure)
	p := &Preview{Arms: arms, Dropped: append([]string{}, dropped...), Findings: append([]target.Finding{}, e.Check(arms)...), TimeS: c.Budget.Time.Seconds(),
		Size: Size{c.Workload.Count, c.Workload.Confirm, c.Workload.MaxTokens}, CV: assumedCV, Pairs: boots * c.Workload.Count}
	for _, s := range plan.Slots {
		command, err := e.Command(s.Group.Boot)
		if err != nil {
			return nil, err
		}
		b := PreviewBoot{Name: s.Name, Command: command}
		for _, u := range s.Group.Units {
			name := arms[u.Arm].Name
			if u.Base >= 0 {
				name += " beside " + arms[u.Base].Name
			}
			b.Arms = append(b.Arms, name)
		}
		p.Boots = append(p.Boots, b)
	}
	each := 1
	if c.Workload.Concurrency > 1 {
		each = 2 * c.Workload.Concurrency
	}
	p.Requests = each * p.Size.requests(allRounds(c, seed, arms, plan.perBlock()))
	p.Tokens = p.Requests * p.Size.MaxTokens
	p.NeededTokS = float64(p.Tokens) / (planShare * p.TimeS)
	p.DetectableEffect = math.Expm1(stats.Detectable(p.CV, p.Pairs))
	return p, nil
}

// usualBoots is how often each way of starting the server is started if the file does not say: two starts tell how much they differ, the third makes
// that figure worth something.
const usualBoots = 3

// confirmBoots is how many starts are kept for the confirm run, where arms do not share one: the winner's and plain decoding's.
const confirmBoots = 2

// bootsEach is how often each way of starting the server is started.
func bootsEach(c *file.Campaign, seed uint64, e Engine, arms []trial.Arm) (int, error) {
	ways := len(group(e, arms, firstRound(c, seed, arms)))
	if c.Search.Kind == file.Model { // the later rounds need starts as well, unless they share those of the first
		grid := *c
		grid.Search = file.Search{Kind: file.Grid}
		ways = min(len(group(e, arms, firstRound(&grid, seed, arms))), guide(c, arms).Most()+1)
	}
	if ways == 1 {
		if c.Boots > c.Budget.Boots {
			return 0, fmt.Errorf("boots: %d starts are more than budget.boots has (%d)", c.Boots, c.Budget.Boots)
		}
		return max(1, c.Boots), nil
	}
	most := (c.Budget.Boots - confirmBoots) / ways
	switch {
	case most < 1 || c.Boots > most:
		return 0, fmt.Errorf("%d ways to start the server, %d times each, and %d starts for the confirm run are more than budget.boots has (%d): raise it, or try fewer values",
			ways, max(1, c.Boots), confirmBoots, c.Budget.Boots)
	case c.Boots > 0:
		return c.Boots, nil
	}
	return min(usualBoots, most), nil
}
