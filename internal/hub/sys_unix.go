//go:build unix

package hub

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// tryLock takes the exclusive lock of an open file without waiting and reports whether it got it.
// It is flock, as other clients of the hub's cache use, and the system releases it when the process ends.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// errNoSpace is what the system answers when a disk is full.
const errNoSpace = syscall.ENOSPC

// isDiskFull reports whether an operation failed for want of space or quota.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnwritable reports whether an operation failed because the place is not for this user, read-only or no directory.
func isUnwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR)
}
