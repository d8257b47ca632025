package kernel

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"
)

// Bounds that every set shares. The generic set's arithmetic between them is float64's or plain
// float32's, so it differs from the assembly by rounding only.
const (
	// expFloor is where exp is cut to +0. Just above ln 2⁻¹²⁶, so that 2ⁿ below is always a normal number.
	expFloor = -87.33
	// siluFloor is where gate/(1+exp(−gate)) is cut to 0 (it is −5e-37 there): exp(88) still fits a float32.
	siluFloor = -88
	// quantFloor is the least max|x| of a block that is not quantised to zero: 127/max and max/127 are normal numbers.
	quantFloor = 0x1p-119
)

// vectorGeneric fills in the kernels on single rows.
func vectorGeneric(s *Set) {
	s.Quantize = quantizeGeneric
	s.Residual = residualGeneric
	s.CopyUnits = copyUnitsGeneric
	s.RMSNorm = rmsNormGeneric
	s.SwiGLU = swiGLUGeneric
	s.Add = addGeneric
	s.Rope = ropeGeneric
	s.Scale = scaleGeneric
	s.SumExp = sumExpGeneric
	s.ArgMax = argMaxGeneric
	s.ReadMem = readMemGeneric
}

func quantizeGeneric(dst *byte, x *float32, blocks, stride int) {
	xs := unsafe.Slice(x, blocks*BlockCols)
	for b := range blocks {
		unit := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(dst), b*stride)), IntUnit)
		quantizeBlock(unit, xs[b*BlockCols:(b+1)*BlockCols])
	}
}

// quantizeBlock writes one integer unit (package comment, "Packed activations").
func quantizeBlock(unit []byte, x []float32) {
	var top uint32 // compared as integers, |NaN| is above infinity: no NaN is lost
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	m := math.Float32frombits(top)
	s, inv, finite := m/127, 127/m, m <= math.MaxFloat32
	if m < quantFloor {
		s, finite = 0, false
	}
	var sum [2]int32
	for i, v := range x {
		var code int32
		if finite {
			code = int32(math.RoundToEven(float64(v * inv)))
		}
		unit[i] = byte(code)
		sum[i/16] += code
	}
	total := sum[0] + sum[1]
	le := binary.LittleEndian
	le.PutUint32(unit[32:], math.Float32bits(s))
	le.PutUint32(unit[36:], math.Float32bits(s*float32(total)))
	le.PutUint32(unit[40:], uint32(-8*total))
	le.PutUint32(unit[44:], uint32(-128*total))
	le.PutUint32(unit[48:], uint32(-32*sum[0]))
	le.PutUint32(unit[52:], uint32(-32*sum[1]))
	clear(unit[56:IntUnit])
}

func residualGeneric(dst, x *float32, units *byte, blocks, stride int) {
	xs, out := unsafe.Slice(x, blocks*BlockCols), unsafe.Slice(dst, blocks*BlockCols)
	for i, v := range xs {
		unit := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(units), i/BlockCols*stride)), IntUnit)
		s := math.Float32frombits(binary.LittleEndian.Uint32(unit[32:]))
		// The product is exact in float64, so that this is the fused operation of the assembly.
		out[i] = float32(float64(v) - float64(s)*float64(int8(unit[i%BlockCols])))
	}
}

func copyUnitsGeneric(dst *byte, x *float32, blocks, stride int) {
	xs := unsafe.Slice(x, blocks*BlockCols)
	for b := range blocks {
		copy(unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(dst), b*stride)), BlockCols), xs[b*BlockCols:])
	}
}

func rmsNormGeneric(y, x, gain *float32, n int, eps float32) {
	ys, xs, gs := unsafe.Slice(y, n), unsafe.Slice(x, n), unsafe.Slice(gain, n)
	var lane [16]float32
	for i, v := range xs {
		lane[i%16] += float32(v * v)
	}
	r := 1 / float32(math.Sqrt(float64(fold16(&lane)/float32(n)+eps)))
	for i, v := range xs {
		ys[i] = float32(v*r) * gs[i]
	}
}

func swiGLUGeneric(y, gate, up *float32, n int) {
	ys, gs, us := unsafe.Slice(y, n), unsafe.Slice(gate, n), unsafe.Slice(up, n)
	for i, g := range gs {
		var silu float32
		if !(g < siluFloor) {
			silu = g / (1 + expGeneric(-g))
		}
		ys[i] = silu * us[i]
	}
}

// expGeneric is the correctly rounded exponential, cut to +0 below expFloor; NaN stays NaN.
func expGeneric(x float32) float32 {
	if x < expFloor {
		return 0
	}
	return float32(math.Exp(float64(x)))
}

func sumExpGeneric(x *float32, n int, top float32) float32 {
	var lane [16]float32
	for i, v := range unsafe.Slice(x, n) {
		lane[i%16] += expGeneric(v - top)
	}
	return fold16(&lane)
}

// fold16 adds 16 lanes in the order of K4.
func fold16(lane *[16]float32) float32 {
	for w := 8; w > 0; w /= 2 {
		for i := range w {
			lane[i] += lane[i+w]
		}
	}
	return lane[0]
}

func addGeneric(y, x *float32, n int) {
	ys, xs := unsafe.Slice(y, n), unsafe.Slice(x, n)
	for i, v := range xs {
		ys[i] += v
	}
}

func ropeGeneric(x, cos, sin *float32, half int) {
	xs, cs, ss := unsafe.Slice(x, 2*half), unsafe.Slice(cos, half), unsafe.Slice(sin, half)
	for i, c := range cs {
		a, b := xs[i], xs[i+half]
		xs[i] = float32(a*c) - float32(b*ss[i])
		xs[i+half] = float32(b*c) + float32(a*ss[i])
	}
}

func scaleGeneric(x *float32, n int, a float32) {
	xs := unsafe.Slice(x, n)
	for i := range xs {
		xs[i] *= a
	}
}

func argMaxGeneric(x *float32, n int) int {
	best, at := float32(math.Inf(-1)), -1
	for i, v := range unsafe.Slice(x, n) {
		if v > best || at < 0 && v == best {
			best, at = v, i
		}
	}
	return max(at, 0)
}

// readSink keeps the compiler from dropping readMemGeneric's loop.
var readSink atomic.Uint64

func readMemGeneric(p *byte, n int) {
	var sum uint64
	for _, v := range unsafe.Slice((*uint64)(unsafe.Pointer(p)), n/8) {
		sum |= v
	}
	readSink.Store(sum)
}
