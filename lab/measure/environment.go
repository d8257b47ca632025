package measure

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strings"
)

// Environment is the machine that a benchmark's client runs on. What the system does not tell is empty.
type Environment struct {
	OS     string `json:"os"`
	CPU    string `json:"cpu,omitempty"`
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory,omitempty"`       // as /proc/meminfo has it
	Load   string `json:"load_average,omitempty"` // of 1, 5 and 15 minutes, when the run began
	Go     string `json:"go"`
	Client string `json:"client"` // draftlab's version
}

// ReadEnvironment asks the system.
func ReadEnvironment(version string) Environment {
	e := Environment{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Client: version}
	e.CPU = field("/proc/cpuinfo", "model name")
	e.Memory = field("/proc/meminfo", "MemTotal")
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(data)); len(f) >= 3 {
			e.Load = strings.Join(f[:3], " ")
		}
	}
	return e
}

// field returns the first value of a key in a file of "key: value" lines, "" if there is none.
func field(path, key string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
