package search

import (
	"math"

	"draftlab/lab/trial"
)

// residuals foretell how far arms lie from a model, in logarithms, from how far those that were measured do: a Gaussian process
// (kriging; Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, algorithm 2.1). What the model
// gets wrong is alike for arms that are alike, so that an arm beside measured ones is foretold closely, and one far from them
// no better than the model is.
type residuals[T any] struct {
	like  func(a, b T) float64 // covariance of two arms' residuals
	known []T
	low   [][]float64 // Cholesky factor of the covariance of what was measured
	alpha []float64   // its inverse times the residuals
}

// newResiduals takes residuals that were measured with the given variances.
func newResiduals[T any](like func(a, b T) float64, known []T, residual, variance []float64) *residuals[T] {
	r := &residuals[T]{like: like, known: known}
	n := len(known)
	r.low = make([][]float64, n)
	for i := range n {
		r.low[i] = make([]float64, i+1)
		for j := range i + 1 {
			v := like(known[i], known[j])
			if i == j {
				v += variance[i] + 1e-10 // so that two arms that are measured exactly may be equal
			}
			for k := range j {
				v -= r.low[i][k] * r.low[j][k]
			}
			if i == j {
				r.low[i][j] = math.Sqrt(v)
			} else {
				r.low[i][j] = v / r.low[j][j]
			}
		}
	}
	r.alpha = r.forward(residual)
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			r.alpha[i] -= r.low[k][i] * r.alpha[k]
		}
		r.alpha[i] /= r.low[i][i]
	}
	return r
}

// forward solves low·x = b.
func (r *residuals[T]) forward(b []float64) []float64 {
	x := make([]float64, len(b))
	for i := range x {
		x[i] = b[i]
		for k := range i {
			x[i] -= r.low[i][k] * x[k]
		}
		x[i] /= r.low[i][i]
	}
	return x
}

// at foretells the residual of an arm, with its variance.
func (r *residuals[T]) at(a T) (residual, variance float64) {
	cross := make([]float64, len(r.known))
	for i, k := range r.known {
		cross[i] = r.like(a, k)
		residual += cross[i] * r.alpha[i]
	}
	variance = r.like(a, a)
	for _, x := range r.forward(cross) {
		variance -= x * x
	}
	return residual, max(variance, 0)
}

// How alike the models' errors are of two arms, as covariances of logarithms. The sizes are near those under which what was measured of 148 chains
// and trees of up to 12 rows of the default target is likeliest (docs/LOG.md); experiments/predict scores them on others. Larger
// ones make wider intervals, longer lengths closer ones far from measured arms.
const (
	cycleRows, rowsApart     = 0.035, 0.4 // verification is no straight line of its rows: kernels and graphs come in steps
	cyclePasses, passesApart = 0.014, 0.8 // nor are the drafter's passes all equal
	cycleOwn                 = 0.0085     // what equal rows and passes have apart
	drift                    = 0.012      // how far the machine moves all arms between one time and another
	gainDepth, stepsApart    = 0.002, 0.7 // rates are taken between measured depths
	gainTree                 = 0.09       // drafters choose a tree's nodes by what they expect at each place, so that few do more
	sizeApart, depthApart    = 1.3, 1.1   // how wide levels may be tells next to nothing beside those
	gainOwn                  = 0.2        // over the root of the cycles: cycles of two arms begin at different places of the text
)

// likeCycle is that of the cost model's cycles.
func likeCycle(a, b trial.Arm) float64 {
	rows, steps, topk := apart(a.DraftTokens, b.DraftTokens), apart(a.Steps, b.Steps), apart(a.TopK, b.TopK)
	v := square(cycleRows)*near(rows, rowsApart) + square(cyclePasses)*near(steps, passesApart)*near(topk, passesApart)
	if a.Name == b.Name {
		v += square(cycleOwn)
	}
	return v
}

// likeGain is that of accept lengths.
func likeGain(a, b trial.Arm) float64 {
	v := square(gainDepth) * near(apart(a.Steps, b.Steps), stepsApart)
	if !isChain(a) && !isChain(b) {
		v += square(gainTree) * near(apart(a.DraftTokens, b.DraftTokens), sizeApart) * near(apart(a.Steps, b.Steps), depthApart)
	}
	return v
}

// apart is the distance of two numbers as ratios count.
func apart(a, b int) float64 { return math.Log(float64(a) / float64(b)) }

func square(x float64) float64 { return x * x }

// near falls from 1 with the distance, measured in a length.
func near(distance, length float64) float64 { return math.Exp(-square(distance/length) / 2) }
