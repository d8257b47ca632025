package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"draftlab/drafters"
	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/draft/eagle3"
	"draftlab/internal/ui"
)

// draftFlags are the flags of every command that speculates.
type draftFlags struct {
	drafter, format          string
	steps, topk, draftTokens int
	pMin                     float64
	rule                     string
	simulate                 float64
}

// defaultSteps is the depth of a chain that is not asked for otherwise: with the drafters that others publish the fourth draft is
// accepted too rarely to pay much, and a deeper chain that is not accepted costs.
const defaultSteps = 3

// draftHelp is the part of such a command's manual about drafting.
const draftHelp = `

DRAFTER is a directory with an EAGLE-3 checkpoint for the model, "ngram" (look-up in the text so far),
"random" (a head of the model's shape with seeded random weights, to study cost), "none", or "auto": the
drafter that comes with the model, and plain decoding where there is none. The output is that of plain
decoding with any of them. Its weights are encoded at load: in q4 a draft takes about half the time of q8, and a few
percent fewer are accepted, which pays where drafting is a large part of a cycle; "stored" keeps the checkpoint's own.

Sampled text (temperature above 0) meets drafts by rule a: the target draws its token as in plain decoding, and
a draft that equals it is accepted. Under rule b the drafter draws, and a draft is accepted with probability
min(1, p/q): more are near temperature 1, but then only the distribution of texts is that of plain decoding, and
a seed gives another text with other drafts or other requests beside it.

--simulate-accept-length is for studies of cost alone: drafts are accepted by the dice, so that a cycle emits X
tokens on average, from 1 to steps+1. The text is meaningless, has the length asked for, and every output says so.`

func (f *draftFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.drafter, "drafter", "auto", "speculate with this `DRAFTER`")
	fl.StringVar(&f.format, "drafter-format", eagle3.Q8.String(), "keep the drafter's weights as q8, q4 or stored: this `FORMAT`")
	fl.IntVar(&f.steps, "steps", defaultSteps, "draft up to `N` tokens on a path; 0 is plain decoding")
	fl.IntVar(&f.topk, "topk", 1, "let a drafted token have up to `N` branches; 1 is a chain")
	fl.IntVar(&f.draftTokens, "draft-tokens", 0, "verify up to `N` tokens in a pass, the last emitted one included; 0 is steps+1")
	fl.Float64Var(&f.pMin, "draft-p-min", 0, "end a draft where the product of its probabilities falls below `P`")
	fl.StringVar(&f.rule, "rule", string(engine.RuleA), "accept sampled drafts by this `RULE`, a or b")
	fl.Float64Var(&f.simulate, "simulate-accept-length", 0, "accept drafts by the dice: `X` tokens a cycle on average, of meaningless text; 0 does not")
}

// apply puts the drafter and the way of speculating into an engine's options. A drafter is loaded even if --steps is 0, for
// requests that ask for it.
func (f *draftFlags) apply(env *Env, cmd *cobra.Command, model string, o *engine.Options) error {
	if !(f.pMin >= 0 && f.pMin <= 1) {
		return usage(cmd, "--draft-p-min %v: want 0 to 1", f.pMin)
	}
	rule := engine.Rule(f.rule)
	if rule != engine.RuleA && rule != engine.RuleB {
		return usage(cmd, "--rule %s: want a or b", ui.Clean(f.rule))
	}
	var err error
	if o.DrafterFormat, err = eagle3.ParseFormat(f.format); err != nil {
		return usage(cmd, "--drafter-format %s: want q8, q4 or stored", ui.Clean(f.format))
	}
	kind, err := f.choose(env, cmd, model, o)
	if err != nil {
		return err
	}
	o.Spec = engine.Spec{Drafter: engine.DraftNone, Rule: engine.RuleA}
	switch {
	case kind == engine.DraftNone:
		return nil
	case kind == engine.DraftNgram && rule == engine.RuleB:
		return usage(cmd, "--rule b --drafter ngram: look-up has no probabilities to draw from; use --rule a")
	case f.steps == 0 && f.simulate != 0:
		return usage(cmd, "--simulate-accept-length %v --steps 0: there is nothing to accept", f.simulate)
	case f.steps == 0:
		return nil
	}
	o.Spec = engine.Spec{Drafter: kind, PMin: float32(f.pMin), Rule: rule}
	return f.shape(cmd, o)
}

