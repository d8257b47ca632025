package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/internal/hub"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/target"
)

// preview is the JSON document of tune --dry-run.
type preview struct {
	*campaign.Preview
	Fetch   *hub.Fetch `json:"fetch"`   // the model that the campaign would fetch first; null if it is here
	Convert string     `json:"convert"` // the drafter that it would first write as a GGUF file for llama.cpp; "" if there is none to write
}

// previewTune prints what a campaign would do.
func previewTune(env *Env, cmd *cobra.Command, c *file.Campaign) error {
	t, err := prepare(cmd.Context(), env, c)
	if err != nil {
		return err
	}
	p := preview{}
	if t.named() {
		if p.Fetch, err = env.hub().Absent(c.Model); err != nil {
			return err
		}
	}
	if t.convert != nil {
		if _, err := os.Stat(t.convert.path); err != nil {
			p.Convert = t.convert.from
		}
	}
	if p.Preview, err = campaign.NewPreview(c, 0, t.engine); err != nil {
		return err
	}
	if wantsJSON(cmd) {
		err = ui.JSON(env.Stdout, p)
	} else {
		err = printPreview(env, p)
	}
	if err == nil && slices.ContainsFunc(p.Findings, func(f target.Finding) bool { return f.Fatal }) {
		return errors.New("this campaign cannot be: what is impossible about it stands among the findings")
	}
	return err
}

func printPreview(env *Env, p preview) error {
	var b strings.Builder
	if f := p.Fetch; f != nil {
		size := "of a size that the hub knows"
		if f.Bytes > 0 {
			size = ui.Bytes(f.Bytes)
		}
		fmt.Fprintf(&b, "would first fetch the model %s, %s, from %s\n", ui.Clean(f.Model), size, ui.Clean(f.From))
	}
	if p.Convert != "" {
		fmt.Fprintf(&b, "would first write the drafter %s as a GGUF file\n", ui.Clean(p.Convert))
	}
	for _, s := range p.Boots {
		fmt.Fprintf(&b, "%s\n    %s\n", ui.Clean(s.Name), ui.Clean(s.Command))
		for _, a := range s.Arms {
			fmt.Fprintf(&b, "    measures %s\n", ui.Clean(a))
		}
	}
	for _, d := range p.Dropped {
		fmt.Fprintf(&b, "left out: %s\n", ui.Clean(d))
	}
	for _, f := range p.Findings {
		word := "note"
		if f.Fatal {
			word = "IMPOSSIBLE"
		}
		fmt.Fprintf(&b, "%s: %s\n", word, ui.Clean(f.About(len(p.Arms))))
	}
	fmt.Fprintf(&b, `
Starts of a server, in random order: %d. Arms: %d, with %d pairs each. Requests, the confirm run's among them: %d, of up to %d tokens.
Takes at most %.0f s from the first token of the first server on. All of it fits if the server writes %.0f tok/s or more, starts left out;
a slower one is asked fewer prompts, and then for shorter outputs, once it is known how slow.
The smallest difference that %d pairs find in 80 of 100 campaigns: %.1f %%, if one reading scatters by %.0f %%; result.json says how much it did.
`, len(p.Boots), len(p.Arms), p.Pairs, p.Requests, p.Size.MaxTokens, p.TimeS, p.NeededTokS, p.Pairs, 100*p.DetectableEffect, 100*p.CV)
	_, err := fmt.Fprint(env.Stdout, b.String())
	return err
}
