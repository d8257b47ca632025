package target

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"draftlab/lab/probe"
	"draftlab/lab/trial"
)

// tryLimit bounds the time of one try of flags, which takes some hundredths of a second, and of a connection to its host.
const tryLimit = 30 * time.Second

// refusals are what the campaign's own program says is wrong with the flags of arms, so that its flags are known in one place. It is
// asked once for all arms that start it alike, and no more once it has not answered: each question may take as long as tryLimit.
func (e *engine) refusals(arms []trial.Arm) (found []Finding) {
	tried := map[string]*Finding{}
	for _, a := range arms {
		boot, _ := e.split(a.Knobs)
		boot.Flags = a.Flags // those as well that requests carry
		words := e.tryWords(boot)
		key := strings.Join(words, "\x00")
		f, done := tried[key]
		if !done {
			var answered bool
			if f, answered = e.try(words, secretsOf(e.c.Key, nil, merged(&e.c, boot))); !answered {
				return found
			}
			tried[key] = f
		}
		if f == nil {
			continue
		}
		same := slices.IndexFunc(found, func(g Finding) bool { return g.Text == f.Text })
		if same < 0 {
			same, found = len(found), append(found, *f)
		}
		found[same].Arms = append(found[same].Arms, a.Name)
	}
	return found
}

// tryWords are a start's command and variables, such as GOMAXPROCS, by which flags may be right or wrong. Variables with secrets are left
// out: everybody on the machine sees these words.
func (e *engine) tryWords(boot trial.Knobs) (words []string) {
	vars := e.variables(boot)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !probe.Secret(name) {
			words = append(words, name+"="+vars[name])
		}
	}
	if words != nil {
		words = append([]string{"env"}, words...)
	}
	return slices.Concat(words, e.c.Command, e.arguments(&e.c, boot, e.c.Port), []string{"--" + dryRun})
}

// try has the program check its flags without serving; nil if it finds no fault, or what it says is not about flags: the start will say why.
// It is not answered by what is no draftlab, or an older one, or not there.
func (e *engine) try(words []string, hide secrets) (f *Finding, answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	_, err := e.host.Output(ctx, words...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, err == nil
	}
	for line := range strings.Lines(string(exit.Stderr)) {
		said, ours := strings.CutPrefix(strings.TrimSpace(line), "draftlab: ")
		if !ours {
			continue
		}
		said = hide.in(strings.TrimPrefix(said, "draftlab serve: "))
		switch {
		case strings.Contains(said, "unknown flag: --"+dryRun): // it is older than that flag
			return nil, false
		case strings.HasPrefix(said, "--drafter "):
			return &Finding{Code: "missing_drafter", Text: said, Fatal: true}, true
		case exit.ExitCode() != wrongUsage:
			return nil, true
		case strings.HasPrefix(said, "unknown "):
			return &Finding{Code: "unknown_flag", Text: "draftlab's server: " + said, Fatal: true}, true
		}
		return &Finding{Code: "impossible_flags", Text: "draftlab's server: " + said, Fatal: true}, true
	}
	return nil, false
}

// dryRun is the flag of draftlab's server that has it check the others, and wrongUsage its exit status if one is wrong.
const (
	dryRun     = "dry-run"
	wrongUsage = 2
)
