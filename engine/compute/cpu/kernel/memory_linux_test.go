package kernel

import (
	"syscall"
	"testing"
)

// hugeMemory returns n bytes on huge pages where the system grants them: what weights lie in.
func hugeMemory(b *testing.B, n int) []byte {
	p, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(p) })
	_ = syscall.Madvise(p, syscall.MADV_HUGEPAGE) // a kernel without huge pages refuses; slower, not wrong
	return p
}
