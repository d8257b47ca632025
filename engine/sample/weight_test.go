package sample

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestWeightAccuracy(t *testing.T) {
	if got := weight(0); got != 1<<weightBits {
		t.Errorf("weight(0) = %d", got)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		y := -45 * rng.Float64()
		want := math.Exp2(y) * (1 << weightBits)
		y *= 1 << tableBits
		if got := float64(weight(y)); math.Abs(got-want) > 1e-10*want+0.5001 {
			t.Fatalf("weight(%v) = %v, want %v", y, got, want)
		}
	}
	for _, y := range []float64{math.Inf(-1), -math.MaxFloat64, -45.001 * 1024, -1e9} {
		if got := weight(y); got != 0 {
			t.Errorf("weight(%v) = %d, want 0", y, got)
		}
	}
}

// The table's entries against square roots taken with 200 bits.
func TestPowers(t *testing.T) {
	step := big.NewFloat(2).SetPrec(200)
	for range tableBits {
		step.Sqrt(step)
	}
	want := big.NewFloat(1).SetPrec(200)
	for i, got := range powers {
		f, _ := want.Float64()
		if math.Abs(got-f) > 4e-15*f {
			t.Errorf("powers[%d] = %v, want %v", i, got, f)
		}
		want.Mul(want, step)
	}
}

// The digest was made on amd64. A difference on another architecture means that a compiler fused or
// reordered an operation, and that seeds no longer mean the same there.
func TestWeightBitsArePinned(t *testing.T) {
	h := fnv.New64a()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1 << 16 {
		w := weight(-45.5 * 1024 * rng.Float64())
		var b [8]byte
		for i := range b {
			b[i] = byte(w >> (8 * i))
		}
		h.Write(b[:])
	}
	if got, want := h.Sum64(), uint64(0x55c28f379d826803); got != want {
		t.Errorf("digest of weights %#x, want %#x", got, want)
	}
}
