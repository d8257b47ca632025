package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzRows holds every kernel on one row against the oracle, on any floats.
func FuzzRows(f *testing.F) {
	for seed := range uint64(3) {
		var b []byte
		for _, v := range hostile(seed, 96) {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x := make([]float32, len(data)/4)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		if len(x) == 0 {
			return
		}
		bits := agree{}
		for _, s := range Sets()[1:] {
			if got, want := s.ArgMax(ptr(x), len(x)), argMaxGeneric(ptr(x), len(x)); got != want {
				t.Fatalf("%s: ArgMax is %d, want %d", s.Name, got, want)
			}
			padded := append(slices.Clone(x), make([]float32, 31)...)
			checkSoftmaxExp(t, s, bits, "softmax", padded[:(len(x)+15)/16*16], len(x), 0.125)
			checkSumExp(t, s, bits, "sum", padded[:(len(x)+15)/16*16], len(x), x[argMaxGeneric(ptr(x), len(x))])
			checkWholeVectors(t, s, bits, padded[:(len(x)+31)/32*32])
		}
	})
}

// checkWholeVectors holds the kernels that take whole vectors against the oracle.
func checkWholeVectors(t *testing.T, s *Set, bits agree, x []float32) {
	n := len(x)
	got, want := newFenced(make([]float32, n), 1), make([]float32, n)
	s.SwiGLU(ptr(got.v), ptr(x), ptr(slices.Repeat([]float32{1}, n)), n)
	swiGLUGeneric(ptr(want), ptr(x), ptr(slices.Repeat([]float32{1}, n)), n)
	allNear(t, "SwiGLU", got.v, want, 6e-7, 1e-37)
	bits.check(t, "SwiGLU", got.v)

	units, oracle := newFenced(make([]float32, 2*n), 1), make([]float32, 2*n)
	s.Quantize(bytesOf(units.v), ptr(x), n/BlockCols, IntUnit)
	quantizeGeneric(bytesOf(oracle), ptr(x), n/BlockCols, IntUnit)
	units.check(t, "Quantize")
	if !sameBits(units.v, oracle) {
		t.Fatalf("%s: Quantize differs", s.Name)
	}
	s.StoreV16(bytesOf(units.v), ptr(x), n)
	storeV16Generic(bytesOf(oracle), ptr(x), n)
	if !sameBits(units.v, oracle) {
		t.Fatalf("%s: StoreV16 differs", s.Name)
	}
	s.SumOrdered(ptr(got.v), ptr(x), n/2, 2, n/2)
	sumOrderedGeneric(ptr(want), ptr(x), n/2, 2, n/2)
	if !sameBits(got.v[:2], want[:2]) {
		t.Fatalf("%s: SumOrdered differs", s.Name)
	}
	got.check(t, "row")
}

// FuzzAttention holds Scores and Values against the oracle on any shape.
func FuzzAttention(f *testing.F) {
	f.Add(uint8(4), uint16(37), false)
	f.Add(uint8(0), uint16(200), true)
	f.Fuzz(func(t *testing.T, dim uint8, n uint16, half bool) {
		elem := 4
		if half {
			elem = 2
		}
		d, positions := int(dim)%16*16+16, int(n)%300+1
		bits := agree{}
		for _, s := range Sets()[1:] {
			checkScores(t, s, bits, elem, d, (positions+15)/16)
			checkValues(t, s, bits, elem, d, positions)
		}
	})
}

// TestExpAccuracy holds the exponential of the sets within 1.1 ulp of the real one over its range.
func TestExpAccuracy(t *testing.T) {
	eachSet(t, func(t *testing.T, s *Set) {
		r, worst := rand.New(rand.NewPCG(1, 1)), 0.0
		x, y := make([]float32, 1<<16), make([]float32, 1<<16)
		for i := range x {
			x[i] = float32(-87.33 * r.Float64() * math.Pow(2, -float64(r.IntN(12))))
		}
		x[0], x[1] = 0, -87.33
		copy(y, x)
		s.SoftmaxExp(ptr(y), len(y), 1)
		for i, v := range x {
			exact := math.Exp(float64(v))
			_, e := math.Frexp(exact)
			worst = max(worst, math.Abs(float64(y[i])-exact)/math.Ldexp(1, e-24))
		}
		if t.Logf("worst error %.3f ulp", worst); worst > 1.1 {
			t.Fatalf("worst error is %.3f ulp", worst)
		}
	})
}
