//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/costmodel"
	"draftlab/lab/explain"
	"draftlab/lab/target"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

// A process of this test may be a server of SGLang's that targettest plays, or one of its ranks.
func init() { targettest.Main() }

// sglangCampaign is a search for the fastest way on eight ranks: depth and NCCL's protocol, the layers that the drafter listens to, a flag
// that is none, and a protocol that is none.
const sglangCampaign = `target:
  kind: sglang
  command: [%q, -m, sglang.launch_server]
  flags: {tp-size: 8, attention-backend: fa3}
  env: {NCCL_DEBUG: INFO}
model: acme/large
drafter: %q
workload: {count: 10, confirm: 12, max_tokens: 48}
budget: {time: 1h, boots: 30}
boots: 2
factors:
  steps: [0, 2, 5]
  env.NCCL_PROTO: [null, LL]
arms:
  - {name: embedding, steps: 2, drafter.config.eagle_config.eagle_aux_hidden_state_layer_ids: [-1, 30, 58]}
  - {name: typo, steps: 2, flags.speculative-speed: 11}
  - {name: no-protocol, steps: 2, env.NCCL_PROTO: L1}
search: {early_stop: false}
seed: 5
`

// large is a server ten times as fast as one of a real campaign, or so many times slower than that: a verification costs twice a plain pass before
// the first of its rows, and NCCL's setting takes 27 % off it. The first server runs out of memory.
func large(once string, slower time.Duration) targettest.Script {
	return targettest.Script{Version: targettest.New, Load: 15 * time.Minute, Speed: 9000, Ranks: 8, Fault: targettest.CUDAMemory, Once: once,
		Plain: slower * 1130 * time.Microsecond, Verify: slower * 2250 * time.Microsecond, Row: slower * 100 * time.Microsecond, Draft: slower * 20 * time.Microsecond,
		Accept: 0.68, Fade: 0.7, Effects: []targettest.Effect{{Variable: "NCCL_PROTO=LL", Plain: 0.97, Verify: 0.73}}, Layers: []int{2, 30, 58}}
}

// wrong are the figures that are not what the script makes them.
type wrong []string

func (w *wrong) addf(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// TestTuneSGLang carries out a campaign on servers that load for a quarter of an hour, at nine thousand times the speed. On a machine that others
// use as well a request may end some milliseconds late, which drowns figures of short ones: then it is carried out once more on slower servers.
func TestTuneSGLang(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	dir := t.TempDir()
	var r *campaign.Result
	var out, said string
	for slower := time.Duration(1); ; slower *= 3 {
		figures := wrong{}
		script := large(filepath.Join(dir, fmt.Sprint("once-", int(slower))), slower)
		r, out, said = tuneSGLang(t, filepath.Join(dir, fmt.Sprint(int(slower))), script)
		sglangArms(t, &figures, r, &script)
		sglangExplained(t, &figures, out, r)
		if len(figures) == 0 {
			break
		}
		if slower == 9 {
			t.Fatalf("on servers %d times slower:\n%s", slower, strings.Join(figures, "\n"))
		}
		t.Logf("once more, on slower servers, after:\n%s", strings.Join(figures, "\n"))
	}
	for _, want := range []string{"Best: chain-2,NCCL_PROTO=LL, ", "SERVER FAILED", "NCCL_PROTO ignored in 16 processes", "NCCL_PROTO applied in 16 processes"} {
		if !strings.Contains(said, want) {
			t.Errorf("tune does not say %q", want)
		}
	}
	sglangBoots(t, r)
	sglangFailures(t, r)
	command(t, "report", out)
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"chain-2,NCCL_PROTO=LL", "Each arm had a server of its own", "unrecognized arguments: --speculative-speed=11", "verify_off_fast_path"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the report does not say %q", want)
		}
	}
	nobody(t, dir) // ranks do not have it among their arguments, but in their environment
}

// tuneSGLang carries the campaign out and returns its result, its directory and what tune said.
func tuneSGLang(t *testing.T, dir string, script targettest.Script) (r *campaign.Result, out, said string) {
	drafter, path, out := filepath.Join(dir, "drafter"), filepath.Join(dir, "c.yaml"), filepath.Join(dir, "out")
	python := script.Command(t)[0]
	config := `{"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}`
	if err := firstError(os.MkdirAll(drafter, 0o755), os.WriteFile(filepath.Join(drafter, "config.json"), []byte(config), 0o644),
		os.WriteFile(path, fmt.Appendf(nil, sglangCampaign, python, drafter), 0o644)); err != nil {
		t.Fatal(err)
	}
	said = command(t, "tune", path, "--out", out)
	text, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	r = new(campaign.Result)
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatal(err)
	}
	return r, out, said
}

