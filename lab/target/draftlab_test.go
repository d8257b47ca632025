package target

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"draftlab/lab/trial"
)

// knobs are a draft's.
func knobs(drafter string, steps, topk, tokens int) trial.Knobs {
	return trial.Knobs{Drafter: drafter, Steps: steps, TopK: topk, DraftTokens: tokens}
}

// TestDraftlabSplit: what a request can say does not cost a start.
func TestDraftlabSplit(t *testing.T) {
	deep := knobs("eagle3", 10, 1, 11)
	withFlag := knobs("eagle3", 3, 1, 4)
	withFlag.Flags = map[string]string{"draft-p-min": "0.25", "threads": "1"}
	withFlag.Env = map[string]string{"GOGC": "50"}
	spec := func(m map[string]any) map[string]any { return map[string]any{"speculative": m} }
	for _, c := range []struct {
		k       trial.Knobs
		boot    trial.Knobs
		request map[string]any
	}{
		{knobs("none", 0, 0, 0), trial.Knobs{}, spec(map[string]any{"drafter": "none"})},
		{knobs("eagle3", 3, 2, 6), trial.Knobs{}, spec(map[string]any{"drafter": "eagle3", "steps": 3, "topk": 2, "draft_tokens": 6})},
		{deep, trial.Knobs{Steps: 10, TopK: 1, DraftTokens: 11}, spec(map[string]any{"drafter": "eagle3", "steps": 10, "topk": 1, "draft_tokens": 11})},
		{withFlag, trial.Knobs{Flags: map[string]string{"threads": "1"}, Env: withFlag.Env},
			spec(map[string]any{"drafter": "eagle3", "steps": 3, "topk": 1, "draft_tokens": 4, "p_min": 0.25})},
	} {
		boot, request := draftlabKind{}.split(c.k)
		if !reflect.DeepEqual(boot, c.boot) || !reflect.DeepEqual(request, c.request) {
			t.Errorf("%+v:\n%+v %v, want\n%+v %v", c.k, boot, request, c.boot, c.request)
		}
	}
	if withFlag.Flags["draft-p-min"] != "0.25" {
		t.Error("the arm's own flags were changed")
	}
}

