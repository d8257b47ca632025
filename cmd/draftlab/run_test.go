package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"draftlab/internal/hub"
)

// testEnv returns an environment with nothing in it: no variables, no programs, no terminal.
func testEnv(t *testing.T) (env *Env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &Env{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		Getenv:    func(string) string { return "" },
		LookPath:  func(name string) (string, error) { return "", errors.New(name + " not found") },
		UserCache: t.TempDir(), Home: t.TempDir(), Procs: 1,
		IsTerminal: func(any) bool { return false },
		Models:     []hub.Model{tinyModel()},
	}, stdout, stderr
}

func TestExitStatuses(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		stderr string
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"model", 0, ""},
		{"version", 0, ""},
		{"model list", 0, ""},
		{"pul", 2, "did you mean pull?"},
		{"nonsense", 2, "see draftlab --help"},
		{"model lst", 2, "did you mean list?"},
		{"pull --form x", 2, "see draftlab pull --help"},
		{"pull a b", 2, `unexpected "b"`},
		{"version now", 2, `unexpected "now"`},
		{"pull nosuch", 1, "models: smollm2"},
		{"pull hf:a/../b", 1, "hf:OWNER/REPO/FILE"},
		{"model verify", 1, "draftlab pull smollm2"},
		{"model inspect /does/not/exist", 1, "no such file"},
	} {
		env, stdout, stderr := testEnv(t)
		status := Run(context.Background(), env, strings.Fields(c.args))
		if status != c.status || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("draftlab %s: status %d, want %d, with %q; standard error:\n%s", c.args, status, c.status, c.stderr, stderr)
		}
		if failed := status != 0; failed == (stderr.Len() == 0) || failed != (stdout.Len() == 0) {
			t.Errorf("draftlab %s: %d bytes on standard output, %d on standard error", c.args, stdout.Len(), stderr.Len())
		}
	}
}

func TestInterruptHasAStatusOfItsOwn(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	env, _, stderr := testEnv(t)
	if status := Run(ctx, env, []string{"pull"}); status != exitInterrupted || stderr.String() != "draftlab: interrupted\n" {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// commands lists a command and all below it.
func commands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.Hidden { // cobra's own
			continue
		}
		list = append(list, commands(c)...)
	}
	return list
}

// TestManuals holds every command to the rules of the manual, and every example to the flags there are.
func TestManuals(t *testing.T) {
	env, _, _ := testEnv(t)
	for _, cmd := range commands(newRoot(env)) {
		path := cmd.CommandPath()
		if cmd.Short == "" || !strings.Contains(cmd.Long, "Exit status:") || cmd.Example == "" {
			t.Errorf("%s: the manual lacks a summary, the exit statuses or an example", path)
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len(strings.TrimRight(line, "\n")) > 120 {
				t.Errorf("%s: too long for a terminal: %q", path, line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			words := shellWords(line)
			if len(words) == 0 || words[0] != "draftlab" {
				t.Errorf("%s: example %q is not a command line", path, line)
				continue
			}
			target, rest, err := newRoot(env).Find(words[1:])
			if err == nil {
				err = target.ParseFlags(rest)
			}
			if err == nil {
				err = target.ValidateArgs(target.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: example %q: %v", path, strings.TrimSpace(line), err)
			}
		}
	}
}

// shellWords splits an example as a shell would: double quotes group, # begins a comment, and of a
// pipeline the last command counts.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range strings.TrimSpace(line) + " " {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case quoted || r != ' ' && r != '|' && (r != '#' || begun):
			word.WriteRune(r)
			begun = true
		case r == '#':
			return words
		case r == '|':
			words = nil
		case begun:
			words = append(words, word.String())
			word.Reset()
			begun = false
		}
	}
	return words
}

// TestPathFlags: every flag that names a file or a directory is among those that must not be empty.
func TestPathFlags(t *testing.T) {
	env, _, _ := testEnv(t)
	path := regexp.MustCompile(`--(\S+) (?:FILE|DIR)\b`)
	seen := map[string]bool{}
	for _, cmd := range commands(newRoot(env)) {
		for _, m := range path.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
			if seen[m[1]] = true; !slices.Contains(pathFlags, m[1]) {
				t.Errorf("%s: --%s is not among pathFlags", cmd.CommandPath(), m[1])
			}
		}
	}
	for _, name := range pathFlags {
		if !seen[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	env, stdout, _ := testEnv(t)
	if status := Run(context.Background(), env, []string{"version", "--json"}); status != 0 {
		t.Fatalf("status %d", status)
	}
	var v versionInfo
	if err := json.Unmarshal(stdout.Bytes(), &v); err != nil || v.Go == "" || v.OS == "" || v.Version == "" {
		t.Errorf("%v: %s", err, stdout)
	}
}

func TestEnvironmentOfTheHub(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		vars  map[string]string
		token string
	}{
		{map[string]string{"HF_TOKEN": " direct\n"}, "direct"},
		{map[string]string{"HF_HOME": dir}, "from-file"},
		{map[string]string{"HF_TOKEN_PATH": filepath.Join(dir, "token")}, "from-file"},
		{map[string]string{"HF_HOME": dir, "HF_TOKEN": "direct"}, "direct"},
		{nil, ""},
	} {
		env := &Env{Getenv: func(name string) string { return c.vars[name] }}
		if got := env.hfToken(c.vars["HF_HOME"]); got != c.token {
			t.Errorf("%v: token %q, want %q", c.vars, got, c.token)
		}
	}
	env := &Env{LookPath: func(name string) (string, error) {
		if name == "python" || name == "pip3" {
			return "/bin/" + name, nil
		}
		return "", errors.New("not found")
	}}
	want := [][]string{{"/bin/python", "-m", "pip"}, {"/bin/pip3"}}
	if got := env.pip(); !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("pip: %q, want %q", got, want)
	}
}

func TestNoCacheDirectoryIsAnErrorWithARemedy(t *testing.T) {
	env, _, stderr := testEnv(t)
	env.UserCache = ""
	if status := Run(context.Background(), env, []string{"model", "list"}); status != 1 || !strings.Contains(stderr.String(), "DRAFTLAB_CACHE") {
		t.Errorf("status %d: %s", status, stderr)
	}
}
