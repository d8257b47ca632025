//go:build linux

package target

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"draftlab/lab/runner/sshtest"
	"draftlab/lab/target/targettest"
	"draftlab/lab/trial"
)

func TestPattern(t *testing.T) {
	for value, want := range map[string]string{"": "", "/tmp/nccl.log": "/tmp/nccl.log", "/tmp/%h/n-%p": "/tmp/*/n-*", "50%%-%d%": "50%-%d%", "%%p": "%p"} {
		if got := pattern(value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// TestNCCLFiles: what NCCL writes to files of its own is read and kept as if it stood in the server's log, whoever set the variable; what other
// servers have left there is not.
func TestNCCLFiles(t *testing.T) {
	for name, c := range map[string]struct {
		host  string
		place func(value string, c *Config, k *trial.Knobs)
	}{
		"factor":    {"", func(v string, _ *Config, k *trial.Knobs) { k.Env[debugFile] = v }},
		"all arms":  {"", func(v string, c *Config, _ *trial.Knobs) { c.Env = map[string]string{debugFile: v} }},
		"inherited": {"", func(v string, c *Config, _ *trial.Knobs) { c.Environ = append(os.Environ(), debugFile+"="+v) }},
		"over ssh":  {sshtest.Start(t), func(v string, _ *Config, k *trial.Knobs) { k.Env[debugFile] = v }},
	} {
		t.Run(name, func(t *testing.T) {
			logs, dir := filepath.Join(t.TempDir(), "of NCCL"), t.TempDir()
			if err := os.Mkdir(logs, 0o755); err != nil {
				t.Fatal(err)
			}
			older := filepath.Join(logs, "gpu-7.1")
			if err := os.WriteFile(older, []byte("gpu-7:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			k := trial.Knobs{Env: map[string]string{"NCCL_DEBUG": "INFO", "NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "HF_TOKEN": "Ring!"}}
			e := sglang(t, quick(targettest.New, ""), func(own *Config) {
				own.Host = c.host
				c.place(filepath.Join(logs, "%h.%p"), own, &k)
			})
			s, err := e.Boot(context.Background(), BootOptions{Name: "boot", Dir: dir, Knobs: k})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop(time.Second)
			said, err := s.Environment(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range said {
				if want := map[string]string{"NCCL_PROTO": applied, "NCCL_ALGO": applied}[one.Name]; strings.HasPrefix(one.Process, "rank") && want != "" && one.State != want {
					t.Errorf("%+v", one)
				}
			}
			family, err := s.proc.Family(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			for _, p := range family {
				if role(&p) == "rank 1" {
					last = filepath.Join(logs, fmt.Sprintf("gpu-7.%d", p.PID))
				}
			}
			addTo(t, last, "the end, with Ring!\n")
			s.Stop(time.Second)
			kept, err := filepath.Glob(filepath.Join(dir, "boot.nccl-*"))
			if err != nil || len(kept) != 2 {
				t.Fatalf("kept: %v %v", kept, err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "boot.nccl-"+filepath.Base(last)))
			if err != nil || !strings.Contains(string(text), "NCCL_ALGO set by environment to Ring\n") || !strings.HasSuffix(string(text), "the end, with …\n") {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

func addTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestNCCLFilesOfAFailedStart: they are kept as well, for they may say why.
func TestNCCLFilesOfAFailedStart(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	script := quick(targettest.New, targettest.CUDAMemory)
	script.Speed /= 4 // so that the ranks have written before one fails
	_, err := sglang(t, script, nil).Boot(context.Background(), BootOptions{Name: "boot", Dir: dir, Knobs: trial.Knobs{
		Env: map[string]string{"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring", debugFile: filepath.Join(logs, "n.%p")}}})
	if kept, _ := filepath.Glob(filepath.Join(dir, "boot.nccl-n.*")); err == nil || len(kept) != 2 {
		t.Errorf("%v; kept: %v", err, kept)
	}
}

func FuzzFactsIn(f *testing.F) {
	f.Add("gpu-7:12:13 [0] NCCL INFO NCCL_ALGO set by environment to Ring\nrest")
	f.Fuzz(func(t *testing.T, text string) {
		for _, fact := range factsIn(text) {
			if strings.ContainsAny(fact.line, "\n\r\x00") || len(fact.line) > 400 {
				t.Errorf("%+v", fact)
			}
		}
	})
}
