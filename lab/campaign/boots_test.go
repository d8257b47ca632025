package campaign

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"draftlab/lab/client"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

const env = "drafter: d\nboots: 3\nbudget: {boots: 40}\nworkload: {count: 10, confirm: 10, max_tokens: 64}\nfactors: {steps: [2], env.A: [null, fast, same]}\n"

// TestEnvironments: speculation is compared with plain decoding in its own environment, and with the best plain decoding of all.
func TestEnvironments(t *testing.T) {
	for _, isApart := range []bool{false, true} {
		e := newFake(2, 0.02, map[string]float64{"eagle32": 110})
		e.boot, e.apart, e.env = 0.01, isApart, map[string]float64{"A=fast": 1.3, "A=same": 1}
		r, _ := finish(t, e, env, nil)
		if r.BestPlain != "plain,A=fast" || r.Verdict != Faster || r.Best.Name != "chain-2,A=fast" {
			t.Fatalf("apart %v: %s %s %+v", isApart, r.Verdict, r.BestPlain, r.Best)
		}
		a := r.arm("chain-2")
		if s := a.Speedup.SameEnv; *s.Low > 1.1 || *s.High < 1.1 || (s.Method == "boots") != isApart || s.Boots != 3 {
			t.Errorf("apart %v: chain-2 %+v", isApart, s)
		}
		if s := a.Speedup.BestPlain; s.Method != "boots" || *s.High > 0.95 || *s.Low > 1.1/1.3 || *s.High < 1.1/1.3 {
			t.Errorf("apart %v: chain-2 beside the best plain decoding %+v [%v %v]", isApart, s, *s.Low, *s.High)
		}
		for _, v := range r.Verdicts {
			if v.Hypothesis == "plain decoding is faster with A=fast" && v.Outcome != trial.Supported ||
				v.Hypothesis == "plain decoding is faster with A=same" && (v.Outcome != trial.NoEffect || !strings.Contains(v.Evidence, "or more is excluded")) {
				t.Errorf("apart %v: %+v", isApart, v)
			}
		}
		want := 3*3 + 1 // shared: three environments three times, and the confirm run in one
		if isApart {
			want = 6*3 + 2
		}
		if n := len(r.Boots); n != want && (isApart || n != want-1) { // the last one may be the confirm run's
			t.Errorf("apart %v: %d boots, want %d", isApart, n, want)
		}
	}
}

// TestSettingsAlone: without any drafts a campaign compares plain decoding with itself.
func TestSettingsAlone(t *testing.T) {
	e := newFake(2, 0.02, nil)
	e.env = map[string]float64{"A=fast": 1.3}
	r, _ := finish(t, e, "workload: {count: 8, confirm: 6, max_tokens: 64}\nfactors: {env.A: [null, fast]}\n", nil)
	if r.Verdict != NoneFaster || r.BestPlain != "plain,A=fast" || len(r.Verdicts) != 1 || r.Verdicts[0].Outcome != trial.Supported || r.arm("plain,A=fast").Decided != Full {
		t.Errorf("%s %s %+v", r.Verdict, r.BestPlain, r.Verdicts)
	}
}

// TestStartsAreObservations: with servers that differ from start to start by more than the arms do nothing is found in them, though
// every prompt of a start agrees.
func TestStartsAreObservations(t *testing.T) {
	if testing.Short() {
		t.Skip("20 campaigns")
	}
	text := "drafter: d\nboots: 3\nbudget: {boots: 40}\nworkload: {count: 12, confirm: 6, max_tokens: 64}\nfactors: {steps: [1, 2]}\n"
	alarms := 0
	for seed := range uint64(20) {
		e := newFake(seed, 0.01, nil)
		e.apart, e.boot = true, 0.1
		if r, _ := finish(t, e, text, nil); r.Confirm != nil {
			alarms++
		}
	}
	if alarms > 4 {
		t.Errorf("%d of 20 campaigns saw a difference", alarms)
	}
}

