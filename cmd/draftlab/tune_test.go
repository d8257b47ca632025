package main

import (
	"strings"
	"testing"
	"time"

	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/trial"
)

func ratioOf(estimate float64, bounds ...float64) *campaign.Ratio {
	r := &campaign.Ratio{Estimate: estimate, Confidence: campaign.Confidence, Pairs: 12}
	if len(bounds) == 2 {
		r.Low, r.High = &bounds[0], &bounds[1]
	}
	return r
}

// over is a speed-up over the only plain decoding that there is.
func over(r *campaign.Ratio) *campaign.Speedup {
	return &campaign.Speedup{SameEnv: r, BestPlain: r}
}

func arm(name, drafter string, steps, topK, tokens int) trial.Arm {
	return trial.Arm{Name: name, Knobs: trial.Knobs{Drafter: drafter, Steps: steps, TopK: topK, DraftTokens: tokens}, Baseline: "plain"}
}

// elsewhere makes the result one of another engine's server.
func elsewhere(r *campaign.Result) *campaign.Result {
	r.Environment = []byte(`{"target": "sglang"}`)
	r.Boots = []trial.Boot{{ID: 1, Command: "other"}, {ID: 2, Command: "A=b python3 -m x"}}
	for i := range r.Arms {
		if r.Arms[i].Name == r.Best.Name {
			r.Arms[i].Boots = []int{2}
		}
	}
	return r
}

// TestVerdicts: each ending says what was found, and the first one how to use it.
func TestVerdicts(t *testing.T) {
	arms := []trial.Arm{{Name: "plain", Knobs: trial.Knobs{Drafter: "none"}}, arm("chain-3", "eagle3", 3, 1, 4), arm("ngram-3", "ngram", 3, 1, 4), arm("tree-3-2-6", "eagle3", 3, 2, 6)}
	base := func(v campaign.Verdict) *campaign.Result {
		r := &campaign.Result{Verdict: v, Baseline: "plain", BestPlain: "plain", Bandwidth: &campaign.Spread{Median: 20, P25: 18, P75: 22},
			Environment: []byte(`{"target": "draftlab", "model": "smollm2", "drafter": "/drafters/one"}`)}
		for _, a := range arms {
			r.Arms = append(r.Arms, campaign.ArmResult{Arm: a, Speedup: over(ratioOf(1.5, 1.4, 1.6))})
		}
		return r
	}
	faster := func(arm int) *campaign.Result {
		r := base(campaign.Faster)
		r.Best, r.Speedup = &arms[arm], over(ratioOf(1.43, 1.31, 1.52))
		r.Confirm = &campaign.Confirmation{Arm: arms[arm].Name, Speedup: r.Speedup}
		return r
	}
	secret := faster(1)
	own := *secret.Best
	secret.Best = &own
	own.Env, own.Flags = map[string]string{"HF_TOKEN": "hf_abc", "OMP_NUM_THREADS": "2"}, map[string]string{"api-key": "hush", "context": "512"}
	near := faster(1)
	near.Confirm.Rival = &campaign.Confirmation{Arm: "tree-3-2-6", Speedup: over(ratioOf(1.41, 1.3, 1.5))}
	unconfirmed := base(campaign.NotConfirmed)
	unconfirmed.Confirm = &campaign.Confirmation{Arm: "chain-3", Speedup: over(ratioOf(1.02, 0.97, 1.07))}
	nothing := base(campaign.NotConfirmed)
	nothing.Confirm = &campaign.Confirmation{Arm: "chain-3"}
	wide, few := base(campaign.Undecided), base(campaign.Undecided)
	for i := range wide.Arms {
		wide.Arms[i].Speedup = over(ratioOf(1.2, 0.95, 1.6))
	}
	for i := range few.Arms {
		few.Arms[i].Speedup = nil
	}
	for _, c := range []struct {
		doc  *campaign.Result
		want []string
	}{
		{faster(1), []string{"Best: chain-3, 1.43× plain decoding (95 % interval 1.31 – 1.52, 12 fresh prompts; 1.50× when", "draftlab serve --model smollm2 --drafter /drafters/one --steps 3\n", "20.0 GB/s (quartiles 18.0 – 22.0)"}},
		{secret, []string{"Use it with: HF_TOKEN='…' OMP_NUM_THREADS=2 draftlab serve", "--steps 3 --api-key='…' --context=512\n"}},
		{near, []string{"Best: chain-3, 1.43×", "\nBeside it on the same prompts: tree-3-2-6, 1.41× (1.30 – 1.50).\nUse it with"}},
		{faster(2), []string{"--drafter ngram --steps 3\n"}},
		{faster(3), []string{"--steps 3 --topk 2 --draft-tokens 6\n"}},
		{unconfirmed, []string{"plain decoding, as far as can be told. chain-3 seemed faster, but the confirm run gave 1.02× (95 % interval 0.97 – 1.07, 12 fresh"}},
		{nothing, []string{"the confirm run gave no usable pair"}},
		{base(campaign.NoneFaster), []string{"Best: plain decoding. No arm"}},
		{base(campaign.Undecided), []string{"Undecided: no arm", "\nchain-3 would be by itself (95 % interval 1.40 – 1.60), but of several arms one looks faster by luck", "12 pairs do not exclude"}},
		{wide, []string{"Undecided: no arm", "but chain-3 may be (95 % interval 0.95 – 1.60)"}},
		{elsewhere(faster(1)), []string{"1.43× plain decoding", "Its server was started with: A=b python3 -m x"}},
		{&campaign.Result{Verdict: campaign.Undecided}, []string{"no arm was measured"}},
		{few, []string{"too few pairs for an interval"}},
	} {
		for _, w := range c.want {
			if got := verdict(c.doc); !strings.Contains(got, w) {
				t.Errorf("%s: no %q in:\n%s", c.doc.Verdict, w, got)
			}
		}
	}
}

