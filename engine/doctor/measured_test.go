package doctor

import (
	"strings"
	"testing"

	"draftlab/engine/wiring"
)

func measured(role wiring.Role, text string, first, less, low, high float64) *wiring.Measured {
	return &wiring.Measured{
		Role: role, Text: text, AcceptLength: 1 + first,
		Accepted: []wiring.Interval{{Value: first, Low: first - 0.05, High: first + 0.05}, {Value: first / 2}, {Value: first / 4}},
		Drafts:   wiring.Interval{Value: 1.75 * first}, Less: wiring.Interval{Value: less, Low: low, High: high},
	}
}

// TestMeasuredWords: the code, the level and the figures of each verdict, and that every fix is a fault.
func TestMeasuredWords(t *testing.T) {
	control := measured(wiring.Control, "A", 0.05, 1, 0.8, 1.2)
	for _, c := range []struct {
		r    wiring.Result
		want []string // "level code: part of the text"
		not  string
	}{
		{
			wiring.Result{Verdict: wiring.Confirmed, Measured: []*wiring.Measured{
				measured(wiring.Configured, "A", 0.7, 0, 0, 0), measured(wiring.Rival, "B", 0.69, 0.02, -0.1, 0.14), measured(wiring.Rival, "C", 0.6, 0.2, 0.1, 0.3), control,
			}},
			[]string{
				"ok wiring_confirmed: configured: A. The target accepts 70.0 % (65.0 to 75.0) of first drafts", "ok wiring_confirmed: falls behind is C: 0.20 (0.10 to 0.30)",
				"ok wiring_confirmed: a control, 5.0 %", "note wiring_alike: B, 0.02 (-0.10 to 0.14) drafts fewer",
			}, "wiring_fix",
		},
		{
			wiring.Result{Verdict: wiring.Wrong, Fixes: []wiring.Fix{{Key: "k", Text: "set k to 3"}}, Cut: true, Left: []int{4}, TooLong: 2, Measured: []*wiring.Measured{
				measured(wiring.Supported, "B", 0.7, 0, 0, 0), measured(wiring.Configured, "A", 0.2, 0.5, 0.3, 0.7), control,
			}},
			[]string{
				"fault wiring_wrong: one: B. Under it the target accepts 70.0 %", "fault wiring_wrong: configured (A) it accepts 20.0 %", "fault wiring_wrong: 0.50 (0.30 to 0.70) fewer",
				"fault wiring_wrong: 1.20 tokens a cycle instead of 1.70", "fault wiring_fix: set k to 3", "warning wiring_cut_short", "note wiring_layers_left: 1 of", "note prompts_too_long: 2 prompts",
			}, "wiring_alike",
		},
		{
			wiring.Result{Verdict: wiring.Undecided, Measured: []*wiring.Measured{
				measured(wiring.Configured, "A", 0.6, 0, 0, 0), measured(wiring.Supported, "B", 0.7, -0.3, -0.7, 0.1), control,
			}},
			[]string{"warning wiring_undecided: configured (A) the target accepts 60.0 %", "warning wiring_undecided: 70.0 % (65.0 to 75.0) with B; the difference is 0.30 (-0.10 to 0.70)"}, "wiring_alike",
		},
		{
			wiring.Result{Verdict: wiring.Undecided, Measured: []*wiring.Measured{measured(wiring.Configured, "A", 0.6, 0, 0, 0), control}},
			[]string{"warning wiring_undecided: too few to decide: as configured (A) the target accepts 60.0 %"}, "wiring_alike",
		},
		{
			wiring.Result{Verdict: wiring.None, Measured: []*wiring.Measured{
				measured(wiring.Configured, "A", 0.03, 0, 0, 0), measured(wiring.Rival, "B", 0.04, -0.01, -0.02, 0.01), control,
			}},
			[]string{"fault wiring_none: configured the target accepts 3.0 %", "fault wiring_none: no more than 4.0 %", "fault wiring_none: where 5.0 %"}, "wiring_alike",
		},
	} {
		var all []string
		for _, f := range Measured(&c.r) {
			all = append(all, string(f.Level)+" "+f.Code+": "+f.Text)
		}
		text := strings.Join(all, "\n")
		for _, want := range c.want {
			code, part, _ := strings.Cut(want, ": ")
			found := false
			for _, line := range all {
				found = found || strings.HasPrefix(line, code) && strings.Contains(line, part)
			}
			if !found {
				t.Errorf("%s: no %q in\n%s", c.r.Verdict, want, text)
			}
		}
		if strings.Contains(text, c.not) {
			t.Errorf("%s: %s in\n%s", c.r.Verdict, c.not, text)
		}
	}
}
