package file

import (
	"strings"
	"testing"
)

func TestRetarget(t *testing.T) {
	rest := "\nmodel: m # größer\narms: [{steps: 2, drafter: eagle3}]\n"
	for _, source := range []string{
		"target: {kind: draftlab}" + rest,
		"# was einmal war: kind: draftlab\ntarget: {flags: {größe: 1}, kind: draftlab, env: {A: b}}" + rest,
		"target:\n  flags: {threads: 2}\n  kind: 'draftlab' # the kind\n" + rest,
		"target:\r\n  kind: \"draftlab\"\r\n" + rest,
		"name: draftlab\nmodel: x\ntarget:\n  kind: draftlab\nfactors: {steps: [1]}\n",
	} {
		got, err := Retarget("f", []byte(source), "llamacpp")
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		was, err := Parse("f", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		is, err := Parse("f", got)
		if err != nil {
			t.Errorf("%v\n%s", err, got)
			continue
		}
		if is.Target.Kind != "llamacpp" || is.Name != was.Name || is.Model != was.Model || len(is.Target.Flags) != len(was.Target.Flags) || strings.Count(string(got), "\n") != strings.Count(source, "\n") {
			t.Errorf("became %+v\n%s", is, got)
		}
		if again, err := Retarget("f", got, "llamacpp"); err != nil || string(again) != string(got) {
			t.Errorf("a second time: %v\n%s", err, again)
		}
	}
	for source, want := range map[string]string{
		"model: m\n":                                "target.kind is missing",
		"target: {flags: {a: 1}}\n":                 "target: kind is missing",
		"target: {kind: vllm}\n":                    "want one of draftlab, sglang",
		"target: [1]\n":                             "want keys with values",
		"- 1\n":                                     "want keys with values",
		"target: {kind: &a draftlab}\n":             "anchors",
		"target: {kind: draftlab, kind: sglang}\n":  "already defined",
		"target: {kind: draftlab, command: [x]}\n":  "is the program of kind draftlab",
		"target: {kind: \"draft\\u006cab\"}" + rest: "cannot be replaced",
	} {
		if got, err := Retarget("f.yaml", []byte(source), "llamacpp"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q\n%s", source, err, want, got)
		}
	}
}

// FuzzRetarget: what parses before parses after, with that kind.
func FuzzRetarget(f *testing.F) {
	f.Add("target: {kind: draftlab}\nmodel: m\narms: [{steps: 2, drafter: eagle3}]\n")
	f.Add("target:\n  kind: 'sglang'\nmodel: m\nfactors: {steps: [1, 2]}\n")
	f.Fuzz(func(t *testing.T, source string) {
		was, err := Parse("f", []byte(source))
		if err != nil || was.Target.Kind == "attach" {
			return
		}
		got, err := Retarget("f", []byte(source), "llamacpp")
		if err != nil {
			return
		}
		is, err := Parse("f", got)
		if err != nil || is.Target.Kind != "llamacpp" {
			t.Fatalf("%v\n%q\n%q", err, source, got)
		}
	})
}
