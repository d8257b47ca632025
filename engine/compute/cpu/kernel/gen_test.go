package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratedIsFresh runs the generator and compares what it writes with the files beside it.
func TestGeneratedIsFresh(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to run the generator with")
	}
	// Reading the sources here tells the go command to run this test again when they change.
	sources, err := filepath.Glob(filepath.Join("_asm", "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no generator sources: %v", err)
	}
	for _, name := range sources {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command(goTool, "run", "-C", "_asm", ".", dir).CombinedOutput(); err != nil {
		t.Fatalf("generator: %v\n%s", err, out)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("the generator wrote nothing: %v", err)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate in this directory (%v)", f.Name(), err)
		}
	}
}
