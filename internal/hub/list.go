package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"draftlab/internal/shell"
)

// Entry is one model that is kept or could be.
type Entry struct {
	Name    string `json:"name"` // what Resolve takes
	About   string `json:"about,omitempty"`
	Licence string `json:"licence,omitempty"`
	Present bool   `json:"present"`
	Path    string `json:"path,omitempty"` // where it lies, if present
	Bytes   int64  `json:"bytes"`          // on disk, or of the download if absent
}

// List returns the named models, present or not, and then the model files (.gguf, .safetensors) of
// the hub's cache, by name.
func (h *Hub) List() ([]Entry, error) {
	if h.cfg.Dir == "" {
		return nil, noDirectory(dirVariable)
	}
	var list []Entry
	for _, m := range h.cfg.Models {
		e := Entry{Name: m.Name, About: m.About, Licence: m.Licence, Bytes: m.Size}
		if fi, err := os.Stat(h.path(m)); err == nil && fi.Size() == m.Size {
			e.Present, e.Path = true, h.path(m)
		}
		list = append(list, e)
	}
	cached, err := h.listCache()
	return append(list, cached...), err
}

// listCache walks the snapshots of the hub's cache. Directories that are not of its layout are passed over.
func (h *Hub) listCache() ([]Entry, error) {
	repos, err := os.ReadDir(h.cfg.HFCache)
	if h.cfg.HFCache == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Entry
	for _, d := range repos {
		owner, repo, ok := strings.Cut(strings.TrimPrefix(d.Name(), "models--"), "--")
		if !ok || !strings.HasPrefix(d.Name(), "models--") {
			continue
		}
		list = append(list, h.listRepo(owner, repo)...)
	}
	return list, err
}

// listRepo lists the model files of one repository, each revision that the cache holds.
func (h *Hub) listRepo(owner, repo string) (list []Entry) {
	root := filepath.Join(h.cfg.HFCache, Ref{Owner: owner, Repo: repo}.dir())
	main, _ := os.ReadFile(filepath.Join(root, "refs", "main")) // absent: every file gets its commit
	snapshots := filepath.Join(root, "snapshots")
	// An unreadable directory holds nothing that could be used.
	_ = filepath.WalkDir(snapshots, func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || ext != ".gguf" && ext != ".safetensors" {
			return nil
		}
		rel, _ := filepath.Rel(snapshots, path) // path lies below snapshots
		commit, file, ok := strings.Cut(filepath.ToSlash(rel), "/")
		fi, err := os.Stat(path)
		if !ok || err != nil {
			return nil
		}
		ref := Ref{Owner: owner, Repo: repo, Revision: commit, File: file}
		if commit == strings.TrimSpace(string(main)) {
			ref.Revision = "main"
		}
		list = append(list, Entry{Name: ref.String(), Present: true, Path: path, Bytes: fi.Size()})
		return nil
	})
	return list
}

// Verification is what a file's bytes say about it.
type Verification struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Want   string `json:"want,omitempty"` // the known hash; empty if none is known
}

// Verify reads a present model from end to end and returns its hash beside the one that it should have.
// The error is ErrChecksum if they differ. It fetches nothing: an absent model is an error.
func (h *Hub) Verify(ctx context.Context, name string, p Progress) (Verification, error) {
	v := Verification{Name: name, Path: name}
	if m, ok := h.model(name); ok {
		if h.cfg.Dir == "" {
			return v, noDirectory(dirVariable)
		}
		v.Path, v.Want = h.path(m), m.SHA256
	} else if strings.HasPrefix(name, refPrefix) {
		ref, err := ParseRef(name)
		if err != nil {
			return v, err
		}
		v.Path, _ = h.cached(ref)
		if blob, err := filepath.EvalSymlinks(v.Path); err == nil && len(filepath.Base(blob)) == sha256.Size*2 {
			v.Want = filepath.Base(blob)
		}
	}
	f, err := os.Open(v.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if v.Want == "" && !strings.HasPrefix(name, refPrefix) {
			return v, h.unknown(name)
		}
		return v, &Error{Msg: name + " is not here", Hint: "fetch it with: draftlab pull " + shell.Quote(name), Err: err}
	}
	if err != nil {
		return v, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return v, err
	}
	if !fi.Mode().IsRegular() {
		return v, &Error{Msg: v.Path + " is not a file", Hint: "verify the files of a sharded model one by one"}
	}
	v.Bytes = fi.Size()
	sum := sha256.New()
	if err := hashInto(ctx, sum, f, "checking "+filepath.Base(v.Path), v.Bytes, p); err != nil {
		return v, err
	}
	v.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if v.Want != "" && v.SHA256 != v.Want {
		return v, &Error{
			Msg:  fmt.Sprintf("%s: SHA-256 of %s is %s, expected %s", name, v.Path, v.SHA256, v.Want),
			Hint: "the file is damaged: remove it and run draftlab pull " + shell.Quote(name),
			Err:  ErrChecksum,
		}
	}
	return v, nil
}
