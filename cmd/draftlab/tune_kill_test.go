//go:build linux

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

var kills = flag.Int("kills", 3, "how often TestKillAndGoOn kills the campaign")

const killCampaign = `target: {kind: draftlab, flags: {threads: 1}}
model: %q
drafter: random
workload: {count: 12, confirm: 8, max_tokens: 64}
budget: {time: 1h, boots: 8}
boots: 2
factors: {steps: [1, 2], env.GOGC: [null, 60]}
`

// TestKillAndGoOn kills a campaign at random moments, its start and its servers' included, and goes on with it: nothing is lost but the trial
// in flight, nothing is measured twice, and no server is left. "go test -run TestKillAndGoOn -kills 20" is the long form.
func TestKillAndGoOn(t *testing.T) {
	dir := t.TempDir()
	program, model, out := filepath.Join(dir, "draftlab"), filepath.Join(dir, "deep.gguf"), filepath.Join(dir, "out")
	if err := firstError(copyProgram(program), os.WriteFile(model, deepGGUF(), 0o644),
		os.WriteFile(filepath.Join(dir, "c.yaml"), fmt.Appendf(nil, killCampaign, model), 0o644)); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var before []*trial.Trial
	killed := 0
	for { // the test's own time limit ends it
		args := []string{"tune", "--resume", out, "--json"}
		if _, err := os.Stat(filepath.Join(out, store.Database)); err != nil { // not begun, or killed before there was a campaign
			args = []string{"tune", filepath.Join(dir, "c.yaml"), "--out", out, "--json"}
		}
		cmd := exec.Command(program, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if killed < *kills {
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			_ = cmd.Process.Kill() // it may have ended
		}
		err := cmd.Wait()
		nobody(t, model)
		before = kept(t, out, before)
		switch {
		case err == nil:
			wholeResult(t, out)
			if killed >= *kills {
				return
			}
			before = nil // too fast: once more
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(err.Error(), "killed"):
			killed++
		default:
			t.Fatalf("%v\n%s", err, &stderr)
		}
	}
}

// copyProgram copies the test's own binary, which is draftlab under that name.
func copyProgram(to string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(own)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return firstError(err, f.Close())
}

// kept returns what the store holds, and checks it against what it held before and against the lines of samples.
func kept(t *testing.T, dir string, before []*trial.Trial) (now []*trial.Trial) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		if len(before) > 0 {
			t.Fatal(err)
		}
		return nil
	}
	defer s.Close()
	for tr, err := range s.Trials() {
		if err != nil {
			t.Fatal(err)
		}
		now = append(now, tr)
	}
	if len(now) < len(before) {
		t.Fatalf("%d trials, where there had been %d", len(now), len(before))
	}
	for i, tr := range before {
		if now[i].Sample.StartUnixNS != tr.Sample.StartUnixNS {
			t.Fatalf("trial %d is another one than before", i)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, store.Samples))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines > len(now)+1 {
		t.Fatalf("%d requests were answered, and %d are kept", lines, len(now))
	}
	return now
}

// nobody waits until no process has a file among its arguments or in its environment.
func nobody(t *testing.T, file string) {
	t.Helper()
	limit := time.Now().Add(5 * time.Minute)
	for {
		found := ""
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range lines {
			text, _ := os.ReadFile(path) // one that has ended meanwhile has none
			environ, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
			if bytes.Contains(append(text, environ...), []byte(file)) {
				found = path
			}
		}
		if found == "" {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("a server is left: %s", found)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wholeResult checks that a campaign has measured what it planned, each pair once.
func wholeResult(t *testing.T, dir string) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := campaign.Analyse(s)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Complete || !r.Lossless {
		t.Errorf("complete %v, lossless %v", r.Complete, r.Lossless)
	}
	type key struct {
		slot, arm, against string
		stage              trial.Stage
		block              int
	}
	slots, seen := map[int]string{}, map[key]map[int]int{}
	for _, b := range r.Boots {
		slots[b.ID] = b.Slot
	}
	for tr, err := range s.Trials() {
		if err != nil {
			t.Fatal(err)
		}
		if tr.Stage != trial.Measure {
			continue
		}
		k := key{slots[tr.Boot], tr.Arm, tr.Against, tr.Stage, tr.Block}
		if seen[k] == nil {
			seen[k] = map[int]int{}
		}
		if seen[k][tr.Boot]++; seen[k][tr.Boot] > 1 {
			t.Errorf("%+v was measured twice on boot %d", k, tr.Boot)
		}
	}
	for _, a := range r.Arms {
		if a.Decided != campaign.Full && a.Decided != campaign.Early {
			t.Errorf("%s: %s; %v", a.Name, a.Decided, r.Warnings)
		}
	}
}
