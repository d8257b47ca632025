//go:build unix

// Package targettest plays servers of SGLang and llama.cpp for tests: the test's own binary, started once more, replays the start-up, the log lines,
// the endpoints and the answers of three versions of SGLang and one of llama.cpp, with what can go wrong. [Main], called first in TestMain, makes the binary one;
// [Script] says how it behaves, and [Script.Command] starts it.
//
// It decodes nothing: its text follows from the prompt alone, and its times from the script. It knows no package of target.
package targettest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The versions whose formats are replayed: before and after the great changes of 2025 and 2026.
const (
	Old    = "0.4.6.post1"
	Middle = "0.5.5"
	New    = "0.5.18"
)

// Fault is what goes wrong.
type Fault string

// The faults. A bad flag, a port in use and a missing drafter need no script: the server finds them as SGLang does.
const (
	CUDAMemory   Fault = "CUDA memory"   // runs out while loading
	Killed       Fault = "killed"        // a rank is killed while loading, as the system does when memory runs out
	KilledWhole  Fault = "killed whole"  // all of it is, without a word
	HangsLoading Fault = "hangs loading" // for ever, silently
	Unnoticed    Fault = "unnoticed"     // a rank fails while loading, and the launcher lives on
	ReadyTooSoon Fault = "ready too soon"
	HealthLies   Fault = "health lies"      // it is 200, and no token comes
	CrashesLater Fault = "crashes later"    // at a request after the first few
	QuietEnd     Fault = "quiet end"        // while loading, with status 0
	Wrapper      Fault = "wrapper"          // a launcher stands before it that leaves the process group
	Deaf         Fault = "deaf"             // it does not end when it is asked
	Overwrites   Fault = "overwrites title" // ranks write their titles over their environment
)

// Script is how a server behaves.
type Script struct {
	Version string
	Load    time.Duration // until it is ready
	Speed   float64       // how many times faster than that everything is; 0 is 1
	Ranks   int           // 0 is 1
	Fault   Fault
	// Once is a file: the fault shows only in the server that makes it, the first one.
	Once string
	// Await is a file without which loading does not end; "" is none.
	Await string
	// What decoding takes; how likely the first draft is accepted; and by which factor each one behind an accepted one is less likely so, 0 is 1.
	Plain, Verify, Row, Draft time.Duration
	Accept, Fade              float64
	// Effects are of variables in the server's environment.
	Effects []Effect
	// Layers are the ids for which Accept holds: a drafter whose config.json names others is accepted a third as often. Nil is: any.
	Layers []int
}

// Effect is what a variable, as in NCCL_PROTO=LL, does: the factors by which plain passes and verifications take longer.
type Effect struct {
	Variable      string
	Plain, Verify float64
}

// variable holds the script in the server's environment, and rankVariable the number of a rank.
const (
	variable     = "DRAFTLAB_STAND_IN"
	rankVariable = "DRAFTLAB_STAND_IN_RANK"
)

// Command returns a server's command: a Python that tells the version of SGLang when it is asked, and plays the server.
func (s Script) Command(t testing.TB) []string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(t.TempDir(), "python3")
	program := fmt.Sprintf("#!/bin/sh\nexport %s='%s'\nexec '%s' \"$@\"\n", variable, text, self)
	if err := writeProgram(python, []byte(program)); err != nil {
		t.Fatal(err)
	}
	return []string{python, "-m", "sglang.launch_server"}
}

// writeProgram writes a program. Nobody may be forking meanwhile: the child would hold the file open for writing until it runs a program of its
// own, and the system runs none that is open for writing.
func writeProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}

// Main plays the server and does not return if the process is one. TestMain calls it first.
func Main() {
	if os.Getenv(llamaVariable) != "" {
		os.Exit(playLlama(os.Args[1:]))
	}
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	if rank := os.Getenv(rankVariable); rank != "" {
		playRank(rank)
	}
	var s Script
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic("targettest: " + err.Error())
	}
	if s.Speed == 0 {
		s.Speed = 1
	}
	s.Ranks = max(s.Ranks, 1)
	os.Exit(play(&s, os.Args[1:]))
}