// choose says what drafts, and puts the checkpoint of a model that does into the options.
func (f *draftFlags) choose(env *Env, cmd *cobra.Command, model string, o *engine.Options) (engine.Drafter, error) {
	drafter, err := f.resolve(env, model)
	if err != nil {
		return "", err
	}
	switch kind := engine.Drafter(drafter); kind {
	case "":
		return "", usage(cmd, "--drafter is empty: want auto, none, ngram, random or a checkpoint's directory")
	case engine.DraftNgram:
		return kind, nil
	case engine.DraftNone:
		for _, name := range []string{"steps", "topk", "draft-tokens", "rule", "simulate-accept-length"} {
			if cmd.Flags().Changed(name) && f.steps > 0 {
				return "", usage(cmd, "--%s needs a --drafter: ngram, random or a checkpoint's directory", name)
			}
		}
		return kind, nil
	}
	if _, err := os.Stat(filepath.Join(drafter, "config.json")); err != nil && drafter != engine.RandomDrafter {
		return "", withHint(fmt.Sprintf("--drafter %s: no checkpoint there: %v", drafter, err),
			"a drafter is auto, none, ngram, random or the directory of an EAGLE-3 checkpoint")
	}
	o.Drafter = drafter
	return engine.DraftModel, nil
}

// shape puts the size of drafts into the options.
func (f *draftFlags) shape(cmd *cobra.Command, o *engine.Options) error {
	o.Spec.Shape = draft.Shape{Steps: f.steps, TopK: f.topk, DraftTokens: f.draftTokens}
	if f.draftTokens == 0 {
		o.Spec.Shape.DraftTokens = f.steps + 1
	}
	if err := o.Spec.Shape.Validate(); err != nil {
		return usage(cmd, "--steps, --topk, --draft-tokens: %v", err)
	}
	o.SimulateAcceptLength = f.simulate
	if err := o.CheckSimulation(); err != nil {
		return usage(cmd, "--simulate-accept-length %v: %v", f.simulate, err)
	}
	return nil
}

// simulationNote is what every output says where acceptance is simulated.
func simulationNote(length float64) string {
	return fmt.Sprintf("acceptance is simulated at %v tokens a cycle: the text means nothing", length)
}

// resolve replaces "auto" by the directory of the drafter that comes with a model, or by "none".
func (f *draftFlags) resolve(env *Env, model string) (string, error) {
	if f.drafter != "auto" {
		return f.drafter, nil
	}
	name := env.drafterOf(model)
	if name == "" || !engine.SpeculationPays() {
		return string(engine.DraftNone), nil
	}
	unpacked, err := unpackDrafter(env, name)
	if err != nil {
		// The model may lie in a place that only its administrator writes to; the text is the same without a drafter.
		fmt.Fprintf(env.Stderr, "note: decoding without the model's drafter, which cannot be unpacked: %v; "+
			"set DRAFTLAB_CACHE to a directory that can be written to\n", err)
		return string(engine.DraftNone), nil
	}
	return unpacked, nil
}

func unpackDrafter(env *Env, name string) (string, error) {
	const remedy = "set DRAFTLAB_CACHE to a directory that can be written to, or go without it: --drafter none"
	dir := env.cacheDir("drafters")
	if dir == "" {
		return "", withHint("the drafter "+name+" needs a place: the system names no cache directory", remedy)
	}
	path, err := drafters.Unpack(name, dir)
	if err != nil {
		return "", withHint(err.Error(), remedy)
	}
	return path, nil
}
