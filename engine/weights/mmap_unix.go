//go:build unix

package weights

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapping is a file's bytes, mapped shared and read-only.
type mapping struct{ data []byte }

// newMapping maps the first size bytes of an open file; size is positive. The file may be closed afterwards.
func newMapping(f *os.File, size int) (*mapping, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &mapping{data}, nil
}

// release drops the pages that hold [off, off+n). Pages are widened outwards: one shared with a
// neighbour is clean and is read again when touched.
func (m *mapping) release(off, n int) {
	page := os.Getpagesize()
	lo, hi := off&^(page-1), off+n
	if n > 0 && hi <= len(m.data) {
		_ = unix.Madvise(m.data[lo:hi], unix.MADV_DONTNEED)
	}
}

func (m *mapping) close() error {
	data := m.data
	m.data = nil
	if data == nil {
		return nil
	}
	return unix.Munmap(data)
}
