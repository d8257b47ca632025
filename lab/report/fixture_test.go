package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/trial"
)

// began is when the made-up campaign began.
var began = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func ptr(v float64) *float64 { return &v }

// rich returns a campaign that has something in every part of a report: flags and variables, a start that failed, refuted and supported
// hypotheses, predictions that held and one that did not. Its result is made up, as no store of a few hundred trials holds all that.
func rich(t testing.TB) *Data {
	t.Helper()
	plain, tuned := trial.Knobs{Drafter: "none", TopK: 1}, map[string]string{"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
	chain := func(steps int, env map[string]string) trial.Knobs {
		return trial.Knobs{Drafter: "eagle3", Steps: steps, TopK: 1, DraftTokens: steps + 1, Env: env}
	}
	type speed struct {
		name, base                        string
		knobs                             trial.Knobs
		tokS, ratio, accept, verify, rest float64
	}
	var arms []campaign.ArmResult
	accepted := map[string]campaign.Acceptance{}
	for _, s := range []speed{
		{"plain", "", plain, 88.8, 0, 1, 0, 11.26},
		{"steps-2", "plain", chain(2, nil), 75.9, 0.855, 2.02, 25.6, 1.0},
		{"steps-5", "plain", chain(5, nil), 71.3, 0.803, 2.14, 28.7, 1.4},
		{"plain, NCCL", "", trial.Knobs{Drafter: "none", TopK: 1, Env: tuned}, 92.1, 0, 1, 0, 10.86},
		{"steps-2, NCCL", "plain, NCCL", chain(2, tuned), 103.4, 1.123, 2.02, 18.5, 1.0},
		{"steps-3, NCCL", "plain, NCCL", chain(3, tuned), 101.0, 1.097, 2.09, 19.3, 1.2},
	} {
		a := campaign.ArmResult{Arm: trial.Arm{Name: s.name, Knobs: s.knobs, Baseline: s.base}, Accept: s.accept, Compared: 48, Decided: "full",
			TokS: spread(s.tokS, s.tokS*0.95, s.tokS*1.06, 48), TTFT: spread(412, 398, 430, 48), Cycle: spread(s.verify+s.rest, s.verify, s.verify+2, 48),
			Phases: map[string]float64{"prefill": 380, "verify": s.verify, "draft": s.rest / 2, "draft_extend": s.rest / 3, "other": s.rest / 6}}
		if s.ratio == 0 {
			a.Phases = map[string]float64{"prefill": 380, "decode": s.rest - 0.1, "other": 0.1}
			if s.name != "plain" {
				a.Effect = compared(1.037, 0.97, 1.03).SameEnv
			}
		} else {
			a.Speedup = compared(s.ratio, 0.97, 1.04)
			if s.base == "plain" { // the best plain decoding is of another environment
				a.Speedup.BestPlain = compared(s.ratio*0.965, 0.97, 1.04).SameEnv
			}
			survival := []float64{0.62, 0.4, 0.07, 0.03, 0.02}[:s.knobs.Steps]
			accepted[s.name] = campaign.Acceptance{AcceptLength: s.accept, Rate: 0.4, Survival: survival, Cycles: 4120}
		}
		arms = append(arms, a)
	}
	predictions := []trial.Prediction{
		predict("steps-2, NCCL", "speedup", 1.15, 1.02, 1.29, 1.123), predict("steps-3, NCCL", "speedup", 1.13, 1.0, 1.27, 1.097),
		predict("steps-5", "speedup", 0.9, 0.86, 0.95, 0.803), predict("steps-2, NCCL", "accept_length", 2.02, 1.9, 2.1, 2.02),
		{Arm: "steps-3", Quantity: "speedup", Made: began, Interval: trial.Interval{Estimate: 0.84, Low: ptr(0.8), High: ptr(0.9), Confidence: 0.9}}}
	best := arms[4].Arm
	text, err := json.Marshal(map[string]any{
		"verdict": "faster", "baseline": "plain", "best": best, "speedup": compared(1.118, 0.975, 1.026), "best_plain": "plain, NCCL",
		"arms": arms, "acceptance": accepted, "confirm": campaign.Confirmation{Arm: best.Name, Speedup: compared(1.118, 0.975, 1.026)}, "lossless": true,
		"bandwidth_gb_s": spread(31, 28, 35, 300), "elapsed_s": 5400, "complete": true, "boots": boots(tuned), "verdicts": verdictLog(), "predictions": predictions,
		"objective": map[string]any{"kind": "tok_s", "concurrency": 4}, "plan": map[string]any{"pairs": 48, "boots": 3, "cv": 0.061, "detectable_effect": 0.035}, "drift": []any{map[string]any{"boot": 1, "ratio": 0.982}},
		"seed": 7, "warnings": []string{"steps-5 was left after 24 of 48 pairs: it could not win"}, "campaign": "target: {kind: sglang}\nmodel: target\nfactors:\n  env: {NCCL_ALGO: [Ring], NCCL_PROTO: [LL, LL128]}\n",
		"environment": map[string]any{"started": began, "model": "target", "processors": 96, "server": map[string]any{"tp_size": 8, "version": "0.5.9"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := FromResult(text)
	if err != nil {
		t.Fatal(err)
	}
	d.Source = "nccl"
	rng := rand.New(rand.NewPCG(1, 2))
	at := began.Add(7 * time.Minute)
	for i := range 300 {
		stage := trial.Measure
		switch {
		case i < 12:
			stage = trial.WarmUp
		case i >= 260:
			stage = trial.Confirm
		}
		a := &arms[i%3]
		boot := 1
		if i >= 150 {
			a, boot = &arms[3+i%3], 3
		}
		if i == 150 {
			at = at.Add(25 * time.Minute)
		}
		took := time.Duration((8 + 4*rng.Float64()) * float64(time.Second))
		m := Mark{boot, stage, a.Name, at, at.Add(took), a.TokS.Median * (0.9 + 0.2*rng.Float64()), 28 + 8*rng.Float64(), false}
		if i%71 == 70 {
			m.Failed, m.TokS = true, 0
		}
		d.Trials = append(d.Trials, m)
		at = at.Add(took)
	}
	return d
}

func spread(median, p25, p75 float64, n int) *campaign.Spread {
	return &campaign.Spread{Median: median, P25: p25, P75: p75, N: n}
}

// compared is a speed-up of 48 pairs with an interval of so many times it.
func compared(estimate, low, high float64) *campaign.Speedup {
	return &campaign.Speedup{SameEnv: &campaign.Ratio{Estimate: estimate, Low: ptr(estimate * low), High: ptr(estimate * high), Confidence: 0.95, Pairs: 48, Boots: 3, Method: "paired"}}
}

func predict(arm, quantity string, estimate, low, high, measured float64) trial.Prediction {
	return trial.Prediction{Arm: arm, Quantity: quantity, Made: began, Interval: trial.Interval{Estimate: estimate, Low: ptr(low), High: ptr(high), Confidence: 0.9},
		Measured: &trial.Interval{Estimate: measured, Low: ptr(measured * 0.97), High: ptr(measured * 1.03), Confidence: 0.95}}
}

func boots(env map[string]string) []trial.Boot {
	command := "python3 -m sglang.launch_server --model-path target --tp 8 --speculative-algorithm EAGLE3"
	return []trial.Boot{
		{ID: 1, Name: "default", Command: command, Started: began, ReadyS: 391, Ended: began.Add(34 * time.Minute), Log: "default.log", Info: map[string]any{"tp_size": 8.0, "disable_cuda_graph": false, "speculative_num_steps": nil},
			Differences: []trial.Difference{{Key: "cuda_graph_max_bs", Want: "8", Got: "4", Note: "rewritten with speculative decoding"}}},
		{ID: 2, Name: "nccl-ll128", Command: "NCCL_PROTO=LL128 " + command, Started: began.Add(34 * time.Minute), Ended: began.Add(37 * time.Minute), Log: "nccl-ll128.log",
			Cause: "out of memory", Detail: "the server ended with status 1 after 171 s", Lines: []string{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB", "Received sigquit from a child process. It usually means the child failed."}},
		{ID: 3, Name: "nccl-ring-ll", Command: "NCCL_ALGO=Ring NCCL_PROTO=LL " + command, Knobs: trial.Knobs{Env: env}, Started: began.Add(37 * time.Minute), ReadyS: 402, Ended: began.Add(90 * time.Minute), Log: "nccl-ring-ll.log",
			Environment: []trial.EnvCheck{
				{Name: "NCCL_ALGO", Want: "Ring", Process: "rank 0", Got: "Ring", State: "applied", Line: "NCCL INFO NCCL_ALGO set by environment to Ring."},
				{Name: "NCCL_PROTO", Want: "LL", Process: "rank 3", Got: "", State: "missing"},
			}},
	}
}

func verdictLog() []trial.Verdict {
	return []trial.Verdict{
		{ID: 1, At: began.Add(30 * time.Minute), Hypothesis: "Deeper drafts pay", Predicted: "0.90× (90 %: 0.86 – 0.95)", Change: "steps 2 → 5", Evidence: "0.80× (95 %: 0.78 – 0.84, 24 pairs)", Outcome: trial.Refuted, Next: "fewer steps; look at verify's fixed cost"},
		{ID: 2, At: began.Add(37 * time.Minute), Hypothesis: "LL128 is faster than Simple", Change: "NCCL_PROTO=LL128", Evidence: "the server did not start: out of memory", Outcome: trial.Failed},
		{ID: 3, At: began.Add(88 * time.Minute), Hypothesis: "Collectives dominate verify", Predicted: "1.15× (90 %: 1.02 – 1.29)", Change: "NCCL_ALGO=Ring NCCL_PROTO=LL", Evidence: fmt.Sprintf("%.2f× (95 %%: 1.09 – 1.15, 48 pairs)", 1.118), Outcome: trial.Supported},
	}
}
