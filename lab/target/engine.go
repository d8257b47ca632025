package target

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// kind is what differs between engines that are started.
type kind interface {
	name() string
	command() []string // program and leading arguments
	// arguments are what follows the command, for a server at a port (0: it chooses one itself and its log says which).
	arguments(c *Config, boot trial.Knobs, port int) []string
	// environment returns variables that the server needs beside those of the campaign.
	environment(c *Config) map[string]string
	split(k trial.Knobs) (boot trial.Knobs, request map[string]any)
	check(c *Config, arms []trial.Arm) []Finding
	// drafter returns the directory of the drafter whose config.json a campaign may change; "" if there is none.
	drafter(c *Config) string
	address() *regexp.Regexp // its first submatch in the log is the server's address
	ready() string           // what the log says once the server is up
	reader
}

// engine is an Engine whose servers are processes.
type engine struct {
	c Config
	kind
}

func newEngine(c Config, k kind) *engine {
	if len(c.Command) == 0 {
		c.Command = k.command()
	}
	return &engine{c, k}
}

func (e *engine) Name() string { return e.name() }

func (e *engine) Split(k trial.Knobs) (trial.Knobs, map[string]any) { return e.split(k) }

// Check adds to the kind's findings what holds for all of them.
func (e *engine) Check(arms []trial.Arm) []Finding {
	found := e.check(&e.c, arms)
	var changed []string
	for _, a := range arms {
		if len(a.DrafterConfig) > 0 {
			changed = append(changed, a.Name)
		}
	}
	if dir := e.drafter(&e.c); len(changed) > 0 {
		if dir == "" {
			found = append(found, Finding{"no_drafter_directory", "drafter.config needs a drafter that is a directory with a config.json", true, changed})
		} else if _, err := os.Stat(filepath.Join(dir, configName)); err != nil {
			found = append(found, Finding{"no_drafter_directory", fmt.Sprintf("drafter.config: %v", err), true, changed})
		}
	}
	return found
}

// Command is the command for people; a changed drafter, which exists only while its server runs, is described.
func (e *engine) Command(boot trial.Knobs) (string, error) {
	c := e.c
	if len(boot.DrafterConfig) > 0 {
		c.Drafter = describeCopy(c.Drafter, boot.DrafterConfig)
	}
	words := environmentWords(e.variables(boot))
	for _, w := range append(slices.Clone(c.Command), e.arguments(&c, boot, c.Port)...) {
		words = append(words, runner.Quote(w))
	}
	return strings.Join(words, " "), nil
}

// variables are those that the campaign adds to the server's environment.
func (e *engine) variables(boot trial.Knobs) map[string]string {
	all := maps.Clone(e.c.Env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, boot.Env)
	maps.Copy(all, e.environment(&e.c))
	return all
}

// secret finds the names of variables whose values nobody should read in a report.
var secret = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|_KEY$|^KEY$|CREDENTIAL`)

// environmentWords are assignments as a shell takes them, sorted by name.
func environmentWords(env map[string]string) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		if secret.MatchString(name) {
			value = "…"
		}
		words = append(words, name+"="+runner.Quote(value))
	}
	return words
}

// flags are the command's flags, those of the arm over those of all arms, in the order of their names; form writes one.
func flags(c *Config, boot trial.Knobs, form func(name, value string) []string) (args []string) {
	all := maps.Clone(c.Flags)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, boot.Flags)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, form(name, all[name])...)
	}
	return args
}

// withEquals writes a flag as one argument, which is how values that begin with a dash are safe.
func withEquals(name, value string) []string {
	if value == "" {
		return []string{"--" + name}
	}
	return []string{"--" + name + "=" + value}
}

// Boot starts a server and waits until it generates.
func (e *engine) Boot(ctx context.Context, o BootOptions) (*Server, error) {
	c := e.c
	s := &Server{kind: e.kind, config: &e.c, Model: c.Model, boot: o.Knobs, LogPath: filepath.Join(o.Dir, o.Name+".log")}
	if len(o.Knobs.DrafterConfig) > 0 {
		dir, err := copyDrafter(e.drafter(&c), filepath.Join(o.Dir, o.Name+".drafter"), o.Knobs.DrafterConfig)
		if err != nil {
			return nil, fmt.Errorf("cannot change the drafter's configuration: %w", err)
		}
		c.Drafter = dir
		s.scratch = dir
	}
	env := c.Environ
	if env == nil {
		env = os.Environ()
	}
	for name, value := range e.variables(o.Knobs) {
		env = append(slices.Clip(slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, name+"=") })), name+"="+value)
	}
	err := s.start(ctx, runner.Command{
		Path: c.Command[0], Args: append(slices.Clone(c.Command[1:]), e.arguments(&c, o.Knobs, c.Port)...), Env: env, Log: s.LogPath,
	}, &c, cmp.Or(o.Limit, c.Ready), o.Status)
	if err != nil {
		return nil, err
	}
	return s, nil
}
