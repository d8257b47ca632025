package target

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"draftlab/lab/enginelog"
)

// watch reads a server's log as it grows and keeps what is asked of it. Its methods may be called by several goroutines.
type watch struct {
	mu      sync.Mutex
	f       *os.File
	part    []byte // of a line that has not ended yet
	address *regexp.Regexp
	marker  string
	secrets secrets // that no line has which is kept

	found   string            // address
	marked  bool              // the marker was there
	doing   string            // the last milestone of the start-up
	tail    []string          // last lines that can be shown
	notices map[string]string // first line of each: the server did other than it was told
	causes  enginelog.Causes
	nccl    []ncclFact
}

// maxFacts bounds what is kept of NCCL's lines: ranks times variables times communicators are some thousand.
const maxFacts = 1 << 16

// newWatch watches a log from its present end on: what an earlier server left in it does not count.
func newWatch(path string, address *regexp.Regexp, marker string) (*watch, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &watch{f: f, address: address, marker: marker}, nil
}

func (w *watch) close() { _ = w.f.Close() }

// maxLine is what is kept of a line without an end: SGLang's list of all settings has some 20 kB.
const maxLine = 256 << 10

// read takes what has come and reports whether anything has. At the end of the log, a line without a break counts as well.
func (w *watch) read(end bool) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.f.Read(buf)
		more = more || n > 0
		w.part = append(w.part, buf[:n]...)
		for {
			i := bytes.IndexAny(w.part, "\n\r") // progress bars end in CR
			if i < 0 {
				break
			}
			w.line(string(w.part[:i]))
			w.part = w.part[i+1:]
		}
		if len(w.part) > maxLine || end && err != nil {
			w.line(string(w.part))
			w.part = nil
		}
		if err != nil {
			return more // the log may grow later
		}
	}
}

// line takes one line.
func (w *watch) line(raw string) {
	raw = showable(raw)
	if raw == "" {
		return
	}
	if len(w.tail) == keptLines {
		w.tail = append(w.tail[:0], w.tail[1:]...)
	}
	shown := clip(w.secrets.in(raw))
	w.tail = append(w.tail, shown)
	if w.found == "" && w.address != nil {
		if m := w.address.FindStringSubmatch(raw); m != nil {
			w.found = m[1]
		}
	}
	w.marked = w.marked || strings.Contains(raw, w.marker)
	if v, ok := enginelog.ParseNCCL(raw); ok && len(w.nccl) < maxFacts {
		w.nccl = append(w.nccl, ncclFact{v, shown})
	}
	l := enginelog.Parse([]byte(raw))
	switch l.Kind {
	case enginelog.Milestone:
		w.doing = l.Name
	case enginelog.Notice:
		if w.notices == nil {
			w.notices = map[string]string{}
		}
		if _, seen := w.notices[l.Name]; !seen {
			w.notices[l.Name] = clip(w.secrets.in(l.Text))
		}
	}
	w.causes.Add(&l, shown)
}

// look returns what has been seen so far.
func (w *watch) look() (address string, marked bool, doing, last string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tail) > 0 {
		last = w.tail[len(w.tail)-1]
	}
	return w.found, w.marked, w.doing, last
}

// doomed reports that the log has shown a fault that no start survives.
func (w *watch) doomed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.causes.Doomed()
}

// rewrites returns the lines in which the server said that it does other than it was told, by name.
func (w *watch) rewrites() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.notices)
}

// ncclFacts are what NCCL said of variables so far.
func (w *watch) ncclFacts() []ncclFact {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nccl)
}

// forget drops the faults seen so far: a server that is ready has survived them.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.causes.Reset()
}

// keptLines is how many of a log's last lines are kept, and shown with a failure.
const keptLines = 6

// why returns the class of the fault that ended the server, "" if the log does not show one, and the lines that show it: its first
// line, if that is not among the last ones, and those.
func (w *watch) why() (class string, lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	class, line, _ := w.causes.Cause()
	for _, l := range w.tail {
		if l == line {
			line = ""
		}
	}
	if line != "" {
		lines = append(lines, line, "...")
	}
	return class, append(lines, w.tail...)
}

// showable is a line without control characters and trailing blanks.
func showable(l string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(l, "?")), " \t")
}

// clip bounds the length of a line that is kept.
func clip(l string) string {
	const width = 300
	if len(l) > width {
		l = strings.ToValidUTF8(l[:width], "") + "..."
	}
	return l
}
