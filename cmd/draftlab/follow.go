package main

import (
	"context"
	"io"
	"os"
	"time"
)

// followPoll is how often a file that is followed is asked for more: a decode line comes every second or two at most.
const followPoll = 200 * time.Millisecond

// followed reads a file that grows: at its end it waits, and a file that was cut or replaced by another of its name is read
// from the beginning. It ends, with io.EOF, when ctx does.
type followed struct {
	ctx  context.Context
	path string
	file *os.File
	read int64 // bytes of file
}

// Read waits until there is something.
func (f *followed) Read(b []byte) (int, error) {
	tick := time.NewTicker(followPoll)
	defer tick.Stop()
	for {
		n, err := f.file.Read(b)
		f.read += int64(n)
		if n > 0 || err != nil && err != io.EOF {
			return n, err
		}
		if err := f.turn(); err != nil {
			return 0, err
		}
		select {
		case <-f.ctx.Done():
			return 0, io.EOF
		case <-tick.C:
		}
	}
}

// turn goes on with the file that has the path now, if it is another one or has been cut.
func (f *followed) turn() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return nil // between two files: the next one is still to come
	}
	was, err := f.file.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(now, was) {
		if now.Size() >= f.read {
			return nil
		}
		f.read = 0
		_, err := f.file.Seek(0, io.SeekStart)
		return err
	}
	next, err := os.Open(f.path)
	if err != nil {
		return nil // as above
	}
	_ = f.file.Close() // it was only read
	f.file, f.read = next, 0
	return nil
}
