// Package runner starts a command that is to be measured and ends it, with everything that it has started, on this machine or on
// another one: a [Host] is either [Local] or [SSH], and its Start returns a [Process] with a process group of its own and a log
// file here.
//
// No command is left behind, however this process ends: one on this machine has a standard input that closes then, and one on
// another machine is ended there when its connection ends or falls silent. The package knows no servers.
package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Host is a machine on which commands run.
type Host interface {
	// Name is how the user calls it, "" for this machine.
	Name() string
	// Start starts a command. The caller calls Stop.
	Start(c Command) (*Process, error)
	// FreePort returns a port that nobody listens on just now.
	FreePort(ctx context.Context) (int, error)
	// PortInUse reports whether somebody listens on a port.
	PortInUse(ctx context.Context, port int) (bool, error)
	// Processes returns the processes that have an environment variable with a value, and all that they have started.
	Processes(ctx context.Context, name, value string) ([]ProcessInfo, error)
	// Listener returns the process that listens on a TCP port, with its environment; of several that share the socket the one with the lowest
	// number. The error says why it is not known: ErrNoProc, ErrNoListener or ErrHidden, or another.
	Listener(ctx context.Context, port int) (*ProcessInfo, error)
	// Output runs a short command to its end and returns its standard output. The error of a command that fails is an *exec.ExitError,
	// which has its status and what it wrote to standard error.
	Output(ctx context.Context, words ...string) ([]byte, error)
	// ReadFile returns what is in a file.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// Overlay makes a directory of links to all that is in another one ("": of none), but for one file, which gets a text of its own,
	// and returns its path. The directory, which must not be there or be an older overlay, is Remove's to remove.
	Overlay(ctx context.Context, from, to, file string, text []byte) (string, error)
	// Remove removes a directory that Overlay has made.
	Remove(ctx context.Context, dir string) error
}

// Command is what to start.
type Command struct {
	Path  string
	Args  []string          // without the program's name
	Env   map[string]string // over that of a local process, or of a login elsewhere
	Log   string            // file here that standard output and standard error are appended to
	Ports []int             // of the host, that are to be reached from here: see Process.Address
	// EndsWithStdin is what the command does. One that does not is given a keeper, which ends it when this process ends.
	EndsWithStdin bool
}

// Exit is how a process ended.
type Exit struct {
	Status int    // exit status; -1 if a signal ended it
	Signal string // its name, "" if none did
	Lost   bool   // it was on another machine, and the connection to it failed or broke
}

// String is the exit in words.
func (e Exit) String() string {
	switch {
	case e.Lost:
		return "the connection to its machine failed or broke"
	case e.Signal != "":
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// Process is a running command. Its methods may be called by several goroutines.
type Process struct {
	host  Host
	mark  string // of markVariable
	cmd   *exec.Cmd
	first string // what standard input begins with
	kept  bool   // cmd is a keeper, and standard input tells it what to do
	far   bool   // or the connection to one on another machine
	ports map[int]int
	done  chan struct{}
	exit  Exit // set before done is closed

	mu    sync.Mutex
	stdin *os.File // our end; nil once it is closed
}

// run starts cmd and waits for it in the background.
func (p *Process) run(logFile string) error {
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs, log, log
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return errors.Join(err, ours.Close())
	}
	p.stdin, p.done = ours, make(chan struct{})
	p.tell(p.first)
	go p.wait()
	if p.kept {
		go p.beat()
	}
	return nil
}

// wait notes how the process ended, and ends what it left behind.
func (p *Process) wait() {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		if p.exit = exitOf(exit.ProcessState); p.kept {
			p.exit = keptExit(p.exit, p.far)
		}
	default:
		p.exit = Exit{Status: -1, Signal: err.Error()} // no known system does so
	}
	if !p.kept { // a keeper that was killed has left somebody behind who does so when standard input ends
		killGroup(p.cmd.Process)
	}
	p.closeStdin()
	close(p.done)
}

func (p *Process) closeStdin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		_ = p.stdin.Close()
		p.stdin = nil
	}
}

// tell writes a word to standard input. If nobody reads it any more, the process has ended or will.
func (p *Process) tell(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		_ = p.stdin.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = p.stdin.WriteString(word)
	}
}

// PID returns the number of the process here, which on Unix is that of its group, too: of the command, or of the connection to it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Address is where a port of the process's host, one of Command.Ports, is reached from here.
func (p *Process) Address(port int) string {
	if here, ok := p.ports[port]; ok {
		port = here
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// Family returns the process and all that it has started and that lives, by number.
func (p *Process) Family(ctx context.Context) ([]ProcessInfo, error) {
	return p.host.Processes(ctx, markVariable, p.mark)
}

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
	if p.kept {
		p.tell(wordEnd)
	} else {
		p.closeStdin() // for those that end with it
		askGroup(p.cmd.Process)
	}
	if p.ends(grace) {
		return p.exit
	}
	if p.kept {
		p.tell(wordKill)
		p.closeStdin()
		if p.ends(patience) {
			return p.exit
		}
	}
	if !p.kept {
		killGroup(p.cmd.Process)
	}
	_ = p.cmd.Process.Kill() // has it ended meanwhile, so much the better
	return p.Exit()
}

// ends reports whether the process ends within a time.
func (p *Process) ends(within time.Duration) bool {
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.done:
		return true
	case <-limit.C:
		return false
	}
}
