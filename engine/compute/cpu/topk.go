package cpu

import (
	"fmt"
	"math"

	"draftlab/engine/compute"
)

// topK lists the best candidates of each output row.
type topK struct{ logits *tensor }

// TopK implements [compute.Recorder].
func (r *recorder) TopK(logits compute.Tensor) {
	r.add(compute.KindHead, &topK{logits.(*tensor)})
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
		n := best(ids, probs, x, b.Best[i])
		// One chain of sums a row, so that neither rows nor threads change a probability.
		sum := w.d.set.SumExp(&x[0], len(x), b.BestLogit[i])
		for j := range n {
			probs[j] = float32(math.Exp(float64(probs[j]-b.BestLogit[i]))) / sum
		}
		clear(ids[n:])
		clear(probs[n:])
	}
}

// best writes the largest of x and where they lie, the lowest index first among equals, and returns how many there are. NaN is
// never among them. top is the index of the largest.
func best(at []int32, values, x []float32, top int32) (n int) {
	if x[top] != x[top] {
		return 0
	}
	at[0], values[0] = top, x[top]
	if n = 1; len(at) == 1 {
		return n
	}
	for i, v := range x {
		if n == len(at) && !(v > values[n-1]) || v != v || int32(i) == top {
			continue
		}
		j := min(n, len(at)-1)
		for ; j > 1 && v > values[j-1]; j-- {
			at[j], values[j] = at[j-1], values[j-1]
		}
		at[j], values[j] = int32(i), v
		n = min(n+1, len(at))
	}
	return n
}
