package cpu

import (
	"fmt"
	"math"

	"draftlab/engine/compute"
)

// topChunk is how many logits share one entry of the scan: a candidate found costs another look at its chunk and one at
// each chunk's entry, so it should be near the root of a vocabulary. Over 8192 logits ten candidates take some 2 µs.
const topChunk = 256

// topK lists the best candidates of each output row.
type topK struct {
	logits *tensor
	best   [][]candidate // of each worker, the best of each chunk of a row; id −1 where none is left
}

// TopK implements [compute.Recorder].
func (r *recorder) TopK(logits compute.Tensor) {
	s := &topK{logits: logits.(*tensor)}
	for range r.d.workers {
		s.best = append(s.best, make([]candidate, (s.logits.cols+topChunk-1)/topChunk))
	}
	r.add(compute.KindHead, s)
}

func (s *topK) run(w *worker, b *compute.Batch, rows int) {
	if b.Top < 0 || b.Top > b.MaxTop {
		panic(fmt.Sprintf("cpu: %d candidates a row in a batch with room for %d", b.Top, b.MaxTop))
	}
	if b.Top == 0 {
		return
	}
	from, to := share(rows, w.id, w.d.pool.n)
	for i := from; i < to; i++ {
		x := s.logits.row(i)[:s.logits.cols]
		ids, probs := b.TopID[i*b.MaxTop:][:b.Top], b.TopProb[i*b.MaxTop:][:b.Top]
		// One chain of sums a row, so that neither rows nor threads change a probability.
		sum := w.d.set.SumExp(&x[0], len(x), b.BestLogit[i])
		n := s.scan(w, ids, probs, x, candidate{b.Best[i], b.BestLogit[i]})
		for j, logit := range probs[:n] {
			probs[j] = float32(math.Exp(float64(logit-b.BestLogit[i]))) / sum
		}
		clear(ids[n:])
		clear(probs[n:])
	}
}

// scan writes the largest logits of x and their indices, the lowest index first among equals, and returns how many there
// are. NaN is never among them.
func (s *topK) scan(w *worker, ids []int32, logits, x []float32, first candidate) (n int) {
	if first.logit != first.logit {
		return 0
	}
	ids[0], logits[0] = first.id, first.logit
	if len(ids) == 1 {
		return 1
	}
	chunks := s.best[w.id]
	for c := range chunks {
		chunks[c] = bestIn(w, x, c)
	}
	nan := float32(math.NaN())
	for n < len(ids) {
		at := -1
		for c := range chunks {
			if chunks[c].id >= 0 && (at < 0 || chunks[c].logit > chunks[at].logit) {
				at = c
			}
		}
		if at < 0 {
			break
		}
		ids[n], logits[n] = chunks[at].id, chunks[at].logit
		x[ids[n]] = nan // it has had its turn; the value returns below
		chunks[at] = bestIn(w, x, at)
		n++
	}
	for j, id := range ids[:n] {
		x[id] = logits[j]
	}
	return n
}

// bestIn returns the best of chunk c of a row.
func bestIn(w *worker, x []float32, c int) candidate {
	from := c * topChunk
	part := x[from:min(from+topChunk, len(x))]
	i := w.d.set.ArgMax(&part[0], len(part))
	if part[i] != part[i] {
		return candidate{id: -1}
	}
	return candidate{int32(from + i), part[i]}
}
