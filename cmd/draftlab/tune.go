package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/model"
	"draftlab/lab/campaign/file"
)

// tuneFlags are the command line of tune.
type tuneFlags struct {
	modelFlags
	drafter, target string
	out, resume     string
	quick, dryRun   bool
}

func newTune(env *Env) *cobra.Command {
	f := tuneFlags{}
	cmd := &cobra.Command{
		Use:   "tune [FILE]",
		Short: "Find out whether speculation pays, how deep, and what a setting does",
		Long: `Tune starts a server, waits until it writes tokens, and measures ways of decoding against plain decoding. It ends
with the fastest way, measured once more on fresh prompts, or says that none is faster than plain decoding.

Without FILE it takes this program's own server, the drafter at several depths and look-up of the text so far
("ngram"): greedy, one request at a time, on prompts that no drafter was trained on. That takes less than five minutes
with the default model, fetching it apart. DRAFTER is "auto" (the one that comes with the model), a directory with an
EAGLE-3 checkpoint, "random" (seeded random weights: for cost alone), or "none", which leaves look-up.

FILE is a campaign in YAML: any server that draftlab can start (its own, SGLang's, llama.cpp's) or one that runs, here
or over ssh, with any flag, environment variable or key of the drafter's config.json as a factor. docs/campaign.md
lists the keys, the method, and the keys of the result. --target measures the same campaign on servers of another
kind, with the program that those are usually started with; for llama.cpp's on this machine model and drafter are named
as for draftlab's own, and the drafter becomes a GGUF file in the cache.

On each prompt every arm is paired with a plain request of its own right before or after it, in random order, behind an
empty prefix cache; where an arm needs a server of its own, servers are started several times, and starts count as
observations. The interval of the speed-up is that of Wilcoxon's signed-rank test on the logarithms, corrected for the
number of arms in choosing. Outputs are compared token by token; an arm whose text is not plain decoding's never wins,
and makes the status 1.

--out DIR keeps everything: draftlab.db and samples.jsonl (each request as it was measured), the servers' logs,
result.json and benchstat.txt. A campaign that was interrupted or killed goes on with --resume DIR and loses nothing but
the request that was running. The JSON document is result.json: {"verdict", "baseline", "best", "speedup", "arms",
"phases", "acceptance", "cost_model", "verdicts", …}. "verdict" is "faster"; "not-confirmed" if that was so the first
time only; "none-faster" if no arm can be so by more than 5 %; or "undecided", on too noisy a machine. "best" and
"speedup" are null but for "faster". With --dry-run it is the plan, and the status 1 if that is impossible;
"fetch" is the model that would be fetched first, "convert" the drafter that would be written for llama.cpp.` + exitHelp,
		Example: `  draftlab tune
  draftlab tune --quick          # within two minutes
  draftlab tune --out tuned --json
  draftlab tune campaign.yaml --dry-run
  draftlab tune campaign.yaml --target llamacpp --out on-llamacpp
  draftlab tune --model ./model.gguf --drafter ./drafter`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runTune(env, cmd, &f, args) },
	}
	f.register(env, cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.drafter, "drafter", "auto", "measure this `DRAFTER`")
	fl.StringVar(&f.target, "target", "", "measure servers of this `KIND` instead of the one that FILE names")
	fl.StringVar(&f.out, "out", "", "keep everything in `DIR`, which is new")
	fl.StringVar(&f.resume, "resume", "", "go on with the campaign in `DIR`")
	fl.BoolVar(&f.quick, "quick", false, "take at most 120 s: fewer prompts, shorter outputs, wider intervals")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the plan, its commands and what it can find out; start and fetch nothing")
	return cmd
}

func runTune(env *Env, cmd *cobra.Command, f *tuneFlags, args []string) error {
	if f.resume != "" {
		if len(args) > 0 || changed(cmd, "model", "threads", "drafter", "target", "quick", "out", "dry-run") != "" {
			return usage(cmd, "--resume goes on as the campaign was begun: it takes no file and no other flags")
		}
		return resumeTune(env, cmd, f.resume)
	}
	c, err := f.campaign(env, cmd, args)
	if err != nil {
		return err
	}
	if f.dryRun {
		return previewTune(env, cmd, c)
	}
	return startTune(env, cmd, f.out, c)
}

// changed returns the first of some flags that was given, "" if none was.
func changed(cmd *cobra.Command, names ...string) string {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return "--" + name
		}
	}
	return ""
}

