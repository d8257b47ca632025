package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/internal/shell"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/membw"
	"draftlab/lab/prompts"
	"draftlab/lab/store"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// tunedEnvironment is what a result depends on beside its campaign file.
type tunedEnvironment struct {
	Build      versionInfo `json:"build"`
	Processors int         `json:"processors"` // of the machine that runs the campaign
	Target     string      `json:"target"`
	Host       string      `json:"host,omitempty"`
	Model      string      `json:"model"`
	Drafter    string      `json:"drafter"` // as draftlab serve takes it
}

// sayEvery is the time between two lines of progress.
const sayEvery = 5 * time.Second

// tuning is a campaign with what it runs on.
type tuning struct {
	env    *Env
	file   *file.Campaign
	engine campaign.Engine
	// bandwidth reads this machine's memory; nil where the server's speed does not hang on it.
	bandwidth func() float64
	convert   *ggufDrafter // nil if the drafter is loaded as it is
	about     tunedEnvironment
	set       prompts.Set
}

// ready prepares a campaign that is to be carried out: it fetches a model that is known by name, with progress, before a server would,
// and makes of a drafter what the server loads.
func ready(ctx context.Context, env *Env, c *file.Campaign) (*tuning, error) {
	t, err := prepare(ctx, env, c)
	if err != nil || !t.named() {
		return t, err
	}
	path, err := env.hub().Resolve(ctx, c.Model, env.progress())
	if err != nil || !t.llama() {
		return t, err
	}
	if t, err = prepare(ctx, env, c); err == nil && t.convert != nil { // anew, as the file has a path now
		err = t.convert.make(ctx, env, path)
	}
	return t, err
}

// named reports that the model is a name or a file of this machine.
func (t *tuning) named() bool { return t.own() || t.llama() }

// own reports that the servers are this program's, on this machine.
func (t *tuning) own() bool { return t.file.Target.Kind == "draftlab" && t.file.Host == "" }

// prepare makes the engine of a campaign. It starts nothing and fetches nothing.
func prepare(ctx context.Context, env *Env, c *file.Campaign) (*tuning, error) {
	t := &tuning{env: env, file: c, about: tunedEnvironment{Build: buildVersion(), Processors: runtime.NumCPU(), Target: c.Target.Kind, Host: c.Host, Model: c.Model, Drafter: c.Drafter}}
	var err error
	if t.set, err = c.Workload.Load(os.ReadFile); err != nil {
		return nil, err
	}
	flags, vars := campaign.Base(c)
	config := target.Config{Kind: c.Target.Kind, Host: c.Host, Command: c.Target.Command, Model: c.Model, URL: c.Target.URL, Drafter: c.Drafter, Flags: flags, Env: vars,
		Environ: serverEnviron(env), Port: c.Target.Port, Ready: c.Target.Ready, AtOnce: c.Workload.Concurrency}
	if name := c.Target.KeyEnv; name != "" {
		if config.Key = env.Getenv(name); config.Key == "" {
			return nil, fmt.Errorf("target.key_env: the variable %s is empty or not set", name)
		}
	}
	switch {
	case t.own():
		if err := t.complete(&config); err != nil {
			return nil, err
		}
	case t.llama():
		if err := t.completeLlama(ctx, &config); err != nil {
			return nil, err
		}
	}
	e, err := target.New(config)
	if err != nil {
		return nil, err
	}
	t.engine = campaign.Servers(e)
	if c.Host == "" && (c.Target.Kind == "draftlab" || c.Target.Kind == "llamacpp") {
		threads := env.Procs
		if n, err := strconv.Atoi(flags["threads"]); err == nil && n > 0 {
			threads = min(threads, n)
		}
		t.bandwidth = membw.New(threads).Probe
	}
	return t, nil
}

