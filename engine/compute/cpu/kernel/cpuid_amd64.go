//go:build amd64 && !noasm

package kernel

// hasF16C and hasAVXVNNI ask CPUID for what golang.org/x/sys/cpu does not report on every version.
func hasF16C() bool    { return false }
func hasAVXVNNI() bool { return false }
