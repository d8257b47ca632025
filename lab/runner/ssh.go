package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"draftlab/internal/shell"
)

// SSH is another machine, reached with the system's ssh, so that the user's own configuration, agent and jump hosts hold. It needs a POSIX
// shell; what Linux's /proc tells is known only where there is one. Destination is what ssh takes: a name of the configuration, or
// user@host.
type SSH struct{ Destination string }

// Name is the destination.
func (h SSH) Name() string { return h.Destination }

// lostStatus is ssh's own, of a connection that failed or broke.
const lostStatus = 255

// options hold for every connection: nobody is there to answer a question, and one that has died ends.
var options = []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"}

// Start starts a command in the home directory, with the environment of a login and the command's variables. Its connection is its
// own, even where the user's configuration has connections shared: forwarded ports would outlive it otherwise.
func (h SSH) Start(c Command) (*Process, error) {
	if err := h.valid(); err != nil {
		return nil, err
	}
	args := append(slices.Clone(options), "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes")
	ports := map[int]int{}
	for _, port := range c.Ports {
		here, err := Local{}.FreePort(context.Background())
		if err != nil {
			return nil, err
		}
		ports[port] = here
		args = append(args, "-L", fmt.Sprintf("127.0.0.1:%d:127.0.0.1:%d", here, port))
	}
	p := &Process{host: h, far: true, ports: ports, mark: token()}
	words, err := p.keep(c, silence)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command("ssh", append(args, "--", h.Destination, shell.QuoteAll(words))...)
	if err := p.run(c.Log); err != nil {
		return nil, fmt.Errorf("ssh %s: %w", h.Destination, err)
	}
	return p, nil
}

// valid refuses a destination that ssh would take for an option.
func (h SSH) valid() error {
	if h.Destination == "" || strings.HasPrefix(h.Destination, "-") || strings.ContainsAny(h.Destination, " \n\x00") {
		return fmt.Errorf("%q is no destination of ssh: want a name of its configuration, or user@host", h.Destination)
	}
	return nil
}

// sh runs a script with arguments ($1 and so on) and returns what it writes.
func (h SSH) sh(ctx context.Context, stdin []byte, script string, args ...string) ([]byte, error) {
	if err := h.valid(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "ssh", append(slices.Clone(options), "--", h.Destination, shell.QuoteAll(append([]string{"sh", "-c", script, "sh"}, args...)))...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &complaint
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			exit.Stderr = complaint.Bytes() // as exec's own Output has it
		}
		words := strings.TrimSpace(complaint.String())
		return nil, fmt.Errorf("ssh %s: %w: %s", h.Destination, err, words[max(0, len(words)-500):])
	}
	return out.Bytes(), nil
}

// listening returns the ports of the host on which somebody listens.
func (h SSH) listening(ctx context.Context) (map[int][]string, error) {
	text, err := h.sh(ctx, nil, `cat "$1"; cat "$2" 2>/dev/null || :`, sockets...)
	if err != nil {
		return nil, err
	}
	return parseSockets(string(text)), nil
}

// PortInUse looks whether somebody listens, on any of the host's addresses.
func (h SSH) PortInUse(ctx context.Context, port int) (bool, error) {
	ports, err := h.listening(ctx)
	return ports[port] != nil, err
}

// The ports that FreePort chooses from: below those that Linux gives to clients (32768 and up), above those that services have.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePort chooses at random, so that two campaigns on one host hardly ever meet.
func (h SSH) FreePort(ctx context.Context) (int, error) {
	taken, err := h.listening(ctx)
	if err != nil {
		return 0, err
	}
	for range 100 {
		b := make([]byte, 2)
		_, _ = rand.Read(b) // never fails
		if port := firstPort + (int(b[0])<<8|int(b[1]))%(lastPort-firstPort); taken[port] == nil {
			return port, nil
		}
	}
	return 0, errors.New("a hundred ports, all in use")
}

// processes writes a line and two texts for each process: its numbers, its arguments, and its environment. $1 stands before each.
const processes = `for p in /proc/[0-9]*; do
	stat=$(cat "$p/stat" 2>/dev/null) || continue
	printf '\0%s stat %s\0' "$1" "$stat"
	printf '%s args\0' "$1"; cat "$p/cmdline" 2>/dev/null
	printf '\0%s env\0' "$1"; cat "$p/environ" 2>/dev/null
done; :`

// Processes looks through the host's /proc.
func (h SSH) Processes(ctx context.Context, name, value string) ([]ProcessInfo, error) {
	frame := token()
	text, err := h.sh(ctx, nil, processes, frame)
	if err != nil {
		return nil, err
	}
	all := parseProcesses(text, frame)
	if len(all) == 0 {
		return nil, ErrNoProc
	}
	return family(all, name+"="+value), nil
}

// parseProcesses reads what the script above writes.
func parseProcesses(text []byte, frame string) (all []ProcessInfo) {
	var p *ProcessInfo
	var into *[]string
	for _, word := range cut(text) {
		what, framed := strings.CutPrefix(word, frame+" ")
		switch {
		case framed && strings.HasPrefix(what, "stat "):
			into, p = nil, nil
			if one, ok := parseStat([]byte(what[5:])); ok {
				all = append(all, one)
				p = &all[len(all)-1]
			}
		case p == nil:
		case framed && what == "args":
			into = &p.Args
		case framed && what == "env":
			into = &p.Env
		case into != nil:
			*into = append(*into, word)
		}
	}
	return all
}

// Output runs a command in the home directory.
func (h SSH) Output(ctx context.Context, words ...string) ([]byte, error) {
	return h.sh(ctx, nil, `exec "$@"`, words...)
}

// ReadFile reads a file; ~/ at its beginning is the home directory.
func (h SSH) ReadFile(ctx context.Context, name string) ([]byte, error) {
	return h.sh(ctx, nil, `cat -- "$1"`, inHome(name))
}

// inHome is a path from the home directory, where scripts begin.
func inHome(name string) string { return strings.TrimPrefix(name, "~/") }

// Overlay makes a directory of symbolic links below the host's directory for temporary files; of to it takes the last element for a
// name.
func (h SSH) Overlay(ctx context.Context, from, to, file string, text []byte) (string, error) {
	out, err := h.sh(ctx, text, `set -e
[ -z "$1" ] || from=$(cd -- "$1" && pwd)
made=$(mktemp -d "${TMPDIR:-/tmp}/draftlab-XXXXXX")
trap '[ $? = 0 ] || rm -rf -- "$made"' EXIT # links, and one file at most
to=$made/$2
mkdir "$to"
[ -z "$1" ] || for f in "$from"/* "$from"/.[!.]*; do
	[ ! -e "$f" ] || [ "${f##*/}" = "$3" ] || ln -s "$f" "$to/"
done
cat >"$to/$3"
printf %s "$to"`, inHome(from), path.Base(strings.ReplaceAll(to, `\`, "/")), file)
	return string(out), err
}

// Remove removes an overlay and the directory that was made for it.
func (h SSH) Remove(ctx context.Context, dir string) error {
	_, err := h.sh(ctx, nil, `case $1 in */draftlab-*/*) ;; *) echo "no overlay" >&2; exit 1;; esac
find "$1" -maxdepth 1 \( -type l -o -type f \) -exec rm -- {} + && rmdir -- "$1" "${1%/*}"`, dir)
	return err
}
