package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/trial"
)

// fake is a server that writes at given speeds, in the time of the test's bubble.
type fake struct {
	speed  map[string]float64 // tokens a second by drafter and steps, as in "eagle3-3"
	noise  float64            // of the logarithm of each speed
	rng    *rand.Rand
	asked  int
	cached bool // somebody has asked since the last flush
	spoil  func(n int, arm string, s *client.Sample)
	dead   error
	cycles int64
}

func (f *fake) Flush(context.Context) error { f.cached = false; return nil }
func (f *fake) Failure() error              { return f.dead }

func (f *fake) Ledger(context.Context) (*trial.Ledger, error) {
	return &trial.Ledger{Cycles: f.cycles, PhaseNS: map[string]int64{"verify": 3e6 * f.cycles}}, nil
}

func (f *fake) Ask(ctx context.Context, r *client.Request) *client.Sample {
	k := r.Extra["speculative"].(map[string]any)
	arm, steps := k["drafter"].(string), 0
	if n, ok := k["steps"].(int); ok {
		steps = n
		arm += string(rune('0' + n))
	}
	rate := f.speed[arm] * math.Exp(f.noise*f.rng.NormFloat64())
	n := r.MaxTokens
	s := &client.Sample{StartUnixNS: time.Now().UnixNano(), FirstNS: 50e6, PromptTokens: 10, OutputTokens: n, Status: 200, Finish: "length"}
	if f.cached {
		s.CachedTokens = 10
	}
	f.cached = true
	cycles := n - 1
	if steps > 0 { // half of the drafts are accepted
		cycles = (n - 1) * 2 / (steps + 2)
		s.Spec = &client.Speculation{Cycles: int64(cycles), Drafted: int64(cycles * steps), Accepted: int64(cycles * steps / 2)}
	}
	f.cycles += int64(cycles)
	s.DecodeSteps, s.LastNS = cycles, 50e6+int64(float64(n-1)/rate*1e9)
	s.EndNS, s.Chunks = s.LastNS, []client.Chunk{{AtNS: 50e6, Tokens: 1, Bytes: 1}, {AtNS: s.LastNS, Tokens: n - 1, Bytes: n - 1}}
	for i := range n {
		s.TokenIDs = append(s.TokenIDs, int32(i*len(r.Prompt)))
	}
	if f.spoil != nil {
		f.spoil(f.asked, arm, s)
	}
	f.asked++
	select {
	case <-time.After(time.Duration(s.EndNS)):
	case <-ctx.Done():
		s.Error = ctx.Err().Error()
	}
	return s
}

var flat = map[string]float64{"none": 100, "ngram3": 100, "eagle31": 100, "eagle32": 100, "eagle33": 100, "eagle35": 100}

