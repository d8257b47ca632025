package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/client"
	"draftlab/lab/profile"
	"draftlab/lab/prompts"
	"draftlab/lab/target"
)

const (
	// selfTokens is the length of an output: long beside the first cycles after a prompt, which are slower.
	selfTokens = 128
	// selfCycles is how long profile --self runs without --cycles: some seconds of the default model, and enough that a phase's 99th
	// percentile has ten cycles beyond it.
	selfCycles = 1000
	// selfBoot bounds the start of the server, selfGrace its end.
	selfBoot  = 15 * time.Minute
	selfGrace = 10 * time.Second
)

// selfFlags are the flags that profile --self hands on to the server.
var selfFlags = []string{"threads", "drafter", "steps", "topk", "draft-tokens", "draft-p-min"}

// selfTarget says which server to start: serve's flags are as they are here.
func selfTarget(env *Env, cmd *cobra.Command, model, dir string) (target.Config, error) {
	flags := map[string]string{"max-running-requests": "1", "profile-dir": dir}
	for _, name := range selfFlags {
		if f := cmd.Flags().Lookup(name); f.Changed {
			flags[name] = f.Value.String()
		}
	}
	program, err := env.Executable()
	return target.Config{Kind: "draftlab", Command: []string{program, "serve"}, Model: model, Flags: flags, Environ: serverEnviron(env), Ready: selfBoot}, err
}

// profileSelf starts this program's own server, sends it the held-out prompts and profiles it meanwhile.
func profileSelf(ctx context.Context, env *Env, cmd *cobra.Command, f *profileFlags) (err error) {
	dir, err := os.MkdirTemp(env.Temp, "draftlab-profile-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := env.progress()
	p.Note("starting the server")
	servers, err := selfTarget(env, cmd, f.model, dir)
	if err != nil {
		return err
	}
	starter, err := target.New(servers)
	if err != nil {
		return err
	}
	server, err := starter.Boot(ctx, target.BootOptions{Name: "server", Dir: dir, Status: func(s target.Status) { p.Note(s.String()) }})
	if err != nil {
		return err
	}
	defer server.Stop(selfGrace)
	p.Note(fmt.Sprintf("the server generates, %.1f s after its start; sending the held-out prompts, each with and without drafts", server.Ready.Seconds()))
	src, err := profile.Attach(ctx, profile.Options{URL: server.Client.Base, HTTP: server.Client.HTTP})
	if err != nil {
		return err
	}
	if err := src.Poll(ctx, time.Now()); err != nil { // what comes now is covered
		return err
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(done)
		failed <- sendPrompts(load, server, f.model)
	}()
	if f.cycles < 0 {
		f.cycles = selfCycles
	}
	err = f.traced(ctx, env, server.Client.Base, src, func() error { return f.watch(ctx, env, wantsJSON(cmd), src, done) })
	stop()
	return errors.Join(err, <-failed)
}

// sendPrompts asks the server for the held-out prompts, categories in turn, until ctx ends. Each is asked with drafts and without, so
// that the server shows a plain step under the load that its cycles had. Prompts that the server refuses, being too long for its
// model, are left out.
func sendPrompts(ctx context.Context, server *target.Server, model string) error {
	set := inTurn(prompts.All().Of(prompts.HeldOut))
	for ctx.Err() == nil {
		var refused error
		answered := false
		for i := range 2 * len(set) {
			prompt := set[i/2]
			req := client.Request{API: client.Chat, Model: model, Prompt: prompt.Text, MaxTokens: selfTokens, Extra: map[string]any{"temperature": 0}}
			if i%2 == 1 {
				req.Extra["speculative"] = map[string]any{"drafter": "none"}
			}
			sample := server.Client.Do(ctx, time.Now(), &req)
			err := fmt.Errorf("prompt %s: %s", prompt.ID, ui.Clean(sample.Error))
			switch {
			case ctx.Err() != nil:
				return nil
			case sample.Status == http.StatusBadRequest:
				refused = err
			case sample.Error != "":
				return err
			default:
				answered = true
			}
		}
		if !answered {
			return refused
		}
	}
	return nil
}

// inTurn sorts prompts so that every category comes once before one comes again: any beginning of the set is a mixture.
func inTurn(set prompts.Set) (out prompts.Set) {
	for i := 0; len(out) < len(set); i++ {
		for _, c := range prompts.Categories() {
			if of := set.In(c); i < len(of) {
				out = append(out, of[i])
			}
		}
	}
	return out
}

// selfOnly are the flags that mean something with --self alone; the error is usage's.
func selfOnly(cmd *cobra.Command) error {
	for _, name := range selfFlags {
		if cmd.Flags().Changed(name) {
			return usage(cmd, "--%s %s goes with --self: a running server has its own", name, strconv.Quote(cmd.Flags().Lookup(name).Value.String()))
		}
	}
	return nil
}
