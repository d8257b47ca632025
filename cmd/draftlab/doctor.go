package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"draftlab/engine/doctor"
	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/internal/hub"
	"draftlab/internal/ui"
)

// examination is the JSON document of doctor.
type examination struct {
	Drafter  string           `json:"drafter"`
	Model    string           `json:"model"`
	Sound    bool             `json:"sound"` // no fault
	Findings []doctor.Finding `json:"findings"`
}

func newDoctor(env *Env) *cobra.Command {
	var target string
	cmd := &cobra.Command{
		Use:   "doctor [DRAFTER]",
		Short: "Check a drafter's files beside its target, before hours are spent",
		Long: `Doctor reads an EAGLE-3 drafter's directory (config.json and safetensors) and its target's configuration, and
says what cannot work and what engines would read differently: keys and tensors that are missing, unknown or of another
shape; another target's widths or vocabulary; layer ids that number inputs in one engine and outputs in another;
a vocabulary map of ids in the place of offsets; ends of text that cannot be drafted; rotary embeddings that differ;
weights that are zero or no numbers. It runs nothing, so it cannot tell how good a drafter is.

Without DRAFTER it looks at the one that comes with the model. docs/doctor.md lists the codes.

The JSON document is {"drafter", "model", "sound", "findings": [{"level", "code", "text"}]}; levels are ok, note,
warning and fault. The exit status is 1 if there is a fault.` + exitHelp,
		Example: `  draftlab doctor
  draftlab doctor ./drafter --model ./model.gguf
  draftlab doctor ./drafter --model smollm2 --json`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runDoctor(env, cmd, args, target) },
	}
	cmd.Flags().StringVar(&target, "model", hub.Default, "the target: a `MODEL`'s name or path")
	return cmd
}

func runDoctor(env *Env, cmd *cobra.Command, args []string, target string) error {
	dir := ""
	if len(args) == 1 {
		dir = args[0]
	} else {
		name := env.drafterOf(target)
		if name == "" {
			return usage(cmd, "no drafter comes with %s: name a drafter's directory", ui.Clean(target))
		}
		var err error
		if dir, err = unpackDrafter(env, name); err != nil {
			return err
		}
	}
	cfg, err := targetConfig(env, cmd, target)
	if err != nil {
		return err
	}
	findings, err := doctor.Check(dir, cfg)
	if err != nil {
		return err
	}
	ill := slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Level == doctor.Fault })
	x := examination{Drafter: dir, Model: target, Sound: !ill, Findings: findings}
	if wantsJSON(cmd) {
		err = ui.JSON(env.Stdout, x)
	} else {
		for _, f := range x.Findings {
			_, e := fmt.Fprintf(env.Stdout, "%s\n", paragraph(fmt.Sprintf("%s: %s [%s]", f.Level, ui.Clean(f.Text), f.Code)))
			err = errors.Join(err, e)
		}
	}
	if err == nil && ill {
		return fmt.Errorf("%s has faults", dir)
	}
	return err
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