func TestDraftlabCheck(t *testing.T) {
	e, err := New(Config{Kind: "draftlab", Model: "m", Drafter: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	changed := trial.Arm{Name: "changed", Knobs: knobs("eagle3", 3, 1, 4)}
	changed.DrafterConfig = map[string]any{"a": 1}
	for name, c := range map[string]struct {
		arm  trial.Arm
		code string
	}{
		"good":             {trial.Arm{Knobs: knobs("eagle3", 3, 2, 11)}, ""},
		"no chain":         {trial.Arm{Knobs: knobs("eagle3", 3, 1, 6)}, "impossible_draft"},
		"too large a tree": {trial.Arm{Knobs: knobs("eagle3", 3, 2, 12)}, "impossible_draft"},
		"another's":        {trial.Arm{Knobs: knobs("nextn", 3, 1, 4)}, "impossible_draft"},
		"nothing":          {trial.Arm{Knobs: knobs("eagle3", 3, 0, 2)}, "impossible_draft"},
		"no directory":     {changed, "no_drafter_directory"},
	} {
		found := e.Check([]trial.Arm{c.arm})
		if code := ""; len(found) > 0 && (found[0].Code != c.code || !found[0].Fatal) || len(found) == 0 && c.code != code {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestDraftlabCommand(t *testing.T) {
	e, err := New(Config{Kind: "draftlab", Model: "a model", Drafter: "./d", Key: "s3cret", Flags: map[string]string{"threads": "2", "log-interval": "0"}, Env: map[string]string{"A": "x y"}})
	if err != nil {
		t.Fatal(err)
	}
	boot := trial.Knobs{Steps: 9, TopK: 1, DraftTokens: 10, Flags: map[string]string{"threads": "1"}, Env: map[string]string{"HF_TOKEN": "hidden"}}
	want := `A='x y' DRAFTLAB_API_KEY='…' HF_TOKEN='…' draftlab serve --port=0 --end-with-stdin '--model=a model' '--served-model-name=a model' --drafter=./d --steps=9 --topk=1 --draft-tokens=10 --log-interval=0 --threads=1`
	if got, err := e.Command(boot); err != nil || got != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	boot.DrafterConfig = map[string]any{"eagle_config.ids": []any{1, 2}}
	if got, _ := e.Command(boot); !strings.Contains(got, "'--drafter=<./d with eagle_config.ids=[1,2]>'") {
		t.Error(got)
	}
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]Config{"port": {Kind: "draftlab", Model: "m", Port: 70000}, "no model": {Kind: "draftlab"}, "kind": {Kind: "llama"}} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestChangedDrafter: the server gets a copy, the drafter stays as it is, and nothing is left.
func TestChangedDrafter(t *testing.T) {
	drafter, dir := t.TempDir(), t.TempDir()
	original := `{"n": 12345678901234567890, "eagle_config": {"ids": [2, 15, 27], "rest": true}, "gone": 1}`
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(drafter, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", original)
	write("model.safetensors", "weights")
	e, err := New(Config{Kind: "draftlab", Command: []string{os.Args[0]}, Model: "m", Drafter: drafter, Env: map[string]string{"STAND_IN": "good"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Boot(context.Background(), BootOptions{Name: "b", Dir: dir,
		Knobs: trial.Knobs{DrafterConfig: map[string]any{"eagle_config.ids": []any{-1, 2}, "new.key": "x", "gone": nil}}})
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "b.drafter")
	config, err := os.ReadFile(filepath.Join(copied, "config.json"))
	flat := strings.Join(strings.Fields(string(config)), "")
	if want := `{"eagle_config":{"ids":[-1,2],"rest":true},"n":12345678901234567890,"new":{"key":"x"}}`; err != nil || flat != want {
		t.Errorf("%v %s, want %s", err, flat, want)
	}
	if weights, err := os.ReadFile(filepath.Join(copied, "model.safetensors")); err != nil || string(weights) != "weights" {
		t.Errorf("weights: %v %q", err, weights)
	}
	s.Stop(0)
	if _, err := os.Stat(copied); !os.IsNotExist(err) {
		t.Errorf("the copy is left: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(drafter, "config.json")); string(text) != original {
		t.Errorf("the drafter was changed: %s", text)
	}
	if text, err := os.ReadFile(filepath.Join(drafter, "model.safetensors")); err != nil || string(text) != "weights" {
		t.Errorf("the weights are gone: %v", err)
	}
}

func TestDifferences(t *testing.T) {
	info := map[string]any{"steps": 3.0, "backend": "fa3", "switch": true, "bs": []any{1.0, 2.0}, "limit": 48.0, "none": nil}
	want := map[string]string{"steps": "3", "backend": "FA3", "switch": "", "bs": "1 2", "untold": "x"}
	if d := differences(want, info); d != nil {
		t.Errorf("%+v", d)
	}
	want["limit"], want["bs"], want["none"] = "64", "1 2 4", "x"
	d := differences(want, info)
	if len(d) != 3 || d[0] != (trial.Difference{Key: "bs", Want: "1 2 4", Got: "[1,2]"}) || d[1].Got != "48" || d[2].Got != "null" {
		t.Errorf("%+v", d)
	}
}

// FuzzSetKeys: whatever a drafter's configuration holds, the result is JSON, or an error.
func FuzzSetKeys(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), "a.b")
	f.Add([]byte(`{"a":[1]}`), "a.b")
	f.Add([]byte(`null`), "")
	f.Add([]byte(`{} {}`), ".")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		out, err := setKeys(text, map[string]any{key: 7})
		if err != nil {
			return
		}
		again, err := setKeys(out, map[string]any{key: 7})
		if err != nil || string(again) != string(out) {
			t.Errorf("%q: %v\n%s\n%s", key, err, out, again)
		}
	})
}
