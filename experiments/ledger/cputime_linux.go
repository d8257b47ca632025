package main

import "golang.org/x/sys/unix"

// threadSeconds returns the processor time of the calling thread, which the goroutine is locked to.
func threadSeconds() (float64, bool) {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0, false
	}
	return float64(t.Nano()) / 1e9, true
}