func newFake(seed uint64, noise float64, speeds map[string]float64) *fake {
	f := &fake{speed: map[string]float64{}, noise: noise, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, m := range []map[string]float64{flat, speeds} {
		for k, v := range m {
			f.speed[k] = v
		}
	}
	return f
}

// run1 runs a campaign of a fake server in a time of its own.
func run1(t *testing.T, f *fake, change func(*Config)) (o *Outcome, stored []byte, err error) {
	t.Helper()
	c := Config{Arms: DefaultArms(true), Set: held(), Seed: f.rng.Uint64(), Want: Size{12, 12, 64}, Budget: time.Hour, Limit: 2 * time.Hour, Server: f,
		Bandwidth: func() float64 { return 20e9 },
		Record: func(t *Trial) error {
			b, err := json.Marshal(t)
			stored = append(append(stored, b...), '\n')
			return err
		},
		Progress: func(Progress) {}}
	if change != nil {
		change(&c)
	}
	synctest.Test(t, func(*testing.T) { o, err = Run(context.Background(), c) })
	return o, stored, err
}

func TestTheFasterArmIsFoundAndConfirmed(t *testing.T) {
	f := newFake(1, 0.05, map[string]float64{"eagle32": 130, "eagle33": 160, "ngram3": 80})
	o, stored, err := run1(t, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := Analyse(o)
	if r.Verdict != Faster || r.Best == nil || r.Best.Name != "chain-3" && r.Best.Name != "tree-3-2-6" { // the fake tells them apart by steps
		t.Fatalf("%s, best %+v", r.Verdict, r.Best)
	}
	if s := r.Speedup; *s.Low > 1.6 || *s.High < 1.6 || s.Pairs != 12 || s.P > 0.001 {
		t.Errorf("speed-up %+v [%v %v]", s, *s.Low, *s.High)
	}
	if a := r.Arms[1]; a.Name != "ngram-3" || *a.Speedup.High > 0.9 || a.Compared != 12 || a.TokS.N != 12 {
		t.Errorf("%+v %+v", a, a.Speedup)
	}
	if p := r.Arms[0]; p.Speedup != nil || p.TokS.N != 72 || p.Accept != 1 || math.Abs(p.TokS.Median-100) > 5 || math.Abs(p.TTFT.Median-50) > 1e-9 {
		t.Errorf("%+v", p)
	}
	if a := r.Arms[4]; math.Abs(a.Accept-2.5) > 0.05 || math.Abs(a.Phases["verify"]-3) > 1e-9 || r.Acceptance["chain-3"].Cycles == 0 {
		t.Errorf("%+v", a)
	}
	if !r.Lossless || len(r.Warnings) > 0 || r.Bandwidth.Median != 20 {
		t.Errorf("%+v", r)
	}
	// The stored samples are all that a result is made of.
	again := *o
	again.Trials = nil
	for line := range strings.Lines(string(stored)) {
		var trial Trial
		if err := json.Unmarshal([]byte(line), &trial); err != nil {
			t.Fatal(err)
		}
		again.Trials = append(again.Trials, &trial)
	}
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(Analyse(&again))
	if string(a) != string(b) {
		t.Errorf("from the store:\n%s\nwant\n%s", b, a)
	}
	for _, trial := range o.Trials {
		if trial.Stage == Confirm && slices.ContainsFunc(o.Trials, func(u *Trial) bool { return u.Stage == Measure && u.Prompt == trial.Prompt }) {
			t.Errorf("prompt %s was measured before it confirmed", trial.Prompt)
		}
	}
}

// TestAlarms: campaigns in which no arm differs name a winner in at most the level's share. With 200 of them, seven in
// a hundred lies 1.3 standard deviations above 5 %; the confirm run makes them far rarer.
func TestAlarms(t *testing.T) {
	first, confirmed := 0, 0
	for seed := range uint64(200) {
		o, _, err := run1(t, newFake(seed, 0.1, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		switch r := Analyse(o); r.Verdict {
		case Faster:
			confirmed++
			first++
		case NotConfirmed:
			first++
		}
	}
	if first > 14 || confirmed > 2 {
		t.Errorf("of 200 campaigns %d named an arm, %d confirmed it", first, confirmed)
	}
}

func TestAWrongOutputNeverWins(t *testing.T) {
	f := newFake(3, 0.02, map[string]float64{"eagle35": 300, "eagle31": 120})
	f.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "eagle35" && n%2 == 0 {
			s.TokenIDs[5]++
		}
	}
	o, _, err := run1(t, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := Analyse(o)
	if r.Lossless || r.Verdict != Faster || r.Best.Name != "chain-1" || len(r.Arms[5].Different) == 0 || !strings.Contains(strings.Join(r.Warnings, "\n"), "chain-5: OUTPUT IS NOT") {
		t.Errorf("%s %+v %v", r.Verdict, r.Best, r.Warnings)
	}
}

func TestFailedRequests(t *testing.T) {
	f := newFake(4, 0.02, map[string]float64{"eagle35": 300})
	f.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "eagle35" {
			*s = client.Sample{Status: 400, Error: "steps: too many"}
		}
	}
	o, _, err := run1(t, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := Analyse(o); r.Verdict != NoneFaster || r.Arms[5].Failed != 12 || r.Arms[5].Speedup != nil || !strings.Contains(strings.Join(r.Warnings, "\n"), "chain-5: 12 requests failed: steps: too many") {
		t.Errorf("%s %+v %v", r.Verdict, r.Arms[5], r.Warnings)
	}
	f = newFake(4, 0, nil)
	f.spoil = func(n int, arm string, s *client.Sample) {
		if n == 30 {
			*s = client.Sample{Error: "connection reset"}
			f.dead = errors.New("the server failed (crash)")
		}
	}
	if _, _, err := run1(t, f, nil); err != f.dead {
		t.Errorf("a dead server: %v", err)
	}
	f = newFake(4, 0, nil)
	f.spoil = func(n int, arm string, s *client.Sample) {
		if arm == "none" {
			*s = client.Sample{Error: "404 Not Found"}
		}
	}
	if _, _, err := run1(t, f, nil); err == nil || !strings.Contains(err.Error(), "plain on prompt") {
		t.Errorf("a failed baseline: %v", err)
	}
}

// TestRefusedPrompts: a server may not take every prompt. What it refuses is left out; if it takes none the campaign fails.
func TestRefusedPrompts(t *testing.T) {
	f := newFake(4, 0, nil)
	refuse := func(every int) func(int, string, *client.Sample) {
		plain := 0
		return func(n int, arm string, s *client.Sample) {
			if arm != "none" {
				return
			}
			if plain++; plain%every == 0 {
				*s = client.Sample{Status: 400, Error: "400 Bad Request: too long", Failure: client.Refused}
			}
		}
	}
	f.spoil = refuse(30)
	o, _, err := run1(t, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Doubts) == 0 || !strings.Contains(o.Doubts[0], "left out: arm plain on prompt") {
		t.Errorf("doubts %q", o.Doubts)
	}
	for _, tr := range o.Trials {
		if tr.Sample.Error != "" {
			t.Errorf("a refused request among the trials: %+v", tr)
		}
	}
	if r := Analyse(o); r.Arms[1].Compared >= 12 || r.Arms[1].Compared < 8 {
		t.Errorf("%d pairs", r.Arms[1].Compared)
	}
	f = newFake(4, 0, nil)
	f.spoil = refuse(1)
	if _, _, err := run1(t, f, nil); err == nil || !strings.Contains(err.Error(), "plain on prompt") {
		t.Errorf("no prompt is taken: %v", err)
	}
}

func TestTheTimeIsKept(t *testing.T) {
	slow := map[string]float64{}
	for k := range flat {
		slow[k] = 20
	}
	var out *Outcome
	f := newFake(5, 0.02, slow)
	o, _, err := run1(t, f, func(c *Config) { c.Budget, c.Limit = 100*time.Second, 120*time.Second })
	if err != nil {
		t.Fatal(err)
	}
	if out = o; out.Size == (Size{12, 12, 64}) || out.Elapsed > 100*time.Second {
		t.Errorf("%+v in %v", out.Size, out.Elapsed)
	}
	// A server that gets slower than it was.
	f = newFake(5, 0.02, nil)
	f.spoil = func(n int, _ string, s *client.Sample) {
		if n > 40 {
			s.EndNS *= 20
		}
	}
	o, _, err = run1(t, f, func(c *Config) { c.Budget, c.Limit = 100*time.Second, 120*time.Second })
	if err != nil || o.Elapsed > 150*time.Second || !strings.Contains(strings.Join(o.Doubts, "\n"), "the time was up") {
		t.Errorf("%v: %v after %v", err, o.Doubts, o.Elapsed)
	}
	if r := Analyse(o); r.Verdict == Faster {
		t.Errorf("%s", r.Verdict)
	}
}

// TestNoiseLeavesItOpen: with wide intervals "none is faster" would be a claim that nobody has shown.
func TestNoiseLeavesItOpen(t *testing.T) {
	for _, c := range []struct {
		noise float64
		want  Verdict
	}{{0.01, NoneFaster}, {0.8, Undecided}} {
		o, _, err := run1(t, newFake(8, c.noise, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := Analyse(o); r.Verdict != c.want || (r.Open() != nil) != (c.want == Undecided) {
			t.Errorf("noise %v: %s, open %+v", c.noise, r.Verdict, r.Open())
		}
	}
	few := &Outcome{Arms: DefaultArms(true), Steady: true}
	if r := Analyse(few); r.Verdict != Undecided || r.Open() == nil {
		t.Errorf("without a trial: %s", r.Verdict)
	}
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := Run(ctx, Config{Arms: DefaultArms(false), Set: held(), Want: Size{12, 12, 64}, Budget: time.Hour, Limit: time.Hour,
			Server: newFake(1, 0, map[string]float64{"ngram1": 100, "ngram5": 100}), Bandwidth: func() float64 { return 1 },
			Record: func(*Trial) error { return nil }, Progress: func(Progress) {}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestADeafDrafterAndAWarmCacheAreNoted(t *testing.T) {
	f := newFake(6, 0.02, nil)
	f.spoil = func(n int, arm string, s *client.Sample) {
		s.CachedTokens = n % 2
		if s.Spec != nil {
			s.Spec.Accepted = 0
		}
	}
	o, _, err := run1(t, f, func(c *Config) {
		n := 0.0
		c.Bandwidth = func() float64 { n++; return 1e9 * (1 + math.Mod(n, 3)) }
	})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(Analyse(o).Warnings, "\n")
	for _, want := range []string{"chain-1: hardly a draft is accepted", "found a part of their prompt in the server's cache", "memory's speed swung between 1.0 and 3.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
	if strings.Contains(text, "ngram-3: hardly") {
		t.Error("look-up finds nothing in many texts, and is no defect then")
	}
}
