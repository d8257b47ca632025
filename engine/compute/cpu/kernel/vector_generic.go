package kernel

func vectorGeneric(s *Set) {}
