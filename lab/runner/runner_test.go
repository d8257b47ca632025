//go:build unix

package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
	case "sleep":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Hour)
	case "parent": // starts one that ends with its standard input, and waits to be killed
		p, err := Start(Command{Path: os.Args[0], Env: append(os.Environ(), "RUNNER_TEST=until-stdin"), Log: os.Getenv("RUNNER_LOG")})
		if err != nil {
			panic(err)
		}
		fmt.Println("child", p.PID())
		time.Sleep(time.Hour)
	}
}

func start(t *testing.T, what string) (p *Process, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Path: os.Args[0], Env: append(os.Environ(), "RUNNER_TEST="+what), Log: log})
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
}

func TestStopClosesStandardInput(t *testing.T) {
	p, log := start(t, "until-stdin")
	line(t, log)
	if exit := p.Stop(time.Hour); exit.Status != 7 {
		t.Errorf("%+v", exit)
	}
}

func TestStopEndsTheWholeGroup(t *testing.T) {
	p, log := start(t, "stubborn")
	child := childOf(t, line(t, log))
	if exit := p.Stop(time.Millisecond); exit.Status != -1 || exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	gone(child)
}

func TestWhatAProcessLeavesBehindIsEnded(t *testing.T) {
	p, log := start(t, "leaver")
	child := childOf(t, line(t, log))
	if exit := p.Exit(); exit.Status != 0 {
		t.Errorf("%+v", exit)
	}
	gone(child)
}

// TestKilledParent: a child that ends with its standard input does not outlive a parent that is killed outright.
func TestKilledParent(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "RUNNER_TEST=parent", "RUNNER_LOG="+log)
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
	child := childOf(t, strings.TrimSpace(text))
	line(t, log)
	if state(child) == "" {
		t.Fatal("the child does not run")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as it was told
	gone(child)
}

func TestStartFails(t *testing.T) {
	if _, err := Start(Command{Path: filepath.Join(t.TempDir(), "none"), Log: filepath.Join(t.TempDir(), "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	if _, err := Start(Command{Path: os.Args[0], Log: filepath.Join(t.TempDir(), "none", "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no place for the log: %v", err)
	}
}
