//go:build unix

package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"draftlab/lab/runner/sshtest"
)

// TestMain makes the test's own binary the commands that the tests start.
func TestMain(m *testing.M) {
	switch os.Getenv("RUNNER_TEST") {
	case "":
		goleak.VerifyTestMain(m)
	case "talk":
		fmt.Println("out")
		fmt.Fprintln(os.Stderr, "err")
		os.Exit(3)
	case "until-stdin":
		fmt.Println("ready")
		signal.Ignore(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(7)
	case "stubborn": // with a child of its own, which is as stubborn
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "RUNNER_TEST=sleep")
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", child.Process.Pid)
		time.Sleep(time.Hour)
	case "leaver": // ends and leaves a child behind
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "RUNNER_TEST=sleep")
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", child.Process.Pid)
	case "http":
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("RUNNER_PORT"))
		if err != nil {
			panic(err)
		}
		fmt.Println("ready")
		panic(http.Serve(l, nil))
	case "polite":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		os.Exit(5)
	case "daemon": // ends and leaves a child in a session of its own behind
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "RUNNER_TEST=sleep")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", child.Process.Pid)
	case "sleep":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "parent": // starts one that ends with its standard input, and waits to be killed
		p, err := parentHost().Start(Command{Path: os.Args[0], Env: map[string]string{"RUNNER_TEST": os.Getenv("RUNNER_CHILD")},
			Log: os.Getenv("RUNNER_LOG"), EndsWithStdin: os.Getenv("RUNNER_CHILD") == "until-stdin"})
		if err != nil {
			panic(err)
		}
		fmt.Println("started", p.PID())
		time.Sleep(time.Hour)
	}
}

func parentHost() Host {
	if destination := os.Getenv("RUNNER_HOST"); destination != "" {
		return SSH{destination}
	}
	return Local{}
}

// ways are the ways in which a command is started.
func ways(t *testing.T) map[string]func(t *testing.T, what string) (*Process, string) {
	way := func(h Host, ends bool) func(*testing.T, string) (*Process, string) {
		return func(t *testing.T, what string) (*Process, string) { return startOn(t, h, what, ends) }
	}
	return map[string]func(*testing.T, string) (*Process, string){
		"local": way(Local{}, true), "local, kept": way(Local{}, false), "ssh": way(SSH{sshtest.Start(t)}, false),
	}
}

func startOn(t *testing.T, h Host, what string, ends bool) (p *Process, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	p, err := h.Start(Command{Path: os.Args[0], Env: map[string]string{"RUNNER_TEST": what}, Log: log, EndsWithStdin: ends})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	return p, log
}

// line waits until the log has a line.
func line(t *testing.T, log string) string {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		text, _ := os.ReadFile(log)
		if first, _, ok := strings.Cut(string(text), "\n"); ok {
			return first
		}
	}
	return ""
}

// gone waits until a process is no more.
func gone(pid int) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range tick.C { // the test's own time limit ends it
		if state(pid) == "" {
			return
		}
	}
}

// state is the process's state, "" if it has ended, reaped or not.
func state(pid int) string {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return ""
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
		return ""
	}
	return "alive"
}

func childOf(t *testing.T, text string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(text, "child "))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestLogAndStatus(t *testing.T) {
	for name, start := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p, log := start(t, "talk")
			if exit := p.Exit(); exit.Status != 3 || exit.Signal != "" || exit.String() != "exit status 3" {
				t.Errorf("%+v", exit)
			}
			if text, _ := os.ReadFile(log); string(text) != "out\nerr\n" {
				t.Errorf("log %q", text)
			}
			if exit := p.Stop(time.Hour); exit.Status != 3 {
				t.Errorf("stopped after its end: %+v", exit)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	for name, start := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p, log := start(t, "stubborn")
			line(t, log)
			if exit := p.Stop(time.Millisecond); exit.Status != -1 || exit.Signal != "killed" || exit.String() != "ended by signal: killed" {
				t.Errorf("%+v", exit)
			}
		})
	}
}

