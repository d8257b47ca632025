package draft

// Stats counts what verification accepted. A cycle is one target pass over a sequence past its prompt; the token
// that a prompt's last row gives belongs to none. The zero Stats is ready.
type Stats struct {
	Cycles   int64
	Drafted  int64 // nodes below the root
	Accepted int64 // drafted tokens that were emitted; the target's own token of each cycle is not among them

	hist  [MaxNodes]int64 // [n] cycles that accepted n
	tried [MaxNodes]int64 // [i] cycles that had a draft at depth i+1 and accepted the i before it
}

// Record adds a cycle: its drafted nodes, the depth of the deepest, and how many tokens were accepted. Where the output
// ends inside the accepted run, only the emitted ones count.
func (s *Stats) Record(drafted, depth, accepted int) {
	if accepted < 0 || accepted > depth || depth > drafted {
		panic("draft: a cycle accepts at most its depth, which is at most its nodes")
	}
	s.Cycles++
	s.Drafted += int64(drafted)
	s.Accepted += int64(accepted)
	s.hist[accepted]++
	for i := range min(depth, accepted+1) {
		s.tried[i]++
	}
}

// Add adds the cycles of o.
func (s *Stats) Add(o *Stats) {
	s.Cycles += o.Cycles
	s.Drafted += o.Drafted
	s.Accepted += o.Accepted
	for i := range s.hist {
		s.hist[i] += o.hist[i]
		s.tried[i] += o.tried[i]
	}
}

// AcceptLength returns the mean number of tokens a cycle emits, 1 + Accepted/Cycles: the target's own token counts, the
// prompt's does not. It is 0 where there was no cycle.
func (s *Stats) AcceptLength() float64 {
	if s.Cycles == 0 {
		return 0
	}
	return 1 + float64(s.Accepted)/float64(s.Cycles)
}

// AppendHistogram appends the number of cycles that accepted 0, 1, 2, … tokens, up to the most accepted.
func (s *Stats) AppendHistogram(dst []int64) []int64 {
	n := len(s.hist)
	for n > 0 && s.hist[n-1] == 0 {
		n--
	}
	return append(dst, s.hist[:n]...)
}

// Depth returns the deepest position (from 1) at which a draft was put to the test, 0 if none was.
func (s *Stats) Depth() int {
	n := len(s.tried)
	for n > 0 && s.tried[n-1] == 0 {
		n--
	}
	return n
}

// Survival returns the share of all cycles that accepted at least i tokens (i from 1), so that AcceptLength is 1 plus
// the sum over i. A cycle that drafted fewer counts as one that lost the rest.
func (s *Stats) Survival(i int) float64 {
	if s.Cycles == 0 {
		return 0
	}
	var n int64
	for _, h := range s.hist[i:] {
		n += h
	}
	return float64(n) / float64(s.Cycles)
}

// Conditional returns the share of accepted drafts at depth i (from 1) among the cycles that came so far: that
// had a draft there and accepted all before it. Unlike Survival it is not lowered by drafts that ended early.
// Tried is the number of such cycles; the share of none is 0.
func (s *Stats) Conditional(i int) (share float64, tried int64) {
	tried = s.tried[i-1]
	if tried == 0 {
		return 0, 0
	}
	var n int64
	for _, h := range s.hist[i:] {
		n += h
	}
	return float64(n) / float64(tried), tried
}
