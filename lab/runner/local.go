package runner

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Local is this machine. Its ports are those of the loopback interface.
type Local struct {
	Environ []string // of its commands, as os.Environ returns it; nil is this process's
}

func (h Local) environ() []string {
	if h.Environ == nil {
		return os.Environ()
	}
	return h.Environ
}

// Name is "".
func (Local) Name() string { return "" }

// Start starts a command, whose standard input closes when this process ends, however it ends.
func (h Local) Start(c Command) (*Process, error) {
	program, err := exec.LookPath(c.Path)
	if err != nil {
		return nil, err
	}
	c.Path = program
	p := &Process{host: h, mark: token()}
	if sh, err := exec.LookPath("sh"); err == nil && !c.EndsWithStdin && keeps {
		words, err := p.keep(c, 0)
		if err != nil {
			return nil, err
		}
		p.cmd = exec.Command(sh, words[1:]...)
		p.cmd.Env = h.environ()
	} else {
		p.cmd = exec.Command(program, c.Args...)
		p.cmd.Env = over(h.environ(), p.environment(c))
	}
	if err := p.run(c.Log); err != nil {
		return nil, err
	}
	return p, nil
}

// over sets variables of an environment.
func over(base []string, env map[string]string) []string {
	all := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, replaced := env[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// FreePort returns a port that the system had free a moment ago, on all interfaces: one that is free on the loopback interface alone,
// because a connection to elsewhere has it on another, is taken for servers that listen on all, and by PortInUse.
func (Local) FreePort(context.Context) (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// PortInUse tries to listen on the port.
func (Local) PortInUse(_ context.Context, port int) (bool, error) {
	for _, host := range []string{"127.0.0.1", ""} { // somebody on all interfaces, or on one
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := l.Close(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// Output runs a command.
func (h Local) Output(ctx context.Context, words ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.WaitDelay = h.environ(), time.Second
	return cmd.Output()
}

// ReadFile reads a file.
func (Local) ReadFile(_ context.Context, path string) ([]byte, error) { return os.ReadFile(path) }

// Overlay makes a directory of symbolic links. One that has none is for this user's eyes alone, as it is on another machine.
func (Local) Overlay(_ context.Context, from, to, file string, text []byte) (string, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	var files []os.DirEntry
	mode := fs.FileMode(0o700)
	if from != "" {
		mode = 0o755
		if from, err = filepath.Abs(from); err == nil {
			files, err = os.ReadDir(from)
		}
		if err != nil {
			return "", err
		}
	}
	if err := os.Mkdir(to, mode); errors.Is(err, fs.ErrExist) { // one that a killed campaign left
		if err = removeOverlay(to); err == nil {
			err = os.Mkdir(to, mode)
		}
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	for _, f := range files {
		if f.Name() == file {
			continue
		}
		if err := os.Symlink(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			return "", errors.Join(err, removeOverlay(to))
		}
	}
	if err := os.WriteFile(filepath.Join(to, file), text, 0o644); err != nil {
		return "", errors.Join(err, removeOverlay(to))
	}
	return to, nil
}

// Remove removes an overlay.
func (Local) Remove(_ context.Context, dir string) error { return removeOverlay(dir) }

// removeOverlay removes links and one file, and fails on a directory that holds more.
func removeOverlay(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	own := 0
	for _, f := range files {
		if f.Type()&fs.ModeSymlink == 0 {
			own++
		}
	}
	if own > 1 {
		return &fs.PathError{Op: "remove", Path: dir, Err: errors.New("it holds more than an overlay does")}
	}
	return os.RemoveAll(dir)
}