// complete fills in what this program's own server takes on this machine. "auto" has the shipped drafter measured even where serve would leave it
// alone.
func (t *tuning) complete(config *target.Config) error {
	if len(config.Command) == 0 {
		program, err := t.env.Executable()
		if err != nil {
			return err
		}
		config.Command = []string{program, "serve"}
	}
	if config.Drafter == "" {
		config.Drafter = string(engine.DraftNone)
	}
	if config.Drafter == "auto" {
		var err error
		if config.Drafter, err = t.shipped(); err != nil {
			return err
		}
		if config.Drafter = cmp.Or(config.Drafter, string(engine.DraftNone)); config.Drafter == string(engine.DraftNone) || !engine.SpeculationPays() {
			t.about.Drafter = config.Drafter // to serve "auto" would mean something else
		}
	}
	if _, ok := config.Flags["max-running-requests"]; !ok {
		if config.Flags == nil {
			config.Flags = map[string]string{}
		}
		config.Flags["max-running-requests"] = strconv.Itoa(t.file.Workload.Concurrency)
	}
	return nil
}

// shipped is the directory of the drafter that comes with the model, "" if there is none.
func (t *tuning) shipped() (string, error) {
	name := t.env.drafterOf(t.file.Model)
	if name == "" {
		return "", nil
	}
	return unpackDrafter(t.env, name)
}

// serverEnviron is the environment without the keys that servers of draftlab's and llama.cpp's would ask their clients for.
func serverEnviron(env *Env) []string {
	return slices.DeleteFunc(slices.Clone(env.Environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "DRAFTLAB_API_KEY" || name == "LLAMA_API_KEY"
	})
}

