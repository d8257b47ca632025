package membw

import "testing"

// TestProbeReadsEveryLine compares the sums of one and of several threads with counting.
func TestProbeReadsEveryLine(t *testing.T) {
	for _, threads := range []int{1, 2, 4} {
		p := New(threads)
		if speed := p.Probe(); speed <= 0 {
			t.Errorf("%d threads: %v bytes a second", threads, speed)
		}
		var want uint64
		for i := 0; i < len(p.words); i += lineWords {
			want += p.words[i]
		}
		if p.sink != want {
			t.Errorf("%d threads: sum %d, want %d", threads, p.sink, want)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	p := New(2)
	b.SetBytes(probeBytes)
	for b.Loop() {
		p.Probe()
	}
}
