//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"draftlab/lab/campaign"
	"draftlab/lab/target/targettest"
)

// TestTuneLlamaCPP carries out a campaign on llama.cpp's servers whose file is for draftlab's own: the checkpoint of the drafter becomes
// a GGUF file, once, and a campaign that goes on does so with the same servers.
func TestTuneLlamaCPP(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", filepath.Dir(targettest.Llama(t)[0])+string(filepath.ListSeparator)+os.Getenv("PATH"))
	model, drafter, path, out := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "drafter"), filepath.Join(dir, "c.yaml"), filepath.Join(dir, "out")
	text := `target: {kind: draftlab}
model: ` + model + `
drafter: ` + drafter + `
workload: {count: 6, confirm: 6, max_tokens: 16}
budget: {time: 5m}
boots: 1
arms:
  - {drafter: eagle3, steps: 2}
  - {drafter: ngram, steps: 3}
seed: 3
`
	if err := firstError(writeExportFiles(model, drafter), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	tune := func(args ...string) string {
		env, stdout, stderr := testEnv(t)
		env.Environ, env.UserCache = os.Environ(), dir
		if status := Run(context.Background(), env, append([]string{"tune"}, args...)); status != 0 {
			t.Fatalf("%q: status %d\n%s", args, status, stderr)
		}
		return stdout.String()
	}
	converted := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "draftlab", "drafters", "drafter-*.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	said := tune(path, "--target", "llamacpp", "--dry-run")
	if !strings.Contains(said, "would first write the drafter "+drafter) || !strings.Contains(said, "llama-server --model "+model) || len(converted()) != 0 {
		t.Errorf("the plan is\n%s\nand %q", said, converted())
	}
	tune(path, "--target", "llamacpp", "--out", out)
	files := converted()
	if len(files) != 1 {
		t.Fatalf("converted: %q", files)
	}
	read := func() (r campaign.Result) {
		source, err := os.ReadFile(filepath.Join(out, "result.json"))
		if err == nil {
			err = json.Unmarshal(source, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := read()
	if len(r.Boots) < 3 || len(r.Arms) != 3 {
		t.Fatalf("%d starts, %d arms", len(r.Boots), len(r.Arms))
	}
	for _, b := range r.Boots {
		if b.Cause != "" {
			t.Errorf("%s: %s, %s", b.Name, b.Cause, b.Detail)
		}
		if strings.HasPrefix(b.Name, "chain") != strings.Contains(b.Command, files[0]) {
			t.Errorf("%s: %s", b.Name, b.Command)
		}
	}
	if said = tune(path, "--target", "llamacpp", "--dry-run"); strings.Contains(said, "would first write") {
		t.Errorf("the plan is\n%s", said)
	}
	tune("--resume", out)
	if again := read(); len(again.Boots) != len(r.Boots) {
		t.Errorf("%d starts, %d after it was resumed", len(r.Boots), len(again.Boots))
	}
}
