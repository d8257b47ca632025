package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. A kernel without them answers with an error, which costs speed only.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
