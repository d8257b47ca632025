package kernel

func attentionGeneric(s *Set) {}
