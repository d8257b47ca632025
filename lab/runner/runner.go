// Package runner starts a command that is to be measured and ends it, with everything that it has started: [Start] gives it a
// process group of its own, a log file, and a standard input that closes when this process ends, however it ends.
//
// So a command that ends with its standard input is never left behind, not even if its parent is killed. The package knows no
// servers.
package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Command is what to start.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string // as os.Environ returns it; nil is this process's
	Log  string   // file that standard output and standard error are appended to
}

// Exit is how a process ended.
type Exit struct {
	Status int    // exit status; -1 if a signal ended it
	Signal string // its name, "" if none did
}

// String is the exit in words.
func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// Process is a running command. Its methods may be called by several goroutines.
type Process struct {
	cmd   *exec.Cmd
	stdin *os.File // our end
	done  chan struct{}
	exit  Exit // set before done is closed
}

// Start starts a command. The caller calls Stop.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, theirs, log, log
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: ours, done: make(chan struct{})}
	go p.wait()
	return p, nil
}

// wait notes how the process ended, and ends what it left behind.
func (p *Process) wait() {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		p.exit = exitOf(exit.ProcessState)
	default:
		p.exit = Exit{Status: -1, Signal: err.Error()} // no known system does so
	}
	killGroup(p.cmd.Process)
	_ = p.stdin.Close()
	close(p.done)
}

// PID returns the process's number, which on Unix is that of its group, too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended, once Done is closed.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Stop asks the process to end, ends its whole group if it has not done so within grace, and returns once it has ended.
func (p *Process) Stop(grace time.Duration) Exit {
	select {
	case <-p.done:
		return p.exit
	default:
	}
	_ = p.stdin.Close() // for those that end with it
	askGroup(p.cmd.Process)
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		killGroup(p.cmd.Process)
		_ = p.cmd.Process.Kill() // has it ended meanwhile, so much the better
		<-p.done
	}
	return p.exit
}
