//go:build unix

package export

import (
	"errors"
	"syscall"
)

// isDiskFull reports whether an operation failed for want of space or quota.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
