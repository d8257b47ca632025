package target

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"draftlab/lab/trial"
)

// llamaKind is llama.cpp's llama-server. It drafts chains, fixed at its start: its requests had fields for that, which it has switched off
// ("TODO: … we disable speculative parameter adjustments for now", tools/server/server-schema.cpp).
type llamaKind struct{}

var llamaTraits = traits{
	name: "llamacpp", command: []string{"llama-server"},
	ready:    "listening on http", // older ones: "server is listening on http"
	reserved: []string{"m", "model", "port", "host", "md", "model-draft", "spec-draft-model", "spec-type", "spec-draft-n-max", "spec-ngram-simple-size-m", "api-key"},
}

func (llamaKind) traits() traits { return llamaTraits }

func (llamaKind) arguments(c *Config, boot trial.Knobs, port int) []string {
	args := []string{"--model", c.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(port)}
	if !boot.Plain() {
		kind := llamaDrafter(boot.Drafter)
		if strings.HasPrefix(kind, "draft-") && c.Drafter != "" {
			args = append(args, "--spec-draft-model", c.Drafter)
		}
		depth := "--spec-draft-n-max"
		if kind == llamaNgram {
			depth = "--spec-ngram-simple-size-m"
		}
		args = append(args, "--spec-type", kind, depth, strconv.Itoa(boot.Steps))
	}
	return append(args, flags(c, boot, llamaFlag)...)
}

// llamaNgram looks up in the text, and has a depth of its own.
const llamaNgram = "ngram-simple"

// llamaDrafter is llama.cpp's name of a drafter, "" if it has none that could stand for it.
func llamaDrafter(drafter string) string {
	switch drafter {
	case "eagle3":
		return "draft-eagle3"
	case "ngram":
		return llamaNgram
	case "dflash", "dspark":
		return "draft-" + drafter
	}
	if strings.HasPrefix(drafter, "draft-") || strings.HasPrefix(drafter, "ngram-") {
		return drafter // in its own words
	}
	return ""
}

// llamaFlag writes a flag as llama.cpp takes it: names of up to three letters (np, ngl) behind one dash.
func llamaFlag(name, value string) []string {
	dashes := "--"
	if len(name) <= 3 {
		dashes = "-"
	}
	if value == "" {
		return []string{dashes + name}
	}
	return []string{dashes + name, value}
}

// llamaKey is where llama-server takes its key from.
const llamaKey = "LLAMA_API_KEY"

// environment hands the key over out of sight.
func (llamaKind) environment(c *Config) map[string]string {
	if c.Key == "" {
		return nil
	}
	return map[string]string{llamaKey: c.Key}
}

func (llamaKind) files(*Config, trial.Knobs) map[string]textFile { return nil }

func (llamaKind) keyFile(*engine, trial.Knobs) (string, textFile) { return "", textFile{} }

func (llamaKind) split(k trial.Knobs) (boot trial.Knobs, request map[string]any) {
	return sglangKind{}.split(k)
}

func (llamaKind) check(e *engine, arms []trial.Arm) (found []Finding) {
	found = append(found, Finding{"no_ledger", "llama.cpp tells no time by phase: cycles cannot be taken apart, and explain has speeds alone", false, []string{}})
	for _, a := range arms {
		own := []string{a.Name}
		switch {
		case a.Plain():
		case llamaDrafter(a.Drafter) == "":
			found = append(found, Finding{"impossible_draft", fmt.Sprintf("llama.cpp has no drafter %q: want eagle3, ngram, or one of --spec-type's", a.Drafter), true, own})
		case a.TopK > 1:
			found = append(found, Finding{"impossible_draft", "llama.cpp drafts chains: topk must be 1", true, own})
		case shape(a.Knobs) != "":
			found = append(found, Finding{"impossible_draft", shape(a.Knobs), true, own})
		case e.c.Drafter == "" && strings.HasPrefix(llamaDrafter(a.Drafter), "draft-"):
			found = append(found, Finding{"no_drafter", "there is no drafter: llama.cpp wants a GGUF file (draftlab model export --gguf makes one)", true, own})
		}
	}
	return found
}

// drafter is none: a GGUF file has no config.json.
func (llamaKind) drafter(*Config) string { return "" }

// extra asks for no cached prefix.
func (llamaKind) extra() map[string]any { return map[string]any{"cache_prompt": false} }

func (llamaKind) info(ctx context.Context, s *Server) (map[string]any, error) {
	return s.document(ctx, "/props")
}

func (llamaKind) flush(context.Context, *Server) error { return nil }

// ledger is none: llama.cpp tells no time by phase.
func (llamaKind) ledger(context.Context, *Server) (*trial.Ledger, error) { return nil, nil }

// wanted are the settings that /props tells.
func (llamaKind) wanted(c *Config, boot trial.Knobs) map[string]string {
	want := map[string]string{"model_path": c.Model}
	given := merged(c, boot)
	for _, name := range []string{"np", "parallel"} {
		if value, has := given[name]; has {
			want["total_slots"] = value
		}
	}
	return want
}
