//go:build !linux

package kernel

import "testing"

// hugeMemory returns n bytes.
func hugeMemory(_ *testing.B, n int) []byte { return make([]byte, n) }
