package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinyPath writes the tiny model into a directory of the test's own.
func tinyPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, tinyGGUF(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// onRead calls f when somebody begins to read, and never yields anything until the test ends.
type onRead struct {
	f   func()
	end chan struct{}
}

func (r *onRead) Read([]byte) (int, error) {
	r.f()
	<-r.end
	return 0, io.EOF
}

// onWrite calls f at the first byte written.
type onWrite struct {
	f    func()
	text bytes.Buffer
}

func (w *onWrite) Write(b []byte) (int, error) {
	w.f()
	return w.text.Write(b)
}

// TestInterruptWhileReadingThePrompt: a terminal that says nothing must not keep the program.
func TestInterruptWhileReadingThePrompt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	env, stdout, stderr := testEnv(t)
	in := &onRead{cancel, make(chan struct{})}
	t.Cleanup(func() { close(in.end) })
	env.Stdin = in
	if status := Run(ctx, env, []string{"generate", "--model", "random:tiny-q4_0", "-"}); status != exitInterrupted || stdout.Len() > 0 {
		t.Errorf("status %d, standard output %q, standard error %q", status, stdout, stderr)
	}
}

// TestInterruptWhileWriting: what was written stays, on a line of its own, and the status says that it is not all.
func TestInterruptWhileWriting(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	env, _, stderr := testEnv(t)
	out := &onWrite{f: cancel}
	env.Stdout = out
	status := Run(ctx, env, []string{"generate", "--model", tinyPath(t), "hello"})
	if status != exitInterrupted || out.text.String() != "a\n" || stderr.String() != "draftlab: interrupted\n" {
		t.Errorf("status %d, standard output %q, standard error %q", status, out.text.String(), stderr)
	}
}

// TestInterruptOfMicrobench ends between two rounds.
func TestInterruptOfMicrobench(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	env, stdout, _ := testEnv(t)
	env.Stderr = &onWrite{f: cancel} // "round 1 of 10"
	if status := Run(ctx, env, []string{"microbench", "--model", tinyPath(t), "--rounds", "10", "--json"}); status != exitInterrupted || stdout.Len() > 0 {
		t.Errorf("status %d, standard output %q", status, stdout)
	}
}

func TestInterruptible(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	broken := errors.New("broken")
	if err := interruptible(ctx, func() error { return broken }); err != broken {
		t.Errorf("error %v, want that of the function", err)
	}
	never := make(chan struct{})
	defer close(never)
	err := interruptible(ctx, func() error {
		cancel()
		<-never
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
}

// failing is a standard output that takes a few bytes, as a full disk does.
type failing struct{ left int }

var errFull = errors.New("no space left")

func (w *failing) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestLostOutputIsAFailure: at whichever byte standard output fails, the status says so, in every form of output.
func TestLostOutputIsAFailure(t *testing.T) {
	path := tinyPath(t)
	for _, args := range [][]string{
		{"generate", "--model", path, "hello"},
		{"generate", "--model", path, "--json", "hello"},
		{"generate", "--model", "random:tiny-q4_0", "--max-tokens", "2", "3"},
		{"model", "inspect", path},
		{"model", "inspect", path, "--json", "--tensors"},
		{"model", "list"},
		{"version"},
	} {
		for _, left := range []int{0, 1, 5} {
			env, _, stderr := testEnv(t)
			env.Stdout = &failing{left}
			if status := Run(context.Background(), env, args); status != exitFailure || !strings.Contains(stderr.String(), errFull.Error()) {
				t.Errorf("draftlab %s, with room for %d bytes: status %d, standard error %q", strings.Join(args, " "), left, status, stderr)
			}
		}
	}
}
