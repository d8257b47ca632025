package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"draftlab/engine/doctor"
	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/engine/wiring"
	"draftlab/internal/ui"
)

// examination is the JSON document of doctor.
type examination struct {
	Drafter  string           `json:"drafter"`
	Model    string           `json:"model"`
	Sound    bool             `json:"sound"` // no fault
	Findings []doctor.Finding `json:"findings"`
	Wiring   *wiring.Result   `json:"wiring,omitempty"` // if it was measured
}

// doctorFlags are doctor's.
type doctorFlags struct {
	modelFlags
	files, quick bool
	prompts      string
}

func newDoctor(env *Env) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor [DRAFTER | CAMPAIGN.yaml]",
		Short: "Find out how a drafter is wired to its target, or what is wrong with a campaign",
		Long: `Doctor reads an EAGLE-3 drafter's directory (config.json and safetensors) and its target's configuration, and
says what cannot work and what engines would read differently: keys and tensors that are missing, unknown or of another
shape; another target's widths or vocabulary; layer ids that number inputs in one engine and outputs in another;
a vocabulary map of ids in the place of offsets; ends of text that cannot be drafted; rotary embeddings that differ;
weights that are zero or no numbers.

Then it measures. The target writes greedy answers to prompts, and the drafter drafts over them under each wiring that
is plausible: layer ids as inputs or as outputs, shifted, with the embedding or the last layer's output, in other
orders, and any single layer in the place of each; drafting on from the normed state or from the one before it; norms
that the checkpoint leaves open; d2t as offsets or as ids; other rotary embeddings. It says which wiring acceptance
supports, with intervals, whether that is the configured one, and what to change. Wirings are chosen on some prompts and
judged on others. With the default model that takes some 20 seconds on two quiet cores; a large model gets less text and
fewer wirings, for about three minutes or as long as the least takes, which is announced. --files looks at the files
alone.

Without DRAFTER it examines the one that comes with the model. docs/doctor.md lists the codes.

Of a campaign file (docs/campaign.md) it says, before a server is started: what an engine would rewrite silently or
refuse only once its model has loaded, what is unequal between arms and their baseline, drafts that cannot be, timers
that are missing, how small a difference the plan can find, and for this program's own engine whether the memory
suffices and what is wrong with the drafter's files.

The JSON document is {"drafter", "model", "sound", "findings": [{"level", "code", "text"}], "wiring"}; levels are ok,
note, warning and fault. "wiring" is there if it was measured: {"verdict", "measured": [{"role", "wiring", "text",
"accepted", "drafts", "less", "accept_length"}], "fixes": [{"key", "value", "text"}], …}. For a campaign it is
{"campaign", "sound", "findings"}. The exit status is 1 if there is a fault.` + exitHelp,
		Example: `  draftlab doctor
  draftlab doctor ./drafter --model ./model.gguf --prompts prompts.jsonl
  draftlab doctor ./drafter --model smollm2 --files --json
  draftlab doctor campaign.yaml`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runDoctor(env, cmd, args, &f) },
	}
	f.register(env, cmd)
	fl := cmd.Flags()
	fl.Lookup("model").Usage = "the target: a `MODEL`'s name or path"
	fl.BoolVar(&f.files, "files", false, "look at the files alone and run nothing")
	fl.BoolVar(&f.quick, "quick", false, "draft over less text, and do not try every layer")
	fl.StringVar(&f.prompts, "prompts", "", "have the target answer the prompts of `FILE`, a line of JSON with \"prompt\" each, instead of the project's own")
	return cmd
}

func runDoctor(env *Env, cmd *cobra.Command, args []string, f *doctorFlags) error {
	if f.files && (f.quick || f.prompts != "") {
		return usage(cmd, "--files runs nothing: leave --quick and --prompts out")
	}
	if len(args) == 1 && isCampaign(args[0]) {
		if flag := changed(cmd, "model", "threads", "files", "quick", "prompts"); flag != "" {
			return usage(cmd, "%s is for a drafter: %s says what is measured", flag, ui.Clean(args[0]))
		}
		return doctorCampaign(env, cmd, args[0])
	}
	set, err := f.set()
	if err != nil {
		return err
	}
	dir := ""
	if len(args) == 1 {
		dir = args[0]
	} else {
		name := env.drafterOf(f.model)
		if name == "" {
			return usage(cmd, "no drafter comes with %s: name a drafter's directory", ui.Clean(f.model))
		}
		if dir, err = unpackDrafter(env, name); err != nil {
			return err
		}
	}
	cfg, err := targetConfig(env, cmd, f.model)
	if err != nil {
		return err
	}
	x := examination{Drafter: dir, Model: f.model}
	findings, err := doctor.Check(dir, cfg)
	if err == nil {
		err = x.add(env, cmd, findings)
	}
	if err == nil && !f.files {
		x.Wiring, findings, err = measureWiring(env, cmd, f, dir, cfg, set, x.Findings)
		err = errors.Join(err, x.add(env, cmd, findings))
	}
	if err != nil {
		return err
	}
	if x.Sound = !faulty(x.Findings); wantsJSON(cmd) {
		if err := ui.JSON(env.Stdout, x); err != nil {
			return err
		}
	}
	if !x.Sound {
		return fmt.Errorf("%s has faults", dir)
	}
	return nil
}

// add takes findings and prints them for people at once, so that those about files stand there while the rest is measured.
func (x *examination) add(env *Env, cmd *cobra.Command, findings []doctor.Finding) error {
	x.Findings = append(x.Findings, findings...)
	if wantsJSON(cmd) {
		return nil
	}
	return printFindings(env, findings)
}

// targetConfig reads the configuration of a model, fetching it if it has a name and is not here.
func targetConfig(env *Env, cmd *cobra.Command, name string) (_ model.Config, err error) {
	path, err := env.hub().Resolve(cmd.Context(), name, env.progress())
	if err != nil {
		return model.Config{}, err
	}
	f, err := weights.Open(path)
	if err != nil {
		return model.Config{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return model.ReadConfig(f)
}
