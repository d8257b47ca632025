// Package field is what the experiments on whole campaigns share: [Lab] runs campaigns of package campaign against draftlab's own
// server, [Twins] makes two arms of whatever one likes, a slowed one among them, and [Fan] spreads campaigns over processes
// on processors of their own.
//
// It judges nothing. A program needs the binary draftlab and the model's file; it builds and fetches nothing itself.
package field

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/membw"
	"draftlab/lab/prompts"
	"draftlab/lab/store"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// Lab is where campaigns are run.
type Lab struct {
	Fan
	Out     string // directory of the campaigns; what is there already is not measured again
	Seed    uint64
	Tokens  int // most tokens of an output
	model   string
	program string
	threads int
	Log     io.Writer

	drafter string
}

// Register adds the flags.
func (l *Lab) Register(f *flag.FlagSet, out string, tokens int) {
	l.Fan.Register(f)
	l.Log = os.Stderr
	f.StringVar(&l.Out, "out", out, "keep campaigns in `DIR`, and go on with those that are there")
	f.Uint64Var(&l.Seed, "seed", 1, "choose prompts and orders by this `NUMBER`: with another one, use another --out")
	f.IntVar(&l.Tokens, "tokens", tokens, "write at most `N` tokens")
	f.StringVar(&l.model, "model", "", "run the default target from this `FILE`; without it, from the cache")
	f.StringVar(&l.program, "draftlab", "", "the `PROGRAM` whose server is measured; without it, the draftlab beside this one")
	f.IntVar(&l.threads, "threads", 0, "compute on `N` threads; 0 is one less than the process has processors, which leaves one to the client")
}

// Open finds the files.
func (l *Lab) Open() (err error) {
	if l.Tokens < 16 || l.threads < 0 {
		return rig.Usage("--tokens: at least 16; --threads: at least 0")
	}
	if err := os.MkdirAll(l.Out, 0o755); err != nil {
		return err
	}
	if l.program == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		l.program = filepath.Join(filepath.Dir(self), "draftlab")
	}
	if _, err := exec.LookPath(l.program); err != nil {
		return fmt.Errorf("no draftlab to measure (%w): build one, go build -o bin/ ./cmd/draftlab ./experiments/..., or name it with --draftlab", err)
	}
	if l.model == "" {
		l.model, l.drafter, err = rig.Files()
		return err
	}
	if _, err := os.Stat(l.model); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	l.drafter, err = rig.Drafter(filepath.Join(l.Out, "drafters"))
	return err
}

// engine starts the servers.
func (l *Lab) engine() (target.Engine, error) {
	threads := cmp.Or(l.threads, max(1, runtime.NumCPU()-1))
	flags := map[string]string{"max-running-requests": "1", "log-cycles": "0", "log-interval": "0", "threads": strconv.Itoa(threads)}
	program, err := filepath.Abs(l.program)
	if err != nil {
		return nil, err
	}
	return target.New(target.Config{Kind: "draftlab", Command: []string{program, "serve"}, Model: l.model, Drafter: l.drafter, Flags: flags})
}

// Plan is a campaign.
type Plan struct {
	Name           string // of its directory
	Arms           []trial.Arm
	Pairs, Confirm int    // for each arm, and for the winner
	Search         string // as the campaign file has it; "" is the grid
	Most           int    // arms that are measured at most; 0 leaves it to the search
	EarlyStop      bool
	Seed           uint64
}

// text is the campaign's file.
func (p *Plan) text(tokens int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ntarget: {kind: draftlab}\nmodel: default\ndrafter: shipped\nseed: %d\nboots: 1\nbudget: {time: 24h}\n", p.Name, p.Seed)
	fmt.Fprintf(&b, "workload: {prompts: heldout, count: %d, confirm: %d, max_tokens: %d}\n", p.Pairs, p.Confirm, tokens)
	search := p.Search
	if search == "" {
		search = file.Grid
	}
	fmt.Fprintf(&b, "search: {kind: %s, early_stop: %t", search, p.EarlyStop)
	if p.Most > 0 {
		fmt.Fprintf(&b, ", arms: %d", p.Most)
	}
	b.WriteString("}\narms:\n")
	for _, a := range p.Arms {
		fmt.Fprintf(&b, "  - {name: %s, drafter: %s, steps: %d, topk: %d", a.Name, a.Drafter, a.Steps, a.TopK)
		if a.TopK > 1 {
			fmt.Fprintf(&b, ", draft_tokens: %d", a.DraftTokens)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// Campaign runs a campaign, or what is left of it. Wrap may put something between campaign and server; nil puts nothing.
func (l *Lab) Campaign(ctx context.Context, p *Plan, wrap func(campaign.Engine) campaign.Engine) error {
	e, err := l.engine()
	if err != nil {
		return err
	}
	driven := campaign.Servers(e)
	if wrap != nil {
		driven = wrap(driven)
	}
	s, err := l.store(p)
	if err != nil {
		return err
	}
	defer s.Close()
	began, last := time.Now(), time.Time{}
	err = campaign.Run(ctx, campaign.Config{
		Store: s, Engine: driven, Set: prompts.All().Of(prompts.HeldOut), Bandwidth: membw.New(1).Probe, Boots: func(target.Status) {},
		Progress: func(c campaign.Progress) {
			if now := time.Now(); now.Sub(last) > sayEvery {
				last = now
				fmt.Fprintf(l.Log, "%s: %s, %d of %d pairs\n", p.Name, c.Stage, c.Done, c.Total)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	fmt.Fprintf(l.Log, "%s: done, %.0f s\n", p.Name, time.Since(began).Seconds())
	return nil
}

// Read hands what a campaign measured to a reader.
func (l *Lab) Read(p *Plan, read func(*store.Store, *campaign.Result) error) error {
	s, err := store.Open(filepath.Join(l.Out, p.Name))
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := campaign.Analyse(s)
	if err != nil {
		return err
	}
	return read(s, r)
}

// sayEvery is the time between two lines of progress.
const sayEvery = 20 * time.Second

// store opens the campaign's directory, or makes it. One that was run with other settings is an error.
func (l *Lab) store(p *Plan) (*store.Store, error) {
	dir := filepath.Join(l.Out, p.Name)
	text := p.text(l.Tokens)
	s, err := store.Resume(dir)
	if absent := (*store.AbsentError)(nil); errors.As(err, &absent) {
		c, err := file.Parse(p.Name, []byte(text))
		if err != nil {
			return nil, err
		}
		made, err := campaign.New(c, p.Seed, nil)
		if err != nil {
			return nil, err
		}
		return store.Create(dir, made)
	}
	if err != nil {
		return nil, err
	}
	c, err := s.Campaign()
	if err == nil && c.File != text {
		err = fmt.Errorf("%s holds a campaign with other settings: name another --out, or remove it", dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
