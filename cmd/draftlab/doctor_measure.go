package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/doctor"
	"draftlab/engine/model"
	"draftlab/engine/tokenizer"
	"draftlab/engine/wiring"
	"draftlab/internal/ui"
	"draftlab/lab/prompts"
)

// doctorBudget bounds the measurement where the target lets it; see wiring.Options.
const doctorBudget = 3 * time.Minute

// set returns the prompts for the target, in a mixed order that is always the same.
func (f *doctorFlags) set() (prompts.Set, error) {
	if f.prompts == "" {
		return prompts.All().Of(prompts.HeldOut).Shuffled(1), nil
	}
	data, err := os.ReadFile(f.prompts)
	if err != nil {
		return nil, err
	}
	set, err := prompts.ParseFile(prompts.JSONL, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.prompts, err)
	}
	return set.Shuffled(1), nil
}

// unmeasurable are the codes of files whose drafter cannot run beside this target, or drafts noise whatever its wiring.
var unmeasurable = []string{"hidden_size", "vocab_size", "not_finite", "all_zero"}

// measureWiring runs the drafter under each plausible wiring, unless what was found in the files rules it out. The result is nil then.
func measureWiring(env *Env, cmd *cobra.Command, f *doctorFlags, dir string, cfg model.Config, set prompts.Set, found []doctor.Finding) (_ *wiring.Result, _ []doctor.Finding, err error) {
	not := func(why string) (*wiring.Result, []doctor.Finding, error) {
		return nil, []doctor.Finding{{Level: doctor.Note, Code: "not_measured", Text: "Acceptance was not measured: " + why + "."}}, nil
	}
	for _, x := range found {
		if x.Level == doctor.Fault && slices.Contains(unmeasurable, x.Code) {
			return not("the faults above come first")
		}
	}
	read, err := wiring.Read(dir)
	if err != nil {
		return not("the checkpoint cannot be used")
	}
	if why, err := f.tooLarge(env, cmd, availableMemory(os.ReadFile)); why != "" || err != nil {
		_, finding, _ := not(why)
		return nil, finding, err
	}
	s := wiring.SizesFor(read, cfg)
	e, err := f.open(cmd.Context(), env, cmd, engine.Options{MaxRunning: s.Seqs, Rows: s.Rows, Outs: s.Outs, Blocks: s.Blocks, Taps: s.Taps})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	ids, err := encodePrompts(e.Tokenizer(), set)
	if err != nil {
		return nil, nil, err
	}
	r, err := wiring.Examine(cmd.Context(), e.Device(), e.Model(), read, wiring.Options{
		Prompts: ids, Stop: e.Tokenizer().IsEOG, Quick: f.quick, Budget: doctorBudget, Progress: stages(env.progress()),
	})
	var refused *wiring.CheckpointError
	if errors.As(err, &refused) {
		return not(refused.Error())
	}
	if err != nil {
		return nil, nil, err
	}
	return r, doctor.Measured(r), nil
}

// tooLarge says why the target cannot be loaded with so much memory at hand, "" if it can or nobody knows.
func (f *doctorFlags) tooLarge(env *Env, cmd *cobra.Command, have int64) (string, error) {
	path, err := env.hub().Resolve(cmd.Context(), f.model, env.progress())
	if err != nil {
		return "", err
	}
	_, size, err := readModel(path)
	if err != nil || have == 0 || size <= have {
		return "", err
	}
	return fmt.Sprintf("the target's weights take %s, and %s are available", ui.Bytes(size), ui.Bytes(have)), nil
}

// stages shows what is being done, at most a line in two seconds but for what says how long it will take.
func stages(p ui.Progress) func(wiring.Stage) {
	var last time.Time
	return func(s wiring.Stage) {
		now := time.Now()
		switch {
		case s.About > 0:
			p.Note(fmt.Sprintf("%s: about %v", s.Text, s.About.Round(time.Second)))
		case now.Sub(last) >= 2*time.Second:
			p.Note(s.Text)
		default:
			return
		}
		last = now
	}
}

// encodePrompts returns the token ids of each prompt as a chat's first turn; a model without a chat template continues them as they are.
func encodePrompts(tok *tokenizer.Tokenizer, set prompts.Set) (list [][]int32, err error) {
	for _, p := range set {
		ids, err := tok.EncodeChat([]tokenizer.Message{{Role: "user", Content: p.Text}}, tokenizer.ChatOptions{AddGenerationPrompt: true})
		if errors.Is(err, tokenizer.ErrNoChatTemplate) {
			ids, err = tok.Encode(p.Text, tokenizer.EncodeOptions{AddSpecial: true})
		}
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		list = append(list, ids)
	}
	return list, nil
}
