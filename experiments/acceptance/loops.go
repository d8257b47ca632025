package main

const (
	longestPeriod = 64 // tokens, as the trainer's loops()
	loopSpan      = 48 // tokens
)

// loops reports whether an answer contains a loop by the trainer's rule: a stretch of at least 48 tokens, and of at least two
// periods, that equals the text one period before it.
func loops(answer []int32) bool {
	for period := 1; period <= longestPeriod; period++ {
		run := 0
		for i := period; i < len(answer); i++ {
			if answer[i] != answer[i-period] {
				run = 0
				continue
			}
			if run++; run >= max(loopSpan, 2*period) {
				return true
			}
		}
	}
	return false
}
