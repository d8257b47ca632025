// Package file reads campaign files: [Parse] makes a [Campaign] of YAML, strictly. An unknown key, a value of the wrong kind or a
// combination that cannot be is an error that names the line, shows it and says what would do. docs/campaign.md lists the keys.
//
// It knows what a campaign is and nothing of how one is carried out.
package file

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"draftlab/lab/prompts"
)

// Campaign is a campaign file with its defaults filled in.
type Campaign struct {
	Text      string // of the file
	Name      string
	Host      string // "" is this machine, else what ssh takes
	Target    Target
	Model     string
	Drafter   string // a directory, or what else the target takes; "" for none
	Workload  Workload
	Baseline  Settings // flags and variables of the environment that all is compared with
	Objective Objective
	Budget    Budget
	Boots     int // of each way of starting the server
	Factors   []Factor
	Arms      []Settings
	Search    Search
	Seed      *uint64
}

// Target is the server that is measured.
type Target struct {
	Kind    string
	Command []string // "" is the kind's own
	URL     string   // of a server that runs
	KeyEnv  string   // variable that holds the key of its API
	Port    int
	Ready   time.Duration // limit of a start
	Flags   map[string]string
	Env     map[string]string
}

// Workload is what the server is asked.
type Workload struct {
	Prompts     string         // heldout, train, all, or a file
	Format      prompts.Format // of the file
	Categories  []string       // of them; all if there are none
	Count       int            // prompts, or blocks of prompts at a concurrency above 1, that the arms are measured on
	Confirm     int            // further ones for the winner
	MaxTokens   int
	Concurrency int
}

// Objective is what the best arm has most of.
type Objective struct {
	Kind                string  // tok_s or goodput
	TTFTMs, TPOTMs, E2E float64 // limits of a request that counts, ms; 0 is none
}

// The objectives.
const (
	TokS    = "tok_s"
	Goodput = "goodput"
)

// Budget is what a campaign may take.
type Budget struct {
	Time  time.Duration
	Boots int
}

// Search is which of the arms are measured.
type Search struct {
	Kind string // grid, random or model
	Arms int    // how many at most; 0 is no bound
	// EarlyStop ends an arm once it cannot be the best; without it every arm gets all its pairs, as a comparison of two settings wants.
	EarlyStop bool
}

// The ways of searching.
const (
	Grid   = "grid"
	Random = "random"
	Model  = "model"
)

// Kinds are the targets that there are.
func Kinds() []string { return []string{"draftlab", "sglang", "llamacpp", "attach"} }

// Defaults, as docs/campaign.md has them.
const (
	defaultCount, defaultConfirm, defaultTokens = 18, 24, 128
	defaultTime                                 = time.Hour
	defaultBoots                                = 12
	defaultReady                                = 30 * time.Minute
)

