package profile

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// campaign is the campaign's run of 5 steps: verification 28.7 ms is 95.5 % of the cycle, 71.3 tok/s; plain decoding 88.8 tok/s.
func campaign() *Facts {
	cycle := 28.7 / .955
	return &Facts{Steps: 5, TopK: 1, DraftTokens: 6, Batch: 1, CycleMs: cycle, AcceptLength: 71.3 * cycle / 1e3, PlainMs: 1e3 / 88.8,
		Phases: []Part{{"draft", .9}, {"verify", 28.7}, {"draft_extend", .3}}}
}

func line(t *testing.T, lines []Line, name string) Line {
	t.Helper()
	for _, l := range lines {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no line %q", name)
	return Line{}
}

func TestWhatIfOfTheCampaign(t *testing.T) {
	lines := WhatIf(campaign())
	even := line(t, lines, "break-even")
	if n := even.Numbers; !near(n["accept_length"], 2.669, .001) || !near(n["measured_accept_length"], 2.143, .001) || !near(n["speed_up"], 71.3/88.8, 1e-9) {
		t.Errorf("break-even: %v", n)
	}
	if want := "breaks even at 2.67 tokens a cycle (30.05 ms a cycle / 11.26 ms a plain step); with 2.14 it runs at 0.80 times"; !strings.Contains(even.Text, want) {
		t.Errorf("%q", even.Text)
	}
	// What the campaign overlooked: verification costs two and a half plain steps.
	neck := line(t, lines, "bottleneck")
	if n := neck.Numbers; !near(n["share"], .955, 1e-9) || !near(n["verify_over_plain"], 2.549, .001) || !strings.HasPrefix(neck.Text, "verify: 28.70 of 30.05 ms, 95.5 %") {
		t.Errorf("%v, %q", n, neck.Text)
	}
}

// TestOneFewerWithMeasuredRows uses the campaign's two points: 28.7 ms at 6 rows, 25.6 ms at 3 rows, so 1.033 ms a row.
func TestOneFewerWithMeasuredRows(t *testing.T) {
	f := campaign()
	f.RowMs = (28.7 - 25.6) / 3
	f.Survival = []float64{.55, .3, .15, .09, .053}
	lines := WhatIf(f)
	fewer, more := line(t, lines, "one fewer"), line(t, lines, "one more")
	row, pass := 3.1/3, .9/4
	want := (f.AcceptLength - .053) / (f.CycleMs - row - pass) / (f.AcceptLength / f.CycleMs)
	if got := fewer.Numbers["rate_ratio_low"]; !near(got, want, 1e-12) || fewer.Numbers["rate_ratio_high"] != got || fewer.Missing != "" || got < 1.01 {
		t.Errorf("one fewer: %v, want %v: %q", got, want, fewer.Text)
	}
	gain := .053 * .053 / .09
	want = (f.AcceptLength + gain) / (f.CycleMs + row + pass) / (f.AcceptLength / f.CycleMs)
	if got := more.Numbers["rate_ratio_low"]; !near(got, want, 1e-12) || got > .98 {
		t.Errorf("one more: %v, want %v: %q", got, want, more.Text)
	}
}

func TestUnknownRowCostIsARange(t *testing.T) {
	f := campaign()
	for _, l := range WhatIf(f)[2:] {
		lo, hi := l.Numbers["rate_ratio_low"], l.Numbers["rate_ratio_high"]
		if lo >= hi || !strings.Contains(l.Missing, "cost by row") || !strings.Contains(l.Text, "equally often") || l.Numbers["row_ms_high"] != 28.7/6 {
			t.Errorf("%s: %v to %v, missing %q: %q", l.Name, lo, hi, l.Missing, l.Text)
		}
	}
	f.RowMs = -1 // measured, and nothing
	if l := line(t, WhatIf(f), "one more"); l.Numbers["rate_ratio_low"] != l.Numbers["rate_ratio_high"] || l.Numbers["row_ms_high"] != 0 {
		t.Errorf("free rows: %v", l.Numbers)
	}
}

func TestGeometricSurvival(t *testing.T) {
	f := &Facts{Steps: 3, AcceptLength: 1 + .5 + .25 + .125}
	if s, _ := f.survival(); !near(s[0], .5, 1e-9) || !near(s[2], .125, 1e-9) {
		t.Errorf("%v", s)
	}
}

func TestMissingFiguresAreNamed(t *testing.T) {
	if lines := WhatIf(&Facts{}); lines != nil {
		t.Errorf("%v of nothing", lines)
	}
	for missing, change := range map[string]func(*Facts){
		"a plain step's time": func(f *Facts) { f.PlainMs = 0 },
		"number of draft":     func(f *Facts) { f.Steps = 0 },
		"of the tree":         func(f *Facts) { f.TopK = 4 },
		"accept length":       func(f *Facts) { f.AcceptLength = 0 },
		"times by phase":      func(f *Facts) { f.Phases = nil },
	} {
		f := campaign()
		change(f)
		text, err := json.Marshal(WhatIf(f))
		if err != nil || !strings.Contains(string(text), `"missing":"`) || !strings.Contains(string(text), missing) {
			t.Errorf("%s: %s, %v", missing, text, err)
		}
	}
}
