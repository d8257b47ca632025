//go:build !unix

package cpu

// mapMemory falls back to the Go heap.
func mapMemory(n int, _ bool) (data []byte, free func(), err error) {
	return bytesAligned(n), func() {}, nil
}
