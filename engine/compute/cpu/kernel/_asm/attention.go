package main

import (
	"fmt"
	"math"
)

// Which (queries, tiles) and (queries, slices) are worth a function, and how many tiles each takes at once. Queries
// share the loads and conversions of a vector (two uops for float16); tiles share the broadcasts, which need
// only a load port. At least 8 chains keep two multiply-adds of 4 cycles starting in each cycle; 12 leave room
// for delays. Left-over tiles fall to the next smaller count.
var (
	scoreTiles = map[string]map[int][]int{ // by set and queries
		"AVX2":   {1: {4, 2, 1}, 2: {2, 1}, 3: {2, 1}, 4: {1}, 5: {1}, 6: {1}},
		"AVX512": {1: {8, 4, 2, 1}, 2: {8, 4, 2, 1}, 3: {4, 2, 1}, 4: {4, 2, 1}, 5: {3, 1}, 6: {3, 1}, 7: {3, 1}, 8: {3, 1}, 9: {3, 1}, 10: {2, 1}, 11: {2, 1}, 12: {2, 1}},
	}
	valueTiles = map[string]map[int]int{ // by set: for up to so many slices at once, the most queries
		"AVX2":   {4: 1, 2: 3, 1: 6},
		"AVX512": {4: 6, 2: 12, 1: 12},
	}
)

const maxQueries, maxSlices = 12, 4

func genAttention(f *file) {
	f.asm.WriteString("\n")
	f.table("storeConst", []uint32{math.Float32bits(65504), math.Float32bits(-65504), math.Float32bits(math.MaxFloat32), math.Float32bits(-math.MaxFloat32)})
	for _, elem := range []int{2, 4} {
		genStoreK(f, elem)
		genStoreV(f, elem)
		for _, v := range isas {
			for q := 1; q <= maxQueries; q++ {
				if tiles := scoreTiles[v.suffix][q]; tiles != nil {
					genScores(f, v, elem, q, tiles)
				}
				for z := 1; z <= maxSlices; z++ {
					if t := slicesAtOnce(v, q, z); t > 0 {
						genValues(f, v, elem, q, z, t)
					}
				}
			}
		}
	}
	for _, v := range isas {
		genAttentionSet(f, v)
	}
}

// slicesAtOnce returns how many of z slices a ValuesFunc of q queries holds in registers, 0 if there is none for q and z.
func slicesAtOnce(v isa, q, z int) int {
	for t := z; t > 0 && z != 3; t /= 2 {
		if q <= valueTiles[v.suffix][t] {
			return t
		}
	}
	return 0
}

func scoresName(v isa, elem, q int) string { return fmt.Sprintf("scores%d_%d%s", 8*elem, q, v.suffix) }
func valuesName(v isa, elem, q, z int) string {
	return fmt.Sprintf("values%d_%dx%d%s", 8*elem, q, z, v.suffix)
}

// genAttentionSet writes the Go function that fills in a Set's attention kernels.
func genAttentionSet(f *file, v isa) {
	d := &f.decl
	fmt.Fprintf(d, "\n// attention%[1]s fills in the kernels over the KV cache.\nfunc attention%[1]s(s *Set) {\n", v.suffix)
	fmt.Fprintf(d, "\ts.StoreK16, s.StoreV16, s.StoreK32, s.StoreV32 = storeK16AVX2, storeV16AVX2, storeK32AVX2, storeV32AVX2\n")
	for _, elem := range []int{2, 4} {
		for q := 1; q <= maxQueries; q++ {
			if scoreTiles[v.suffix][q] != nil {
				fmt.Fprintf(d, "\ts.Scores%d[%d] = %s\n", 8*elem, q, scoresName(v, elem, q))
			}
			for z := 1; z <= maxSlices; z++ {
				if slicesAtOnce(v, q, z) > 0 {
					fmt.Fprintf(d, "\ts.Values%d[%d][%d] = %s\n", 8*elem, q, z, valuesName(v, elem, q, z))
				}
			}
		}
	}
	fmt.Fprint(d, "}\n")
}

// genStoreK emits Set.StoreK: eight elements at a time, each to its place 16 elements on.
func genStoreK(f *file, elem int) {
	storeHead(f, "K", elem)
	if elem == 2 {
		f.p("VCVTPS2PH $0, Y0, X0")
		for i := range 8 {
			f.p("VPEXTRW $%d, X0, %d(DI)", i, 32*i)
		}
	} else {
		f.p("VEXTRACTF128 $1, Y0, X1")
		for i := range 8 {
			f.p("VEXTRACTPS $%d, X%d, %d(DI)", i%4, i/4, 64*i)
		}
	}
	storeTail(f, 8*16*elem)
}

// genStoreV emits Set.StoreV.
func genStoreV(f *file, elem int) {
	storeHead(f, "V", elem)
	if elem == 2 {
		f.p("VCVTPS2PH $0, Y0, (DI)")
	} else {
		f.p("VMOVUPS Y0, (DI)")
	}
	storeTail(f, 8*elem)
}

// storeHead loads eight elements into Y0, saturated and with NaN turned to +0.
func storeHead(f *file, kind string, elem int) {
	f.fn(fmt.Sprintf("store%s%dAVX2", kind, 8*elem), "dst *byte, x *float32, dim int", 24, fmt.Sprintf("is Set.Store%s%d.", kind, 8*elem))
	f.p("MOVQ dst+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ dim+16(FP), CX")
	limit := (elem - 2) * 4
	f.p("VBROADCASTSS storeConst<>+%d(SB), Y4", limit)
	f.p("VBROADCASTSS storeConst<>+%d(SB), Y5", limit+4)
	f.label("loop")
	f.p("VMOVUPS (SI), Y0")
	f.p("VCMPPS $%#x, Y0, Y0, Y1", ordered)
	f.p("VMINPS Y4, Y0, Y0")
	f.p("VMAXPS Y5, Y0, Y0")
	f.p("VANDPS Y1, Y0, Y0")
}

func storeTail(f *file, bytes int) {
	f.p("ADDQ $32, SI")
	f.p("ADDQ $%d, DI", bytes)
	f.p("SUBQ $8, CX")
	f.p("JNZ loop")
	f.ret()
}
