package kernel

import (
	"math"
	"unsafe"
)

// maxHalf is the largest finite float16.
const maxHalf = 65504

// attentionGeneric fills in the kernels over the KV cache.
func attentionGeneric(s *Set) {
	s.StoreK16, s.StoreK32 = storeK16Generic, storeK32Generic
	s.StoreV16, s.StoreV32 = storeV16Generic, storeV32Generic
	s.Scores16[1], s.Scores32[1] = scoresGeneric(2, halfRow), scoresGeneric(4, floatRow)
	for _, z := range []int{1, 2, 4} {
		s.Values16[1][z], s.Values32[1][z] = valuesGeneric(z, 2, halfRow), valuesGeneric(z, 4, floatRow)
	}
	s.SoftmaxExp = softmaxExpGeneric
	s.SumOrdered = sumOrderedGeneric
}

// saturate brings v into ±limit; NaN becomes +0 (see Set.StoreK16).
func saturate(v, limit float32) float32 {
	if v != v {
		return 0
	}
	return max(-limit, min(limit, v))
}

// halfBits rounds a finite float32 within ±maxHalf to the nearest float16, ties to even.
func halfBits(f float32) uint16 {
	b := math.Float32bits(f)
	sign, a := uint16(b>>16)&0x8000, b&^(1<<31)
	if a < 113<<23 { // below 2⁻¹⁴: adding ½ lets the float adder round to units of 2⁻²⁴
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-126<<23)
	}
	a += 0xfff + a>>13&1
	return sign | uint16((a-112<<23)>>13)
}

// halfValue returns the value of a finite float16.
func halfValue(h uint16) float32 {
	e, m := uint32(h>>10&31), uint32(h&1023)
	v := float32(m) * 0x1p-24
	if e != 0 {
		v = math.Float32frombits((e+112)<<23 | m<<13)
	}
	return math.Float32frombits(math.Float32bits(v) | uint32(h&0x8000)<<16)
}

func storeK16Generic(dst *byte, x *float32, dim int) {
	out := unsafe.Slice((*uint16)(unsafe.Pointer(dst)), (dim-1)*16+1)
	for d, v := range unsafe.Slice(x, dim) {
		out[d*16] = halfBits(saturate(v, maxHalf))
	}
}

func storeK32Generic(dst *byte, x *float32, dim int) {
	out := unsafe.Slice((*float32)(unsafe.Pointer(dst)), (dim-1)*16+1)
	for d, v := range unsafe.Slice(x, dim) {
		out[d*16] = saturate(v, math.MaxFloat32)
	}
}

func storeV16Generic(dst *byte, x *float32, dim int) {
	out := unsafe.Slice((*uint16)(unsafe.Pointer(dst)), dim)
	for d, v := range unsafe.Slice(x, dim) {
		out[d] = halfBits(saturate(v, maxHalf))
	}
}

func storeV32Generic(dst *byte, x *float32, dim int) {
	out := unsafe.Slice((*float32)(unsafe.Pointer(dst)), dim)
	for d, v := range unsafe.Slice(x, dim) {
		out[d] = saturate(v, math.MaxFloat32)
	}
}

// halfRow and floatRow return the 16 values at p.
func halfRow(p unsafe.Pointer) (row [16]float32) {
	for i, h := range (*[16]uint16)(p) {
		row[i] = halfValue(h)
	}
	return row
}

func floatRow(p unsafe.Pointer) [16]float32 { return *(*[16]float32)(p) }

// scoresGeneric returns a ScoresFunc of one query over keys of elem bytes that row reads.
func scoresGeneric(elem int, row func(unsafe.Pointer) [16]float32) ScoresFunc {
	return func(s *float32, lds int, query *float32, k *byte, table *int32, blocks, stride, dim int) {
		out, qs := unsafe.Slice(s, blocks*16), unsafe.Slice(query, dim)
		for i, t := range unsafe.Slice(table, blocks) {
			var sum [16]float32
			for d, q := range qs {
				key := row(unsafe.Add(unsafe.Pointer(k), int(t)*stride+d*16*elem))
				for l := range sum {
					sum[l] += float32(q * key[l])
				}
			}
			copy(out[i*16:], sum[:])
		}
	}
}

// valuesGeneric returns a ValuesFunc of one query and z slices over values of elem bytes that row reads.
func valuesGeneric(z, elem int, row func(unsafe.Pointer) [16]float32) ValuesFunc {
	return func(o *float32, ldo int, p *float32, ldp int, v *byte, table *int32, n, stride, dim int) {
		out, blocks := unsafe.Slice(o, 16*z), unsafe.Slice(table, (n+15)/16)
		clear(out)
		for t, w := range unsafe.Slice(p, n) {
			at := unsafe.Add(unsafe.Pointer(v), int(blocks[t/16])*stride+t%16*dim*elem)
			for j := 0; j < len(out); j += 16 {
				value := row(unsafe.Add(at, j*elem))
				for l, x := range value {
					out[j+l] += float32(w * x)
				}
			}
		}
	}
}

func softmaxExpGeneric(s *float32, n int, scale float32) {
	ss := unsafe.Slice(s, (n+15)/16*16)
	top := float32(-math.MaxFloat32) // so that a row of −Inf alone becomes +0 too
	for _, v := range ss[:n] {
		if v > top {
			top = v
		}
	}
	for t, v := range ss[:n] {
		ss[t] = expGeneric(float32(v-top) * scale)
	}
	clear(ss[n:])
}

func sumOrderedGeneric(out, s *float32, lds, queries, n int) {
	for q := range queries {
		var sum float32
		for _, v := range unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(s), q*lds*4)), n) {
			sum += v
		}
		unsafe.Slice(out, queries)[q] = sum
	}
}
