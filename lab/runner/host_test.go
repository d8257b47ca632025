//go:build unix

package runner

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/lab/runner/sshtest"
)

// hosts are this machine as itself and over a connection.
func hosts(t *testing.T) map[string]Host {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("no /proc here")
	}
	return map[string]Host{"local": Local{}, "ssh": SSH{sshtest.Start(t)}}
}

// TestListener: the process that listens on a port is found, and its environment read.
func TestListener(t *testing.T) {
	ctx := context.Background()
	for name, h := range hosts(t) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		p, err := h.Listener(ctx, port)
		if err != nil {
			t.Fatal(name, err)
		}
		if p.PID != os.Getpid() || !slices.Equal(p.Args, os.Args) || !slices.Contains(p.Env, "HOME="+os.Getenv("HOME")) {
			t.Errorf("%s: %+v %v", name, p.Args, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if p, err := h.Listener(ctx, port); err == nil || !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
}

func TestPorts(t *testing.T) {
	ctx := context.Background()
	for name, h := range hosts(t) {
		for _, address := range []string{"127.0.0.1:0", ":0"} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			taken := l.Addr().(*net.TCPAddr).Port
			if in, err := h.PortInUse(ctx, taken); !in || err != nil {
				t.Errorf("%s: %s: %v %v", name, address, in, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if in, err := h.PortInUse(ctx, taken); in || err != nil {
				t.Errorf("%s: %s, closed: %v %v", name, address, in, err)
			}
		}
		port, err := h.FreePort(ctx)
		if err != nil {
			t.Fatal(name, err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(name, err)
		}
		_ = l.Close()
	}
}

// TestAddress: a server on the host answers under the address.
func TestAddress(t *testing.T) {
	for name, h := range hosts(t) {
		port, err := h.FreePort(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(t.TempDir(), "log")
		p, err := h.Start(Command{Path: os.Args[0], Env: map[string]string{"RUNNER_TEST": "http", "RUNNER_PORT": fmt.Sprint(port)}, Log: log, Ports: []int{port}})
		if err != nil {
			t.Fatal(err)
		}
		line(t, log)
		resp, err := http.Get("http://" + p.Address(port))
		if err != nil {
			t.Fatal(name, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
			t.Errorf("%s: %q %v", name, body, err)
		}
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		p.Stop(0)
		if (name == "ssh") != (p.Address(port) != fmt.Sprintf("127.0.0.1:%d", port)) {
			t.Errorf("%s: %s for port %d", name, p.Address(port), port)
		}
	}
}

// TestProcesses: all that a command started is found, each with its own environment.
func TestProcesses(t *testing.T) {
	for name, h := range hosts(t) {
		log := filepath.Join(t.TempDir(), "log")
		value := "a b\n'c' " + token()
		p, err := h.Start(Command{Path: os.Args[0], Args: []string{"one", ""}, Env: map[string]string{"RUNNER_TEST": "stubborn", "RUNNER_MARK": value, "NCCL_ALGO": "Ring"}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		child := childOf(t, line(t, log))
		got, err := p.Family(context.Background())
		if err != nil {
			t.Fatal(name, err)
		}
		found := 0
		for _, one := range got {
			env := strings.Join(one.Env, "\x00") + "\x00"
			if one.PID == child && strings.Contains(env, "RUNNER_TEST=sleep\x00") || len(one.Args) > 1 && one.Args[1] == "one" && strings.Contains(env, "RUNNER_TEST=stubborn\x00") {
				found++
				if !strings.Contains(env, "NCCL_ALGO=Ring\x00") || !strings.Contains(env, "RUNNER_MARK="+value+"\x00") {
					t.Errorf("%s: environment %q", name, one.Env)
				}
			}
		}
		if found != 2 || len(got) != 2 {
			t.Errorf("%s: %+v", name, got)
		}
		p.Stop(0)
		if got, err := h.Processes(context.Background(), "RUNNER_MARK", value); err != nil || len(got) > 0 {
			t.Errorf("%s: left %+v %v", name, got, err)
		}
	}
}

// private reports a directory that only its owner may look into.
func private(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm() == 0o700
}

func TestOverlay(t *testing.T) {
	ctx := context.Background()
	for name, h := range hosts(t) {
		from := filepath.Join(t.TempDir(), "the 'drafter'")
		if err := os.Mkdir(from, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"config.json": "{}", "weights": "big", ".hidden": "x"} {
			if err := os.WriteFile(filepath.Join(from, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		to := filepath.Join(t.TempDir(), "boot.drafter")
		for range 2 { // the second finds what a killed campaign left
			dir, err := h.Overlay(ctx, from, to, "config.json", []byte("{\"a\": 1}\n"))
			if err != nil {
				t.Fatal(name, err)
			}
			for file, want := range map[string]string{"config.json": "{\"a\": 1}\n", "weights": "big", ".hidden": "x"} {
				if text, err := h.ReadFile(ctx, filepath.Join(dir, file)); err != nil || string(text) != want {
					t.Errorf("%s: %s %q %v", name, file, text, err)
				}
			}
			if fi, err := os.Lstat(filepath.Join(dir, "weights")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s: weights are %v, %v", name, fi, err)
			}
			to = dir
		}
		if err := h.Remove(ctx, to); err != nil {
			t.Error(name, err)
		}
		if _, err := os.Stat(to); !os.IsNotExist(err) {
			t.Errorf("%s: it is left: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(from, "config.json")); err != nil || string(text) != "{}" {
			t.Errorf("%s: the original: %q %v", name, text, err)
		}
		own, err := h.Overlay(ctx, "", filepath.Join(t.TempDir(), "boot.config"), "key.yaml", []byte("key"))
		if err != nil {
			t.Fatal(name, err)
		}
		if !private(own) && !private(filepath.Dir(own)) {
			t.Errorf("%s: others may look into %s", name, own)
		}
		if err := h.Remove(ctx, own); err != nil {
			t.Error(name, err)
		}
		if err := h.Remove(ctx, from); err == nil {
			t.Errorf("%s: it removed what is no overlay", name)
		}
		if _, err := h.ReadFile(ctx, filepath.Join(from, "none")); err == nil {
			t.Errorf("%s: it read a file that is not there", name)
		}
		if _, err := h.Overlay(ctx, filepath.Join(from, "none"), to, "config.json", nil); err == nil {
			t.Errorf("%s: an overlay of nothing", name)
		}
	}
}

func TestParsers(t *testing.T) {
	const tcp = "  sl  local_address rem_address   st\n   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000\n   1: 0100007F:1F90 0100007F:D431 01 0\n" +
		"  0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A\n"
	if got := parseSockets(tcp); !reflect.DeepEqual(got, map[int][]string{30000: {"4711"}, 22: {""}}) {
		t.Errorf("%v", got)
	}
	const open = "/proc/12/fd:\ntotal 0\nlrwx------ 1 u u 64 Nov 30 10:00 3 -> socket:[4711]\n\n/proc/9/fd:\nl 3 -> socket:[4711]\nl 4 -> /tmp/socket:[5]\n\n" +
		"/proc/77/fd:\nl 1 -> socket:[47]\n"
	for inode, want := range map[string]int{"4711": 9, "47": 77, "5": 0, "471": 0} {
		if got := parseOwner(open, []string{"1", inode}); got != want {
			t.Errorf("%s: %d, want %d", inode, got, want)
		}
	}
	if p, ok := parseStat([]byte("12 (a ) b (c) S 7 12 12 0")); !ok || p.PID != 12 || p.Parent != 7 {
		t.Errorf("%+v %v", p, ok)
	}
	if _, ok := parseStat([]byte("12 (a) Z 7 12")); ok {
		t.Error("one that has ended")
	}
	text := "\x00F stat 1 (init) S 0 1\x00F args\x00init\x00\x00F env\x00A=1\x00\x00F stat 2 (gone) Z 1\x00F args\x00no\x00F env\x00B=1" +
		"\x00F stat 3 (x) R 1 3\x00F args\x00x\x00\x00y\x00F env\x00V=F stat 9 (q) S 1 1\x00C=2\x00"
	want := []ProcessInfo{{1, 0, []string{"init"}, []string{"A=1"}}, {3, 1, []string{"x", "y"}, []string{"V=F stat 9 (q) S 1 1", "C=2"}}}
	if got := parseProcesses([]byte(text), "F"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	// A descendant whose environment is overwritten belongs to the family, and has none.
	all := []ProcessInfo{{5, 4, nil, []string{"garbage"}}, {4, 1, nil, []string{"M=1"}}, {6, 1, nil, []string{"M=2"}}, {7, 5, nil, []string{"M=1"}}}
	if got := family(all, "M=1"); !reflect.DeepEqual(got, []ProcessInfo{{4, 1, nil, []string{"M=1"}}, {5, 4, nil, nil}, {7, 5, nil, []string{"M=1"}}}) {
		t.Errorf("%+v", got)
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("\x00F stat 1 (init) S 0 1\x00F args\x00init\x00F env\x00A=1\x00"))
	f.Add([]byte("   0: 0100007F:7530 00000000:0000 0A 00000000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, p := range family(parseProcesses(text, "F"), "A=1") {
			if p.Env != nil && !slices.Contains(p.Env, "A=1") {
				t.Errorf("%+v", p)
			}
		}
		for port := range parseSockets(string(text)) {
			if port < 0 || port > 65535 {
				t.Error(port)
			}
		}
		if parseOwner(string(text), []string{"1"}) < 0 {
			t.Error("a number below 0")
		}
	})
}

func TestQuote(t *testing.T) {
	for _, words := range [][]string{{"", "a b", "it's", "$HOME `x` \"y\" \\ \n!"}, {"plain-word_1./:,=@%+"}, {"ümlaut", "*", "~", "#", "=ls", "a:=ls", "a=b"}} {
		for name, h := range hosts(t) {
			far, ok := h.(SSH)
			if !ok {
				continue
			}
			out, err := far.sh(context.Background(), nil, `for w; do printf '%s\0' "$w"; done`, words...)
			if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
				t.Errorf("%s: %q %v, want %q", name, out, err, want)
			}
		}
	}
	for name, h := range hosts(t) {
		if out, err := h.Output(context.Background(), "printf", "%s|", "a b", "", "'"); err != nil || string(out) != "a b||'|" {
			t.Errorf("%s: %q %v", name, out, err)
		}
	}
}

// TestStoppedAtOnce: a command that is stopped before it has a group of its own is ended all the same.
func TestStoppedAtOnce(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc here")
	}
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("no setsid here, so that groups are made at once")
	}
	slow := t.TempDir()
	if err := os.WriteFile(filepath.Join(slow, "setsid"), []byte("#!/bin/sh\nn=0\nwhile [ $n -lt 500000 ]; do n=$((n + 1)); done\nexec "+setsid+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", slow+string(os.PathListSeparator)+os.Getenv("PATH"))
	p, err := Local{}.Start(Command{Path: "sleep", Args: []string{"3600"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if exit := p.Stop(0); exit.Signal == "" || time.Since(began) > patience {
		t.Errorf("%+v after %v", exit, time.Since(began))
	}
	if left, err := p.Family(context.Background()); err != nil || len(left) > 0 {
		t.Errorf("left: %+v %v", left, err)
	}
}
