//go:build unix && !linux

package cpu

// adviseHuge does nothing: the system has no such advice.
func adviseHuge([]byte) {}
