package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// output is a file that is being written: through a buffer, counted, and until its context ends.
type output struct {
	ctx  context.Context
	file *os.File
	buf  *bufio.Writer
	n    int64
	told func(n int) // after each piece on its way to the disk; nil for none
}

// outputBuffer is the size of the pieces that reach the disk: rows of small models are a few kilobytes, and a
// call of the system for each costs more than the copy.
const outputBuffer = 1 << 20

// create opens a new file; that it is new is checked, so that nothing else is overwritten.
func create(ctx context.Context, path string, told func(n int)) (*output, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	o := &output{ctx: ctx, file: f, told: told}
	o.buf = bufio.NewWriterSize(direct{o}, outputBuffer)
	return o, nil
}

// Write takes bytes for the file.
func (o *output) Write(p []byte) (int, error) { return o.buf.Write(p) }

// direct is the way to the disk below the buffer.
type direct struct{ o *output }

func (d direct) Write(p []byte) (int, error) {
	if d.o.ctx.Err() != nil {
		return 0, context.Cause(d.o.ctx)
	}
	n, err := d.o.file.Write(p)
	d.o.n += int64(n)
	if d.o.told != nil {
		d.o.told(n)
	}
	return n, err
}

// close ends the file. If write, the error of what was written to it, is not nil, that is returned.
func (o *output) close(write error) error {
	if write == nil {
		write = o.buf.Flush()
	}
	if err := o.file.Close(); write == nil {
		write = err
	}
	return write
}

// flush sends a file to the disk, without which a power cut could leave it with its name and without its content.
// It is called when all files of a result are written: most file systems then do the work of all in the first call.
func flush(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// folder is a directory that appears at its place when it is complete.
type folder struct {
	dst   string // its place
	tmp   string // a directory beside it that holds it until then
	force bool
	mine  func(name string) bool
}

// newFolder checks that a directory may be put at dst and begins it. Unless force is set nothing but an empty
// directory may be there; with it also one that holds regular files with names for which mine is true and nothing else, so
// that a wrong path never costs anything but an older result. The caller ends it with commit and, always, discard.
func newFolder(dst string, force bool, mine func(name string) bool) (*folder, error) {
	dst, err := filepath.Abs(dst)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dst); err == nil {
		if dst, err = filepath.EvalSymlinks(dst); err != nil { // a renamed link would leave what it points to behind
			return nil, err
		}
	}
	d := &folder{dst: dst, force: force, mine: mine}
	if _, err := d.replaceable(); err != nil {
		return nil, err
	}
	if d.tmp, err = os.MkdirTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".partial-"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.part(), 0o777); err != nil { // MkdirTemp's own is for nobody else to read
		d.discard()
		return nil, err
	}
	return d, nil
}

// part is the directory while it is written.
func (d *folder) part() string { return filepath.Join(d.tmp, "new") }

// replaceable reports whether there is a directory at the place, and an error if what is there must stay.
func (d *folder) replaceable() (exists bool, err error) {
	info, err := os.Stat(d.dst)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, &Error{Msg: d.dst + " is not a directory", Hint: "name a new directory for the checkpoint"}
	}
	entries, err := os.ReadDir(d.dst)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !d.mine(e.Name()) {
			return false, &Error{
				Msg:  fmt.Sprintf("%s exists and holds %q, which is no file of a checkpoint that draftlab wrote", d.dst, e.Name()),
				Hint: "name a new directory for the checkpoint; --force replaces an earlier one only",
			}
		}
	}
	if len(entries) > 0 && !d.force {
		return false, &Error{Msg: d.dst + " exists already", Hint: "give --force to replace it, or name another directory"}
	}
	return true, nil
}

// commit gives the directory, which holds the files, its place. What is there is checked once more, since writing
// takes minutes.
func (d *folder) commit(files []File) error {
	for _, f := range files {
		if err := flush(filepath.Join(d.part(), f.Name)); err != nil {
			return err
		}
	}
	exists, err := d.replaceable()
	if err != nil {
		return err
	}
	old := filepath.Join(d.tmp, "old")
	if exists {
		if err := os.Rename(d.dst, old); err != nil {
			return err
		}
	}
	if err := os.Rename(d.part(), d.dst); err != nil {
		if exists {
			err = errors.Join(err, os.Rename(old, d.dst))
		}
		return err
	}
	return nil
}

// discard removes what commit has not put in place, and what it replaced.
func (d *folder) discard() { os.RemoveAll(d.tmp) }
