package explain

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func analyse(t testing.TB, source string) *Report {
	t.Helper()
	c, err := Parse("case.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Analyse(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Report) find(code string) string {
	for _, f := range r.Findings {
		if f.Code == code {
			return f.Text
		}
	}
	return ""
}

func (r *Report) doubt(code string) string {
	for _, w := range r.Warnings {
		if w.Code == code {
			return w.Text
		}
	}
	return ""
}

func (r *Report) codes() (codes []string) {
	for _, f := range r.Findings {
		codes = append(codes, f.Code)
	}
	for _, w := range r.Warnings {
		codes = append(codes, w.Code)
	}
	return codes
}

func is(t *testing.T, what string, got *float64, want, tolerance float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > tolerance {
		text, _ := json.Marshal(got)
		t.Errorf("%s is %s, want %g ± %g", what, text, want, tolerance)
	}
}

func TestGolden(t *testing.T) {
	source, err := os.ReadFile("testdata/golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := analyse(t, string(source))
	is(t, "fixed", r.CostModel.VerifyFixedMs, 22.5, 0.001)
	is(t, "per row", r.CostModel.VerifyPerRowMs, 1.0333, 0.0001)
	is(t, "intercept over plain", r.CostModel.InterceptOverPlain, 1.998, 0.001)
	is(t, "plain step", &r.CostModel.PlainStepMs, 11.26, 0.002)
	is(t, "break-even at 5", r.Arms[0].BreakEven, 2.67, 0.005)
	is(t, "accept length at 5", r.Arms[0].AcceptLength, 2.14, 0.005)
	is(t, "break-even at 2", r.Arms[1].BreakEven, 2.4, 0.05)
	is(t, "accept length at 2", r.Arms[1].AcceptLength, 2.0, 0.05)
	is(t, "speed-up at 5", r.Arms[0].Speedup, 0.803, 0.001)
	for code, want := range map[string]string{
		"verify_off_fast_path":    "22.5 ms, is 2.0 times a whole plain decoding step (11.3 ms)",
		"bottleneck_verify":       "(95.5 %)",
		"deeper_is_worse":         "from 2 to 5 steps",
		"accept_too_low":          "2.67, and it yields 2.14",
		"what_if":                 "expected to be 2 steps, 3 draft tokens: 103 tok/s",
		"what_if_scored":          "94.0 tok/s against the predicted 103 (+9.1 %)",
		"what_if_implied":         "80 % of its former time, not 73 %",
		"baseline_not_remeasured": "0.84×",
		"missing_data":            "verify_share",
		"try_next":                "fast path",
	} {
		if text := r.find(code); !strings.Contains(text, want) {
			t.Errorf("finding %s is %q, which lacks %q", code, text, want)
		}
	}
}

// TestFindings tries cases of other kinds.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name, source string
		want, not    string // codes of findings and warnings
	}{
		{"draft-bound drafter on a CPU", `
plain_tok_s: 20
arms:
  - {steps: 4, tok_s: 15.5, cycle_ms: 142.0, verify_ms: 58, draft_ms: 70, accept_ms: 1, draft_extend_ms: 9, other_ms: 4}
  - {steps: 2, tok_s: 20.5, cycle_ms: 89, verify_ms: 54, draft_ms: 22, accept_ms: 1, draft_extend_ms: 8, other_ms: 4}`,
			"bottleneck_draft draft_too_dear verify_on_fast_path verify_mostly_fixed deeper_is_worse speculation_faster", "verify_off_fast_path missing_verify never_pays"},
		{"large batch, bound by computation", `
plain_tok_s: 3200
batch: 64
arms:
  - {steps: 1, verify_ms: 30.0, cycle_ms: 32.0, tok_s: 3100}
  - {steps: 3, verify_ms: 52.0, cycle_ms: 55.0, tok_s: 2300}`,
			"verify_mostly_rows verify_on_fast_path deeper_is_worse speculation_slower accept_too_low", "verify_off_fast_path verify_mostly_fixed"},
		{"no verify times", `
plain_tok_s: 100
arms:
  - {steps: 3, tok_s: 130, accept_length: 2.4}
  - {steps: 5, tok_s: 120, accept_length: 2.6}`,
			"speculation_faster deeper_is_worse missing_data verify_unknown predicted_best accept_suffices", "verify_off_fast_path verify_on_fast_path bottleneck_verify rest_unknown"},
		{"one arm", `
plain_tok_s: 88.8
arms: [{steps: 5, draft_tokens: 6, tok_s: 71.3, verify_ms: 28.7, verify_share: 0.955}]`,
			"speculation_slower bottleneck_verify accept_too_low missing_data one_row_count", "verify_off_fast_path deeper_is_worse predicted_best"},
		{"one arm, one number", "plain_tok_s: 88.8\narms: [{steps: 5, tok_s: 71.3}]",
			"speculation_slower missing_data verify_unknown accept_unknown", "bottleneck_verify accept_too_low cycle_dear"},
		{"a dear cycle of unknown parts", "plain_tok_s: 97.5\narms: [{steps: 5, topk: 4, draft_tokens: 8, tok_s: 60, accept_length: 1.95}]",
			"speculation_slower cycle_dear accept_too_low", "verify_off_fast_path"},
		{"a cheap cycle beside one of many rows", "plain_tok_s: 110\narms: [{steps: 6, tok_s: 150, accept_length: 2.4}, {steps: 6, batch: 8, plain_tok_s: 800, tok_s: 420, accept_length: 2.9}]",
			"speculation_faster accept_too_low", "cycle_dear"},
		{"nothing but verify", "plain_tok_s: 50\narms: [{steps: 2, verify_ms: 25.6}, {steps: 4, verify_ms: 28}]",
			"rest_unknown missing_data break_even accept_unknown verify_on_fast_path", "predicted_best speculation_slower bottleneck_verify"},
		{"faster and counted by position", `
plain_tok_s: 100
arms:
  - {steps: 1, tok_s: 140, cycle_ms: 11.6, verify_ms: 10.6}
  - {steps: 5, tok_s: 180, cycle_ms: 14.0, verify_ms: 12.0, accept_by_position: [0.62, 0.41, 0.27, 0.18, 0.12]}`,
			"speculation_faster verify_on_fast_path deeper_is_better predicted_best", "low_first_position acceptance_collapses missing_data verify_off_fast_path"},
		{"miswired: few first drafts", "plain_tok_s: 100\narms: [{steps: 3, cycle_ms: 12, verify_ms: 11, accept_histogram: [810, 150, 30, 10]}]",
			"low_first_position", "acceptance_collapses"},
		{"miswired, by its accept length alone", "plain_tok_s: 100\narms: [{steps: 3, tok_s: 88, accept_length: 1.22}]", "low_first_position try_next", ""},
		{"recurrence: second drafts collapse", "plain_tok_s: 100\narms: [{steps: 3, cycle_ms: 12, verify_ms: 11, accept_histogram: [400, 520, 60, 20]}]",
			"acceptance_collapses try_next", "low_first_position"},
		{"never pays", "plain_tok_s: 100\narms: [{steps: 1, cycle_ms: 25, verify_ms: 22, tok_s: 60}]", "never_pays", "accept_too_low"},
		{"time outside cycles", "plain_tok_s: 100\narms: [{steps: 3, tok_s: 100, cycle_ms: 20, verify_ms: 15, accept_length: 2.5}]", "time_outside_cycles", "inconsistent_input"},
		{"figures that disagree", "plain_tok_s: 100\narms: [{steps: 3, tok_s: 170, cycle_ms: 20, verify_ms: 15, accept_length: 2.5}]", "inconsistent_input", "time_outside_cycles"},
		{"the host is the bottleneck", "plain_tok_s: 100\narms: [{steps: 1, tok_s: 60, cycle_ms: 28, verify_ms: 10.5, draft_ms: 0, accept_ms: 1, draft_extend_ms: 1.5, other_ms: 15}]",
			"bottleneck_other host_dear", "draft_too_dear bottleneck_verify"},
		{"re-extension is dear", "plain_tok_s: 100\narms: [{steps: 1, cycle_ms: 28, verify_ms: 10.5, accept_ms: 1, draft_extend_ms: 14.5, other_ms: 2}]", "bottleneck_draft_extend draft_extend_dear", "host_dear"},
		{"verify falls with rows", "plain_tok_s: 100\narms: [{steps: 1, verify_ms: 12, verify_share: 0.9, tok_s: 120}, {steps: 3, verify_ms: 11, verify_share: 0.9, tok_s: 150}]",
			"verify_falls deeper_is_better", "verify_mostly_rows"},
		{"accept length falls with depth", "plain_tok_s: 100\narms: [{steps: 1, verify_ms: 11, cycle_ms: 12, accept_length: 1.6}, {steps: 3, verify_ms: 12, cycle_ms: 13, accept_length: 1.4}]", "accept_irregular", ""},
		{"fixed part between the bounds", "plain_tok_s: 100\narms: [{steps: 1, verify_ms: 13, cycle_ms: 14}, {steps: 3, verify_ms: 14, cycle_ms: 15}]", "verify_path_unclear", "verify_off_fast_path verify_on_fast_path"},
		{"batches with plain steps of their own", `
plain_tok_s: 100
arms:
  - {steps: 3, tok_s: 150, cycle_ms: 14, verify_ms: 12}
  - {steps: 3, batch: 32, plain_tok_s: 1600, tok_s: 1500, cycle_ms: 50, verify_ms: 46}`,
			"speculation_faster accept_suffices accept_too_low", "deeper_is_worse deeper_is_better"},
		{"plain decoding on a slower machine", "plain_tok_s: 40\narms: [{steps: 1, verify_ms: 12.0, cycle_ms: 14, tok_s: 120}, {steps: 3, verify_ms: 13.0, cycle_ms: 15, tok_s: 150}]", "verify_below_plain", "verify_on_fast_path"},
		{"a tree", "plain_tok_s: 100\narms: [{steps: 3, topk: 4, draft_tokens: 8, tok_s: 150, cycle_ms: 16, verify_ms: 13, accept_length: 2.4}]", "speculation_faster accept_suffices", "accept_unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := analyse(t, c.source)
			codes := r.codes()
			for _, code := range strings.Fields(c.want) {
				if !slices.Contains(codes, code) {
					t.Errorf("no %s among %v", code, codes)
				}
			}
			for _, code := range strings.Fields(c.not) {
				if slices.Contains(codes, code) {
					t.Errorf("%s: %s", code, r.find(code))
				}
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	const ok = "plain_tok_s: 88.8\narms:\n"
	for _, c := range []struct{ name, source, want string }{
		{"empty", "", "is empty"},
		{"no plain", "arms: [{steps: 2, tok_s: 3}]", "plain_tok_s: is missing"},
		{"no arms", "plain_tok_s: 3", "arms: is missing"},
		{"plain 0", "plain_tok_s: 0\narms: [{steps: 2}]", "case.yaml:1: plain_tok_s: is 0, but must be above 0"},
		{"unknown key", ok + "  - {steps: 2, verify: 3}", `unknown field "verify"`},
		{"unknown key shows the line", ok + "  - steps: 2\n    verfy_ms: 3", ">  4 |     verfy_ms: 3"},
		{"word for number", ok + "  - {steps: 2, tok_s: fast}", `want a decimal number, not "fast"`},
		{"text for number", ok + `  - {steps: 2, tok_s: "71"}`, `want a decimal number`},
		{"infinity", ok + "  - {steps: 2, tok_s: .inf}", "want a decimal number"},
		{"hexadecimal", ok + "  - {steps: 2, tok_s: 0x10}", "want a decimal number"},
		{"too large", ok + "  - {steps: 2, tok_s: 1e999}", "1e999"},
		{"share in per cent", ok + "  - {steps: 2, tok_s: 50}\n  - {steps: 3, verify_ms: 20, verify_share: 95.5}", "case.yaml:4: arms[1].verify_share: is 95.5, but is at most 1: a share of the cycle, not per cent"},
		{"tok/s 0", ok + "  - {steps: 2, tok_s: 0}", "case.yaml:3: arms[0].tok_s: is 0, but must be above 0"},
		{"negative tok/s", ok + "  - {steps: 2, tok_s: -4}", "must be above 0"},
		{"accept length too long", ok + "  - {steps: 2, accept_length: 3.4}", "arms[0].accept_length: is 3.4, but is at most 3"},
		{"accept length below 1", ok + "  - {steps: 2, accept_length: 0.4}", "at least 1"},
		{"tok/s that no acceptance explains", ok + "  - {steps: 2, tok_s: 400, cycle_ms: 20, verify_ms: 18}", "arms[0].tok_s: needs an accept length of 8.00"},
		{"no steps", ok + "  - {tok_s: 40}", "case.yaml:3: arms[0]: steps must be 1 to"},
		{"half a step", ok + "  - {steps: 2.5, tok_s: 40}", "steps"},
		{"tree without draft tokens", ok + "  - {steps: 2, topk: 4, tok_s: 40}", "draft_tokens must be 2 to 21"},
		{"impossible tree", ok + "  - {steps: 2, topk: 2, draft_tokens: 12}", "draft_tokens must be 2 to 7"},
		{"draft tokens of a chain", ok + "  - {steps: 2, draft_tokens: 6}", "draft_tokens must be 2 to 3"},
		{"phases over the cycle", ok + "  - {steps: 2, cycle_ms: 20, verify_ms: 18, other_ms: 4}", "arms[0].cycle_ms: is 20, less than its phases, which sum up to"},
		{"verify over the cycle", ok + "  - {steps: 2, cycle_ms: 20, verify_ms: 28}", "less than its phases"},
		{"negative phase", ok + "  - {steps: 2, cycle_ms: 20, other_ms: -1}", "cannot be negative"},
		{"rising acceptance", ok + "  - {steps: 2, accept_by_position: [0.3, 0.5]}", "never rise"},
		{"wrong histogram", ok + "  - {steps: 2, accept_histogram: [3, 5]}", "has 2 entries, want 3"},
		{"batch without its plain", ok + "  - {steps: 2, batch: 8, tok_s: 300}", "arms[0].batch: is 8, but plain_tok_s was measured at 1"},
		{"plain twice", ok + "  - {steps: 2, plain_tok_s: 90, tok_s: 300}", "one plain_tok_s for all"},
		{"batch 0", "batch: 0\n" + ok + "  - {steps: 2, tok_s: 300}", "batch must be 1 to"},
		{"what if nothing", ok + "  - {steps: 2, tok_s: 30}\nwhat_if: {}", "what_if: changes nothing"},
		{"what if of minus", ok + "  - {steps: 2, tok_s: 30}\nwhat_if: {verify_scale: -0.7}", "must be above 0"},
		{"what if measured without speed", ok + "  - {steps: 2, tok_s: 30}\nwhat_if: {verify_scale: 0.7, measured: {steps: 2}}", "has no tok_s"},
		{"two documents", ok + "  - {steps: 2, tok_s: 30}\n---\nplain_tok_s: 3", "more than one document"},
		{"a key twice", ok + "  - {steps: 2, steps: 3}", "steps"},
		{"not a mapping", "- 3", "case.yaml"},
		{"a tag", "plain_tok_s: 3\narms: !x 3", "tags, anchors, aliases"},
		{"an alias", "plain_tok_s: &a 3\nbatch: *a\narms: [{steps: 2}]", "tags, anchors, aliases"},
		{"broken", "plain_tok_s: [", "case.yaml"},
		{"too long", strings.Repeat("#", maxBytes+1), "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("case.yaml", []byte(c.source))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is\n%v\nwhich lacks %q", err, c.want)
			}
		})
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		steps        int
		length, want float64
	}{{1, 1.5, 0.5}, {2, 1.75, 0.5}, {3, 4, 1}, {3, 9, 1}, {3, 1, 0}} {
		if got := rate(c.steps, c.length); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("rate(%d, %g) = %g, want %g", c.steps, c.length, got, c.want)
		}
	}
}

func TestNumbersKnowTheirDigits(t *testing.T) {
	for text, want := range map[string]float64{"88.8": 0.05, "94": 0.5, "0.955": 0.0005, "7.13e1": 0.05, "28.70": 0.005} {
		c, err := Parse("case.yaml", []byte("plain_tok_s: "+text+"\narms: [{steps: 2, verify_ms: 3}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.PlainTokS.half; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s may be off by %g, want %g", text, got, want)
		}
	}
}

// FuzzCase wants an error or a document, whatever the file says.
func FuzzCase(f *testing.F) {
	golden, err := os.ReadFile("testdata/golden.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte("plain_tok_s: 1e-300\narms: [{steps: 1024, tok_s: 1e300, accept_histogram: [0]}]"))
	f.Add([]byte("plain_tok_s: 5\nbatch: 64\narms: [{steps: 2, topk: 3, draft_tokens: 9, verify_ms: 3, accept_length: 1.4, context: 30}]"))
	f.Fuzz(func(t *testing.T, source []byte) {
		c, err := Parse("case.yaml", source)
		if err != nil {
			return
		}
		r, err := Analyse(c)
		if err != nil {
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%v, from %q", err, source)
		}
	})
}
