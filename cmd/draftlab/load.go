package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/model"
	"draftlab/internal/hub"
)

// modelFlags are the flags of every command that runs a model.
type modelFlags struct {
	model   string
	threads int
}

// randomHelp is the part of such a command's manual about random models.
const randomHelp = `

MODEL is a model that "draftlab model list" shows, a GGUF file, a checkpoint's directory, hf:OWNER/REPO/FILE, or
random:SHAPE-FORMAT, seeded random weights of a known shape for measurements without a download, such as
random:llama-3.2-1b-q4_0; a shape or format that is not known is answered with those that are.`

func (f *modelFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.model, "model", hub.Default, "run this `MODEL`")
	cmd.Flags().IntVar(&f.threads, "threads", runtime.GOMAXPROCS(0), "compute on `N` threads; more than the machine has cores is slow")
}

// spareProcs is what GOMAXPROCS allows beside the workers, which never yield while a pass runs: one for
// the goroutine that feeds them and one for the collector.
const spareProcs = 2

// open fetches the model if need be and loads it, with progress. The caller closes the engine.
func (f *modelFlags) open(ctx context.Context, env *Env, cmd *cobra.Command, o engine.Options) (*engine.Engine, error) {
	if f.threads < 1 || f.threads > maxThreads {
		return nil, usage(cmd, "--threads %d: want 1 to %d", f.threads, maxThreads)
	}
	o.Model, o.Threads = f.model, f.threads
	if !strings.HasPrefix(f.model, model.RandomPrefix) {
		h, err := env.hub()
		if err != nil {
			return nil, err
		}
		if o.Model, err = h.Resolve(ctx, f.model, env.progress()); err != nil {
			return nil, err
		}
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), f.threads+spareProcs))
	e, err := engine.Open(o)
	if err != nil {
		return nil, err
	}
	if info := e.Device().Info(); !info.Amortises {
		fmt.Fprintf(env.Stderr, "note: this processor has none of the instruction sets that draftlab has kernels for (AVX2, AVX-512 VNNI); "+
			"the generic ones are slow, and each verified row costs a full pass there, so speculation will not pay\n")
	}
	return e, ctx.Err()
}

// maxThreads bounds --threads against typing errors; the workers spin.
const maxThreads = 1024
