//go:build !unix

package weights

import (
	"io"
	"os"
)

// mapping is a file's bytes, read into memory where the system has no mmap of the Unix kind.
type mapping struct{ data []byte }

// newMapping reads the first size bytes of an open file.
func newMapping(f *os.File, size int) (*mapping, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return &mapping{data}, nil
}

// release does nothing: the bytes exist nowhere else in memory.
func (m *mapping) release(off, n int) {}

func (m *mapping) close() error {
	m.data = nil
	return nil
}