// campaign reads the file, or makes one of the flags.
func (f *tuneFlags) campaign(env *Env, cmd *cobra.Command, args []string) (*file.Campaign, error) {
	if len(args) > 0 {
		if flag := changed(cmd, "model", "threads", "drafter", "quick"); flag != "" {
			return nil, usage(cmd, "%s is for a campaign without a file: %s says what is measured", flag, args[0])
		}
		source, err := os.ReadFile(args[0])
		if err != nil {
			return nil, withHint(err.Error(), "draftlab tune without a file measures the default model")
		}
		if f.target != "" {
			if source, err = f.retarget(cmd, args[0], source); err != nil {
				return nil, err
			}
		}
		return file.Parse(args[0], source)
	}
	if f.target != "" {
		return nil, usage(cmd, "--target is for a campaign file: without one draftlab's own server is measured")
	}
	if strings.HasPrefix(f.model, model.RandomPrefix) {
		return nil, usage(cmd, "--model %s: random weights write no text, and accept no drafts: measure their passes with draftlab microbench", f.model)
	}
	if f.drafter == "" {
		return nil, usage(cmd, "--drafter is empty: want auto, none, random or a checkpoint's directory")
	}
	text, err := f.text(env)
	if err != nil {
		return nil, err
	}
	return file.Parse("the default campaign", []byte(text))
}

// retarget has the file's campaign carried out on another kind of server.
func (f *tuneFlags) retarget(cmd *cobra.Command, name string, source []byte) ([]byte, error) {
	if f.target == "attach" || !slices.Contains(file.Kinds(), f.target) {
		return nil, usage(cmd, "--target %s: want a server that can be started: draftlab, sglang or llamacpp", f.target)
	}
	return file.Retarget(name, source, f.target)
}

// pace is how much is measured, and how long that may take.
type pace struct {
	Prompts, Confirm, MaxTokens int
	Time                        time.Duration
}

// The paces. Three prompts of each category tell 5 % from nothing on a quiet machine; the confirm run has more pairs for one arm at a
// fraction of the requests. The times leave room for the block that runs, the start and the end.
var (
	fullPace  = pace{Prompts: 18, Confirm: 24, MaxTokens: 128, Time: 240 * time.Second}
	quickPace = pace{Prompts: 12, Confirm: 12, MaxTokens: 64, Time: 90 * time.Second}
)

// defaultCampaign is what tune measures without a file. The depths: each of the first three drafts is the one that pays last somewhere,
// five shows what deeper ones would do, and the tree is a small one, since on a processor each further row costs.
var defaultCampaign = template.Must(template.New("").Funcs(template.FuncMap{"quote": strconv.Quote}).Parse(`# What draftlab tune measures without a file.
target:
  kind: draftlab
  flags: {threads: {{.Threads}}}
model: {{quote .Model}}
drafter: {{quote .Drafter}}
workload: {prompts: heldout, count: {{.Pace.Prompts}}, confirm: {{.Pace.Confirm}}, max_tokens: {{.Pace.MaxTokens}}}
budget: {time: {{.Pace.Time}}, boots: 4}
arms:
  - {drafter: ngram, steps: 3}
{{- if .HasModel}}
  - {drafter: eagle3, steps: 1}
  - {drafter: eagle3, steps: 2}
  - {drafter: eagle3, steps: 3}
  - {drafter: eagle3, steps: 5}
  - {drafter: eagle3, steps: 3, topk: 2, draft_tokens: 6}
{{- else}}
  - {drafter: ngram, steps: 1}
  - {drafter: ngram, steps: 5}
{{- end}}
`))

// text is the campaign file that the flags stand for.
func (f *tuneFlags) text(env *Env) (string, error) {
	values := struct {
		Threads        int
		Model, Drafter string
		Pace           pace
		HasModel       bool
	}{f.threads, f.model, f.drafter, fullPace, f.drafter != string(engine.DraftNone) && f.drafter != string(engine.DraftNgram)}
	if f.quick {
		values.Pace = quickPace
	}
	if f.drafter == "auto" && env.drafterOf(f.model) == "" {
		values.Drafter, values.HasModel = string(engine.DraftNone), false
	}
	var b strings.Builder
	if err := defaultCampaign.Execute(&b, values); err != nil {
		return "", fmt.Errorf("the default campaign: %w", err)
	}
	return b.String(), nil
}
