//go:build unix

package model

import (
	"os"
	"strings"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
)

// TestLoadTruncated shrinks a model's file while three workers load it: an error that names the file, on a device that
// then serves the next model.
func TestLoadTruncated(t *testing.T) {
	src := makeGGUF(t, "tiny-q4_0")
	path := src.write(t)
	dev := newCPU(t, 3, kernel.Best())
	opt := Options{Blocks: 1, MaxRows: 1, MaxSeqs: 1, MaxOut: 1}
	cutting := opt
	cutting.Progress = func(int64, int64) {
		// Embedding and norms, which the loading goroutine reads, lie before this; the first layer's matrices, which all
		// workers pack, behind.
		if err := os.Truncate(path, 56<<10); err != nil {
			t.Error(err)
		}
	}
	_, err := Load(dev, path, cutting)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "cannot be read any more") {
		t.Fatalf("got %v", err)
	}
	if _, err := Load(dev, src.write(t), opt); err != nil {
		t.Fatal(err)
	}
}
