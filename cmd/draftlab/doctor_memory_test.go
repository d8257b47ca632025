package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"draftlab/engine/doctor"
)

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"Linux":                 {map[string]string{"/proc/meminfo": meminfo}, 8000000 << 10},
		"no limit":              {map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "max\n"}, 8000000 << 10},
		"a container":           {map[string]string{"/proc/meminfo": meminfo, "/sys/fs/cgroup/memory.max": "4000\n", "/sys/fs/cgroup/memory.current": "3000\n", "/sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 500\n"}, 1500},
		"a full container":      {map[string]string{"/sys/fs/cgroup/memory.max": "4000", "/sys/fs/cgroup/memory.current": "9000"}, 1},
		"another system":        {nil, 0},
		"a line that is no sum": {map[string]string{"/proc/meminfo": "MemAvailable: lots\n"}, 0},
	} {
		got := availableMemory(func(name string) ([]byte, error) {
			text, ok := c.files[name]
			if !ok {
				return nil, errors.New("no such file")
			}
			return []byte(text), nil
		})
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMemoryFinding(t *testing.T) {
	for _, c := range []struct {
		need need
		have int64
		want doctor.Level
	}{
		{need{weights: 50, drafter: 10, kv: 20}, 100, doctor.OK},
		{need{weights: 50, drafter: 10, kv: 30}, 100, doctor.Warning},
		{need{weights: 50, drafter: 10, kv: 3000}, 100, doctor.Warning},
		{need{weights: 95, drafter: 10}, 100, doctor.Fault},
		{need{weights: 95}, 0, doctor.Note},
	} {
		if got := memoryFinding(c.need, c.have); got.Level != c.want || got.Code != "memory" {
			t.Errorf("%+v of %d: %+v", c.need, c.have, got)
		}
	}
}

// TestTooLarge: a target that memory does not hold is not loaded.
func TestTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, tinyGGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	env := &Env{Stderr: io.Discard, Getenv: func(string) string { return "" }, IsTerminal: func(any) bool { return false },
		LookPath: func(string) (string, error) { return "", errors.New("no such program") }}
	cmd := newDoctor(env)
	cmd.SetContext(t.Context())
	f := &doctorFlags{modelFlags: modelFlags{model: path}}
	for have, want := range map[int64]string{0: "", 1 << 30: "", 1000: "the target's weights take 55.2 kB, and 1.0 kB are available"} {
		if got, err := f.tooLarge(env, cmd, have); got != want || err != nil {
			t.Errorf("%d: %q, %v; want %q", have, got, err, want)
		}
	}
}
