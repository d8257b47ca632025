package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Why a process that listens cannot be named.
var (
	ErrNoListener = errors.New("nobody listens")
	ErrHidden     = errors.New("the process belongs to another user, who alone can look at it")
)

// sockets are the files in which Linux tells who listens; of one without IPv6 the second is missing.
var sockets = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// Listener looks through /proc.
func (h Local) Listener(ctx context.Context, port int) (*ProcessInfo, error) {
	return listener(ctx, h, port, func(inodes []string) (owner int, err error) {
		links, err := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, link := range links {
			to, err := os.Readlink(link) // not of what is closed or ended meanwhile
			if err != nil || !slices.Contains(inodes, strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")) {
				continue
			}
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil && (owner == 0 || pid < owner) {
				owner = pid
			}
		}
		return owner, err
	})
}

// Listener looks through the host's /proc.
func (h SSH) Listener(ctx context.Context, port int) (*ProcessInfo, error) {
	return listener(ctx, h, port, func(inodes []string) (int, error) {
		text, err := h.sh(ctx, nil, "ls -l /proc/[0-9]*/fd 2>/dev/null || :")
		return parseOwner(string(text), inodes), err
	})
}

// listener finds the sockets of a port, and with owner, which sees nothing of other users' processes, the process that has one of them open.
func listener(ctx context.Context, h Host, port int, owner func(inodes []string) (pid int, err error)) (*ProcessInfo, error) {
	var inodes []string
	for i, file := range sockets {
		text, err := h.ReadFile(ctx, file)
		if err != nil && i == 0 {
			return nil, fmt.Errorf("%w: %w", ErrNoProc, err)
		}
		inodes = append(inodes, parseSockets(string(text))[port]...)
	}
	if len(inodes) == 0 {
		return nil, fmt.Errorf("%w on port %d", ErrNoListener, port)
	}
	pid, err := owner(inodes)
	if err != nil {
		return nil, err
	}
	if pid == 0 {
		return nil, fmt.Errorf("port %d: %w", port, ErrHidden)
	}
	dir := "/proc/" + strconv.Itoa(pid)
	args, err := h.ReadFile(ctx, dir+"/cmdline")
	if err != nil {
		return nil, err
	}
	env, err := h.ReadFile(ctx, dir+"/environ")
	if err != nil {
		return nil, err
	}
	return &ProcessInfo{PID: pid, Args: cut(args), Env: cut(env)}, nil
}

// parseSockets reads /proc/net/tcp: a state of 0A listens, the port stands in hexadecimal behind the local address, and the tenth column is the
// socket's inode.
func parseSockets(text string) map[int][]string {
	ports := map[int][]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		_, hexPort, _ := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hexPort, 16, 16)
		if err != nil {
			continue
		}
		inode := "" // of a system that does not tell
		if len(f) > 9 {
			inode = f[9]
		}
		ports[int(port)] = append(ports[int(port)], inode)
	}
	return ports
}

var (
	descriptors = regexp.MustCompile(`^/proc/(\d{1,9})/fd:$`)
	socket      = regexp.MustCompile(` -> socket:\[(\d+)\]$`)
)

// parseOwner finds in a list of open files the lowest number of a process that has one of the sockets; 0 if none has.
func parseOwner(list string, inodes []string) (owner int) {
	pid := 0
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\r\n")
		if m := descriptors.FindStringSubmatch(line); m != nil {
			pid, _ = strconv.Atoi(m[1]) // it has digits alone, and few
			continue
		}
		m := socket.FindStringSubmatch(line)
		if m != nil && slices.Contains(inodes, m[1]) && (owner == 0 || pid < owner) {
			owner = pid
		}
	}
	return owner
}
