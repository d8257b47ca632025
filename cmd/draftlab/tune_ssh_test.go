//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"draftlab/lab/campaign"
	"draftlab/lab/runner/sshtest"
)

const sshCampaign = `host: %s
target: {kind: draftlab, command: [%q, serve], flags: {threads: 1}}
model: %q
workload: {count: 6, confirm: 6, max_tokens: 64}
budget: {time: 1h, boots: 8}
boots: 1
factors: {steps: [2], env.GOGC: [null, 60]}
`

// TestTuneOverSSH carries out a campaign on a machine that is reached over a connection: this one, by way of a server of its own.
func TestTuneOverSSH(t *testing.T) {
	host := sshtest.Start(t)
	dir := t.TempDir()
	program, model, path, out := filepath.Join(dir, "draftlab"), filepath.Join(dir, "deep.gguf"), filepath.Join(dir, "c.yaml"), filepath.Join(dir, "out")
	if err := firstError(copyProgram(program), os.WriteFile(model, deepGGUF(), 0o644),
		os.WriteFile(path, fmt.Appendf(nil, sshCampaign, host, program, model), 0o644)); err != nil {
		t.Fatal(err)
	}
	env, stdout, stderr := testEnv(t)
	env.Environ = os.Environ()
	if status := Run(context.Background(), env, []string{"tune", path, "--out", out}); status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	if !strings.Contains(stdout.String(), "ngram-2,GOGC=60") {
		t.Errorf("%s", stdout)
	}
	text, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r campaign.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if !r.Complete || !r.Lossless || r.Bandwidth != nil || len(r.Boots) < 2 {
		t.Errorf("complete %v, lossless %v, bandwidth %+v, %d boots", r.Complete, r.Lossless, r.Bandwidth, len(r.Boots))
	}
	for _, b := range r.Boots {
		if b.Cause != "" || !strings.HasPrefix(b.Command, "ssh "+host+" ") {
			t.Errorf("%+v", b)
		}
		if log, err := os.ReadFile(filepath.Join(out, b.Log)); err != nil || !strings.Contains(string(log), "fired up") {
			t.Errorf("%s: %v", b.Log, err)
		}
	}
	nobody(t, model)
}
