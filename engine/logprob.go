package engine

import (
	"cmp"
	"math"
	"slices"
)

// logprobs returns the log-probability of a token and the n most probable tokens under the soft-max of e.logits.
func (e *Engine) logprobs(id int32, n int) (own float32, top []Logprob) {
	norm := logSumExp(e.logits)
	own = float32(float64(e.logits[id]) - norm)
	if n == 0 {
		return own, nil
	}
	worst := float32(math.Inf(-1))
	r := e.ranked[:0]
	for i, l := range e.logits {
		if len(r) == n && !(l > worst) {
			continue
		}
		at, _ := slices.BinarySearchFunc(r, l, func(a Logprob, l float32) int {
			return cmp.Or(cmp.Compare(l, a.Logprob), -1) // behind its equals: lower ids first
		})
		if len(r) == n {
			r = r[:n-1]
		}
		r = slices.Insert(r, at, Logprob{ID: int32(i), Logprob: l})
		worst = r[len(r)-1].Logprob
	}
	e.ranked = r
	top = slices.Clone(r)
	for i := range top {
		top[i].Logprob = float32(float64(top[i].Logprob) - norm)
	}
	return own, top
}

// logSumExp is the logarithm of the sum of exponentials, in float64 and in order.
func logSumExp(x []float32) float64 {
	top := slices.Max(x)
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v - top))
	}
	return float64(top) + math.Log(sum)
}
