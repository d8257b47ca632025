package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"draftlab/engine"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/export"
	"draftlab/engine/quant"
	"draftlab/lab/target"
)

// ggufDrafter is a drafter as llama.cpp loads it, made of a checkpoint's directory.
type ggufDrafter struct{ from, path string }

// llama reports that the servers are llama.cpp's, on this machine: the campaign then names model and drafter as for draftlab's own server.
func (t *tuning) llama() bool { return t.file.Target.Kind == "llamacpp" && t.file.Host == "" }

// completeLlama replaces a model's name by its file, and a checkpoint of a drafter by the GGUF file that ready makes of it.
func (t *tuning) completeLlama(ctx context.Context, config *target.Config) error {
	hub := t.env.hub()
	absent, err := hub.Absent(config.Model) // of what is no model ready and the preview tell
	if err == nil && absent == nil {
		if config.Model, err = hub.Resolve(ctx, config.Model, t.env.progress()); err != nil {
			return err
		}
	}
	checkpoint := config.Drafter
	switch checkpoint {
	case "auto":
		if checkpoint, err = t.shipped(); err != nil {
			return err
		}
	case string(engine.DraftNone), string(engine.DraftNgram):
		checkpoint = ""
	case engine.RandomDrafter:
		return errors.New("drafter: random weights are for draftlab's own server")
	}
	config.Drafter = checkpoint
	if s, err := os.Stat(checkpoint); err == nil && s.IsDir() {
		t.convert = &ggufDrafter{from: checkpoint}
		if t.convert.path, err = t.env.convertedDrafter(checkpoint, config.Model); err != nil {
			return err
		}
		config.Drafter = t.convert.path
	}
	return nil
}

// convertedDrafter is where the GGUF file of a drafter's checkpoint is kept. Another checkpoint in its place, or another model, whose
// tokenizer the file holds, has a file of its own.
func (e *Env) convertedDrafter(checkpoint, model string) (string, error) {
	dir := e.cacheDir("drafters")
	if dir == "" {
		return "", errors.New("drafter: there is no cache directory to keep the GGUF file in that llama.cpp loads: set DRAFTLAB_CACHE, or name a GGUF file (draftlab model export --gguf)")
	}
	weights, err := filepath.Glob(filepath.Join(checkpoint, "*.safetensors"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, path := range append(weights, filepath.Join(checkpoint, "config.json"), model) {
		if s, err := os.Stat(path); err == nil {
			fmt.Fprintln(sum, path, s.Size(), s.ModTime().UnixNano())
		}
	}
	return filepath.Join(dir, filepath.Base(checkpoint)+"-"+hex.EncodeToString(sum.Sum(nil)[:6])+".gguf"), nil
}

// make writes the file, unless it is there.
func (g *ggufDrafter) make(ctx context.Context, env *Env, model string) error {
	if _, err := os.Stat(g.path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(g.path), 0o755); err != nil {
		return err
	}
	progress, end := exportProgress(env, g.path)
	// Forced, as another campaign may have made it meanwhile. bf16 holds published checkpoints exactly.
	_, err := export.DrafterGGUF(ctx, g.from, model, g.path, export.DrafterOptions{Type: quant.BF16, LayerIDs: eagle3.InputIDs, Force: true, Progress: progress})
	end(err)
	if err != nil {
		return fmt.Errorf("drafter: llama.cpp wants a GGUF file, and %s makes none: %w", g.from, err)
	}
	return nil
}
