package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// cutBySorting is cut by its definition.
func cutBySorting(values []float32, ids []int32, measure []uint64, target uint64) []int32 {
	order := slices.Clone(ids)
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(values[b], values[a]) })
	n := 0
	for sum := uint64(0); sum < target; n++ {
		sum += measure[order[n]]
	}
	kept := order[:n]
	slices.Sort(kept)
	return kept
}

func TestCutAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	var bins [maxBins]uint64
	inf := float32(math.Inf(-1))
	for round := range 3000 {
		n := 1 + rng.IntN(200)
		values, measure, ones := make([]float32, n), make([]uint64, n), make([]uint64, n)
		var ids []int32
		total, count := uint64(0), uint64(0)
		for i := range values {
			switch rng.IntN(6) {
			case 0:
				values[i] = float32(rng.IntN(3) - 1) // ties
			case 1:
				values[i] = []float32{0, float32(math.Copysign(0, -1)), inf, -math.MaxFloat32, 1e-45, -1e-45}[rng.IntN(6)]
			default:
				values[i] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(5)-2)))
			}
			ones[i] = 1
			measure[i] = uint64(rng.IntN(5)) << rng.IntN(40)
			if rng.IntN(4) > 0 {
				ids = append(ids, int32(i))
				total += measure[i]
				count++
			}
		}
		if total == 0 {
			continue
		}
		target := 1 + rng.Uint64N(total)
		if want, got := cutBySorting(values, ids, measure, target), cut(values, slices.Clone(ids), measure, target, &bins); !slices.Equal(got, want) {
			t.Fatalf("round %d: by mass got %v, want %v", round, got, want)
		}
		target = 1 + rng.Uint64N(count)
		if want, got := cutBySorting(values, ids, ones, target), cut(values, slices.Clone(ids), nil, target, &bins); !slices.Equal(got, want) {
			t.Fatalf("round %d: by count got %v, want %v", round, got, want)
		}
	}
}
