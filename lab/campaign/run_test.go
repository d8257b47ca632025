package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"draftlab/lab/campaign/file"
	"draftlab/lab/client"
	"draftlab/lab/trial"
)

func TestTheFasterArmIsFoundAndConfirmed(t *testing.T) {
	e := newFake(1, 0.05, map[string]float64{"eagle32": 130, "eagle33": 160, "ngram3": 80})
	r, d := finish(t, e, usual, nil)
	if r.Verdict != Faster || r.Best == nil || r.Best.Name != "chain-3" || !r.Complete {
		t.Fatalf("%s, best %+v", r.Verdict, r.Best)
	}
	if s := r.Speedup.BestPlain; *s.Low > 1.6 || *s.High < 1.6 || s.Pairs != 12 || s.P > 0.001 || s.Method != "paired" || s.Against != "plain" {
		t.Errorf("speed-up %+v [%v %v]", s, *s.Low, *s.High)
	}
	if a := r.arm("ngram-3"); *a.Speedup.SameEnv.High > 0.95 || a.Decided != Early || a.Compared >= 12 {
		t.Errorf("%+v %+v", a, a.Speedup.SameEnv)
	}
	if p := r.Arms[0]; p.Speedup != nil || p.TokS.N < 48 || p.Accept != 1 || math.Abs(p.TokS.Median-100) > 5 || math.Abs(p.TTFT.Median-50) > 1e-9 || p.Decided != Full {
		t.Errorf("%+v", p)
	}
	if a := r.arm("chain-3"); math.Abs(a.Accept-2.5) > 0.05 || math.Abs(a.Phases["verify"]-3) > 1e-9 || r.Acceptance["chain-3"].Cycles == 0 || a.Decided != Full {
		t.Errorf("%+v", a)
	}
	if !r.Lossless || len(r.Warnings) > 0 || r.Bandwidth.Median != 20 || len(r.Boots) != 1 || r.Boots[0].Ended.IsZero() || r.Boots[0].ReadyS < 1 {
		t.Errorf("%+v", r)
	}
	if r.Plan.Pairs != 12 || r.Plan.CV < 0.03 || r.Plan.CV > 0.08 || math.Abs(r.Plan.DetectableEffect-math.Expm1(2.8*r.Plan.CV*math.Sqrt(2.0/12))) > 1e-3 {
		t.Errorf("%+v", r.Plan)
	}
	if r.CostModel == nil || math.Abs(r.CostModel.PlainStepMs-10) > 1 {
		t.Errorf("%+v", r.CostModel)
	}
	for _, tr := range d.of(trial.Confirm, "chain-3") {
		if slices.ContainsFunc(d.of(trial.Measure, "plain"), func(u *trial.Trial) bool { return u.Prompt == tr.Prompt }) {
			t.Errorf("prompt %s was measured before it confirmed", tr.Prompt)
		}
	}
	verdictsOf(t, r)
}

// verdictsOf checks the log of the campaign above.
func verdictsOf(t *testing.T, r *Result) {
	t.Helper()
	want := map[string]trial.Outcome{"ngram-3": trial.Refuted, "chain-2": trial.Supported, "chain-3": trial.Supported}
	if len(r.Verdicts) != 5 {
		t.Fatalf("%d verdicts", len(r.Verdicts))
	}
	for _, v := range r.Verdicts {
		arm, _, _ := strings.Cut(v.Hypothesis, " ")
		if o, ok := want[arm]; ok && v.Outcome != o || v.Outcome == "" || v.Change == "" || v.Evidence == "" {
			t.Errorf("%+v", v)
		}
		if arm == "chain-3" && (v.Next != "use it: the confirm run agrees" || !strings.HasPrefix(v.Predicted, "speedup ")) {
			t.Errorf("%+v", v)
		}
	}
	found := false
	for _, p := range r.Predictions {
		if p.Arm != "chain-3" || slices.Contains(p.From, "chain-3") || p.Measured == nil {
			t.Errorf("%+v", p)
		}
		found = found || p.Quantity == "speedup"
	}
	if !found {
		t.Error("nobody foretold the winner")
	}
}

// TestAlarms: campaigns in which no arm differs name a winner in at most the level's share. With 40 of them, 6 lies
// 2.9 standard deviations above 5 %; the confirm run makes them far rarer.
func TestAlarms(t *testing.T) {
	if testing.Short() {
		t.Skip("40 campaigns")
	}
	chosen, confirmed := 0, 0
	for seed := range uint64(40) {
		r, _ := finish(t, newFake(seed, 0.1, nil), usual, nil)
		switch r.Verdict {
		case Faster:
			confirmed++
			chosen++
		case NotConfirmed:
			chosen++
		}
	}
	if chosen > 6 || confirmed > 1 {
		t.Errorf("of 40 campaigns %d named an arm, %d confirmed it", chosen, confirmed)
	}
}

