package enginelog

import (
	"regexp"
	"slices"
	"strings"
)

// Classes of faults.
const (
	OutOfMemory = "out of memory"
	PortInUse   = "port in use"
	BadFlag     = "bad flag"
	MissingFile = "missing file"
	Stalled     = "stalled"
	Crash       = "crash"
)

// classes stand in the order in which one can be the other's consequence: a missing file may end in a traceback.
var classes = []string{OutOfMemory, PortInUse, BadFlag, MissingFile, Stalled, Crash}

// faults are what logs of servers in Python, Go and C++ say when a server is doomed, with the class; the first that fits counts.
// A text behind ^ stands at the beginning of the message.
var faults = []struct{ text, class string }{
	{"Not enough memory. Please try to increase --mem-fraction-static", OutOfMemory},
	{"OutOfMemoryError", OutOfMemory}, // torch's, under several names
	{"CUDA out of memory", OutOfMemory},
	{"HIP out of memory", OutOfMemory},
	{"failed: out of memory", OutOfMemory},        // ggml's cudaMalloc
	{"Cuda failure 'out of memory'", OutOfMemory}, // NCCL's
	{"No available memory for the cache blocks", OutOfMemory},
	{"can't allocate memory", OutOfMemory}, // torch on a processor
	{"cannot allocate memory", OutOfMemory},
	{"Cannot allocate memory", OutOfMemory},
	{"std::bad_alloc", OutOfMemory},
	{"^MemoryError", OutOfMemory},
	{"^fatal error: runtime: out of memory", OutOfMemory},
	{"^fatal error: runtime: cannot allocate", OutOfMemory},
	{"(exit code: -9)", OutOfMemory}, // the kernel's killer, nearly always
	{"^Exit code: -9", OutOfMemory},
	{"To allow overriding this maximum, set the env var", BadFlag}, // SGLang, of a drafter made for shorter texts than the target
	{"selected index k out of range", BadFlag},                     // more draft tokens than the tree has
	{": error: argument ", BadFlag},
	{": error: unrecognized arguments", BadFlag},
	{": error: the following arguments are required", BadFlag},
	{": error: ambiguous option", BadFlag},
	{"error: argument --", BadFlag},
	{"error: invalid argument: -", BadFlag}, // llama.cpp's
	{"error while handling argument \"-", BadFlag},
	{"unknown flag: -", BadFlag},      // pflag's
	{"^hint: see draftlab ", BadFlag}, // what draftlab says beneath an error of usage
	{"unknown shorthand flag: ", BadFlag},
	{"invalid argument \"", BadFlag},
	{"address already in use", PortInUse},
	{"Address already in use", PortInUse},
	{"couldn't bind HTTP server socket", PortInUse},
	{"is used by a process already", PortInUse}, // SGLang's of its other ports
	{"Only one usage of each socket address", PortInUse},
	{"cannot listen on ", PortInUse},
	{"FileNotFoundError", MissingFile},
	{"No such file or directory", MissingFile},
	{"no such file or directory", MissingFile},
	{"cannot find the file specified", MissingFile},
	{"cannot find the path specified", MissingFile},
	{"no checkpoint there", MissingFile},
	{"Repository Not Found", MissingFile},
	{"is not a valid model identifier", MissingFile},
	{"Repo id must be in the form", MissingFile}, // a path that does not exist, taken for a name on the hub
	{"does not appear to have a file named", MissingFile},
	{"watchdog timeout", Stalled},
	{"Watchdog timeout", Stalled},
	{"Health check failed. Server couldn't get a response", Stalled},
	{"Scheduler hit an exception", Crash},
	{"Received sigquit from a child proc", Crash}, // older versions misspell what follows
	{"scheduler died during initialization", Crash},
	{"scheduler is dead", Crash},
	{"Initialization failed", Crash},
	{"Capture cuda graph failed", Crash},
	{"CUDA error", Crash},
	{"SIGQUIT received", Crash},
	{"EngineDeadError", Crash},
	{"EngineCore encountered a fatal error", Crash},
	{"Engine core initialization failed", Crash},
	{"^Traceback (most recent call last)", Crash},
	{"Segmentation fault", Crash},
	{"SIGSEGV", Crash},
	{"^panic: ", Crash},
	{"^fatal error: ", Crash},
	{"unexpected fault address", Crash},
	{"terminate called after throwing", Crash},
	{"GGML_ASSERT(", Crash},
}

// Classify says whether a message tells of a fault that ends a server or a boot, and of which class.
func Classify(text string) (class string, ok bool) {
	for _, f := range faults {
		if at, anchored := strings.CutPrefix(f.text, "^"); anchored && strings.HasPrefix(text, at) || !anchored && strings.Contains(text, f.text) {
			return f.class, true
		}
	}
	return "", false
}

// mild are lines that their writer did not mean as a fault, in the words of Python's logging and warnings, of Go's and of C++'s.
var mild = regexp.MustCompile(`^[\d.]* ?(?:WARNING|WARN|INFO|DEBUG|[IWD])\b|^.{0,60}(?:\b(?:WARNING|INFO|DEBUG)\b|[a-zA-Z]Warning: )|\blevel=(?i:info|warn|debug)\b`)

// doom is what no server of SGLang or vLLM survives. Other faults may be of one request, or of a module that is not needed: both write
// tracebacks while they start that mean nothing.
var doom = []string{
	"Scheduler hit an exception", "Received sigquit from a child proc", "scheduler died during initialization", "scheduler is dead",
	"Initialization failed", "Not enough memory. Please try to increase --mem-fraction-static", "Capture cuda graph failed",
	"EngineCore encountered a fatal error", "Engine core initialization failed", "EngineDeadError", "watchdog timeout", "Watchdog timeout",
}

// Causes finds out of a server's log why it ended. Its zero value is ready for use.
type Causes struct {
	first  map[string]string // by class
	doomed bool
}

// Add looks at a line as it stands in the log, at what its server wrote at no level below an error.
func (c *Causes) Add(l *Line, raw string) {
	if l.Kind != Fault || mild.MatchString(raw) {
		return
	}
	if c.first == nil {
		c.first = map[string]string{}
	}
	c.doomed = c.doomed || slices.ContainsFunc(doom, func(d string) bool { return strings.Contains(l.Text, d) })
	if _, seen := c.first[l.Name]; !seen {
		c.first[l.Name] = raw
	}
}

// Cause returns the class of the fault that the others can follow from, and the first line that told of it.
func (c *Causes) Cause() (class, line string, ok bool) {
	for _, class := range classes {
		if line, ok := c.first[class]; ok {
			return class, line, true
		}
	}
	return "", "", false
}

// Reset forgets all lines: what a server wrote before it was ready does not tell why it ended later.
func (c *Causes) Reset() { *c = Causes{} }

// Doomed reports that a line told of a fault that no server survives, whether its process has ended or not.
func (c *Causes) Doomed() bool { return c.doomed }
