//go:build amd64 && !noasm

package kernel

func matmulAVX2(s *Set)     {}
func matmulAVX2VNNI(s *Set) {}
func matmulAVX512(s *Set)   {}
