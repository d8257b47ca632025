// Package membw measures how fast this machine reads memory now: one token of a model on a CPU costs a reading of its weights, so
// on a shared machine speeds, and even the ratio of two, move with it.
//
// A probe takes some milliseconds and is meant for the pauses between requests; it knows nothing of them.
package membw

import (
	"sync"
	"time"
)

const (
	// probeBytes is what a probe reads: the size of a small model's weights, above the caches that one tenant of a
	// machine gets to keep. With a quarter of it the figures were those of the last cache.
	probeBytes = 128 << 20
	lineWords  = 8 // 64 bytes: memory is fetched in such lines, so that one word of each has the whole line read
)

// Prober holds the memory that is read. It is not safe for use by several goroutines at once.
type Prober struct {
	threads int
	words   []uint64
	sink    uint64 // keeps the reads from being optimised away
}

// New returns a Prober that reads with n threads. It takes 128 MiB.
func New(n int) *Prober {
	p := &Prober{threads: n, words: make([]uint64, probeBytes/8)}
	for i := range p.words { // pages that were never written are all one page of zeros
		p.words[i] = uint64(i)
	}
	return p
}

// Probe reads the memory once and returns the speed, in bytes a second.
func (p *Prober) Probe() float64 {
	sums := make([]uint64, p.threads)
	part := len(p.words) / p.threads / lineWords * lineWords
	var group sync.WaitGroup
	start := time.Now()
	for t := range p.threads {
		group.Go(func() { sums[t] = read(p.words[t*part : (t+1)*part]) })
	}
	group.Wait()
	elapsed := time.Since(start)
	for _, s := range sums {
		p.sink += s
	}
	return float64(part*p.threads*8) / elapsed.Seconds()
}

// read touches each line once. Four sums, so that no read waits for another's addition.
func read(words []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(words) >= 4*lineWords; words = words[4*lineWords:] {
		a += words[0]
		b += words[lineWords]
		c += words[2*lineWords]
		d += words[3*lineWords]
	}
	return a + b + c + d
}