func TestStopClosesStandardInput(t *testing.T) {
	p, log := startOn(t, Local{}, "until-stdin", true)
	line(t, log)
	if exit := p.Stop(time.Hour); exit.Status != 7 {
		t.Errorf("%+v", exit)
	}
}

// TestStopAsks: what ends in order when it is asked has its own status.
func TestStopAsks(t *testing.T) {
	for name, start := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p, log := start(t, "polite")
			line(t, log)
			if exit := p.Stop(time.Hour); exit.Status != 5 {
				t.Errorf("%+v", exit)
			}
		})
	}
}

func TestStopEndsTheWholeGroup(t *testing.T) {
	for name, start := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p, log := start(t, "stubborn")
			child := childOf(t, line(t, log))
			p.Stop(time.Millisecond)
			gone(child)
		})
	}
}

func TestWhatAProcessLeavesBehindIsEnded(t *testing.T) {
	for name, start := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p, log := start(t, "leaver")
			child := childOf(t, line(t, log))
			if exit := p.Exit(); exit.Status != 0 {
				t.Errorf("%+v", exit)
			}
			gone(child)
		})
	}
}

// TestWhatLeavesTheGroupIsEnded: a child with a session of its own, which is known by its environment.
func TestWhatLeavesTheGroupIsEnded(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc here")
	}
	for _, name := range []string{"local, kept", "ssh"} {
		p, log := ways(t)[name](t, "daemon")
		child := childOf(t, line(t, log))
		p.Exit()
		gone(child)
	}
}

// TestKilledParent: no command outlives a parent that is killed outright, and neither does one whose keeper is killed with it.
func TestKilledParent(t *testing.T) {
	for name, env := range map[string][]string{
		"ends with its input": {"RUNNER_CHILD=until-stdin"}, "kept": {"RUNNER_CHILD=stubborn"},
		"ssh": {"RUNNER_CHILD=stubborn", "RUNNER_HOST=" + sshtest.Start(t)},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			parent := exec.Command(os.Args[0])
			parent.Env = append(append(os.Environ(), "RUNNER_TEST=parent", "RUNNER_LOG="+log), env...)
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			text, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			child := 0
			if first := line(t, log); name == "ends with its input" {
				child, _ = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, "started ")))
			} else {
				child = childOf(t, first)
			}
			if state(child) == "" {
				t.Fatal("the child does not run")
			}
			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait() // killed, as it was told
			gone(child)
		})
	}
}

// TestKilledKeeper: a command does not outlive its keeper.
func TestKilledKeeper(t *testing.T) {
	p, log := startOn(t, Local{}, "stubborn", false)
	child := childOf(t, line(t, log))
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if exit := p.Exit(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	gone(child)
}

// TestLostConnection: a command does not outlive the connection to its machine, and that is what is said.
func TestLostConnection(t *testing.T) {
	p, log := startOn(t, SSH{sshtest.Start(t)}, "stubborn", false)
	child := childOf(t, line(t, log))
	sshtest.Cut(t)
	if exit := p.Exit(); !exit.Lost || !strings.Contains(exit.String(), "connection") {
		t.Errorf("%+v", exit)
	}
	gone(child)
}

func TestStartFails(t *testing.T) {
	if _, err := (Local{}).Start(Command{Path: filepath.Join(t.TempDir(), "none"), Log: filepath.Join(t.TempDir(), "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	if _, err := (Local{}).Start(Command{Path: os.Args[0], Log: filepath.Join(t.TempDir(), "none", "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no place for the log: %v", err)
	}
	for _, bad := range []string{"", "-oProxyCommand=touch /tmp/x", "a b"} {
		if _, err := (SSH{bad}).Start(Command{Path: "true", Log: filepath.Join(t.TempDir(), "log")}); err == nil || !strings.Contains(err.Error(), "destination") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
