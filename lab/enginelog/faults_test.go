package enginelog

import (
	"slices"
	"strings"
	"testing"
)

// TestCauses: the fault that the others follow from is the cause, and what was meant as a warning is none.
func TestCauses(t *testing.T) {
	const at = "[2026-02-26 16:20:37 TP0] "
	doomed := []string{"memory, then a crash", "a wrapper's prefix", "killed"} // whose server will not come up, even if it lives
	for name, c := range map[string]struct{ log, class, line string }{
		"another port": {"ValueError: metrics_port at 40290 is not available in 30 seconds. metrics_port is used by a process already. process.name()='sglang'",
			PortInUse, "ValueError: metrics_port at 40290 is not available in 30 seconds. metrics_port is used by a process already. process.name()='sglang'"},
		"a wrapper's prefix": {"sglang-1  | " + at + "Scheduler hit an exception: Traceback (most recent call last):", Crash, "sglang-1  | " + at + "Scheduler hit an exception: Traceback (most recent call last):"},
		"one request's":      {at + "INFO:     127.0.0.1:45650 - \"POST /generate HTTP/1.1\" 500 Internal Server Error\n" + at + "ERROR:    Traceback (most recent call last):", "", ""},
		"killed":             {at + "Initialization of distributed group done\nRank 0 scheduler is dead. Please check if there are relevant logs.\n" + at + "Exit code: -9", OutOfMemory, at + "Exit code: -9"},
		"memory, then a crash": {at + "Scheduler hit an exception: Traceback (most recent call last):\n  File \"a.py\", line 1\n" +
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n" + at + "Received sigquit from a child process. It usually means the child failed.",
			OutOfMemory, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"},
		"a warning about a file": {"WARNING: No such file or directory: tuned.json\nusage: serve [-h]\nserve: error: argument --tp: invalid int value: 'x'",
			BadFlag, "serve: error: argument --tp: invalid int value: 'x'"},
		"vLLM's warning":   {"WARNING 11-30 12:00:00 [utils.py:1] No such file or directory\nTraceback (most recent call last):\nRuntimeError: x", Crash, "Traceback (most recent call last):"},
		"Python's warning": {"/usr/lib/a.py:3: UserWarning: FileNotFoundError was ignored\npanic: x", Crash, "panic: x"},
		"only a warning":   {"level=WARN msg=\"address already in use\"", "", ""},
		"llama.cpp":        {"0.00.012.345 W load: No such file or directory\n0.00.013.000 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 80", PortInUse, "0.00.013.000 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 80"},
		"a request's text": {"Receive: obj=GenerateReqInput(text='CUDA out of memory')\nfine", "", ""},
		"nothing":          {"all is well", "", ""},
	} {
		var causes Causes
		for line := range strings.Lines(c.log) {
			line = strings.TrimSuffix(line, "\n")
			l := Parse([]byte(line))
			causes.Add(&l, line)
		}
		class, line, ok := causes.Cause()
		if class != c.class || line != c.line || ok != (c.class != "") {
			t.Errorf("%s: %q %q %v", name, class, line, ok)
		}
		if want := slices.Contains(doomed, name); causes.Doomed() != want {
			t.Errorf("%s: doomed %v", name, !want)
		}
		causes.Reset()
		if _, _, ok := causes.Cause(); ok {
			t.Errorf("%s: remembered", name)
		}
	}
}
