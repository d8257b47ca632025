package file

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"draftlab/lab/prompts"
)

const whole = `# every key
name: kimi
host: user@box
target:
  kind: sglang
  command: [python3, -m, sglang.launch_server]
  key_env: BOX_KEY
  port: 30001
  ready: 45m
  flags: {tp-size: 8, trust-remote-code: "", "schedule-policy": lpm}
  env: {NCCL_DEBUG: INFO, X: 1.50}
model: /models/kimi
drafter: /models/kimi-eagle3
workload:
  prompts: heldout
  categories: [chat, code]
  count: 12
  confirm: 6
  max_tokens: 256
  concurrency: 4
baseline: {env.NCCL_ALGO: Ring}
objective: {kind: goodput, ttft_ms: 500, tpot_ms: 12.5}
budget: {time: 10h, boots: 24}
boots: 2
factors:
  steps: [0, 1, 2]
  topk: [1]
  env.NCCL_PROTO: [null, LL, "Simple"]
  flags.attention-backend: [fa3, triton]
  drafter.config.eagle_config: [{layers: [2, 30, 58]}]
arms:
  - {name: deep, steps: 5, topk: 4, draft_tokens: 8}
search: {kind: random, arms: 6}
seed: 7
`

func TestEveryKey(t *testing.T) {
	c, err := Parse("c.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	seed, ring, five, four, eight := uint64(7), "Ring", 5, 4, 8
	factors := c.Factors
	c.Factors = nil
	want := &Campaign{Text: whole, Name: "kimi", Host: "user@box",
		Target: Target{Kind: "sglang", Command: []string{"python3", "-m", "sglang.launch_server"}, KeyEnv: "BOX_KEY", Port: 30001, Ready: 45 * time.Minute,
			Flags: map[string]string{"tp-size": "8", "trust-remote-code": "", "schedule-policy": "lpm"}, Env: map[string]string{"NCCL_DEBUG": "INFO", "X": "1.50"}},
		Model: "/models/kimi", Drafter: "/models/kimi-eagle3",
		Workload:  Workload{Prompts: "heldout", Format: prompts.JSONL, Categories: []string{"chat", "code"}, Count: 12, Confirm: 6, MaxTokens: 256, Concurrency: 4},
		Baseline:  Settings{Env: map[string]*string{"NCCL_ALGO": &ring}},
		Objective: Objective{Kind: Goodput, TTFTMs: 500, TPOTMs: 12.5}, Budget: Budget{10 * time.Hour, 24}, Boots: 2,
		Arms: []Settings{{Name: "deep", Steps: &five, TopK: &four, DraftTokens: &eight}}, Search: Search{Random, 6, true}, Seed: &seed}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	all := Product(factors)
	if len(all) != 3*1*3*2 {
		t.Fatalf("%d combinations", len(all))
	}
	last := all[len(all)-1]
	if *last.Steps != 2 || *last.TopK != 1 || *last.Env["NCCL_PROTO"] != "Simple" || *last.Flags["attention-backend"] != "triton" {
		t.Errorf("%+v", last)
	}
	if v, ok := all[0].Env["NCCL_PROTO"]; !ok || v != nil {
		t.Errorf("null is %v", v)
	}
	if !reflect.DeepEqual(last.DrafterConfig, map[string]any{"eagle_config": map[string]any{"layers": []any{int64(2), int64(30), int64(58)}}}) {
		t.Errorf("%#v", last.DrafterConfig)
	}
}

const least = "target: {kind: draftlab}\nmodel: m\n"

func TestErrorsNameTheLineAndTheRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                      "c.yaml: is empty: it needs",
		"- 1":                                                   "c.yaml:1: want keys with values, not a list",
		"a: b\n---\nc: d":                                       "c.yaml:3: a campaign file is one document",
		least + "steps: 3":                                      "c.yaml:3: steps: no such key: there are arms, baseline",
		least + "factors: {depth: [1]}":                         "c.yaml:3: factors.depth: no such factor: there are drafter, steps",
		least + "factors: {steps: 3}":                           "factors.steps: want a list, such as [a, b], not \"3\"",
		least + "factors: {steps: []}":                          "factors.steps: is an empty list",
		least + "factors: {}":                                   "factors: is empty",
		least + "factors: {steps: [2.5]}":                       "c.yaml:3: factors.steps[0]: want a whole number from 0 to 4096, not \"2.5\"",
		least + "factors: {steps: [-1]}":                        "want a whole number from 0 to 4096",
		least + "factors: {flags.--a: [x]}":                     "factors.flags.--a: is no name: write it without dashes",
		least + "factors: {env.A-B: [x]}":                       "factors.env.A-B: is no name of a variable",
		least + "factors: {env.A: [[x]]}":                       "factors.env.A[0]: want a text or a number, not a list",
		least + "factors: {env.HF_TOKEN: [a, b]}":               "c.yaml:3: factors.env.HF_TOKEN: is a secret by its name",
		least + "arms: [{flags.admin-api-key: a}]":              "give it to all arms alike, with target.flags",
		least + "baseline: {env.DB_PASSWORD: null}":             "baseline.env.DB_PASSWORD: is a secret by its name",
		least + "factors: {drafter: [none]}":                    "want one of eagle3, ngram, eagle, nextn, standalone, dflash, dspark, or a --spec-type of llama.cpp's, not the text \"none\"",
		least + "factors: {drafter: [draft-]}":                  "not the text \"draft-\"",
		least + "factors:\n  steps: [1]\n  steps: [2]":          "steps",
		least + "arms: [{steps: 3, topk: 2}]":                   "a tree (topk 2) needs draft_tokens",
		least + "arms: [{steps: 3, topk: 2, draft_tokens: 99}]": "draft_tokens must be 2 to 11 with 3 steps",
		least + "arms: [{steps: 3, draft_tokens: 9}]":           "a chain (topk 1) of 3 steps verifies 4 draft_tokens, not 9",
		least + "arms: [{speed: 3}]":                            "no such setting: there are name, drafter",
		least + "baseline: {steps: 3}\narms: [{steps: 1}]":      "baseline: it decodes plainly",
		least: "factors or arms are missing",
		"target: {kind: draftlab}\narms: [{steps: 1}]":                            "model is missing",
		"target: {kind: vllm}":                                                    "c.yaml:1: target.kind: want one of draftlab, sglang, llamacpp, attach, not the text \"vllm\"",
		"target: {kind: attach}\narms: [{steps: 1}]":                              "target.url is missing",
		"target: {kind: attach, url: 'http://x', port: 3}\narms: [{steps: 1}]":    "takes no command, flags, env and port",
		"target: {kind: draftlab, url: 'http://x'}\nmodel: m\narms: [{steps: 1}]": "target.url is for kind attach",
		"target: {kind: draftlab, ready: 30}":                                     "target.ready: want a time with its unit, such as 90s",
		"target: {kind: draftlab, env: {A: {b: c}}}":                              "target.env.A: want a text or a number, not keys",
		least + "host: -oProxyCommand=x\narms: [{steps: 1}]":                      "host: is no host",
		least + "objective: {kind: goodput}":                                      "goodput has limits",
		least + "objective: {ttft_ms: 3}":                                         "goodput has limits",
		least + "objective: {kind: goodput, ttft_ms: 0}":                          "want a number above 0, not \"0\"",
		least + "search: {early_stop: 1}":                                         "want true or false, not",
		least + "search: {kind: random}":                                          "a random search needs arms",
		least + "workload: {categories: [poems]}\narms: [{steps: 1}]":             "there is no \"poems\"",
		least + "model: n\narms: [{steps: 1}]":                                    "model",
		least + "name: !!str x":                                                   "tags, anchors",
		least + "name: &a x\nhost: *a":                                            "tags, anchors",
		"target: [":                                                               "c.yaml: [1:",
		least + "name: 3":                                                         "name: want a text, not \"3\": put it in quotes",
	} {
		_, err := Parse("c.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant %q", text, err, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least+"arms: [{steps: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Workload; w.Count != 18 || w.Confirm != 24 || w.MaxTokens != 128 || w.Concurrency != 1 || c.Budget.Time != time.Hour || c.Budget.Boots != 12 ||
		c.Objective.Kind != TokS || c.Search.Kind != Grid || c.Target.Ready != 30*time.Minute || c.Host != "" || c.Seed != nil {
		t.Errorf("%+v", c)
	}
}

func TestPrompts(t *testing.T) {
	w := Workload{Prompts: "heldout", Categories: []string{"code"}}
	set, err := w.Load(os.ReadFile)
	if err != nil || len(set) == 0 || len(set) != len(set.In(prompts.Code)) {
		t.Errorf("%d %v", len(set), err)
	}
	w = Workload{Prompts: "mine.jsonl", Format: prompts.JSONL}
	set, err = w.Load(func(name string) ([]byte, error) { return []byte(`{"prompt":"hello from ` + name + `"}`), nil })
	if err != nil || len(set) != 1 || set[0].Text != "hello from mine.jsonl" {
		t.Errorf("%v %v", set, err)
	}
	w.Categories = []string{"poems"}
	if _, err = w.Load(func(string) ([]byte, error) { return []byte(`{"prompt":"x"}`), nil }); err == nil || !strings.Contains(err.Error(), "none of the prompts") {
		t.Error(err)
	}
	if _, err := (&Workload{Prompts: "absent"}).Load(os.ReadFile); err == nil || !strings.Contains(err.Error(), "workload.prompts: open absent") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, s := range []string{"", "- 1", least + "arms: [{steps: 1}]", "factors: !!x", "factors: [*a]", "a: &b [*b]", "target: {kind: |\n  draftlab\n}", "? a\n: b", "arms: - !!x", "[]:\n", "model: m\ntarget: {kind: draftlab}\nfactors: {steps: [0x1]}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("c.yaml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "c.yaml") {
				t.Errorf("no place: %v", err)
			}
			return
		}
		if len(c.Factors)+len(c.Arms) == 0 || c.Target.Kind == "" || len(Product(c.Factors)) > MostArms {
			t.Errorf("%+v", c)
		}
	})
}

// TestTheManualHasEveryKey: docs/campaign.md names each key that a file may have, as the errors list them.
func TestTheManualHasEveryKey(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/campaign.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"", "target", "workload", "objective", "budget", "search"} {
		text := "nothing: 1"
		if section != "" {
			text = section + ": {nothing: 1}"
		}
		_, err := Parse("c.yaml", []byte(text))
		line, _, _ := strings.Cut(err.Error(), "\n")
		_, list, ok := strings.Cut(line, "there are ")
		if !ok {
			t.Fatal(err)
		}
		for _, key := range strings.Split(list, ", ") {
			full := key
			if section != "" {
				full = section + "." + key
			}
			if !strings.Contains(string(manual), "`"+full) && !strings.Contains(string(manual), "`"+key+"`") {
				t.Errorf("docs/campaign.md has no %s", full)
			}
		}
	}
}