func TestAWrongOutputNeverWins(t *testing.T) {
	e := newFake(3, 0.02, map[string]float64{"eagle35": 300, "eagle31": 120})
	e.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "eagle35" && n%2 == 0 {
			s.TokenIDs[5]++
		}
	}
	r, _ := finish(t, e, usual, nil)
	if r.Lossless || r.Verdict != Faster || r.Best.Name != "chain-1" || len(r.arm("chain-5").Different) == 0 || !strings.Contains(strings.Join(r.Warnings, "\n"), "chain-5: OUTPUT IS NOT") {
		t.Errorf("%s %+v %v", r.Verdict, r.Best, r.Warnings)
	}
}

// TestNoiseOfTheEngineItself: where plain decoding differs from itself as often as the drafts do, that is nobody's fault.
func TestNoiseOfTheEngineItself(t *testing.T) {
	e := newFake(3, 0.02, map[string]float64{"eagle32": 150})
	e.spoil = func(n int, _ string, s *client.Sample) {
		if n%5 == 0 {
			s.TokenIDs[5] += int32(n)
		}
	}
	r, _ := finish(t, e, usual, nil)
	if !r.Lossless || r.Verdict != Faster || r.Best.Name != "chain-2" || !strings.Contains(strings.Join(r.Warnings, "\n"), "about as many as") {
		t.Errorf("%s %+v %v", r.Verdict, r.Best, r.Warnings)
	}
}

func TestFailedRequests(t *testing.T) {
	e := newFake(4, 0.02, map[string]float64{"eagle35": 300})
	e.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "eagle35" {
			*s = client.Sample{Status: 400, Error: "steps: too many", Failure: client.Refused}
		}
	}
	r, _ := finish(t, e, usual, nil)
	if a := r.arm("chain-5"); r.Verdict != NoneFaster || a.Failed != 12 || a.Decided != Failed || !strings.Contains(strings.Join(r.Warnings, "\n"), "chain-5: 12 requests failed: steps: too many") {
		t.Errorf("%s %+v %v", r.Verdict, a, r.Warnings)
	}
	e = newFake(4, 0, nil)
	e.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "none" {
			*s = client.Sample{Error: "404 Not Found"}
		}
	}
	if err := failure(t, e, usual); err == nil || !strings.Contains(err.Error(), "plain on prompt") {
		t.Errorf("a failed baseline: %v", err)
	}
}

// TestRefusedPrompts: a server may not take every prompt. What it refuses is left out; if it takes none the campaign fails.
func TestRefusedPrompts(t *testing.T) {
	refuse := func(every int) func(int, string, *client.Sample) {
		plain := 0
		return func(n int, arm string, s *client.Sample) {
			if plain++; plain%every == 0 {
				*s = client.Sample{Status: 400, Error: "400 Bad Request: too long", Failure: client.Refused}
			}
		}
	}
	e := newFake(4, 0, nil)
	plain := refuse(30)
	e.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "none" {
			plain(n, arm, s)
		}
	}
	r, d := finish(t, e, usual, nil)
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "left out: arm plain on prompt") {
		t.Errorf("warnings %q", r.Warnings)
	}
	for _, tr := range d.trials {
		if tr.Sample.Error != "" {
			t.Errorf("a refused request among the trials: %+v", tr)
		}
	}
	e = newFake(4, 0, nil)
	e.spoil = refuse(1)
	if err := failure(t, e, usual); err == nil || !strings.Contains(err.Error(), "plain on prompt") {
		t.Errorf("no prompt is taken: %v", err)
	}
}

func TestTheTimeIsKept(t *testing.T) {
	all := map[string]float64{"none": 20, "ngram3": 20, "eagle31": 20, "eagle32": 20, "eagle33": 20, "eagle35": 20}
	r, _ := finish(t, newFake(5, 0.02, all), "budget: {time: 125s}\n"+usual, nil)
	if r.Size == (Size{12, 12, 64}) || r.ElapsedS > 105 || !r.Complete {
		t.Errorf("%+v in %v s", r.Size, r.ElapsedS)
	}
	// A server that gets slower than it was.
	e := newFake(5, 0.02, nil)
	e.spoil = func(n int, _ string, s *client.Sample) {
		if n > 40 {
			s.EndNS *= 20
		}
	}
	r, _ = finish(t, e, "budget: {time: 120s}\n"+usual, nil)
	if r.ElapsedS > 150 || !strings.Contains(strings.Join(r.Warnings, "\n"), "the time was up") || r.Verdict == Faster {
		t.Errorf("%s after %v s: %v", r.Verdict, r.ElapsedS, r.Warnings)
	}
}

