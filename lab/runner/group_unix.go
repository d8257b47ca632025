//go:build unix

package runner

import (
	"os"
	"os/exec"
	"syscall"
)

// keeps says that commands can have keepers.
const keeps = true

// ownGroup keeps a terminal's Ctrl-C from the child: whoever started it ends it in order.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func askGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) } // ESRCH: it has ended

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

func exitOf(s *os.ProcessState) Exit {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return Exit{Status: -1, Signal: w.Signal().String()}
	}
	return Exit{Status: s.ExitCode()}
}
