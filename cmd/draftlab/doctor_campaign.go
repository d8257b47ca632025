package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/engine/doctor"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
)

// planned is the JSON document of doctor about a campaign file.
type planned struct {
	Campaign string           `json:"campaign"` // the file
	Sound    bool             `json:"sound"`    // no fault
	Findings []doctor.Finding `json:"findings"`
}

// isCampaign reports whether an argument is a campaign file and not a drafter, which is a directory.
func isCampaign(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	}
	return false
}

// doctorCampaign says what of a campaign cannot work, is rewritten or is unequal between arms, before a server is started. What the file itself
// gets wrong is an error, as it is for tune.
func doctorCampaign(env *Env, cmd *cobra.Command, path string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c, err := file.Parse(path, source)
	if err != nil {
		return err
	}
	t, err := prepare(cmd.Context(), env, c)
	if err != nil {
		return err
	}
	p, err := campaign.NewPreview(c, 0, t.engine)
	if err != nil {
		return err
	}
	x := planned{Campaign: path, Findings: previewFindings(p)}
	own, err := t.ownFindings(cmd.Context(), p)
	if err != nil {
		return err
	}
	x.Findings = append(x.Findings, own...)
	if x.Sound = !faulty(x.Findings); wantsJSON(cmd) {
		err = ui.JSON(env.Stdout, x)
	} else {
		err = printFindings(env, x.Findings)
	}
	if err == nil && !x.Sound {
		return fmt.Errorf("%s has faults", path)
	}
	return err
}

// faulty reports whether there is a fault among findings.
func faulty(list []doctor.Finding) bool {
	return slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Level == doctor.Fault })
}

// coarse is a difference between arms that a campaign should find: most settings that are worth trying bring less.
const coarse = 0.1

// previewFindings puts a campaign's preview into doctor's findings: what the engine says of its arms, and what the plan can show.
func previewFindings(p *campaign.Preview) (list []doctor.Finding) {
	add := func(level doctor.Level, code, format string, a ...any) {
		list = append(list, doctor.Finding{Level: level, Code: code, Text: fmt.Sprintf(format, a...)})
	}
	for _, f := range p.Findings {
		level := doctor.Warning
		if f.Fatal {
			level = doctor.Fault
		}
		add(level, f.Code, "%s.", f.About(len(p.Arms)))
	}
	for _, d := range p.Dropped {
		add(doctor.Note, "combination_left_out", "A combination of factors cannot be: %s.", d)
	}
	level := doctor.Note
	if p.DetectableEffect > coarse {
		level = doctor.Warning
	}
	add(level, "detectable_effect", "With %d pairs of each arm the smallest difference that is found in 80 of 100 campaigns is %.1f %%, if one reading scatters by %.0f %%: more prompts or starts find smaller ones.",
		p.Pairs, 100*p.DetectableEffect, 100*p.CV)
	add(doctor.Note, "needed_speed", "The plan (starts: %d, requests: %d, tokens: up to %d) fits its %.0f s if the server writes %.0f tok/s; a slower one is asked less.",
		len(p.Boots), p.Requests, p.Tokens, p.TimeS, p.NeededTokS)
	return list
}

// printFindings writes findings for people.
func printFindings(env *Env, list []doctor.Finding) error {
	for _, f := range list {
		if _, err := fmt.Fprintf(env.Stdout, "%s\n", paragraph(fmt.Sprintf("%s: %s [%s]", f.Level, ui.Clean(f.Text), f.Code), env.width(env.Stdout))); err != nil {
			return err
		}
	}
	return nil
}