// TestNoiseLeavesItOpen: with wide intervals "none is faster" would be a claim that nobody has shown.
func TestNoiseLeavesItOpen(t *testing.T) {
	for _, c := range []struct {
		noise float64
		want  Verdict
	}{{0.01, NoneFaster}, {0.8, Undecided}} {
		r, _ := finish(t, newFake(8, c.noise, nil), usual, nil)
		if r.Verdict != c.want || (r.Open() != nil) != (c.want == Undecided) {
			t.Errorf("noise %v: %s, open %+v", c.noise, r.Verdict, r.Open())
		}
	}
}

// TestNothingWasMeasured: a campaign that had no time for any arm does not say that none is faster.
func TestNothingWasMeasured(t *testing.T) {
	e := newFake(5, 0.02, map[string]float64{"none": 0.5})
	r, _ := finish(t, e, "budget: {time: 60s}\n"+usual, nil)
	if r.Verdict != Undecided || r.Open() != nil || r.arm("chain-1").Decided != Unmeasured {
		t.Errorf("%s, open %+v", r.Verdict, r.Open())
	}
}

// TestInterruptAndGoOn: an interrupt ends the server, and the campaign goes on later with nothing measured twice.
func TestInterruptAndGoOn(t *testing.T) {
	e := newFake(1, 0.03, map[string]float64{"eagle32": 150})
	synctest.Test(t, func(t *testing.T) {
		c := start(t, e, usual)
		defer c.store.Close()
		before := 0
		for limit := 20 * time.Second; ; limit += 7 * time.Second {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			c.ctx = ctx
			err := c.run()
			cancel()
			if e.running != 0 {
				t.Fatal("a server is left")
			}
			r, d := c.result(t)
			if len(d.trials) < before {
				t.Fatalf("%d trials were %d before", len(d.trials), before)
			}
			before = len(d.trials)
			if err == nil {
				onceEach(t, d)
				if r.Verdict != Faster || r.Best.Name != "chain-2" || !r.Complete || len(r.Boots) < 2 {
					t.Errorf("%s %+v after %d boots", r.Verdict, r.Best, len(r.Boots))
				}
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) || r.Complete {
				t.Fatal(err)
			}
		}
	})
}

// onceEach checks that no pair was measured whole more than once.
func onceEach(t *testing.T, d *data) {
	t.Helper()
	type key struct {
		stage       trial.Stage
		block, pair int
		arm         string
	}
	seen := map[key]map[int]bool{}
	for _, tr := range d.trials {
		if tr.Stage == trial.WarmUp {
			continue
		}
		k := key{tr.Stage, tr.Block, tr.Pair, tr.Against}
		at := map[int]bool{}
		if seen[k] == nil {
			seen[k] = at
		}
		seen[k][tr.Boot] = true
	}
	whole := map[key]int{}
	for _, stage := range []trial.Stage{trial.Measure, trial.Confirm} {
		sides := map[place]int{}
		for _, u := range d.turnsOf(stage) {
			if sides[u.place]++; sides[u.place] == 2 {
				whole[key{u.stage, u.block, u.pair, u.against}]++
			}
		}
	}
	for k, n := range whole {
		if n != 1 {
			t.Errorf("%+v was measured %d times", k, n)
		}
	}
}

func TestADeafDrafterAndAWarmCacheAreNoted(t *testing.T) {
	e := newFake(6, 0.02, nil)
	e.spoil = func(n int, arm string, s *client.Sample) {
		s.CachedTokens = n % 2
		if s.Spec != nil {
			s.Spec.Accepted = 0
		}
	}
	r, _ := finish(t, e, usual, func(c *campaign) {
		n := 0.0
		c.bandwidth = func() float64 { n++; return 1e9 * (1 + math.Mod(n, 3)) }
	})
	text := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"chain-1: hardly a draft is accepted", "found a part of their prompt in the server's cache", "memory's speed swung between 1.0 and 3.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
	if strings.Contains(text, "ngram-3: hardly") {
		t.Error("look-up finds nothing in many texts, and is no defect then")
	}
}

