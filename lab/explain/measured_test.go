package explain

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, source string) *Report {
	t.Helper()
	c, err := Read("result.json", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Analyse(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// ledgerEntry is a shape whose verify costs 2 ms and 0.25 ms a row, beside 0.5 ms of the rest and 0.1 ms a drafter pass.
func ledgerEntry(steps, batch int, cycles, accepted int) string {
	topK, tokens := 1, steps+1
	if steps == 0 {
		topK, tokens = 0, 1
	}
	rows := batch * tokens
	target, draft := 2e6+0.25e6*float64(rows), 0.1e6*float64(max(steps-1, 0))
	phases := fmt.Sprintf(`"verify": %.0f, "draft": %.0f, "accept": %d, "draft_extend": %d`, target*float64(cycles), draft*float64(cycles), 100000*cycles, 250000*cycles)
	if steps == 0 {
		phases = fmt.Sprintf(`"decode": %.0f, "accept": %d, "draft_extend": %d`, target*float64(cycles), 100000*cycles, 250000*cycles)
	}
	return fmt.Sprintf(`{"steps": %d, "topk": %d, "draft_tokens": %d, "batch": %d, "cycles": %d, "rows": %d, "context": %d, "emitted": 1, "drafted": 1, "accepted": %d,
		"sequence_cycles": %d, "wall_ns": %.0f, "phase_ns": {"prefill": 7000000, %s, "other": %d}}`,
		steps, topK, tokens, batch, cycles, rows*cycles, 100*batch*cycles, accepted, cycles*batch, 7e6+(target+draft+0.5e6)*float64(cycles), phases, 150000*cycles)
}

func ledgerOf(histogram string, entries ...string) string {
	return `{"phases": [], "totals": {"accept_histogram": ` + histogram + `, "by_shape": [` + strings.Join(entries, ", ") + `]}, "percentiles": {}, "cycles": []}`
}

func TestLedger(t *testing.T) {
	r := read(t, ledgerOf("[]", ledgerEntry(0, 1, 900, 0), ledgerEntry(2, 1, 400, 400), ledgerEntry(5, 1, 300, 450), ledgerEntry(3, 4, 300, 900), ledgerEntry(1, 1, 5, 2)))
	is(t, "fixed", r.CostModel.VerifyFixedMs, 2, 1e-6)
	is(t, "per row", r.CostModel.VerifyPerRowMs, 0.25, 1e-6)
	is(t, "plain step", &r.CostModel.PlainStepMs, 2.75, 1e-6)
	is(t, "rest", r.CostModel.BaseMs, 0.5, 1e-6)
	is(t, "a pass", r.CostModel.PerPassMs, 0.1, 1e-6)
	is(t, "accept length", r.Arms[0].AcceptLength, 2, 1e-6)
	is(t, "cycle", r.Arms[0].CycleMs, 3.35, 1e-6)
	is(t, "speed-up", r.Arms[0].Speedup, 2*2.75/3.35, 1e-6)
	if len(r.Arms) != 2 || !slices.Contains(r.codes(), "few_cycles") || !slices.Contains(r.codes(), "no_plain_at_batch") {
		t.Errorf("%d arms, codes %v", len(r.Arms), r.codes())
	}
}

func TestLedgerOfOneShapeHasItsHistogram(t *testing.T) {
	r := read(t, ledgerOf("[40, 30, 20, 10]", ledgerEntry(0, 1, 900, 0), ledgerEntry(3, 1, 100, 100)))
	if len(r.Acceptance) != 3 || math.Abs(r.Acceptance[0].Share-0.6) > 1e-9 || math.Abs(r.Acceptance[2].Share-0.1) > 1e-9 {
		t.Errorf("acceptance %v", r.Acceptance)
	}
	is(t, "accept length of 1 step", r.Predictions[0].AcceptLength, 1.6, 1e-9)
}

const campaignResult = `{"verdict": "faster", "baseline": "plain", "arms": [
	{"name": "plain", "drafter": "none", "steps": 0, "topk": 0, "draft_tokens": 0, "tok_s": {"median": 250, "p25": 240, "p75": 260, "n": 40}, "accept_length": 1, "speedup": null},
	{"name": "ngram-3", "drafter": "ngram", "steps": 3, "topk": 1, "draft_tokens": 4, "tok_s": {"median": 255}, "accept_length": 1.2, "speedup": {"same_env": {"estimate": 1.02, "low": 1, "high": 1.04, "confidence": 0.95}}},
	{"name": "chain-1", "drafter": "eagle3", "steps": 1, "topk": 1, "draft_tokens": 2, "tok_s": {"median": 340}, "accept_length": 1.6, "speedup": {"same_env": {"estimate": 1.35, "low": 1.3, "high": 1.4, "confidence": 0.95}},
		"phase_ms": {"prefill": 90, "decode": 0.05, "draft": 0, "verify": 4.2, "accept": 0.1, "draft_extend": 0.3, "other": 0.1}},
	{"name": "chain-3", "drafter": "eagle3", "steps": 3, "topk": 1, "draft_tokens": 4, "tok_s": {"median": 380}, "accept_length": 2.2, "speedup": {"same_env": {"estimate": 1.5, "low": 1.45, "high": 1.55, "confidence": 0.95}},
		"phase_ms": {"prefill": 90, "decode": 0.05, "draft": 0.3, "verify": 5, "accept": 0.1, "draft_extend": 0.3, "other": 0.1}},
	{"name": "chain-2", "drafter": "eagle3", "steps": 2, "topk": 1, "draft_tokens": 3, "tok_s": {"median": 900}, "accept_length": 2, "speedup": {"same_env": {"estimate": 12, "low": null, "high": null, "pairs": 2}}},
	{"name": "chain-5", "drafter": "eagle3", "steps": 5, "topk": 1, "draft_tokens": 6, "tok_s": null, "accept_length": 1, "speedup": null},
	{"name": "chain-2,A=1", "drafter": "eagle3", "steps": 2, "topk": 1, "draft_tokens": 3, "baseline": "plain,A=1", "tok_s": {"median": 300}, "accept_length": 2, "speedup": {"same_env": {"estimate": 9}}}],
	"acceptance": {"chain-3": {"accept_length": 2.2, "histogram": [400, 250, 100, 250]}}}`

func TestCampaign(t *testing.T) {
	r := read(t, campaignResult)
	if len(r.Arms) != 2 {
		t.Fatalf("%d arms", len(r.Arms))
	}
	is(t, "plain step", &r.CostModel.PlainStepMs, 4, 1e-9)
	is(t, "cycle of 3 steps", r.Arms[1].CycleMs, 4*2.2/1.5, 1e-9)
	is(t, "verify of 3 steps", r.Arms[1].VerifyMs, 4*2.2/1.5*5.05/5.85, 1e-9)
	is(t, "speed-up of 3 steps", r.Arms[1].Speedup, 1.5, 1e-9)
	if i := r.Arms[1].SpeedupInterval; math.Abs(i[0]-1.46) > 0.01 || math.Abs(i[1]-1.54) > 0.01 {
		t.Errorf("the 95 %% interval 1.45 to 1.55 became the 90 %% interval %v, want about 1.46 to 1.54", *i)
	}
	is(t, "accept length of 1 step", r.Predictions[0].AcceptLength, 1.6, 0.01)
	for _, code := range []string{"other_drafter", "other_environment", "arm_failed", "too_few_pairs", "speculation_faster", "bottleneck_verify", "deeper_is_better"} {
		if !slices.Contains(r.codes(), code) {
			t.Errorf("no %s among %v", code, r.codes())
		}
	}
}

// real reads a result.json that draftlab tune wrote: what explain reads of it is in testdata.
func real(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWinnerThatWasConfirmed(t *testing.T) {
	source := real(t, "confirmed.json")
	r := read(t, source)
	if got := r.find("confirmed"); !strings.Contains(got, "chain-3 made 1.60× plain decoding (95 % interval 1.45 to 1.78, 24 pairs)") {
		t.Errorf("confirmed: %q", got)
	}
	if got := r.find("try_next"); got != "Next: use chain-3, which was confirmed." {
		t.Errorf("try_next: %q", got)
	}
	if got := r.doubt("one_boot"); !strings.HasPrefix(got, "5 of 5 arms") {
		t.Errorf("one_boot: %q", got)
	}
	r = read(t, strings.Replace(source, `"verdict": "faster"`, `"verdict": "not-confirmed"`, 1))
	if got := r.find("try_next"); r.find("not_confirmed") == "" || r.find("confirmed") != "" || got != "Next: measure chain-3 for longer before relying on it." {
		t.Errorf("codes %v, try_next: %q", r.codes(), got)
	}
	if got := read(t, campaignResult).find("try_next"); !strings.Contains(got, "confirm the winner") {
		t.Errorf("without a confirm run, try_next: %q", got)
	}
}

func TestArmsOfSeveralBootsAreReplicates(t *testing.T) {
	r := read(t, real(t, "two-boots.json"))
	for _, code := range []string{"no_replicates", "one_boot", "confirmed", "not_confirmed"} {
		if slices.Contains(r.codes(), code) {
			t.Errorf("%s among %v, of arms with two boots each", code, r.codes())
		}
	}
	if r = read(t, ledgerOf("[]", ledgerEntry(0, 1, 900, 0), ledgerEntry(2, 1, 400, 400))); !slices.Contains(r.codes(), "no_replicates") {
		t.Errorf("no no_replicates of a ledger, but %v", r.codes())
	}
}

func TestLookUpHasNoWiring(t *testing.T) {
	poor := strings.ReplaceAll(campaignResult, "[400, 250, 100, 250]", "[900, 80, 15, 5]")
	if r := read(t, poor); r.find("low_first_position") == "" {
		t.Fatalf("a drafter whose first drafts are refused: codes %v", r.codes())
	}
	r := read(t, strings.ReplaceAll(strings.ReplaceAll(poor, `"ngram"`, `"other"`), `"eagle3"`, `"ngram"`))
	if r.find("low_first_position") != "" || strings.Contains(r.find("try_next"), "wiring") {
		t.Errorf("look-up: codes %v, %s", r.codes(), r.find("try_next"))
	}
}

func TestUndecided(t *testing.T) {
	r := read(t, strings.NewReplacer(`"low": 1.3,`, `"low": 0.9,`, `"high": 1.4,`, `"high": 2.1,`, `"low": 1.45,`, `"low": 0.8,`, `"high": 1.55,`, `"high": 2.9,`).Replace(campaignResult))
	for _, code := range []string{"speculation_undecided", "accept_near_break_even", "depth_undecided"} {
		if !slices.Contains(r.codes(), code) {
			t.Errorf("no %s among %v", code, r.codes())
		}
	}
}

func TestUnusableResults(t *testing.T) {
	for source, want := range map[string]string{
		`{"totals": {"by_shape": []}}`:            "plain decoding to compare with",
		`{"totals": 3}`:                           "the ledger",
		ledgerOf("[]", ledgerEntry(0, 1, 900, 0)): "no speculative shape",
		`{"baseline": "plain", "arms": []}`:       `no speed of its baseline "plain"`,
		`{"baseline": 3, "arms": []}`:             "the result",
		`{"baseline": "plain", "arms": [{"name": "plain", "tok_s": {"median": 3}}]}`: "no speculative arm",
		`{"plain_tok_s": 3}`: "arms: is missing",
		`{`:                  "result.json",
		strings.Replace(campaignResult, `"topk": 1, "draft_tokens": 2`, `"topk": 1, "draft_tokens": 9`, 1): "draft_tokens must be",
	} {
		if _, err := Read("result.json", []byte(source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s…: error %v lacks %q", source, err, want)
		}
	}
}

// FuzzResult wants an error or a document, whatever a ledger or a result says.
func FuzzResult(f *testing.F) {
	f.Add([]byte(campaignResult))
	for _, name := range []string{"confirmed.json", "two-boots.json"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(ledgerOf("[4, 3, 2]", ledgerEntry(0, 1, 900, 0), ledgerEntry(2, 1, 400, 400))))
	f.Fuzz(func(t *testing.T, source []byte) {
		c, err := Read("result.json", source)
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
