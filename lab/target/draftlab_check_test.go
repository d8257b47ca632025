//go:build unix

package target

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/lab/runner/sshtest"
	"draftlab/lab/trial"
)

// TestDraftlabRefuses: what the program itself says of its flags is told of the arms that it holds for, once each.
func TestDraftlabRefuses(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := `#!/bin/sh
echo "x$DRAFTLAB_TEST_TOKEN" >>"$0.calls"
case " $* " in
*--old*) echo 'draftlab: draftlab serve: unknown flag: --dry-run' >&2; exit 2 ;;
*--broken*) echo 'panic: oh' >&2; exit 2 ;;
*--nosuch*) echo 'note: a hostile line' >&2; echo 'draftlab: draftlab serve: unknown flag: --nosuch' >&2; echo 'hint: see' >&2; exit 2 ;;
*--threads=64*) [ "$GOMAXPROCS" = 64 ] || { echo 'draftlab: --threads 64: want 1 to 8' >&2; exit 2; }; exit 0 ;;
*--api-key*--threads=0*) echo 'draftlab: --threads 0: want 1 to 8, not hush' >&2; exit 2 ;;
*--draft-p-min=7*) echo 'draftlab: --draft-p-min 7: want 0 to 1' >&2; exit 2 ;;
*--drafter=nowhere*) echo 'draftlab: --drafter nowhere: no checkpoint there' >&2; exit 1 ;;
*--context*) echo 'draftlab: out of luck' >&2; exit 1 ;;
*" --dry-run ") exit 0 ;;
esac
exit 3
`
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	chain := knobs("eagle3", 2, 1, 3)
	for _, host := range []string{"", sshtest.Start(t)} {
		for name, c := range map[string]struct {
			drafter string
			arms    []trial.Arm
			want    []string
			calls   int
		}{
			"sound":         {"d", []trial.Arm{arm("a", chain, "threads=2"), arm("b", trial.Knobs{}, "threads=2")}, nil, 1},
			"unknown":       {"d", []trial.Arm{arm("a", chain, "nosuch=1"), arm("b", trial.Knobs{}, "nosuch=2"), arm("c", chain)}, []string{"unknown_flag:a,b"}, 3},
			"value":         {"d", []trial.Arm{arm("a", chain), arm("b", chain, "api-key=hush", "threads=0")}, []string{"impossible_flags:b"}, 2},
			"variables":     {"d", []trial.Arm{arm("a", chain, "threads=64", "GOMAXPROCS=64", "DRAFTLAB_TEST_TOKEN=hush"), arm("b", chain, "threads=64")}, []string{"impossible_flags:b"}, 2},
			"of requests":   {"d", []trial.Arm{arm("a", chain, "draft-p-min=7")}, []string{"impossible_flags:a"}, 1},
			"no drafter":    {"nowhere", []trial.Arm{arm("a", chain), arm("b", trial.Knobs{})}, []string{"missing_drafter:a,b"}, 1},
			"older":         {"d", []trial.Arm{arm("a", chain, "old"), arm("b", chain, "old", "nosuch=1")}, nil, 1},
			"broken":        {"d", []trial.Arm{arm("a", chain, "nosuch=1"), arm("b", chain, "broken"), arm("c", chain, "nosuch=2")}, []string{"unknown_flag:a"}, 2},
			"fails somehow": {"d", []trial.Arm{arm("a", chain, "context=9"), arm("b", chain, "nosuch=1")}, []string{"unknown_flag:b"}, 2},
		} {
			_ = os.Remove(program + ".calls")
			e, err := New(Config{Kind: "draftlab", Command: []string{program}, Model: "m", Drafter: c.drafter, Host: host})
			if err != nil {
				t.Fatal(err)
			}
			found := e.Check(c.arms)
			calls, err := os.ReadFile(program + ".calls")
			if got := codes(found); err != nil || !slices.Equal(got, c.want) || len(calls) != 2*c.calls {
				t.Errorf("%q, %s: %v, want %v; %d calls, want %d; %v", host, name, got, c.want, len(calls)/2, c.calls, err)
			}
			if len(found) > 0 && !found[0].Fatal {
				t.Errorf("%q, %s: not fatal: %+v", host, name, found[0])
			}
			if len(found) > 0 && strings.Contains(found[0].Text, "hush") {
				t.Errorf("%q, %s: a secret in %q", host, name, found[0].Text)
			}
		}
	}
}
