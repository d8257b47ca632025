//go:build unix

package weights

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"draftlab/engine/quant"
)

// TestGuardTruncated shrinks a file under its mapping: the reader gets an error that names the file.
func TestGuardTruncated(t *testing.T) {
	var b bytes.Buffer
	tensor := floatTensor(t, "w", quant.F32, make([]float32, 1<<18), 1<<18)
	if err := WriteGGUF(&b, nil, []Tensor{tensor}); err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, t.TempDir(), "m.gguf", b.Bytes())
	f := mustOpen(t, path)
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	w, _ := f.Tensor("w")
	err := f.Guard(func() error {
		_, err := w.Floats()
		return err
	})
	wantError(t, err, "m.gguf", "cannot be read any more")
}

// TestGuardPassesOn: other errors and panics are none of Guard's business.
func TestGuardPassesOn(t *testing.T) {
	f := mustOpen(t, "testdata/tiny.gguf")
	mine := errors.New("mine")
	if err := f.Guard(func() error { return mine }); err != mine {
		t.Errorf("got %v", err)
	}
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = f.Guard(func() error { panic("mine") })
}

// TestOpenNamedPipe: opening a pipe to read from it would block for ever.
func TestOpenNamedPipe(t *testing.T) {
	for _, name := range []string{"m.gguf", "m.safetensors.index.json"} {
		path := filepath.Join(t.TempDir(), name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		wantError(t, err, name, "not a regular file")
	}
}
