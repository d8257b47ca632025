package target

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// watched reads a log that is written in pieces, and returns what has been seen of it.
func watched(t *testing.T, pieces ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("http://127.0.0.1:1\nReady\npanic: of an earlier server\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := newWatch(path, regexp.MustCompile(`^(http://\S+)$`), "Ready")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range pieces {
		if _, err := f.Write(p); err != nil {
			t.Fatal(err)
		}
		if more := w.read(false); more != (len(p) > 0) {
			t.Errorf("%d bytes: more %v", len(p), more)
		}
	}
	w.read(true)
	address, marked, doing, last := w.look()
	class, lines := w.why()
	return fmt.Sprintf("%q %v %q %q %q %q %v %v %v", address, marked, doing, last, class, lines, w.doomed(), w.rewrites(), w.ncclFacts())
}

const sample = "http://127.0.0.1:30000\r\n[2026-02-26 16:20:37 TP0] Load weight begin. avail mem=94.00 GB\n\rLoading: 12%\rLoading: 25%h:7:9 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n" +
	"[2026-02-26 16:20:37] Max running requests is reset to 48 for speculative decoding.\nReady\n1\n2\n3\n\n" +
	"[2026-02-26 16:20:37] Scheduler hit an exception: Traceback\ntorch.OutOfMemoryError: CUDA out of memory.\n4\n5\n6\n7\n8\n9\nthe last one, without an end"

func TestWatch(t *testing.T) {
	got := watched(t, []byte(sample))
	want := `"http://127.0.0.1:30000" true "weights: begin" "the last one, without an end" "out of memory" ["torch.OutOfMemoryError: CUDA out of memory." "..." "5" "6" "7" "8" "9" "the last one, without an end"] true ` +
		`map[request limit changed:Max running requests is reset to 48 for speculative decoding.] [{{7 0 NCCL_ALGO Ring false} Loading: 25%h:7:9 [0] NCCL INFO NCCL_ALGO set by environment to Ring}]`
	if got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
	// What an earlier server left counts for nothing.
	if got := watched(t); !strings.HasPrefix(got, `"" false "" "" "" [] false`) {
		t.Error(got)
	}
	if long := watched(t, []byte(strings.Repeat("x", 3*maxLine))); !strings.Contains(long, strings.Repeat("x", 300)+"...") {
		t.Error(long[:min(len(long), 500)])
	}
}

// FuzzWatch: it does not matter in which pieces a log comes.
func FuzzWatch(f *testing.F) {
	f.Add([]byte(sample), 17)
	f.Add([]byte("\r\n\xff\x00\x1b[2J"), 1)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		at = max(0, min(at, len(text)))
		if one, two := watched(t, text), watched(t, text[:at], text[at:]); len(text) < maxLine && one != two {
			t.Errorf("\n%s\n%s", one, two)
		}
	})
}
