package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"time"

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

func (f *modelFlags) register(env *Env, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.model, "model", hub.Default, "run this `MODEL`")
	cmd.Flags().IntVar(&f.threads, "threads", env.Procs, "compute on `N` threads; more than the machine has processors is slow")
}

const (
	// spareProcs is what GOMAXPROCS allows beside the workers, which never yield while a pass runs: one for
	// the goroutine that feeds them and one for the collector.
	spareProcs = 2
	// threadsPerCore bounds --threads by the machine, and leastThreads is allowed on any: workers wait for each other
	// some 240 times a token, and spin meanwhile, so that hundreds on a few processors would seem to hang.
	threadsPerCore, leastThreads = 4, 8
)

// checkThreads refuses a number of threads that this machine cannot be meant for.
func (f *modelFlags) checkThreads(env *Env, cmd *cobra.Command) error {
	if limit := max(threadsPerCore*env.Procs, leastThreads); f.threads < 1 || f.threads > limit {
		return usage(cmd, "--threads %d: want 1 to %d (processors here: %d)", f.threads, limit, env.Procs)
	}
	return nil
}

// open fetches the model if need be and loads it, with progress. The caller closes the engine.
func (f *modelFlags) open(ctx context.Context, env *Env, cmd *cobra.Command, o engine.Options) (*engine.Engine, error) {
	if err := f.checkThreads(env, cmd); err != nil {
		return nil, err
	}
	o.Model, o.Threads = f.model, f.threads
	if !strings.HasPrefix(f.model, model.RandomPrefix) {
		var err error
		if o.Model, err = env.hub().Resolve(ctx, f.model, env.progress()); err != nil {
			return nil, err
		}
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), f.threads+spareProcs))
	o.Progress = loading(ctx, env, f.model)
	var e *engine.Engine
	err := interruptible(ctx, func() (err error) {
		e, err = engine.Open(o)
		return err
	})
	if err != nil {
		return nil, memoryHint(err)
	}
	if info := e.Device().Info(); !info.Amortises {
		fmt.Fprintf(env.Stderr, "note: this processor has none of the instruction sets that draftlab has kernels for (AVX2, AVX-512 VNNI); "+
			"the generic ones are slow, and each verified row costs a full pass there, so speculation will not pay\n")
	}
	return e, nil
}

// memoryHint adds the remedy to an error of a system that has not enough memory.
func memoryHint(err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return withHint(err.Error(), "keys and values need less memory with a smaller --context, weights with a smaller model")
	}
	return err
}

// loadingEvery is the time between two lines about a model that loads: the default one takes less, and says nothing.
const loadingEvery = 2 * time.Second

// loading returns an engine's progress function, which writes a line now and then.
func loading(ctx context.Context, env *Env, name string) func(done, total int64) {
	p, last := env.progress(), time.Now()
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) >= loadingEvery && ctx.Err() == nil {
			last = now
			p.Note(fmt.Sprintf("loading %s: %d %%", name, 100*done/total))
		}
	}
}

// interruptible runs f, which knows no context, and returns its error, or the context's as soon as that ends. Then f
// goes on in the background: the caller leaves what f writes alone, and ends the program.
func interruptible(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