// command runs draftlab and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	env, stdout, stderr := testEnv(t)
	env.Environ = os.Environ()
	if status := Run(context.Background(), env, args); status != 0 {
		t.Fatalf("%s: status %d\n%s", args, status, stderr)
	}
	t.Logf("%s\n%s", args, stdout)
	return stdout.String()
}

func find(t *testing.T, r *campaign.Result, name string) *campaign.ArmResult {
	t.Helper()
	i := slices.IndexFunc(r.Arms, func(a campaign.ArmResult) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no arm %s among %d", name, len(r.Arms))
	}
	return &r.Arms[i]
}

// near holds a figure to what the script makes it.
func (w *wrong) near(what string, got, want, within float64) {
	if !(math.Abs(got/want-1) <= within) {
		w.addf("%s: %.4g, where the script makes %.4g", what, got, want)
	}
}

// sglangArms checks what is said of the arms that were measured, against the script.
func sglangArms(t *testing.T, w *wrong, r *campaign.Result, s *targettest.Script) {
	const fast = "chain-2,NCCL_PROTO=LL"
	if !r.Complete || !r.Lossless {
		t.Fatalf("complete %v, lossless %v; %q", r.Complete, r.Lossless, r.Warnings)
	}
	if r.Verdict != campaign.Faster || r.Best == nil || r.Best.Name != fast {
		w.addf("%s, best %+v; %q", r.Verdict, r.Best, r.Warnings)
		return
	}
	if r.Baseline != "plain" || r.BestPlain != "plain,NCCL_PROTO=LL" {
		w.addf("baseline %s, best plain %s", r.Baseline, r.BestPlain)
	}
	for _, name := range []string{"plain", "plain,NCCL_PROTO=LL", "plain,NCCL_PROTO=L1", "chain-2", "chain-5", "chain-2,NCCL_PROTO=LL", "chain-5,NCCL_PROTO=LL", "embedding", "no-protocol"} {
		a := find(t, r, name)
		if a.Decided != campaign.Full || len(a.Boots) != 2 || a.TokS == nil || a.Cycle == nil {
			w.addf("%s: %s on boots %v", name, a.Decided, a.Boots)
			continue
		}
		plain, scale := ms(s.Plain), 1.0
		if strings.HasSuffix(name, "LL") {
			plain, scale = 0.97*plain, 0.73
		}
		if a.Plain() {
			w.near(name+", decode", a.Phases["decode"], plain, 0.001)
			w.near(name+", cycle", a.Cycle.Median, plain, 0.1)
			continue
		}
		verify := scale * ms(s.Verify+time.Duration(a.DraftTokens)*s.Row)
		w.near(name+", verify", a.Phases["verify"], verify, 0.001)
		w.near(name+", draft", a.Phases["draft"], ms(time.Duration(a.Steps)*s.Draft), 0.001)
		w.near(name+", draft_extend", a.Phases["draft_extend"], ms(s.Draft), 0.001)
		w.near(name+", cycle", a.Cycle.Median, verify+ms(time.Duration(a.Steps+1)*s.Draft), 0.1)
		rate := s.Accept
		if name == "embedding" {
			rate /= 3
		}
		length, likely := 1.0, 1.0
		for range a.Steps {
			likely *= rate
			length, rate = length+likely, rate*s.Fade
		}
		w.near(name+", accept length", a.Accept, length, 0.05)
		same, best := a.Speedup.SameEnv, a.Speedup.BestPlain
		if same == nil || best == nil || same.Against != a.Baseline || best.Against != r.BestPlain {
			w.addf("%s: %+v", name, a.Speedup)
			continue
		}
		w.near(name+", speed-up", same.Estimate, a.Accept*plain/a.Cycle.Median, 0.15)
	}
	if s := r.Speedup; s == nil || s.SameEnv == nil || s.BestPlain == nil || r.Confirm == nil || r.Confirm.Arm != fast {
		w.addf("%+v, confirm %+v", r.Speedup, r.Confirm)
	}
}

