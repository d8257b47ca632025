package target

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"draftlab/internal/shell"
	"draftlab/lab/client"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// traits are what is the same for all servers of a kind.
type traits struct {
	name          string
	command       []string       // program and leading arguments
	endsWithStdin bool           // it ends when its standard input does
	address       *regexp.Regexp // its first submatch in the log is the address of a server that chose its port itself; nil if none does
	ready         string         // what the log says once the server is up
	reserved      []string       // flags that are this package's to set
	doomed        bool           // a fault in its log ends it, even if its process lives on
}

// kind is what differs between engines that are started.
type kind interface {
	traits() traits
	// arguments are what follows the command, for a server at a port (0: it chooses one itself and its log says which).
	arguments(c *Config, boot trial.Knobs, port int) []string
	// environment returns variables that the server needs beside those of the campaign.
	environment(c *Config) map[string]string
	// files are texts that flags name, by flag: the boot's flags get the paths of files that hold them.
	files(c *Config, boot trial.Knobs) map[string]textFile
	// keyFile is the flag that has the server read the API's key from a file, and that file; without a text if it goes another way.
	keyFile(e *engine, boot trial.Knobs) (flag string, file textFile)
	split(k trial.Knobs) (boot trial.Knobs, request map[string]any)
	check(e *engine, arms []trial.Arm) []Finding
	// drafter returns the directory of the drafter whose config.json a campaign may change; "" if there is none.
	drafter(c *Config) string
	reader
}

// textFile is a file that is made for a server.
type textFile struct {
	name string
	text []byte
}

// reader is how a kind of server is read.
type reader interface {
	// extra are fields that every request carries, so that its answer tells what a campaign asks.
	extra() map[string]any
	info(ctx context.Context, s *Server) (map[string]any, error)
	flush(ctx context.Context, s *Server) error
	ledger(ctx context.Context, s *Server) (*trial.Ledger, error)
	// wanted are the settings that a start asked for, under the names of the server's own information.
	wanted(c *Config, boot trial.Knobs) map[string]string
}

// engine is an Engine whose servers are processes.
type engine struct {
	c    Config
	host runner.Host
	kind
}

func newEngine(c Config, k kind, host runner.Host) *engine {
	if len(c.Command) == 0 {
		c.Command = k.traits().command
	}
	return &engine{c, host, k}
}

func (e *engine) Name() string { return e.traits().name }

func (e *engine) Split(k trial.Knobs) (trial.Knobs, map[string]any) { return e.split(k) }

// Check adds to the kind's findings what holds for all of them.
func (e *engine) Check(arms []trial.Arm) []Finding {
	found := e.check(e, arms)
	changed := names(arms, func(a trial.Arm) bool { return len(a.DrafterConfig) > 0 })
	if dir := e.drafter(&e.c); len(changed) > 0 {
		if dir == "" {
			found = append(found, Finding{"no_drafter_directory", "drafter.config needs a drafter that is a directory with a config.json", true, changed})
		} else if _, err := e.drafterConfig(); err != nil {
			found = append(found, Finding{"no_drafter_directory", fmt.Sprintf("drafter.config: %v", err), true, changed})
		}
	}
	for _, flag := range e.traits().reserved {
		_, all := e.c.Flags[flag]
		if of := names(arms, func(a trial.Arm) bool { _, has := a.Flags[flag]; return has || all }); len(of) > 0 {
			found = append(found, Finding{"reserved_flag", fmt.Sprintf("--%s is set by the campaign: use the campaign's own field for it", flag), true, of})
		}
	}
	return append(found, e.checkPort(arms)...)
}

// checkPort refuses a port on which somebody listens already: SGLang finds that out only when its model has loaded.
func (e *engine) checkPort(arms []trial.Arm) []Finding {
	if e.c.Port == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	if taken, err := e.host.PortInUse(ctx, e.c.Port); err == nil && taken {
		return []Finding{{"port_in_use", fmt.Sprintf("somebody listens on port %d already: end that server, or leave the port to the campaign", e.c.Port), true, names(arms, nil)}}
	}
	return nil
}

// names of the arms that something holds for; nil holds for all.
func names(arms []trial.Arm, holds func(trial.Arm) bool) (list []string) {
	for _, a := range arms {
		if holds == nil || holds(a) {
			list = append(list, a.Name)
		}
	}
	return list
}

// drafterConfig reads the drafter's config.json on its host.
func (e *engine) drafterConfig() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	return e.host.ReadFile(ctx, join(e.drafter(&e.c), configName))
}

// join is a path on any host.
func join(dir, name string) string { return strings.TrimRight(dir, "/") + "/" + name }

