package target

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"draftlab/lab/runner"
)

// Cause is a class of failures.
type Cause string

// The causes, as far as a log and an exit status tell them apart.
const (
	OutOfMemory Cause = "out of memory"
	PortInUse   Cause = "port in use"
	BadFlag     Cause = "bad flag"
	MissingFile Cause = "missing file"
	Crash       Cause = "crash"
	Exited      Cause = "ended"     // for a reason that its log does not show
	TooLate     Cause = "not ready" // within the limit
)

// signs are what logs of servers in Go, Python and C++ say; the first that fits counts. They stand in the order in which one can
// be the other's consequence: a missing file may end in a traceback.
var signs = []struct {
	cause Cause
	sign  *regexp.Regexp
}{
	{OutOfMemory, regexp.MustCompile(`(?i)out of memory|cannot allocate memory|OutOfMemoryError|bad_alloc`)},
	{PortInUse, regexp.MustCompile(`(?i)address already in use|cannot listen on|only one usage of each socket address`)},
	{BadFlag, regexp.MustCompile(`(?i)unknown (shorthand )?flag|unrecognized argument|invalid argument "|hint: see .*--help|error: argument `)},
	{MissingFile, regexp.MustCompile(`(?i)no such file or directory|no checkpoint there|cannot find the (file|path)|FileNotFoundError`)},
	{Crash, regexp.MustCompile(`^panic: |^fatal error: |SIGSEGV|Segmentation fault|^Traceback |unexpected fault address`)},
}

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
	if len(e.Lines) == 0 {
		b.WriteString("; it left nothing in its log")
	}
	return b.String()
}

// shownLines is how many of a log's last lines an error shows.
const shownLines = 6

// failure makes the error of a server that has ended.
func (s *Server) failure(exit runner.Exit, elapsed time.Duration) *BootError {
	e := &BootError{Cause: Exited, Detail: exit.String(), Elapsed: elapsed, Log: s.log}
	lines := logLines(s.readLog())
	shown := max(0, len(lines)-shownLines)
	cause, at := classify(lines)
	switch {
	case at >= 0:
		if e.Cause = cause; at < shown {
			e.Lines = append(e.Lines, lines[at], "...")
		}
	case exit.Signal == "killed":
		e.Cause, e.Detail = OutOfMemory, exit.Signal+" from outside, which is how the system ends a process when memory runs out"
	case exit.Signal != "":
		e.Cause = Crash
	}
	e.Lines = append(e.Lines, lines[shown:]...)
	return e
}

// late makes the error of a server that was not ready in time.
func (s *Server) late(err error, elapsed time.Duration) *BootError {
	lines := logLines(s.readLog())
	return &BootError{Cause: TooLate, Detail: err.Error(), Elapsed: elapsed, Lines: lines[max(0, len(lines)-shownLines):], Log: s.log}
}

// classify returns the cause that a log shows and the line that shows it, -1 if none does.
func classify(lines []string) (Cause, int) {
	for _, sign := range signs {
		for i, l := range lines {
			if sign.sign.MatchString(l) {
				return sign.cause, i
			}
		}
	}
	return "", -1
}

// logLines cuts a log into lines that can be shown: without blank ones, of bounded length, without control characters.
func logLines(text string) (lines []string) {
	const width = 300
	for l := range strings.Lines(text) {
		l = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\t' {
				return -1
			}
			return r
		}, strings.ToValidUTF8(l, "?"))
		if l = strings.TrimRight(l, " \t"); l == "" {
			continue
		}
		if len(l) > width {
			l = strings.ToValidUTF8(l[:width], "") + "..."
		}
		lines = append(lines, l)
	}
	return lines
}

// lastLine returns the last line of a log that can be shown, "" if there is none.
func lastLine(text string) string {
	if lines := logLines(text[max(0, len(text)-4096):]); len(lines) > 0 {
		return lines[len(lines)-1]
	}
	return ""
}
