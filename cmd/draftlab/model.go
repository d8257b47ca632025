package main

import "github.com/spf13/cobra"

func newModel(env *Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "model",
		Short: "List, inspect, verify and export models",
		Long: `The model commands say which models there are and what is in them, and write them for other engines.

Wherever a MODEL is asked for, it is a name from "draftlab model list", hf:OWNER/REPO/FILE, or the path of a
GGUF file, a safetensors file or a directory that holds a model.` + exitHelp,
		Example: `  draftlab model list
  draftlab model inspect smollm2
  draftlab model verify ./model.gguf
  draftlab model export smollm2 ./smollm2-hf`,
	}, newModelList(env), newModelInspect(env), newModelVerify(env), newModelExport(env))
}