// Command is the command for people; a changed drafter, which exists only while its server runs, is described.
func (e *engine) Command(boot trial.Knobs) (string, error) {
	c := e.c
	c.Key, c.Flags, boot.Flags = hidden(c.Key), HideValues(c.Flags), HideValues(boot.Flags)
	if len(boot.DrafterConfig) > 0 {
		c.Drafter = describeCopy(c.Drafter, boot.DrafterConfig)
	}
	words := shell.Assignments(HideValues(e.variables(boot)))
	words = append(words, shell.QuoteAll(append(slices.Clone(c.Command), e.arguments(&c, boot, c.Port)...)))
	line := strings.Join(words, " ")
	if host := e.host.Name(); host != "" {
		return shell.QuoteAll([]string{"ssh", host, line}), nil
	}
	return line, nil
}

// variables are those that the campaign adds to the server's environment.
func (e *engine) variables(boot trial.Knobs) map[string]string {
	all := map[string]string{}
	for _, some := range []map[string]string{e.environment(&e.c), e.c.Env, boot.Env} {
		maps.Copy(all, some)
	}
	return all
}

// merged are the flags of all arms with those of one over them.
func merged(c *Config, boot trial.Knobs) map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.Flags)
	maps.Copy(all, boot.Flags)
	return all
}

// flags are the command's flags, those of the arm over those of all arms, in the order of their names; form writes one.
func flags(c *Config, boot trial.Knobs, form func(name, value string) []string) (args []string) {
	all := merged(c, boot)
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
	s := &Server{reader: e.kind, config: e.c, host: e.host, boot: o.Knobs, Model: e.c.Model, LogPath: filepath.Join(o.Dir, o.Name+".log")}
	s.environ = e.variables(o.Knobs)
	s.secrets = secretsOf(e.c.Key, s.environ, merged(&e.c, o.Knobs))
	if err := e.prepare(ctx, s, filepath.Join(o.Dir, o.Name)); err != nil {
		s.Stop(0)
		return nil, err
	}
	port, err := e.port(ctx)
	if err != nil {
		s.Stop(0)
		return nil, err
	}
	shown := s.config // to everybody who looks at the machine's processes
	if s.keyDir != "" {
		shown.Key = ""
	}
	cmd := runner.Command{
		Path: e.c.Command[0], Args: append(slices.Clone(e.c.Command[1:]), e.arguments(&shown, s.boot, port)...),
		Env: s.environ, Log: s.LogPath, EndsWithStdin: e.traits().endsWithStdin,
	}
	if port > 0 {
		cmd.Ports = []int{port}
	}
	if err := s.start(ctx, cmd, e.traits(), cmp.Or(o.Limit, e.c.Ready), o.Status); err != nil {
		return nil, err
	}
	s.dropKey(ctx)
	return s, nil
}

// prepare makes on the host what the server is to find there: a changed drafter, and files that flags name.
func (e *engine) prepare(ctx context.Context, s *Server, place string) error {
	if keys := s.boot.DrafterConfig; len(keys) > 0 {
		text, err := e.drafterConfig()
		if err == nil {
			text, err = setKeys(text, keys)
		}
		if err == nil {
			s.config.Drafter, err = s.overlay(ctx, e.drafter(&e.c), place+".drafter", configName, text)
		}
		if err != nil {
			return fmt.Errorf("cannot change the drafter's configuration: %w", err)
		}
	}
	flags := map[string]string{}
	maps.Copy(flags, s.boot.Flags)
	files := e.files(&e.c, s.boot)
	private, key := e.keyFile(e, s.boot)
	if key.text != nil {
		files = maps.Clone(files)
		if files == nil {
			files = map[string]textFile{}
		}
		files[private] = key
	}
	for flag, file := range files {
		dir, err := s.overlay(ctx, "", place+"."+flag, file.name, file.text)
		if err != nil {
			return fmt.Errorf("cannot write the file for --%s: %w", flag, err)
		}
		if flags[flag] = join(dir, file.name); flag == private {
			s.keyDir = dir
		}
	}
	s.boot.Flags = flags
	return nil
}

// port is the server's; 0 lets it choose one, which is surest where its log can tell.
func (e *engine) port(ctx context.Context) (int, error) {
	switch {
	case e.c.Port > 0:
		if taken, err := e.host.PortInUse(ctx, e.c.Port); err != nil || taken {
			if err == nil {
				err = &BootError{Cause: PortInUse, Detail: fmt.Sprintf("somebody listens on port %d already, so that it was not started", e.c.Port)}
			}
			return 0, err
		}
		return e.c.Port, nil
	case e.traits().address != nil && e.host.Name() == "":
		return 0, nil
	}
	return e.host.FreePort(ctx)
}

// connect makes the client. No proxy: the server is on this machine, or looks so. One connection at a time is idle.
func (s *Server) connect() {
	s.http = client.NewHTTP(1, answerLimit)
	s.Client = client.Client{HTTP: s.http, Key: s.config.Key}
}
