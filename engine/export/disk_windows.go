package export

import (
	"errors"
	"syscall"
)

// Windows' names for a disk without space, which package syscall lacks.
const (
	errHandleDiskFull = syscall.Errno(39)  // ERROR_HANDLE_DISK_FULL
	errDiskFull       = syscall.Errno(112) // ERROR_DISK_FULL
)

// isDiskFull reports whether an operation failed for want of space.
func isDiskFull(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, errHandleDiskFull)
}
