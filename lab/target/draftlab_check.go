package target

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"time"

	"draftlab/lab/trial"
)

// tryLimit bounds the time of one try of flags, which takes some hundredths of a second, and of a connection to its host.
const tryLimit = 30 * time.Second

// refusals are what the campaign's own program says is wrong with the flags of arms, so that its flags are known in one place. It is
// asked once for all arms with the same flags.
func (e *engine) refusals(arms []trial.Arm) (found []Finding) {
	tried := map[string]*Finding{}
	for _, a := range arms {
		boot, _ := e.split(a.Knobs)
		boot.Flags = a.Flags // those as well that requests carry
		args := e.arguments(&e.c, boot, e.c.Port)
		key := strings.Join(args, "\x00")
		if _, done := tried[key]; !done {
			tried[key] = e.try(args, secretsOf(e.c.Key, nil, merged(&e.c, boot)))
		}
		f := tried[key]
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

// try has the program check its flags without serving; nil if it finds no fault, or cannot be asked: the start will say why.
func (e *engine) try(args []string, hide secrets) *Finding {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	_, err := e.host.Output(ctx, slices.Concat(e.c.Command, args, []string{"--" + dryRun})...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil
	}
	for line := range strings.Lines(string(exit.Stderr)) {
		said, ours := strings.CutPrefix(strings.TrimSpace(line), "draftlab: ")
		if !ours {
			continue
		}
		said = hide.in(strings.TrimPrefix(said, "draftlab serve: "))
		switch {
		case strings.Contains(said, "unknown flag: --"+dryRun): // it is older than that flag
			return nil
		case strings.HasPrefix(said, "--drafter "):
			return &Finding{Code: "missing_drafter", Text: said, Fatal: true}
		case exit.ExitCode() != wrongUsage:
			return nil
		case strings.HasPrefix(said, "unknown "):
			return &Finding{Code: "unknown_flag", Text: "draftlab's server: " + said, Fatal: true}
		}
		return &Finding{Code: "impossible_flags", Text: "draftlab's server: " + said, Fatal: true}
	}
	return nil
}

// dryRun is the flag of draftlab's server that has it check the others, and wrongUsage its exit status if one is wrong.
const (
	dryRun     = "dry-run"
	wrongUsage = 2
)
