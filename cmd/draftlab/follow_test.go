package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestFollowed reads a log that grows, is cut, and is replaced.
func TestFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(flag int, text string) {
		t.Helper()
		w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = w.WriteString(text)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Error(err)
		}
	}
	write(0, "one\n")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &followed{ctx: ctx, path: path, file: file}
	defer func() { _ = f.file.Close() }()
	read := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(f, b); err != nil || string(b) != want {
			t.Fatalf("read %q, %v; want %q", b, err, want)
		}
	}
	read("one\n")
	go write(os.O_APPEND, "two\n")
	read("two\n")
	write(os.O_TRUNC, "3\n")
	read("3\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	go write(0, "four\n")
	read("four\n")
	cancel()
	if n, err := f.Read(make([]byte, 8)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}
