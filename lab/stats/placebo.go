package stats

import (
	"math"
	"math/rand/v2"
)

// Placebo returns how often the signed-rank test alarms at a level on comparisons of a thing with itself. The data are runs of pairs,
// each pair two readings of the same thing in the order in which they were taken. A comparison is made of n pairs that
// followed each other in one run, from a random place on, so that drift, bursts and the after-effects of one reading on the
// next stay as they were; which reading of a pair counts as whose is drawn anew, as a plan draws it. It is NaN if no run has n
// pairs.
func Placebo(rng *rand.Rand, runs [][][2]float64, n, comparisons int, level float64) float64 {
	places := 0
	for _, r := range runs {
		places += max(0, len(r)-n+1)
	}
	if places == 0 || n < 1 {
		return math.NaN()
	}
	alarms := 0
	d := make([]float64, n)
	for range comparisons {
		at := rng.IntN(places)
		var window [][2]float64
		for _, r := range runs {
			here := max(0, len(r)-n+1)
			if at < here {
				window = r[at : at+n]
				break
			}
			at -= here
		}
		for i, pair := range window {
			first := rng.IntN(2)
			d[i] = math.Log(pair[first] / pair[1-first])
		}
		if SignedRank(d) <= level {
			alarms++
		}
	}
	return float64(alarms) / float64(comparisons)
}
