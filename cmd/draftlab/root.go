package main

import "github.com/spf13/cobra"

// newRoot makes the command tree. A new command is a constructor in a file of its own and a line here.
func newRoot(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "draftlab",
		Short: "A laboratory for speculative decoding",
		Long: `Draftlab runs a language model on this machine and measures what speculative decoding gains.

The first command that needs a model fetches the default one. Each command writes its result to
standard output and progress to standard error; with --json the result is one JSON document.` + exitHelp,
		Example: `  draftlab tune                  # whether speculation pays here, and how deep
  draftlab generate "Why is the sky blue?"
  draftlab microbench            # what a further row costs on this machine
  draftlab model inspect         # what the default model is made of`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkPaths(cmd) },
	}
	group(root,
		newPull(env),
		newModel(env),
		newGenerate(env),
		newServe(env),
		newTune(env),
		newMicrobench(env),
		newBench(env),
		newProfile(env),
		newExplain(env),
		newPredict(env),
		newReport(env),
		newDoctor(env),
		newVersion(env),
	)
	root.SetHelpCommand(newHelp())
	version := root.Flags().Bool("version", false, "print which build this is, as draftlab version does")
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return printVersion(env, cmd)
		}
		return help(cmd, args)
	}
	root.PersistentFlags().Bool("json", false, "print one JSON document and nothing else on standard output")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		group(completion) // cobra's own takes any word for a call for help
		for _, shell := range completion.Commands() {
			shell.Args = atMost(0)
		}
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%s: %v", cmd.CommandPath(), err) })
	return root
}

// pathFlags are the flags, of all commands, that name a file or a directory.
var pathFlags = []string{"out", "resume", "from", "log", "trace", "prompts", "benchstat", "dataset-path"}

// checkPaths refuses a path that is given and empty, as one is that a script has in a variable it did not set: to go on as if the flag
// had been left out would keep nothing of hours of measuring.
func checkPaths(cmd *cobra.Command) error {
	for _, name := range pathFlags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return usage(cmd, "--%s is empty: name a file or a directory, or leave the flag out", name)
		}
	}
	return nil
}

// wantsJSON reports whether --json is given.
func wantsJSON(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("json")
	return err == nil && on // newRoot defines the flag for all commands
}
