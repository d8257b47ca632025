package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ProcessInfo is what Linux tells of a process.
type ProcessInfo struct {
	PID, Parent int
	Args        []string
	Env         []string // nil if it cannot be read: it is somebody else's, or the process wrote its title over it
}

// ErrNoProc is the error of Processes where there is no /proc.
var ErrNoProc = errors.New("the system has no /proc that tells of processes")

// Processes looks through /proc.
func (Local) Processes(_ context.Context, name, value string) ([]ProcessInfo, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		return nil, errors.Join(ErrNoProc, err)
	}
	var all []ProcessInfo
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		p, ok := parseStat(stat)
		if !ok {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // of a process that has ended: none
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		p.Args, p.Env = cut(args), cut(env)
		all = append(all, p)
	}
	return family(all, name+"="+value), nil
}

// parseStat reads /proc/PID/stat: number, (name), state, parent. Names hold anything, brackets and blanks included.
func parseStat(text []byte) (p ProcessInfo, ok bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return p, false
	}
	rest := strings.Fields(string(text[end+1:]))
	if len(rest) < 2 || rest[0] == "Z" {
		return p, false
	}
	var err, err2 error
	p.PID, err = strconv.Atoi(strings.TrimSpace(string(text[:open])))
	p.Parent, err2 = strconv.Atoi(rest[1])
	return p, err == nil && err2 == nil
}

// cut takes apart what NULs separate.
func cut(text []byte) (words []string) {
	for w := range bytes.SplitSeq(text, []byte{0}) {
		if len(w) > 0 {
			words = append(words, string(w))
		}
	}
	return words
}

// family returns the processes that have a variable, and their descendants, by number.
func family(all []ProcessInfo, variable string) (out []ProcessInfo) {
	in := map[int]bool{}
	for _, p := range all {
		if slices.Contains(p.Env, variable) {
			in[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.Parent] && !in[p.PID] {
				in[p.PID], grown = true, true
			}
		}
	}
	for _, p := range all {
		if in[p.PID] {
			if !slices.Contains(p.Env, variable) {
				p.Env = nil // overwritten: what is left is not its environment
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b ProcessInfo) int { return a.PID - b.PID })
	return out
}
