//go:build unix

package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// mapMemory maps n zero bytes aligned to a huge page; if huge, the system is advised to back them with
// huge pages, which spares a core most of its page walks.
func mapMemory(n int, huge bool) (data []byte, free func(), err error) {
	raw, err := unix.Mmap(-1, 0, n+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot reserve %d MiB of memory for weights, keys and values: %w", n>>20, err)
	}
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (hugePage - 1))
	data = raw[off : off+n : off+n]
	if huge {
		adviseHuge(data)
	}
	return data, func() { _ = unix.Munmap(raw) }, nil
}
