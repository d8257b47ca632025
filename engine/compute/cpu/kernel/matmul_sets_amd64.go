//go:build amd64 && !noasm

package kernel

func matmulAVX2(s *Set, vnni bool) {}
func matmulAVX512(s *Set)          {}
