//go:build unix

package target

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

func llama(t *testing.T, change func(*Config)) Engine {
	t.Helper()
	c := Config{Kind: "llamacpp", Command: targettest.Llama(t), Model: "m.gguf", Drafter: "d.gguf", Flags: map[string]string{"np": "1", "t": "2"}, Ready: ample}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestLlama: a server comes up for each way of decoding, and tells what its drafts came to.
func TestLlama(t *testing.T) {
	ctx := context.Background()
	var plain string
	for _, k := range []trial.Knobs{{Drafter: "none"}, knobs("eagle3", 3, 1, 4), knobs("ngram", 2, 1, 3)} {
		s, err := boot(t, llama(t, nil), k)
		if err != nil {
			t.Fatal(err)
		}
		sample := s.Ask(ctx, &client.Request{API: client.Chat, Prompt: "two words", MaxTokens: 20})
		if plain == "" {
			plain = sample.Text
		}
		if sample.Error != "" || sample.OutputTokens != 20 || sample.Text != plain || (sample.Spec != nil) == k.Plain() {
			t.Errorf("%s: %+v", k.Drafter, sample)
		}
		if spec := sample.Spec; spec != nil && (spec.Drafted != spec.Cycles*int64(k.Steps) || spec.Cycles+spec.Accepted != 19) {
			t.Errorf("%s: %+v", k.Drafter, spec)
		}
		info, err := s.Info(ctx)
		if err != nil || s.Differences(info) != nil {
			t.Errorf("%v %v %+v", info, err, s.Differences(info))
		}
		if err := s.Flush(ctx); err != nil {
			t.Error(err)
		}
		if l, err := s.Ledger(ctx); l != nil || err != nil {
			t.Errorf("%+v %v", l, err)
		}
		s.Stop(time.Second)
	}
}

func TestLlamaFaults(t *testing.T) {
	for words, c := range map[string]struct {
		cause  Cause
		change func(*Config)
	}{
		"invalid argument: --speed": {BadFlag, func(c *Config) { c.Flags = map[string]string{"speed": "11"} }},
		"/nowhere/d.gguf":           {MissingFile, func(c *Config) { c.Drafter = "/nowhere/d.gguf" }},
	} {
		_, err := boot(t, llama(t, c.change), knobs("eagle3", 3, 1, 4))
		var failed *BootError
		if !errors.As(err, &failed) || failed.Cause != c.cause || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = boot(t, llama(t, func(c *Config) { c.Port = l.Addr().(*net.TCPAddr).Port }), trial.Knobs{})
	var failed *BootError
	if !errors.As(err, &failed) || failed.Cause != PortInUse {
		t.Errorf("%v", err)
	}
}

func TestLlamaCheckAndCommand(t *testing.T) {
	e := llama(t, func(c *Config) { c.Command, c.Key = nil, "s3cret" })
	boot, request := e.Split(knobs("eagle3", 3, 1, 4))
	want := "LLAMA_API_KEY='…' llama-server --model m.gguf --host 127.0.0.1 --port 0 --spec-draft-model d.gguf --spec-type draft-eagle3 --spec-draft-n-max 3 -np 1 -t 2"
	if got, err := e.Command(boot); got != want || err != nil || request != nil {
		t.Errorf("%v %v\n%s, want\n%s", err, request, got, want)
	}
	boot, _ = e.Split(knobs("ngram", 5, 1, 6))
	if got, _ := e.Command(boot); !strings.Contains(got, " --spec-type ngram-simple --spec-ngram-simple-size-m 5 ") {
		t.Error(got)
	}
	changed := arm("config", knobs("eagle3", 1, 1, 2))
	changed.DrafterConfig = map[string]any{"a": 1}
	got := codes(e.Check([]trial.Arm{arm("p", trial.Knobs{}), arm("c", knobs("eagle3", 3, 1, 4)), arm("t", knobs("eagle3", 3, 2, 6)), arm("n", knobs("eagle3", 3, 1, 5)),
		arm("x", knobs("medusa", 3, 1, 4)), arm("f", knobs("ngram", 1, 1, 2), "spec-type=none"), changed}))
	if !slices.Equal(got, []string{"no_ledger:", "impossible_draft:t", "impossible_draft:n", "impossible_draft:x", "no_drafter_directory:config", "reserved_flag:f"}) {
		t.Error(got)
	}
	if got := codes(llama(t, func(c *Config) { c.Drafter = "" }).Check([]trial.Arm{arm("c", knobs("eagle3", 3, 1, 4)), arm("n", knobs("ngram", 3, 1, 4))})); !slices.Equal(got, []string{"no_ledger:", "no_drafter:c"}) {
		t.Error(got)
	}
}
