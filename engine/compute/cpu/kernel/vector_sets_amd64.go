//go:build amd64 && !noasm

package kernel

func vectorAVX2(s *Set)      {}
func vectorAVX512(s *Set)    {}
func attentionAVX2(s *Set)   {}
func attentionAVX512(s *Set) {}
