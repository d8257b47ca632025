//go:build !unix

package runner

import (
	"os"
	"os/exec"
)

// Where there are no process groups the end of standard input is all that asks a process to end, and only the process itself
// can be ended by force.

const keeps = false

func ownGroup(*exec.Cmd) {}

func askGroup(*os.Process) {}

func killGroup(*os.Process) {}

func exitOf(s *os.ProcessState) Exit { return Exit{Status: s.ExitCode()} }
