// Package rig is what the experiments of this folder share: [Files] finds the default target and its shipped drafter,
// [Load] opens an engine on them, [Encode] turns prompts of a chat into token ids, and [Main] runs an experiment as a program.
//
// It measures nothing.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"draftlab/drafters"
	"draftlab/engine"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/tokenizer"
	"draftlab/internal/hub"
	"draftlab/lab/prompts"
)

// ErrClaim is wrapped by the error of an experiment that ran to its end and refutes what it is to show.
var ErrClaim = errors.New("the claim does not hold")

// Main runs an experiment until it ends or the first interrupt, and ends the process: with status 0, with 1 if run returns
// an error, with 2 for a wrong command line, and with 130 after an interrupt.
func Main(run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	err := run(ctx, os.Args[1:])
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, usage.text)
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Usage returns an error about the command line.
func Usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Parse reads a command line without arguments of its own.
func Parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return Usage("see --help") // f has said what is wrong
	}
	if f.NArg() > 0 {
		return Usage("%s takes flags alone, not %q", f.Name(), f.Args())
	}
	return nil
}

// DrafterFormat adds the flag --drafter-format. What it returns gives the format after the command line was read.
func DrafterFormat(f *flag.FlagSet) func() (eagle3.Format, error) {
	name := f.String("drafter-format", eagle3.Q8.String(), "keep the drafter's weights as q8, q4 or stored: this `FORMAT`")
	return func() (eagle3.Format, error) {
		format, err := eagle3.ParseFormat(*name)
		if err != nil {
			return format, Usage("--drafter-format: %v", err)
		}
		return format, nil
	}
}

// cacheDir is draftlab's cache directory, as the program finds it.
func cacheDir() (string, error) {
	if dir := os.Getenv("DRAFTLAB_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory (%v): set DRAFTLAB_CACHE", err)
	}
	return filepath.Join(dir, "draftlab"), nil
}

// Files returns the default target's GGUF, which must have been fetched, and the directory of its drafter.
func Files() (target, drafter string, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", "", err
	}
	target = filepath.Join(cache, "models", defaultModel().File)
	if _, err := os.Stat(target); err != nil {
		return "", "", fmt.Errorf("the default target is missing (%v); fetch it: go run ./cmd/draftlab pull", err)
	}
	drafter, err = Drafter(filepath.Join(cache, "drafters"))
	return target, drafter, err
}

// Drafter unpacks the default target's drafter into a folder, and returns its directory there.
func Drafter(into string) (dir string, err error) {
	return drafters.Unpack(defaultModel().Drafter, into)
}

// defaultModel is the default target as the catalogue has it.
func defaultModel() hub.Model {
	models := hub.Catalogue()
	return models[slices.IndexFunc(models, func(m hub.Model) bool { return m.Name == hub.Default })]
}

// spareProcs is what GOMAXPROCS allows beside an engine's workers, which never yield while a pass runs.
const spareProcs = 2

// Load opens an engine with as many threads as the options say, 0 being one for each processor.
func Load(o engine.Options) (*engine.Engine, error) {
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Threads+spareProcs))
	return engine.Open(o)
}

// Encode returns the token ids of each prompt as a conversation's first turn, up to where the answer begins.
func Encode(tok *tokenizer.Tokenizer, set prompts.Set) ([][]int32, error) {
	out := make([][]int32, len(set))
	for i, p := range set {
		var err error
		if out[i], err = tok.EncodeChat([]tokenizer.Message{{Role: "user", Content: p.Text}}, tokenizer.ChatOptions{AddGenerationPrompt: true}); err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
	}
	return out, nil
}
