package main

import (
	"github.com/spf13/cobra"
)

// profileFlags are the command line of profile.
type profileFlags struct {
	modelFlags
	draftFlags
	self   bool
	log    string
	follow bool
	cycles int64
	plain  float64
	trace  string
}

func newProfile(env *Env) *cobra.Command {
	f := profileFlags{}
	cmd := &cobra.Command{
		Use:   "profile URL | --self | --log FILE",
		Short: "Show where a server's time goes",
		Long: `Profile attaches to a running server and shows the time of its cycles by phase, the accept length and the
one at which speculation breaks even: in place on a terminal, as a line every ` + followEvery.String() + ` in a pipe. At the end, after
--cycles or an interrupt, which is a regular end, it says which phase is the bottleneck and what one draft
token more or fewer would cost and bring, each with the figures used. What a server does not tell is named.

  draftlab    its ledger of cycles: phases with percentiles
  SGLang      sums by phase, from 0.5.11 with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 and --enable-metrics
  vLLM        accept length by position, the time of a cycle; of a plain step where it does not speculate
  llama.cpp   the same, with --metrics

With --trace FILE the server records a trace meanwhile. draftlab's is one file for ui.perfetto.dev, which is copied
from a server on this machine; SGLang's are in a directory of that name on its machine, vLLM's where it was
told to put them.

It sends no requests: what it shows is the load that the server has. A server that speculates in every cycle
never shows a plain step; --plain takes the rate of plain decoding from elsewhere. DRAFTLAB_API_KEY is sent as
the server's key.

With --self it starts this program's own server, with the flags of serve for model and drafter, and sends it the
project's held-out prompts one at a time, each with and without drafts, for 1000 cycles or --cycles. It stops the
server.

With --log it reads the log of an SGLang, vLLM or llama.cpp server of any version instead, "-" being standard
input: accept length (from SGLang's by the length of requests, too), throughput, the time of a cycle (accept
length × running requests / throughput), decode batches that ran without a CUDA graph, queue and cache pressure,
what the start-up took, faults, what the server changed of its settings, answered requests, and warnings of what
that means. A log without a line about decoding is an error. Prefixes of docker, journald and Kubernetes are
passed over, lines that cannot be read are counted. Decode lines behind a rest of the server, whose throughput
includes the pause, are left out of throughput and cycle time. "accept rate" is not shown: it has three
definitions. With --follow the file is watched until an interrupt.

The JSON document has "engine", "seconds", "cycles", "phases", "cycle", "accept_length", "tok_s", "what_if",
"missing" and more; with --log "engine", "lines", "decode" by rank, "prefill", "pressure", "boots", "faults",
"notices", "requests", "warnings" and "what_if".` + draftHelp + exitHelp,
		Example: `  draftlab profile http://127.0.0.1:30000
  draftlab profile localhost:30000 --cycles 1000 --json
  draftlab profile localhost:30000 --cycles 0        # what the server has counted since its start
  draftlab profile --self --steps 5 --trace cycles.trace.json
  draftlab profile --log server.log
  draftlab profile --log server.log --plain 88.8     # plain decoding, measured in another start`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runProfile(env, cmd, &f, args) },
	}
	f.modelFlags.register(env, cmd)
	f.draftFlags.register(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.self, "self", false, "start a server of this program, send it prompts, and profile it")
	fl.StringVar(&f.log, "log", "", "read the log `FILE`, \"-\" for standard input")
	fl.BoolVar(&f.follow, "follow", false, "go on reading the log as it grows")
	fl.Int64Var(&f.cycles, "cycles", -1, "end after `N` cycles; 0 shows what the server has counted since its start; without it, an interrupt ends it")
	fl.StringVar(&f.trace, "trace", "", "have the server record a trace meanwhile, and put it into this `FILE`")
	fl.Float64Var(&f.plain, "plain", 0, "plain decoding gives one sequence `RATE` tok/s, for servers that never show it")
	return cmd
}

func runProfile(env *Env, cmd *cobra.Command, f *profileFlags, args []string) error {
	ways := len(args)
	for _, given := range []bool{f.log != "", f.self} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usage(cmd, "%s needs one of a server's URL, --self and --log FILE", cmd.CommandPath())
	case f.follow && f.log == "":
		return usage(cmd, "--follow goes with --log")
	case cmd.Flags().Changed("cycles") && (f.log != "" || f.cycles < 0 || f.self && f.cycles == 0):
		return usage(cmd, "--cycles %d: it goes with a server's URL, and with --self if it is more than 0; it is not negative", f.cycles)
	case f.trace != "" && (f.log != "" || f.cycles == sinceStart):
		return usage(cmd, "--trace goes with a server that is watched: not with --log or --cycles 0")
	case cmd.Flags().Changed("plain") && (f.self || !(f.plain > 0 && f.plain < 1e6)):
		return usage(cmd, "--plain %v: want tokens a second, more than 0; --self measures it", f.plain)
	}
	if f.self {
		return profileSelf(cmd.Context(), env, cmd, f)
	}
	if err := selfOnly(cmd); err != nil {
		return err
	}
	if f.log != "" {
		return profileLog(cmd.Context(), env, wantsJSON(cmd), f)
	}
	return profileURL(cmd.Context(), env, wantsJSON(cmd), f, args[0])
}
