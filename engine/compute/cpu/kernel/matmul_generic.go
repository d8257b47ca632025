package kernel

func matmulGeneric(s *Set) {}
