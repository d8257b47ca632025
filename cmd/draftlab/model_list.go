package main

import (
	"github.com/spf13/cobra"

	"draftlab/internal/hub"
	"draftlab/internal/ui"
)

func newModelList(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the named models and those in the hub's cache",
		Long: `List prints the models that have a name, whether they are here or not, and the model files (.gguf and
.safetensors) in the Hugging Face hub's cache. The first column is what other commands take as MODEL.

The JSON document is {"models": [{"name", "about", "licence", "present", "path", "bytes"}]}.` + exitHelp,
		Example: `  draftlab model list
  draftlab model list --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runModelList(env, cmd) },
	}
}

func runModelList(env *Env, cmd *cobra.Command) error {
	list, err := env.hub().List()
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, struct {
			Models []hub.Entry `json:"models"`
		}{list})
	}
	var rows [][]string
	for _, e := range list {
		where := e.Path
		if !e.Present {
			where = "absent: draftlab pull " + e.Name
		}
		rows = append(rows, []string{e.Name, ui.Bytes(e.Bytes), e.Licence, where})
	}
	return ui.Table(env.Stdout, env.width(env.Stdout),
		[]ui.Column{{Head: "MODEL"}, {Head: "SIZE", Right: true}, {Head: "LICENCE"}, {Head: "WHERE"}}, rows)
}