// TestServersThatFail: the campaign goes on, and the arm is marked.
func TestServersThatFail(t *testing.T) {
	boom := &target.BootError{Cause: target.Crash, Detail: "exit status 2", Lines: []string{"panic: oh"}}
	// A start that fails twice.
	e := newFake(3, 0.02, map[string]float64{"eagle32": 120})
	e.apart = true
	e.fail = func(o target.BootOptions) error {
		if o.Knobs.Steps == 5 {
			return boom
		}
		return nil
	}
	text := "budget: {boots: 40}\nboots: 2\n" + usual
	r, _ := finish(t, e, text, nil)
	if a := r.arm("chain-5"); a.Decided != Failed || !strings.Contains(a.Error, "panic: oh") || r.Verdict != Faster || r.Best.Name != "chain-2" {
		t.Errorf("%+v %s %+v", a, r.Verdict, r.Best)
	}
	if n := len(slices.DeleteFunc(slices.Clone(e.started), func(s string) bool { return !strings.HasPrefix(s, "chain-5") })); n != 2 {
		t.Errorf("chain-5 was started %d times: %v", n, e.started)
	}
	// One that cannot go well is not tried again.
	e.started, boom = nil, &target.BootError{Cause: target.BadFlag, Detail: "exit status 2"}
	finish(t, e, text, nil)
	if n := len(slices.DeleteFunc(slices.Clone(e.started), func(s string) bool { return !strings.HasPrefix(s, "chain-5") })); n != 1 {
		t.Errorf("chain-5 was started %d times", n)
	}
	// One that dies under an arm: the others are measured.
	e = newFake(3, 0.02, map[string]float64{"eagle32": 120})
	e.dies = func(n int, arm string) error {
		if arm == "eagle33" && n > 20 {
			return &target.BootError{Cause: target.Crash, Detail: "exit status 2"}
		}
		return nil
	}
	r, _ = finish(t, e, usual, nil)
	if a := r.arm("chain-3"); a.Decided != Failed || r.Verdict != Faster || r.Best.Name != "chain-2" || r.arm("chain-1").Decided == Failed || len(r.Boots) != 3 || r.Boots[0].Cause != "crash" {
		t.Errorf("%+v %s %+v, %d boots", a, r.Verdict, r.Best, len(r.Boots))
	}
	// One that dies once.
	e = newFake(3, 0.02, map[string]float64{"eagle32": 120})
	e.dies = func(n int, arm string) error {
		if n == 50 {
			return &target.BootError{Cause: target.Crash, Detail: "exit status 2"}
		}
		return nil
	}
	if r, d := finish(t, e, usual, nil); len(r.Boots) != 2 || r.Verdict != Faster {
		t.Errorf("%d boots, %s", len(r.Boots), r.Verdict)
	} else {
		onceEach(t, d)
	}
	// One that lives and does not answer, or whose plain answer is cut off.
	cut, silent := false, false
	e = newFake(3, 0.02, map[string]float64{"eagle32": 120})
	e.silent = func(n int) (err error) {
		if n == 50 && !silent {
			silent, err = true, &url.Error{Op: "Post", URL: "/flush_cache", Err: context.DeadlineExceeded}
		}
		return err
	}
	e.spoil = func(n int, arm string, s *client.Sample) {
		if n > 80 && arm == "none" && !cut {
			cut, *s = true, client.Sample{Error: "unexpected EOF", Failure: client.Cut}
		}
	}
	if r, d := finish(t, e, usual, nil); len(r.Boots) != 3 || r.Verdict != Faster || r.Boots[0].Cause != string(target.Stalled) || !cut || !silent {
		t.Errorf("%d boots, %s", len(r.Boots), r.Verdict)
	} else {
		onceEach(t, d)
	}
	// The baseline.
	e = newFake(3, 0.02, nil)
	e.fail = func(target.BootOptions) error { return boom }
	if err := failure(t, e, usual); !errors.Is(err, boom) {
		t.Errorf("no server at all: %v", err)
	}
	// What cannot be.
	e = newFake(3, 0.02, nil)
	e.findings = []target.Finding{{Code: "x", Text: "no such flag", Fatal: true, Arms: []string{"chain-1"}}}
	if err := failure(t, e, usual); err == nil || !strings.Contains(err.Error(), "no such flag") || len(e.started) > 0 {
		t.Errorf("%v, %v", err, e.started)
	}
}

// TestAnArmThatWasGivenUpIsNotChosen, however fast it was until then.
func TestAnArmThatWasGivenUpIsNotChosen(t *testing.T) {
	e := newFake(3, 0.02, map[string]float64{"eagle31": 120, "eagle32": 200})
	asked := 0
	e.dies = func(_ int, arm string) error {
		if arm == "eagle32" {
			asked++
		}
		if arm == "eagle32" && asked > 10 {
			return &target.BootError{Cause: target.Crash, Detail: "exit status 2"}
		}
		return nil
	}
	r, _ := finish(t, e, usual, nil)
	if a := r.arm("chain-2"); a.Decided != Failed || *a.Speedup.SameEnv.Low < 1.5 || r.Verdict != Faster || r.Best.Name != "chain-1" {
		t.Errorf("%s: %+v %+v", r.Verdict, r.Best, a)
	}
}
