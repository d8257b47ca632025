//go:build unix

package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"draftlab/lab/target/targettest"
)

// TestMain makes the test's own binary the server that the tests start: $STAND_IN says how it behaves.
func TestMain(m *testing.M) {
	targettest.Main()
	if mode := os.Getenv("STAND_IN"); mode != "" {
		standIn(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

const token = "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"

// standIn plays a server. It ends with its standard input, as draftlab's does.
func standIn(mode string) {
	fail := func(status int, lines ...string) {
		for _, l := range lines {
			fmt.Fprintln(os.Stderr, l)
		}
		os.Exit(status)
	}
	switch mode {
	case "bad flag":
		fail(2, "draftlab: draftlab serve: unknown flag: --speed", "hint: see draftlab serve --help")
	case "port in use":
		fail(1, "draftlab: cannot listen on 127.0.0.1 port 80: listen tcp: bind: address already in use")
	case "missing file":
		fail(1, "draftlab: open model.gguf: no such file or directory")
	case "out of memory":
		fail(1, "loading", "torch.OutOfMemoryError: CUDA out of memory.", "Traceback (most recent call last):", "1", "2", "3", "4", "5", "6", "7")
	case "crash":
		fail(2, "loading", "panic: index out of range\x1b[2J", "goroutine 1 [running]:")
	case "quiet end":
		os.Exit(0)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	var asked atomic.Int64
	var l net.Listener
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 || mode == "unhealthy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case mode == "dies at the first token":
			os.Exit(9)
		case mode == "no token":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, token)
		}
	})
	var flushed atomic.Int64
	http.HandleFunc("POST /flush_cache", func(w http.ResponseWriter, _ *http.Request) {
		if flushed.Add(1) < 3 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	http.HandleFunc("GET /debug/cycles", func(w http.ResponseWriter, r *http.Request) {
		switch mode {
		case "no ledger":
			w.WriteHeader(http.StatusNotFound)
		case "strange ledger":
			_, _ = io.WriteString(w, `{"cycles":[]}`)
		default:
			n := asked.Add(100)
			_, _ = fmt.Fprintf(w, `{"totals":{"decode_cycles":%d,"verify_cycles":5,"wall_ns":%d,"idle_ns":7,"phase_ns":{"verify":%d}}}`, n, 10*n, 3*n)
		}
	})
	http.HandleFunc("/server_info", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"steps":3}`) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = http.Serve(l, nil) }()
	fmt.Printf("http://%s\n", l.Addr())
	if mode == "hangs" {
		fmt.Fprintln(os.Stderr, "loading weights")
	} else {
		fmt.Fprintln(os.Stderr, "[2026-11-30 12:00:00] The server is fired up and ready to roll!")
	}
	if mode == "leaves" {
		http.HandleFunc("/leave", func(http.ResponseWriter, *http.Request) { fail(4, "fatal error: stack overflow") })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// start boots a stand-in that behaves in a way, within a limit.
func start(t *testing.T, mode string, limit time.Duration) (*Server, error) {
	t.Helper()
	return startIn(context.Background(), t, t.TempDir(), mode, limit)
}

func startIn(ctx context.Context, t *testing.T, dir, mode string, limit time.Duration) (*Server, error) {
	t.Helper()
	e, err := New(Config{Kind: "draftlab", Command: []string{os.Args[0]}, Model: "m", Env: map[string]string{"STAND_IN": mode}, Ready: limit})
	if err != nil {
		t.Fatal(err)
	}
	return e.Boot(ctx, BootOptions{Name: "log", Dir: dir})
}

func TestBoot(t *testing.T) {
	s, err := start(t, "good", ample)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(time.Second)
	if s.Ready <= 0 || s.Failure() != nil || !strings.HasPrefix(s.Client.Base, "http://127.0.0.1:") {
		t.Errorf("%+v, failure %v", s, s.Failure())
	}
	if err := s.Flush(context.Background()); err != nil { // refused twice
		t.Error(err)
	}
	if info, err := s.Info(context.Background()); err != nil || info["steps"] != 3.0 {
		t.Errorf("%v %v", info, err)
	}
}

func TestLedger(t *testing.T) {
	s, err := start(t, "good", ample)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(time.Second)
	one, err := s.Ledger(context.Background())
	two, err2 := s.Ledger(context.Background())
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if d := two.Minus(one); d.Cycles != 100 || d.WallNS != 1000 || d.IdleNS != 0 || d.PhaseNS["verify"] != 300 {
		t.Errorf("%+v", d)
	}
	for mode, want := range map[string]string{"no ledger": "", "strange ledger": "no totals"} {
		s, err := start(t, mode, ample)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Ledger(context.Background())
		if l != nil || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v", mode, l, err)
		}
		s.Stop(time.Second)
	}
}

func TestFailedBoots(t *testing.T) {
	for mode, c := range map[string]struct {
		cause Cause
		words []string // that the error holds
		not   string
	}{
		"bad flag":                {BadFlag, []string{"--speed", "exit status 2"}, ""},
		"port in use":             {PortInUse, []string{"address already in use"}, ""},
		"missing file":            {MissingFile, []string{"model.gguf"}, ""},
		"out of memory":           {OutOfMemory, []string{"CUDA out of memory", "...", "\n    7"}, "\n    1"},
		"crash":                   {Crash, []string{"panic: index out of range[2J"}, "\x1b"},
		"quiet end":               {Exited, []string{"exit status 0", "nothing in its log"}, ""},
		"killed":                  {OutOfMemory, []string{"killed from outside"}, ""},
		"dies at the first token": {Exited, []string{"exit status 9", "ready to roll"}, ""},
	} {
		_, err := start(t, mode, ample)
		var boot *BootError
		if !errors.As(err, &boot) || boot.Cause != c.cause {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: no %q in: %v", mode, w, err)
			}
		}
		if c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: %q in: %v", mode, c.not, err)
		}
	}
}

func TestBootsThatTakeTooLong(t *testing.T) {
	for mode, missing := range map[string]string{"hangs": "the line", "unhealthy": "its health check", "no token": "a generated token"} {
		longer(t, 300*time.Millisecond, func(limit time.Duration) error {
			_, err := start(t, mode, limit)
			if boot := (*BootError)(nil); errors.As(err, &boot) && len(boot.Lines) == 0 {
				return fmt.Errorf("%s: no line of its log: %w", mode, err)
			}
			return isFault(err, Stalled, missing)
		})
	}
}

// TestBootIsInterrupted: the server goes with it.
func TestBootIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	log := filepath.Join(dir, "log.log")
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if text, _ := os.ReadFile(log); strings.Contains(string(text), "loading") {
				cancel()
				return
			}
		}
	}()
	if _, err := startIn(ctx, t, dir, "hangs", ample); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	text, _ := os.ReadFile(log)
	base, _, _ := strings.Cut(string(text), "\n")
	if conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://")); err == nil {
		_ = conn.Close()
		t.Error("the server still listens")
	}
}

func TestServerThatDiesLater(t *testing.T) {
	s, err := start(t, "leaves", ample)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(0)
	if _, err := s.get(context.Background(), http.MethodGet, "/leave"); err == nil {
		t.Error("it did not leave")
	}
	<-s.proc.Done()
	var boot *BootError
	if err := s.Failure(); !errors.As(err, &boot) || boot.Cause != Crash || !strings.Contains(err.Error(), "stack overflow") {
		t.Errorf("%v", err)
	}
}

func TestNoProgram(t *testing.T) {
	e, err := New(Config{Kind: "draftlab", Command: []string{filepath.Join(t.TempDir(), "none")}, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Boot(context.Background(), BootOptions{Name: "b", Dir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
