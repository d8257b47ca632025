package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"draftlab/engine"
	"draftlab/internal/hub"
)

// TestDrafterWithoutAPlace: a model in a cache that cannot be written to runs without its drafter, and the user is told.
func TestDrafterWithoutAPlace(t *testing.T) {
	if !engine.SpeculationPays() {
		t.Skip("no drafter is unpacked where none pays")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []string{"", file} {
		env, _, stderr := testEnv(t)
		env.Models, env.UserCache = hub.Catalogue(), cache
		f := draftFlags{drafter: "auto"}
		got, err := f.resolve(env, hub.Default)
		if got != string(engine.DraftNone) || err != nil || !strings.Contains(stderr.String(), "set DRAFTLAB_CACHE") {
			t.Errorf("cache %q: drafter %q, error %v, standard error %q", cache, got, err, stderr)
		}
	}
}

func TestDrafterThatIsNone(t *testing.T) {
	for _, name := range []string{"nosuch", t.TempDir(), os.DevNull} {
		env, stdout, stderr := testEnv(t)
		status := Run(context.Background(), env, []string{"generate", "--model", "random:tiny-q4_0", "--drafter", name, "5"})
		if status != exitFailure || stdout.Len() > 0 || !strings.Contains(stderr.String(), "hint: a drafter is auto, none, ngram") {
			t.Errorf("drafter %q: status %d, %q, %q", name, status, stdout, stderr)
		}
	}
}