// Parse reads a campaign file. The name is for errors.
func Parse(name string, source []byte) (*Campaign, error) {
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // some editors put it in front
	top, r := root(name, source)
	if r.err != nil {
		return nil, r.err
	}
	c := &Campaign{Text: string(source), Objective: Objective{Kind: TokS}, Search: Search{Kind: Grid, EarlyStop: true},
		Budget:   Budget{defaultTime, defaultBoots},
		Target:   Target{Ready: defaultReady},
		Workload: Workload{Prompts: "heldout", Format: prompts.JSONL, Count: defaultCount, Confirm: defaultConfirm, MaxTokens: defaultTokens, Concurrency: 1}}
	c.read(top)
	if r.err == nil {
		c.check(top)
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

func (c *Campaign) read(top node) {
	top.each(map[string]func(node){
		"name":      func(n node) { c.Name = n.text() },
		"host":      func(n node) { c.Host = n.host() },
		"target":    func(n node) { c.Target.read(n) },
		"model":     func(n node) { c.Model = n.text() },
		"drafter":   func(n node) { c.Drafter = n.text() },
		"workload":  func(n node) { c.Workload.read(n) },
		"baseline":  func(n node) { c.Baseline = n.settings() },
		"objective": func(n node) { c.Objective.read(n) },
		"budget":    func(n node) { c.Budget.read(n) },
		"boots":     func(n node) { c.Boots = n.whole(1, 100) },
		"factors":   func(n node) { c.Factors = n.factors() },
		"arms":      func(n node) { c.Arms = n.arms() },
		"search":    func(n node) { c.Search.read(n) },
		"seed":      func(n node) { seed := uint64(n.whole(0, 1<<52)); c.Seed = &seed },
	})
}

// host reads the destination of ssh; "local" is this machine.
func (n node) host() string {
	s := n.text()
	if len(s) > 0 && s[0] == '-' {
		n.fail("is no host: ssh would take it for an option")
	}
	if s == "local" {
		return ""
	}
	return s
}

func (t *Target) read(n node) {
	n.each(map[string]func(node){
		"kind":    func(n node) { t.Kind = n.oneOf(Kinds()...) },
		"command": func(n node) { t.Command = n.command() },
		"url":     func(n node) { t.URL = n.text() },
		"key_env": func(n node) { t.KeyEnv = n.text() },
		"port":    func(n node) { t.Port = n.whole(1, 65535) },
		"ready":   func(n node) { t.Ready = n.duration() },
		"flags":   func(n node) { t.Flags = n.texts(entry.flagName) },
		"env":     func(n node) { t.Env = n.texts(entry.variableName) },
	})
}

// command reads a program with its leading arguments.
func (n node) command() (words []string) {
	for _, w := range n.list() {
		words = append(words, w.scalar())
	}
	return words
}

func (w *Workload) read(n node) {
	n.each(map[string]func(node){
		"prompts": func(n node) { w.Prompts = n.text() },
		"format": func(n node) {
			var words []string
			for _, f := range prompts.Formats() {
				words = append(words, string(f))
			}
			w.Format = prompts.Format(n.oneOf(words...))
		},
		"categories": func(n node) {
			for _, e := range n.list() {
				w.Categories = append(w.Categories, e.text())
			}
		},
		"count":       func(n node) { w.Count = n.whole(1, 10_000) },
		"confirm":     func(n node) { w.Confirm = n.whole(1, 10_000) },
		"max_tokens":  func(n node) { w.MaxTokens = n.whole(1, 1<<20) },
		"concurrency": func(n node) { w.Concurrency = n.whole(1, 4096) },
	})
}

func (o *Objective) read(n node) {
	n.each(map[string]func(node){
		"kind":    func(n node) { o.Kind = n.oneOf(TokS, Goodput) },
		"ttft_ms": func(n node) { o.TTFTMs = n.positive() },
		"tpot_ms": func(n node) { o.TPOTMs = n.positive() },
		"e2e_ms":  func(n node) { o.E2E = n.positive() },
	})
	limits := o.TTFTMs > 0 || o.TPOTMs > 0 || o.E2E > 0
	if (o.Kind == Goodput) != limits {
		n.fail("goodput has limits (ttft_ms, tpot_ms, e2e_ms), at least one, and tok_s has none")
	}
}

func (b *Budget) read(n node) {
	n.each(map[string]func(node){
		"time":  func(n node) { b.Time = n.duration() },
		"boots": func(n node) { b.Boots = n.whole(1, 10_000) },
	})
}

func (s *Search) read(n node) {
	n.each(map[string]func(node){
		"kind":       func(n node) { s.Kind = n.oneOf(Grid, Random, Model) },
		"arms":       func(n node) { s.Arms = n.whole(1, 10_000) },
		"early_stop": func(n node) { s.EarlyStop = n.flag() },
	})
	if s.Kind == Random && s.Arms == 0 {
		n.fail("a random search needs arms: how many to measure")
	}
	if s.Kind == Grid && s.Arms > 0 {
		n.fail("a grid measures all arms: arms bounds a search that is random or by model")
	}
}

// check refuses what no campaign can be.
func (c *Campaign) check(top node) {
	t := &c.Target
	switch {
	case t.Kind == "":
		top.fail("target.kind is missing: want one of %v", Kinds())
	case t.Kind == "attach" && t.URL == "":
		top.fail("target.url is missing: where is the server that runs?")
	case t.Kind != "attach" && t.URL != "":
		top.fail("target.url is for kind attach: servers of kind %s are started", t.Kind)
	case t.Kind == "attach" && (len(t.Command) > 0 || len(t.Flags) > 0 || len(t.Env) > 0 || t.Port > 0):
		top.fail("target: a server that runs takes no command, flags, env and port")
	case t.Kind != "attach" && c.Model == "":
		top.fail("model is missing: which model does the server load?")
	case len(c.Factors) == 0 && len(c.Arms) == 0:
		top.fail("factors or arms are missing: what is to be compared with plain decoding?")
	case c.Workload.custom() && len(c.Workload.Categories) > 0 && c.Workload.Format == prompts.ShareGPT:
		top.fail("workload.categories: prompts of the form sharegpt have none")
	}
	if b := &c.Baseline; b.Steps != nil || b.Drafter != "" || b.TopK != nil || b.DraftTokens != nil || len(b.DrafterConfig) > 0 || b.Name != "" {
		top.fail("baseline: it decodes plainly, and so has flags and variables only")
	}
	for _, e := range c.Workload.Categories {
		if !c.Workload.custom() && !slices.Contains(prompts.Categories(), prompts.Category(e)) {
			top.fail("workload.categories: there is no %q: want some of %q", e, prompts.Categories())
		}
	}
}

// custom reports prompts of a file.
func (w *Workload) custom() bool {
	return !slices.Contains([]string{"heldout", "train", "all"}, w.Prompts)
}

// Load returns the prompts; read opens a file.
func (w *Workload) Load(read func(string) ([]byte, error)) (prompts.Set, error) {
	var set prompts.Set
	switch w.Prompts {
	case "heldout":
		set = prompts.All().Of(prompts.HeldOut)
	case "train":
		set = prompts.All().Of(prompts.Training)
	case "all":
		set = prompts.All()
	default:
		data, err := read(w.Prompts)
		if err != nil {
			return nil, fmt.Errorf("workload.prompts: %w", err)
		}
		if set, err = prompts.ParseFile(w.Format, data); err != nil {
			return nil, fmt.Errorf("%s: %w", w.Prompts, err)
		}
	}
	if len(w.Categories) > 0 {
		set = slices.DeleteFunc(set, func(p prompts.Prompt) bool { return !slices.Contains(w.Categories, string(p.Category)) })
		if len(set) == 0 {
			return nil, fmt.Errorf("workload.categories: none of the prompts is of %q", w.Categories)
		}
	}
	return set, nil
}
