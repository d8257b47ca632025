package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/model"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/membw"
	"draftlab/lab/prompts"
	"draftlab/lab/target"
)

// tuneFlags are the command line of tune.
type tuneFlags struct {
	modelFlags
	drafter, out string
	quick        bool
}

// tuned is the JSON document of tune, and result.json.
type tuned struct {
	*campaign.Result
	Environment tunedEnvironment `json:"environment"`
}

// tunedEnvironment is what a result depends on beside its arms.
type tunedEnvironment struct {
	Started    time.Time      `json:"started"`
	Build      versionInfo    `json:"build"`
	Processors int            `json:"processors"`
	Threads    int            `json:"threads"`
	Model      string         `json:"model"`
	Drafter    string         `json:"drafter"` // as the server was told
	ReadyS     float64        `json:"server_ready_s"`
	Server     map[string]any `json:"server"` // its own /server_info
}

func newTune(env *Env) *cobra.Command {
	f := tuneFlags{}
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Find out whether speculation pays here, and how deep",
		Long: `Tune starts this program's own server, waits until it writes tokens, and measures plain decoding against the
drafter at several depths and against look-up of the text so far ("ngram"): greedy, one request at a time, on prompts
that no drafter was trained on. It ends with the fastest way of decoding, or says that none is faster than
plain decoding. That takes less than five minutes with the default model, fetching it apart.

On each prompt every arm is paired with a plain request of its own right before or after it, in random order, behind an
empty prefix cache. The speed-up is that of output tokens after the first, its interval from Wilcoxon's signed-rank
test on the logarithms, corrected for the number of arms in choosing. The fastest arm is measured again on fresh
prompts: that is the speed-up reported. Outputs are compared token by token; an arm whose text is not plain
decoding's never wins, and makes the status 1.

DRAFTER is "auto" (the one that comes with the model), a directory with an EAGLE-3 checkpoint, "random" (seeded random
weights: for cost alone), or "none", which leaves look-up.

--out DIR keeps result.json, samples.jsonl with every request (arrival of each chunk, memory bandwidth, what the
server's ledger spent) and server.log. The JSON document is result.json: {"verdict", "baseline", "best", "speedup",
"arms", "acceptance", "confirm", "environment", "warnings", …}. "verdict" is "faster"; "not-confirmed" if that was so
the first time only; "none-faster" if no arm can be so by more than 5 %; or "undecided", on too noisy a machine.
"best" and "speedup" are null but for "faster".` + exitHelp,
		Example: `  draftlab tune
  draftlab tune --quick          # within two minutes
  draftlab tune --out tuned --json
  draftlab tune --model ./model.gguf --drafter ./drafter`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runTune(env, cmd, &f) },
	}
	f.register(env, cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.drafter, "drafter", "auto", "measure this `DRAFTER`")
	fl.StringVar(&f.out, "out", "", "keep the result, the raw samples and the server's log in `DIR`")
	fl.BoolVar(&f.quick, "quick", false, "take at most 120 s: fewer prompts, shorter outputs, wider intervals")
	return cmd
}

// pace is how much is measured, and how long that may take.
type pace struct {
	want          campaign.Size
	budget, limit time.Duration
}

// The paces. Three prompts of each category tell 5 % from nothing on a quiet machine; the confirm run has more pairs for one arm at a
// fraction of the requests. The limits leave room for the block that runs, the start and the end.
var (
	fullPace  = pace{campaign.Size{Prompts: 18, Confirm: 24, MaxTokens: 128}, 200 * time.Second, 240 * time.Second}
	quickPace = pace{campaign.Size{Prompts: 12, Confirm: 12, MaxTokens: 64}, 70 * time.Second, 90 * time.Second}
)

const (
	stopGrace = 5 * time.Second
	// sayEvery is the time between two lines of progress.
	sayEvery = 5 * time.Second
)

