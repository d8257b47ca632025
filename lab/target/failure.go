package target

import (
	"fmt"
	"strings"
	"time"

	"draftlab/lab/enginelog"
	"draftlab/lab/runner"
)

// Cause is a class of failures.
type Cause string

// The causes, as far as a log and an exit status tell them apart. Those that a log shows are package enginelog's.
const (
	OutOfMemory Cause = enginelog.OutOfMemory
	PortInUse   Cause = enginelog.PortInUse
	BadFlag     Cause = enginelog.BadFlag
	MissingFile Cause = enginelog.MissingFile
	Stalled     Cause = enginelog.Stalled // it lives, and does nothing
	Crash       Cause = enginelog.Crash
	Unreachable Cause = "host unreachable" // the connection to its machine failed or broke
	Exited      Cause = "ended"            // for a reason that its log does not show
	TooLate     Cause = "not ready"        // within the limit, though its log went on
)

// BootError is a server that did not come up, or did not stay.
type BootError struct {
	Cause   Cause
	Detail  string        // what happened, in words
	Elapsed time.Duration // from the start; 0 if it had been up
	Lines   []string      // of the log: the one that shows the cause, and the last ones
	Log     string        // the log's file
}

// Error is the whole story, on several lines.
func (e *BootError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the server failed (%s): %s", e.Cause, e.Detail)
	if e.Elapsed > 0 {
		fmt.Fprintf(&b, " after %.1f s", e.Elapsed.Seconds())
	}
	for _, l := range e.Lines {
		b.WriteString("\n    " + l)
	}
	if len(e.Lines) == 0 && e.Log != "" {
		b.WriteString("; it left nothing in its log")
	}
	return b.String()
}

// notFound is a shell's status for a program that is not there.
const notFound = 127

// failure makes the error of a server that has failed, exit nil if it had to be ended.
func (s *Server) failure(detail string, exit *runner.Exit, elapsed time.Duration) *BootError {
	s.watch.read(true)
	class, lines := s.watch.why()
	e := &BootError{Cause: Cause(class), Detail: detail, Elapsed: elapsed, Lines: lines, Log: s.LogPath}
	switch {
	case exit != nil && exit.Lost:
		e.Cause = Unreachable
	case class != "":
	case exit == nil:
		e.Cause = Crash
	case exit.Signal == "killed":
		e.Cause, e.Detail = OutOfMemory, exit.Signal+" from outside, which is how the system ends a process when memory runs out"
	case exit.Signal != "":
		e.Cause = Crash
	case exit.Status == notFound && elapsed > 0:
		e.Cause, e.Detail = MissingFile, detail+": the shell did not find the program"
	default:
		e.Cause = Exited
	}
	return e
}

// late makes the error of a server that was not ready in time; quiet is how long its log had been silent then.
func (s *Server) late(err error, elapsed, quiet time.Duration) *BootError {
	s.watch.read(true)
	_, lines := s.watch.why()
	e := &BootError{Cause: TooLate, Detail: err.Error(), Elapsed: elapsed, Lines: lines, Log: s.LogPath}
	if quiet > elapsed/3 { // tensors of a terabyte load in minutes without a line, but not for a third of the limit
		e.Cause = Stalled
		e.Detail += fmt.Sprintf(", and its log has been silent for %.1f s,", quiet.Seconds())
	}
	return e
}