// startTune begins a campaign in a directory, or without one in a temporary one.
func startTune(env *Env, cmd *cobra.Command, dir string, c *file.Campaign) error {
	t, err := ready(cmd.Context(), env, c)
	if err != nil {
		return err
	}
	setup, err := campaign.New(c, rand.Uint64()>>12, t.about) // a number that JSON's readers keep
	if err != nil {
		return err
	}
	temporary := dir == ""
	if temporary {
		if dir, err = os.MkdirTemp(env.Temp, "draftlab-tune-"); err != nil {
			return err
		}
	}
	_, fresh := os.Lstat(dir)
	s, err := store.Create(dir, setup)
	if exists := (*store.ExistsError)(nil); errors.As(err, &exists) {
		return withHint("--out: "+ui.Clean(exists.Error()), "name a new directory, or go on with that one: --resume "+ui.Clean(shell.Quote(dir)))
	}
	if err != nil { // there is nothing to go on with
		if temporary {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	err = t.run(cmd, s)
	if impossible := (*campaign.ImpossibleError)(nil); errors.As(err, &impossible) && errors.Is(fresh, fs.ErrNotExist) {
		return errors.Join(err, os.RemoveAll(dir)) // a file that was mended can have the name
	}
	var boot *target.BootError
	if temporary && (!errors.As(err, &boot) || boot.Log == "") {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return goOn(env, cmd, dir, err)
}

// goOn adds to the error of a campaign what can be done about it.
func goOn(env *Env, cmd *cobra.Command, dir string, err error) error {
	var boot *target.BootError
	switch {
	case errors.As(err, &boot) && boot.Log != "":
		return withHint(err.Error(), "the server's log is "+boot.Log)
	case diskFull(err):
		return withHint(dir+": "+err.Error(), "free some space, and go on with: draftlab tune --resume "+shell.Quote(dir))
	case cmd.Context().Err() != nil:
		fmt.Fprintf(env.Stderr, "go on with: draftlab tune --resume %s\n", ui.Clean(shell.Quote(dir)))
	}
	return err
}

// diskFull reports an error of the system, or of SQLite, which has a text of its own for it, about a disk without space.
func diskFull(err error) bool {
	if err == nil || errors.Is(err, syscall.ENOSPC) {
		return err != nil
	}
	text := err.Error() // 4874: SQLite cannot make the file larger that it shares with readers
	return strings.Contains(text, "disk is full") || strings.Contains(text, "disk I/O error (4874)")
}

// resumeTune goes on with the campaign in a directory.
func resumeTune(env *Env, cmd *cobra.Command, dir string) error {
	s, err := store.Resume(dir)
	if absent := (*store.AbsentError)(nil); errors.As(err, &absent) {
		return withHint(ui.Clean(absent.Error()), "draftlab tune --out DIR begins one")
	}
	if busy := (*store.BusyError)(nil); errors.As(err, &busy) {
		return withHint(ui.Clean(busy.Error()), "wait for it, or end it with Ctrl-C; draftlab report shows what it has measured so far")
	}
	if err != nil {
		return err
	}
	setup, err := s.Campaign()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	c, err := file.Parse("the campaign file in "+dir, []byte(setup.File))
	if err != nil {
		return errors.Join(err, s.Close())
	}
	t, err := ready(cmd.Context(), env, c)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return goOn(env, cmd, dir, t.run(cmd, s))
}

// run carries the campaign out, closes the store, and writes and prints what it shows.
func (t *tuning) run(cmd *cobra.Command, s *store.Store) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	p := t.env.progress()
	err = campaign.Run(cmd.Context(), campaign.Config{Store: s, Engine: t.engine, Set: t.set, Bandwidth: t.bandwidth, Progress: sayProgress(p, time.Now),
		Boots: func(b target.Status) { p.Note(b.String()) }})
	if err != nil {
		return err
	}
	r, err := campaign.Analyse(s)
	if err != nil {
		return err
	}
	if err := keepResult(s, r); err != nil {
		return err
	}
	if err := printTuned(t.env, cmd, r); err != nil {
		return err
	}
	if !r.Lossless {
		return errors.New("an arm's output is not plain decoding's: see the warnings; this is a defect of the server")
	}
	return nil
}

// keepResult writes result.json and benchstat.txt, each in one piece, so that whoever finds one finds all of it.
func keepResult(s *store.Store, r *campaign.Result) error {
	err := writeWhole(filepath.Join(s.Dir(), "result.json"), func(f *os.File) error { return ui.JSON(f, r) })
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(s.Dir(), "benchstat.txt"), func(f *os.File) error { return campaign.WriteBenchstat(f, s) })
}

func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "result-*")
	if err != nil {
		return named(err, path)
	}
	defer os.Remove(f.Name()) // gone if it was renamed
	err = write(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return named(err, path)
	}
	return os.Rename(f.Name(), path)
}

// named is the error of a file under the name that a user gave it.
func named(err error, path string) error {
	if place := (*fs.PathError)(nil); errors.As(err, &place) {
		return &fs.PathError{Op: place.Op, Path: path, Err: place.Err}
	}
	return err
}

// sayProgress writes a line at the beginning of each stage of each server, and every few seconds.
func sayProgress(p ui.Progress, now func() time.Time) func(campaign.Progress) {
	words := map[trial.Stage]string{trial.WarmUp: "warming up, until the speed is steady", trial.Measure: "measuring", trial.Confirm: "confirming the winner"}
	var stage trial.Stage
	var boot string
	var last time.Time
	return func(c campaign.Progress) {
		t := now()
		if c.Stage == stage && c.Boot == boot && t.Sub(last) < sayEvery {
			return
		}
		if c.Boot != boot {
			p.Note(c.Boot + ": the server generates")
		}
		text := fmt.Sprintf("%s: %d of %d pairs", words[c.Stage], c.Done, c.Total)
		if c.Left > 0 {
			text += fmt.Sprintf(", about %.0f s to go", c.Left.Seconds())
		}
		stage, boot, last = c.Stage, c.Boot, t
		p.Note(text)
	}
}

// environmentOf reads what a result says about where it comes from.
func environmentOf(r *campaign.Result) (e tunedEnvironment) {
	_ = json.Unmarshal(r.Environment, &e) // a store of another program has other keys, and less is shown
	return e
}
