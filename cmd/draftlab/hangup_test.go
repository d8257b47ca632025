//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ignores reports whether the system drops a signal to a process.
func ignores(pid int, s syscall.Signal) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, err
	}
	_, mask, _ := strings.Cut(string(status), "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return bits>>(s-1)&1 == 1, err
}

// TestHangUp: a terminal that goes away ends a command as an interrupt does, in order; under nohup it does not.
func TestHangUp(t *testing.T) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP) // what a program handles, its children do not ignore, even if all of this runs under nohup
	defer signal.Stop(handled)
	program := filepath.Join(t.TempDir(), "draftlab")
	if err := copyProgram(program); err != nil {
		t.Fatal(err)
	}
	start := func(shell string) (cmd *exec.Cmd, url string) {
		cmd = exec.Command("sh", "-c", shell+` exec "$0" bench mock --port 0`, program)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		url, err = bufio.NewReader(out).ReadString('\n') // it serves, and so listens for signals
		if err != nil {
			t.Fatal(err)
		}
		return cmd, strings.TrimSpace(url)
	}
	cmd, _ := start("")
	if err := firstError(cmd.Process.Signal(syscall.SIGHUP), cmd.Wait()); err != nil {
		t.Errorf("hung up: %v", err)
	}
	cmd, url := start(`trap "" HUP;`)
	// That a signal does nothing is no event to wait for; what the system would do with it is on record.
	if ignored, err := ignores(cmd.Process.Pid, syscall.SIGHUP); err != nil || !ignored {
		t.Errorf("started with the signal ignored, it does not ignore it: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if r, err := http.Get(url + "/v1/models"); err != nil {
		t.Errorf("it does not answer any more, though the signal is ignored: %v", err)
	} else if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Body.Close() != nil {
		t.Error(err)
	}
	if err := firstError(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Errorf("ended: %v", err)
	}
}
