package main

import (
	"github.com/spf13/cobra"
)

// profileFlags are the command line of profile.
type profileFlags struct {
	log    string
	follow bool
}

func newProfile(env *Env) *cobra.Command {
	f := profileFlags{}
	cmd := &cobra.Command{
		Use:   "profile --log FILE",
		Short: "Show where a server's time goes",
		Long: `Profile --log reads the log of an SGLang or vLLM server of any version, or standard input for "-": accept
length, throughput, the time of a cycle (accept length × running requests / throughput), decode batches
that ran without a CUDA graph, queue and cache pressure, what the start-up took, faults and answered
requests. Prefixes of docker, journald and Kubernetes are passed over, lines that cannot be read are
counted. Decode lines behind a rest of the server, whose throughput includes the pause, are left out of
throughput and cycle time. "accept rate" is not shown: it has three definitions. With --follow the file is
watched until an interrupt, which is then a regular end; the tables stay in place on a terminal, and a pipe
gets a line every ` + followEvery.String() + `.

The JSON document of --log has "engine", "lines", "decode" by rank, "prefill", "pressure", "boots", "faults",
"notices", "requests" and "warnings".` + exitHelp,
		Example: `  draftlab profile --log server.log
  draftlab profile --log server.log --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runProfile(env, cmd, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.log, "log", "", "read the log `FILE`, \"-\" for standard input")
	fl.BoolVar(&f.follow, "follow", false, "go on reading the log as it grows")
	return cmd
}

func runProfile(env *Env, cmd *cobra.Command, f *profileFlags) error {
	if f.log == "" {
		return usage(cmd, "%s needs --log FILE", cmd.CommandPath())
	}
	return profileLog(cmd.Context(), env, wantsJSON(cmd), f)
}