// TestArmsThatFailAreLoud: a wrong output and a failure stand in the table, and an interval that is none is not a number.
func TestArmsThatFailAreLoud(t *testing.T) {
	env, stdout, _ := testEnv(t)
	doc := &campaign.Result{Arms: []campaign.ArmResult{
		{Arm: trial.Arm{Name: "plain"}, TokS: &campaign.Spread{Median: 100}},
		{Arm: trial.Arm{Name: "wrong"}, Speedup: over(ratioOf(3)), Different: []string{"chat-02", "code-04"}, Wrong: true},
		{Arm: trial.Arm{Name: "broken"}, Failed: 12},
		{Arm: trial.Arm{Name: "crashed"}, Decided: campaign.Failed},
	}}
	if err := printArms(env, doc); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"100.0", "none (12 pairs)", "2 DIFFER", "12 FAILED", "SERVER FAILED"} {
		if !strings.Contains(stdout.String(), w) {
			t.Errorf("no %q in:\n%s", w, stdout)
		}
	}
}

// TestTuneProgress: a line at each stage's beginning and then one in five seconds.
func TestTuneProgress(t *testing.T) {
	env, _, stderr := testEnv(t)
	now := time.Unix(0, 0)
	say := sayProgress(ui.NewProgress(env.Stderr, false), func() time.Time { return now })
	for i := range 12 {
		say(campaign.Progress{Stage: trial.Measure, Boot: "plain-1", Done: i, Total: 12, Left: 90 * time.Second})
		now = now.Add(time.Second)
	}
	say(campaign.Progress{Stage: trial.Confirm, Boot: "plain-1", Total: 6})
	want := "plain-1: the server generates\nmeasuring: 0 of 12 pairs, about 90 s to go\nmeasuring: 5 of 12 pairs, about 90 s to go\nmeasuring: 10 of 12 pairs, about 90 s to go\nconfirming the winner: 0 of 6 pairs\n"
	if stderr.String() != want {
		t.Errorf("got\n%swant\n%s", stderr, want)
	}
}
