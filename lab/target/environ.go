package target

import (
	"context"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"draftlab/lab/probe"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// What became of a variable: trial.EnvCheck's states.
const (
	applied = "applied" // the library that it is for says so
	ignored = "ignored" // likewise, or the process has another value
	missing = "missing" // the process does not have it
	unknown = "unknown" // the process has it, or cannot be looked at, and nothing says more
)

// Environment reads back what became of the variables that the campaign has set, in each process of the server: from the system, and
// from what NCCL has written to the log, or to files of its own (NCCL_DEBUG=INFO). Of a server that was there before it returns what
// was found, or an error that says why that is not known. With an error for files that cannot be read comes what is known without them.
func (s *Server) Environment(ctx context.Context) ([]trial.EnvCheck, error) {
	if s.watch == nil {
		return s.foundEnvironment(ctx)
	}
	if len(s.environ) == 0 {
		return nil, nil
	}
	family, err := s.proc.Family(ctx)
	if err != nil && !errors.Is(err, runner.ErrNoProc) {
		return nil, err
	}
	s.watch.read(false)
	filed, err := s.takeNCCL(ctx)
	facts := append(s.watch.ncclFacts(), filed...)
	var out []trial.EnvCheck
	for _, name := range slices.Sorted(maps.Keys(s.environ)) {
		for i := range family {
			out = append(out, check(name, s.environ[name], &family[i], role(&family[i]), facts))
		}
		if len(family) == 0 {
			out = append(out, check(name, s.environ[name], nil, "server", facts))
		}
	}
	for i := range out { // what is written down is read by others
		if probe.Secret(out[i].Name) {
			out[i].Want, out[i].Got, out[i].Line = hidden(out[i].Want), hidden(out[i].Got), ""
		}
	}
	return out, err
}

// check compares a variable of a process, nil for one that cannot be looked at, with what was set.
func check(name, want string, p *runner.ProcessInfo, role string, facts []ncclFact) trial.EnvCheck {
	c := trial.EnvCheck{Name: name, Want: want, Process: role, State: unknown}
	if p != nil && p.Env != nil {
		value, has := lookup(p.Env, name)
		switch c.Got = value; {
		case !has:
			c.State = missing
		case value != want:
			c.State = ignored
		}
	}
	if c.State != unknown {
		return c
	}
	for _, f := range facts {
		mine := f.Name == name || f.Name == "" && strings.HasPrefix(name, "NCCL_") && f.Value == want
		if !mine || p != nil && f.PID != p.PID {
			continue
		}
		switch c.Line = f.line; {
		case f.Ignored || !sameWords(want, f.Value):
			c.State = ignored
			return c // whatever else is said: NCCL first says that a value is set, and then that it is none
		default:
			c.State = applied
		}
	}
	return c
}

// sameWords compares a value with what a library calls it: NCCL writes some of its levels in capitals.
func sameWords(want, got string) bool { return strings.EqualFold(want, got) || same(want, got) }

func lookup(env []string, name string) (value string, has bool) {
	for _, v := range env {
		if n, value, ok := strings.Cut(v, "="); ok && n == name {
			return value, true
		}
	}
	return "", false
}

var (
	rankTitle = regexp.MustCompile(`^(?:sglang::scheduler|VLLM::Worker)((?:_[A-Z]+\d+)*)`)
	tensor    = regexp.MustCompile(`_TP(\d+)`)
	title     = regexp.MustCompile(`^(?:sglang|VLLM)::(\w+)`)
)

// role names a process: engines set their processes' titles.
func role(p *runner.ProcessInfo) string {
	words := strings.Join(p.Args, " ")
	if m := rankTitle.FindStringSubmatch(words); m != nil {
		rank := "0"
		if tp := tensor.FindStringSubmatch(m[1]); tp != nil {
			rank = tp[1]
		}
		if other := strings.TrimPrefix(tensor.ReplaceAllString(m[1], ""), "_"); other != "" {
			return "rank " + rank + " " + strings.ReplaceAll(other, "_", " ")
		}
		return "rank " + rank
	}
	if m := title.FindStringSubmatch(words); m != nil {
		return m[1]
	}
	if len(p.Args) == 0 {
		return "process " + strconv.Itoa(p.PID)
	}
	return path.Base(p.Args[0]) + " " + strconv.Itoa(p.PID)
}
