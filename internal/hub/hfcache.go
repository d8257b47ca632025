package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The hub's cache layout, shared with its other clients:
//
//	models--OWNER--REPO/refs/REVISION          the commit that a branch or tag stood for
//	models--OWNER--REPO/blobs/ETAG             content, named by its hash
//	models--OWNER--REPO/snapshots/COMMIT/FILE  a link to the blob
//	.locks/models--OWNER--REPO/ETAG.lock       held while a blob is fetched

// commitPattern and etagPattern guard what a server's headers may turn into on this disk.
var (
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	etagPattern   = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,127}$`)
)

// cached returns the file if the cache holds it for the reference's revision.
func (h *Hub) cached(ref Ref) (string, bool) {
	if h.cfg.HFCache == "" {
		return "", false
	}
	commit := ref.Revision
	if !commitPattern.MatchString(commit) {
		text, err := os.ReadFile(h.refFile(ref))
		commit = strings.TrimSpace(string(text))
		if err != nil || !commitPattern.MatchString(commit) {
			return "", false
		}
	}
	path := h.snapshotFile(ref, commit)
	fi, err := os.Stat(path) // follows the link: a dangling one does not count
	return path, err == nil && fi.Mode().IsRegular()
}

func (h *Hub) refFile(ref Ref) string {
	return filepath.Join(h.cfg.HFCache, ref.dir(), "refs", ref.Revision)
}

func (h *Hub) blobFile(ref Ref, etag string) string {
	return filepath.Join(h.cfg.HFCache, ref.dir(), "blobs", etag)
}

func (h *Hub) snapshotFile(ref Ref, commit string) string {
	return filepath.Join(h.cfg.HFCache, ref.dir(), "snapshots", commit, filepath.FromSlash(ref.File))
}

func (h *Hub) blobLock(ref Ref, etag string) string {
	return filepath.Join(h.cfg.HFCache, ".locks", ref.dir(), etag+".lock")
}

// record makes the snapshot's link to a complete blob and notes which commit the revision stands for.
func (h *Hub) record(ref Ref, meta metadata) (string, error) {
	path := h.snapshotFile(ref, meta.commit)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := link(h.blobFile(ref, meta.etag), path); err != nil {
		return "", err
	}
	if ref.Revision == meta.commit {
		return path, nil
	}
	return path, writeFile(h.refFile(ref), meta.commit)
}

// link makes path show the blob: by a relative link, so that the cache may be moved, or by a copy
// where the system allows no links.
func link(blob, path string) error {
	if same, err := sameFile(blob, path); same || err != nil {
		return err
	}
	rel, err := filepath.Rel(filepath.Dir(path), blob)
	if err != nil {
		return err
	}
	// A link cannot be made over another file, but renamed over it, which also makes it appear at once.
	tmp := fmt.Sprintf("%s.%d.link", path, os.Getpid())
	if err := os.Symlink(rel, tmp); err != nil {
		if err := copyFile(blob, tmp); err != nil {
			return err
		}
	}
	return os.Rename(tmp, path)
}

func sameFile(a, b string) (bool, error) {
	fa, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	fb, err := os.Stat(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(fa, fb), err
}

func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err = io.Copy(dst, src); err != nil {
		return errors.Join(err, dst.Close(), os.Remove(to))
	}
	return dst.Close()
}

// writeFile replaces a small file at once.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
