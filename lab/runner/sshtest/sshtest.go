//go:build unix

// Package sshtest runs an SSH server on this machine for tests: [Start] starts one and makes "ssh" reach it under a name.
package sshtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Destination is what the server is called.
const Destination = "draftlab-test"

// required is set where a test must not be skipped: by .ci/run, which has installed a server.
const required = "DRAFTLAB_REQUIRE_SSHD"

var running struct {
	sync.Mutex
	servers map[testing.TB]*exec.Cmd
}

// Start starts a server with keys of its own, as the current user, on a free port, for the length of a test, and returns what to call
// it. The first ssh in $PATH is then one that knows it. The test is skipped where there is no server's program.
func Start(t testing.TB) (destination string) {
	t.Helper()
	running.Lock()
	started := running.servers[t] != nil
	running.Unlock()
	if started {
		return Destination
	}
	sshd := find(t)
	dir := t.TempDir()
	for _, key := range []string{"host", "client"} {
		command(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key))
	}
	public, err := os.ReadFile(filepath.Join(dir, "client.pub"))
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // of an empty room for its unprivileged half
			t.Fatal(err)
		}
	}
	port := freePort(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("authorized"), string(public), 0o600)
	write(t, in("sshd_config"), fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\n"+
		"PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n", port, in("host"), in("authorized")), 0o600)
	write(t, in("config"), fmt.Sprintf("Host %s\n  HostName 127.0.0.1\n  Port %d\n  User %s\n  IdentityFile %s\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"+
		"  UserKnownHostsFile %s\n  LogLevel ERROR\n", Destination, port, me.Username, in("client"), in("known")), 0o600)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("ssh"), fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", ssh, in("config")), 0o755)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	serve(t, sshd, in("sshd_config"), port)
	return Destination
}

// find returns the server's program.
func find(t testing.TB) string {
	for _, name := range []string{"sshd", "/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path // sshd wants to be called by its absolute path
		}
	}
	if os.Getenv(required) != "" {
		t.Fatal("there is no sshd here, and " + required + " is set: install openssh-server")
	}
	t.Skip("there is no sshd here: install openssh-server to run this test")
	return ""
}

// serve runs the server until the test ends, and returns when it listens.
func serve(t testing.TB, sshd, config string, port int) {
	cmd := exec.Command(sshd, "-D", "-e", "-f", config)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed below
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it has not ended
		<-ended
		running.Lock()
		defer running.Unlock()
		delete(running.servers, t)
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		select {
		case <-ended:
			t.Fatal("sshd has ended: ", log.String())
		default:
		}
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = c.Close()
			break
		}
	}
	running.Lock()
	defer running.Unlock()
	if running.servers == nil {
		running.servers = map[testing.TB]*exec.Cmd{}
	}
	running.servers[t] = cmd
}

// Cut ends the test's server and its connections, as a machine does that goes down.
func Cut(t testing.TB) {
	t.Helper()
	running.Lock()
	cmd := running.servers[t]
	running.Unlock()
	// A connection is served by a child of the server, or by a child of that.
	for _, child := range descendants(t, cmd.Process.Pid) {
		if p, err := os.FindProcess(child); err == nil {
			_ = p.Kill() // has it ended, so much the better
		}
	}
	_ = cmd.Process.Kill()
}

// descendants are the sshd processes below one, from Linux's /proc.
func descendants(t testing.TB, pid int) (all []int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("no /proc here, which tells the server's children")
	}
	in := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, stat := range stats {
			text, _ := os.ReadFile(stat) // of one that has ended: nothing
			var p, parent int
			var name, state string
			if n, _ := fmt.Sscan(string(text), &p, &name, &state, &parent); n == 4 && in[parent] && !in[p] && strings.HasPrefix(name, "(sshd") {
				in[p], grown = true, true
				all = append(all, p)
			}
		}
	}
	return all
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func command(t testing.TB, name string, args ...string) {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
