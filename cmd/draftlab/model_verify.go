package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/internal/hub"
	"draftlab/internal/ui"
)

func newModelVerify(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [MODEL]",
		Short: "Check a model file's hash and structure",
		Long: `Verify reads a model file from end to end, compares its SHA-256 with the known one, and checks its
structure: every tensor lies inside the file, and the architecture is one that draftlab runs. A file
given by its path has no known hash; then the hash is printed for you to compare.

Verify fetches nothing. The JSON document is {"name", "path", "bytes", "sha256", "want"}.` + exitHelp,
		Example: `  draftlab model verify
  draftlab model verify ./model.gguf --json`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runModelVerify(env, cmd, modelArg(args)) },
	}
}

func runModelVerify(env *Env, cmd *cobra.Command, name string) error {
	v, err := env.hub().Verify(cmd.Context(), name, env.progress())
	if err != nil {
		return err
	}
	if err := checkStructure(v.Path); err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, v)
	}
	return printVerification(env, v)
}

func printVerification(env *Env, v hub.Verification) error {
	verdict := "the known hash"
	if v.Want == "" {
		verdict = "no hash is known for it"
	}
	_, err := fmt.Fprintf(env.Stdout, "%s: structure good, %s, SHA-256 %s (%s)\n", ui.Clean(v.Path), ui.Bytes(v.Bytes), v.SHA256, verdict)
	return err
}

// checkStructure opens the file and resolves its architecture, which checks everything but the weights' values.
func checkStructure(path string) error {
	f, err := weights.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Guard(func() error {
		_, err := model.ReadConfig(f)
		return err
	})
}
