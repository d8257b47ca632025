// Package enginetest is what tests of several packages share. Nothing but tests imports it.
package enginetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Target is the file of the default target, as internal/hub keeps it in its cache.
const Target = "SmolLM2-135M-Instruct.Q4_1.gguf"

// DefaultTarget returns the path of the default target. Its absence is a failure with the remedy: a skip would hide
// that a claim about the real model went unchecked. Under -short the test is left out.
func DefaultTarget(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the default target, which -short leaves out")
	}
	cache := os.Getenv("DRAFTLAB_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatalf("no cache directory (%v): set DRAFTLAB_CACHE", err)
		}
		cache = filepath.Join(dir, "draftlab")
	}
	path := filepath.Join(cache, "models", Target)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the default target is missing (%v)\nfetch it: go run ./cmd/draftlab pull smollm2\nor leave these tests out: go test -short", err)
	}
	return path
}
