package main

import (
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/charmbracelet/x/term"

	"draftlab/internal/hub"
	"draftlab/internal/ui"
)

// Env is everything that a command takes from its process, so that tests run commands with their own.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Environ        []string // for child processes, as os.Environ returns it
	LookPath       func(name string) (string, error)
	UserCache      string // the user's cache directory, or "" if the system names none
	Home           string // the user's home directory, or "" likewise
	Temp           string // the system's directory for temporary files
	Procs          int    // processors that the process may use

	// Executable returns the path of this program, for commands that start it again.
	Executable func() (string, error)

	// IsTerminal reports whether a stream is a terminal that understands cursor movement.
	IsTerminal func(stream any) bool
	// Models are the named models; nil means the built-in catalogue.
	Models []hub.Model
}

// systemEnv returns the process's own environment.
func systemEnv() *Env {
	cache, _ := os.UserCacheDir() // "" is handled where the directory is needed
	home, _ := os.UserHomeDir()
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Environ: os.Environ(), LookPath: exec.LookPath,
		UserCache: cache, Home: home, Temp: os.TempDir(), Procs: runtime.GOMAXPROCS(0),
		Executable: os.Executable,
		IsTerminal: func(stream any) bool {
			f, ok := stream.(*os.File)
			return ok && term.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb"
		},
	}
}

// anyWidth is that of a terminal which does not tell its own.
const anyWidth = math.MaxInt

// width returns the columns of a terminal, 0 for a stream that is none.
func (e *Env) width(stream any) int {
	if !e.IsTerminal(stream) {
		return 0
	}
	if f, ok := stream.(*os.File); ok {
		if w, _, err := term.GetSize(f.Fd()); err == nil && w > 0 {
			return w
		}
	}
	return anyWidth
}

// progress returns the progress display on standard error.
func (e *Env) progress() ui.Progress { return ui.NewProgress(e.Stderr, e.IsTerminal(e.Stderr)) }

// cacheDir returns a directory of draftlab's cache, "" if neither the user nor the system names one.
func (e *Env) cacheDir(name string) string {
	dir := e.Getenv("DRAFTLAB_CACHE")
	if dir == "" && e.UserCache != "" {
		dir = filepath.Join(e.UserCache, "draftlab")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// drafterOf returns the name of the shipped drafter of a named model, "" if it has none or is not a named one.
func (e *Env) drafterOf(model string) string {
	models := e.Models
	if models == nil {
		models = hub.Catalogue()
	}
	for _, m := range models {
		if m.Name == model {
			return m.Drafter
		}
	}
	return ""
}

// hfHome returns the directory of the Hugging Face hub's own tools, "" if there is none.
func (e *Env) hfHome() string {
	if dir := e.Getenv("HF_HOME"); dir != "" {
		return dir
	}
	base := e.Getenv("XDG_CACHE_HOME")
	if base == "" && e.Home != "" {
		base = filepath.Join(e.Home, ".cache")
	}
	if base == "" {
		return ""
	}
	return filepath.Join(base, "huggingface")
}

// hub returns the model store that the environment describes. The variables are those of the Hugging Face
// hub's own tools, read as they read them.
func (e *Env) hub() *hub.Hub {
	hfHome := e.hfHome()
	hfCache := e.Getenv("HF_HUB_CACHE")
	if hfCache == "" && hfHome != "" {
		hfCache = filepath.Join(hfHome, "hub")
	}
	return hub.New(hub.Config{
		Dir:        e.cacheDir("models"),
		Models:     e.Models,
		Pip:        e.pip(),
		Environ:    e.Environ,
		HFEndpoint: e.Getenv("HF_ENDPOINT"),
		HFToken:    e.hfToken(hfHome),
		HFCache:    hfCache,
		HFOffline:  truth(e.Getenv("HF_HUB_OFFLINE")),
	})
}

// pip lists the ways of calling pip on this machine, the likeliest first.
func (e *Env) pip() (ways [][]string) {
	for _, way := range [][]string{{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"pip3"}, {"pip"}} {
		if path, err := e.LookPath(way[0]); err == nil {
			ways = append(ways, append([]string{path}, way[1:]...))
		}
	}
	return ways
}

// hfToken returns the token from HF_TOKEN or from the file where the hub's tools keep it.
func (e *Env) hfToken(hfHome string) string {
	if token := strings.TrimSpace(e.Getenv("HF_TOKEN")); token != "" {
		return token
	}
	path := e.Getenv("HF_TOKEN_PATH")
	if path == "" && hfHome != "" {
		path = filepath.Join(hfHome, "token")
	}
	text, _ := os.ReadFile(path) // no file, no token
	return strings.TrimSpace(string(text))
}

// truth reads a switch as the hub's tools do.
func truth(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