func runTune(env *Env, cmd *cobra.Command, f *tuneFlags) error {
	if strings.HasPrefix(f.model, model.RandomPrefix) {
		return usage(cmd, "--model %s: random weights write no text, and accept no drafts: measure their passes with draftlab microbench", f.model)
	}
	servers, hasModel, err := f.target(env, cmd)
	if err != nil {
		return err
	}
	if _, err := env.hub().Resolve(cmd.Context(), f.model, env.progress()); err != nil {
		return err // now, with progress, and not within the server's start
	}
	dir, keep, err := f.directory(env)
	if err != nil {
		return err
	}
	doc, err := f.measure(cmd.Context(), env, dir, servers, hasModel)
	var boot *target.BootError
	if errors.As(err, &boot) {
		return withHint(err.Error(), "the server's log is "+boot.Log)
	}
	if !keep {
		defer os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	if err := writeResult(filepath.Join(dir, "result.json"), doc); err != nil {
		return err
	}
	if err := printTuned(env, cmd, doc); err != nil {
		return err
	}
	if !doc.Lossless {
		return errors.New("an arm's output is not plain decoding's: see the warnings; this is a defect of the server")
	}
	return nil
}

// target says which servers to start, and whether its requests may ask for a drafter's model. "auto" has the shipped drafter measured even
// where serve would leave it alone.
func (f *tuneFlags) target(env *Env, cmd *cobra.Command) (c target.Config, model bool, err error) {
	drafter := f.drafter
	switch drafter {
	case "":
		return c, false, usage(cmd, "--drafter is empty: want auto, none, random or a checkpoint's directory")
	case "auto":
		drafter = string(engine.DraftNone)
		if name := env.drafterOf(f.model); name != "" {
			if drafter, err = unpackDrafter(env, name); err != nil {
				return c, false, err
			}
		}
	}
	model = drafter != string(engine.DraftNone) && drafter != string(engine.DraftNgram)
	if f.drafter != "auto" || !model || !engine.SpeculationPays() {
		f.drafter = drafter // to serve, too, "auto" would mean something else
	}
	program, err := env.Executable()
	return target.Config{
		Kind: "draftlab", Command: []string{program, "serve"}, Model: f.model, Drafter: drafter, Environ: serverEnviron(env),
		Flags: map[string]string{"threads": strconv.Itoa(f.threads), "max-running-requests": "1"},
	}, model, err
}

// directory returns where everything is kept; keep says that it was asked for.
func (f *tuneFlags) directory(env *Env) (dir string, keep bool, err error) {
	if f.out == "" {
		dir, err = os.MkdirTemp(env.Temp, "draftlab-tune-")
		return dir, false, err
	}
	if _, err := os.Stat(filepath.Join(f.out, "samples.jsonl")); err == nil {
		return "", true, withHint(fmt.Sprintf("--out %s: there are samples in it already", ui.Clean(f.out)), "name a new directory")
	}
	return f.out, true, os.MkdirAll(f.out, 0o755)
}

// measure starts the server, runs the campaign and stops the server.
func (f *tuneFlags) measure(ctx context.Context, env *Env, dir string, servers target.Config, hasModel bool) (*tuned, error) {
	starter, err := target.New(servers)
	if err != nil {
		return nil, err
	}
	samples, err := os.Create(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		return nil, err
	}
	defer samples.Close() // each line is written out at once
	started := time.Now()
	p := env.progress()
	p.Note("starting the server")
	server, err := starter.Boot(ctx, target.BootOptions{Name: "server", Dir: dir, Status: func(s target.Status) { p.Note(s.String()) }})
	if err != nil {
		return nil, err
	}
	defer server.Stop(stopGrace)
	info, err := server.Info(ctx)
	if err != nil {
		return nil, err
	}
	p.Note(fmt.Sprintf("the server generates, %.1f s after its start", server.Ready.Seconds()))
	pace := fullPace
	if f.quick {
		pace = quickPace
	}
	outcome, err := campaign.Run(ctx, campaign.Config{
		Arms: campaign.DefaultArms(hasModel), Set: prompts.All().Of(prompts.HeldOut), Seed: rand.Uint64() >> 12, // a number that JSON's readers keep
		Want: pace.want, Budget: pace.budget, Limit: pace.limit, Server: server,
		Bandwidth: membw.New(f.threads).Probe,
		Record:    func(t *campaign.Trial) error { return json.NewEncoder(samples).Encode(t) },
		Progress:  sayProgress(p, time.Now),
	})
	if err != nil {
		return nil, err
	}
	return &tuned{campaign.Analyse(outcome), tunedEnvironment{
		Started: started.UTC(), Build: buildVersion(), Processors: runtime.NumCPU(), Threads: f.threads,
		Model: f.model, Drafter: f.drafter, ReadyS: server.Ready.Seconds(), Server: info,
	}}, nil
}

// serverEnviron is the environment without the key that a server would ask its clients for.
func serverEnviron(env *Env) []string {
	return slices.DeleteFunc(slices.Clone(env.Environ), func(v string) bool { return strings.HasPrefix(v, "DRAFTLAB_API_KEY=") })
}

// sayProgress writes a line at the beginning of each stage and every few seconds.
func sayProgress(p ui.Progress, now func() time.Time) func(campaign.Progress) {
	words := map[campaign.Stage]string{campaign.WarmUp: "warming up, until the speed is steady", campaign.Measure: "measuring", campaign.Confirm: "confirming the winner"}
	var stage campaign.Stage
	var last time.Time
	return func(c campaign.Progress) {
		t := now()
		if c.Stage == stage && t.Sub(last) < sayEvery {
			return
		}
		text := fmt.Sprintf("%s: %d of %d pairs", words[c.Stage], c.Done, c.Total)
		if c.Left > 0 {
			text += fmt.Sprintf(", about %.0f s to go", c.Left.Seconds())
		}
		stage, last = c.Stage, t
		p.Note(text)
	}
}

// writeResult writes result.json in one piece, so that whoever finds it finds all of it.
func writeResult(path string, doc *tuned) error {
	f, err := os.CreateTemp(filepath.Dir(path), "result-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone if it was renamed
	if err := ui.JSON(f, doc); err != nil {
		_ = f.Close()
		return err
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