// TestConcurrency: a turn is several requests at once, and what counts is all of its tokens over all of its time, or the requests that kept
// within limits.
func TestConcurrency(t *testing.T) {
	text := strings.Replace(usual, "max_tokens: 64", "max_tokens: 64, concurrency: 4", 1)
	r, d := finish(t, newFake(5, 0.02, map[string]float64{"eagle32": 150}), text, nil)
	if r.Verdict != Faster || r.Best.Name != "chain-2" || r.Objective.Concurrency != 4 {
		t.Fatalf("%s %+v", r.Verdict, r.Best)
	}
	if v := r.Arms[0].Value.Median; v < 330 || v > 400 { // four at 100 tok/s, and 50 ms each before
		t.Errorf("plain decoding at %v tok/s", v)
	}
	for _, u := range d.turnsOf(trial.Measure) {
		if len(u.trials) != 8 {
			t.Fatalf("a turn of %d requests", len(u.trials))
		}
	}
	r, _ = finish(t, newFake(5, 0.02, map[string]float64{"eagle32": 150, "eagle33": 300}), "objective: {kind: goodput, tpot_ms: 8, ttft_ms: 60}\n"+text, nil)
	if r.Verdict != Faster || r.Best.Name != "chain-3" || r.arm("chain-1").Value.Median > 2 {
		t.Errorf("%s %+v %+v", r.Verdict, r.Best, r.arm("chain-1").Value)
	}
}

func TestRandomSearch(t *testing.T) {
	r, _ := finish(t, newFake(1, 0.02, nil), "search: {kind: random, arms: 2}\n"+usual, nil)
	measured := 0
	for _, a := range r.Arms[1:] {
		if a.Decided != Unmeasured {
			measured++
		}
	}
	if measured != 2 {
		t.Errorf("%d arms were measured", measured)
	}
}

// TestAResultIsJSON: nothing in it is infinite, even when next to nothing was measured.
func TestAResultIsJSON(t *testing.T) {
	e := newFake(1, 0.02, nil)
	synctest.Test(t, func(t *testing.T) {
		c := start(t, e, usual)
		defer c.store.Close()
		for _, limit := range []time.Duration{time.Millisecond, 3 * time.Second, 9 * time.Second, 14 * time.Second} {
			r, _ := c.result(t)
			if _, err := json.Marshal(r); err != nil {
				t.Fatal(err)
			}
			var cancel context.CancelFunc
			c.ctx, cancel = context.WithTimeout(context.Background(), limit)
			if err := c.run(); err == nil {
				t.Fatal("it is too fast for this test")
			}
			cancel()
		}
	})
}

// TestSecretsAreNotShown: results are passed on.
func TestSecretsAreNotShown(t *testing.T) {
	for value, want := range map[string]string{"hf_abc": "HF_TOKEN: …", `"hf\"abc"`: "HF_TOKEN in it is secret"} {
		c, err := file.Parse("c", []byte("model: m\ntarget:\n  kind: sglang\n  flags: {admin-api-key: s3cret}\n  env:\n    HF_TOKEN: "+value+"\n    NUM_TOKENS: 17\nfactors: {steps: [1]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(c); strings.Contains(got, "abc") || strings.Contains(got, "s3cret") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", value, got)
		}
	}
}

func TestBenchstat(t *testing.T) {
	_, d := finish(t, newFake(1, 0.02, map[string]float64{"eagle33": 150}), usual, nil)
	var b strings.Builder
	if err := d.writeBenchstat(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "Unit tok/s better=higher\n") || strings.Count(b.String(), "/arm=chain-3-1 1 ") != 12 || !strings.Contains(b.String(), "BenchmarkDecode/category=code/arm=plain-1 1 ") {
		t.Error(b.String()[:500])
	}
}

// TestEarlyStopsAreReplayed: an arm that was given up while it was measured is so by what is stored, too.
func TestEarlyStopsAreReplayed(t *testing.T) {
	early := 0
	for seed := range uint64(8) {
		e := newFake(seed, 0.1, map[string]float64{"eagle31": 92, "eagle32": 96, "eagle33": 99, "eagle35": 102})
		r, d := finish(t, e, strings.Replace(usual, "count: 12", "count: 40", 1), nil)
		for _, a := range r.Arms {
			switch n := len(d.of(trial.Measure, a.Name)); {
			case a.Plain():
			case a.Decided == Early:
				early++
			case n != r.Plan.Pairs:
				t.Errorf("seed %d: %s has %d of %d pairs, and is %q", seed, a.Name, n, r.Plan.Pairs, a.Decided)
			}
		}
	}
	if early == 0 {
		t.Error("no arm was given up")
	}
}