// sglangBoots checks what is kept of servers that came up: each rank's variables, and what the server did otherwise.
func sglangBoots(t *testing.T, r *campaign.Result) {
	for _, b := range r.Boots {
		if b.Cause != "" {
			continue
		}
		if len(b.Info) == 0 {
			t.Errorf("%s: nothing of the server's configuration", b.Name)
		}
		changed := slices.ContainsFunc(b.Differences, func(d trial.Difference) bool {
			return d.Key == "request limit changed" && strings.Contains(d.Got, "48")
		})
		if changed == b.Knobs.Plain() {
			t.Errorf("%s: %+v", b.Name, b.Differences)
		}
		value, set := b.Knobs.Env["NCCL_PROTO"]
		want := map[string]string{"LL": "applied", "L1": "ignored"}[value]
		ranks := 0
		for _, c := range b.Environment {
			if c.Name == "NCCL_PROTO" && strings.HasPrefix(c.Process, "rank ") {
				if ranks++; c.State != want || c.Line == "" {
					t.Errorf("%s: %+v", b.Name, c)
				}
			}
		}
		if set && ranks != 8 {
			t.Errorf("%s: %d ranks told of NCCL_PROTO", b.Name, ranks)
		}
	}
}

// sglangFailures checks that starts which failed are classified, with the lines that show it, and what became of their arms.
func sglangFailures(t *testing.T, r *campaign.Result) {
	causes := map[target.Cause]int{}
	for _, b := range r.Boots {
		causes[target.Cause(b.Cause)]++
		lines := strings.Join(b.Lines, "\n")
		switch target.Cause(b.Cause) {
		case "":
		case target.OutOfMemory:
			if !strings.Contains(lines, "CUDA out of memory") {
				t.Errorf("%s: %q", b.Name, b.Lines)
			}
		case target.BadFlag:
			if !strings.Contains(lines, "unrecognized arguments: --speculative-speed=11") || b.Knobs.Flags["speculative-speed"] != "11" {
				t.Errorf("%s: %q", b.Name, b.Lines)
			}
		default:
			t.Errorf("%s: %s, %s", b.Name, b.Cause, b.Detail)
		}
	}
	if causes[target.OutOfMemory] != 1 || causes[target.BadFlag] < 1 {
		t.Errorf("%v", causes)
	}
	about := 0
	for _, w := range r.Warnings {
		if strings.Contains(w, "NCCL_PROTO=L1") {
			about++
		}
	}
	if about != 1 {
		t.Errorf("%d warnings of a protocol that is none: %q", about, r.Warnings)
	}
	a := find(t, r, "typo")
	if a.Decided != campaign.Failed || !strings.Contains(a.Error, string(target.BadFlag)) || !strings.Contains(a.Error, "speculative-speed") {
		t.Errorf("typo: %s: %s", a.Decided, a.Error)
	}
	if !slices.ContainsFunc(r.Verdicts, func(v trial.Verdict) bool {
		return v.Outcome == trial.Failed && strings.HasPrefix(v.Hypothesis, "typo ")
	}) {
		t.Errorf("%+v", r.Verdicts)
	}
}

// sglangExplained checks that the cost model and draftlab explain say what the script does.
func sglangExplained(t *testing.T, w *wrong, out string, r *campaign.Result) {
	if r.CostModel == nil || r.CostModel.InterceptOverPlain == nil {
		w.addf("cost model %+v", r.CostModel)
		return
	}
	w.near("fixed part of verify over plain", *r.CostModel.InterceptOverPlain, 2250.0/1130, 0.15)
	var doc explain.Report
	if err := json.NewDecoder(bytes.NewReader([]byte(command(t, "explain", out, "--json")))).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(doc.Warnings, func(d costmodel.Doubt) bool {
		return d.Code == "other_drafter" && strings.HasPrefix(d.Text, "embedding ")
	}) {
		w.addf("%+v", doc.Warnings)
	}
	for _, code := range []string{"verify_off_fast_path", "speculation_slower", "deeper_is_worse"} {
		if !slices.ContainsFunc(doc.Findings, func(f explain.Finding) bool { return f.Code == code }) {
			w.addf("no %s: %+v", code, doc.Findings)
		}
	}
}
