package campaign

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestTheManualHasEveryKey: docs/campaign.md names each key that a result has.
func TestTheManualHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/campaign.md")
	if err != nil {
		t.Fatal(err)
	}
	r, _ := finish(t, newFake(1, 0.05, map[string]float64{"eagle33": 150}), strings.Replace(usual, "arms:", "seed: 3\nfactors: {steps: [1], env.A: [b], flags.c: [d]}\narms:", 1), nil)
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	keysOf(doc, "", names)
	for key := range names {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/campaign.md has no %q", key)
		}
	}
	if len(names) < 60 {
		t.Errorf("only %d keys", len(names))
	}
}

// keysOf collects the keys of a document; those of maps by arm, phase or variable, and those that docs/explain.md has, are left out.
func keysOf(v any, under string, names map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			switch under {
			case "phases", "acceptance", "phase_ms", "flags", "env", "info", "environment", "cost_model":
			default:
				names[k] = true
			}
			if next := k; under != "cost_model" && under != "phases" {
				if under == "acceptance" {
					next = "of acceptance"
				}
				keysOf(x, next, names)
			}
		}
	case []any:
		for _, x := range v {
			keysOf(x, under, names)
		}
	}
}
