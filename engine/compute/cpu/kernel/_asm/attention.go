package main

import (
	"fmt"
	"math"
	"strings"
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
	valueQueries = map[string]map[int]int{ // by set and slices: the most queries
		"AVX2":   {1: 6, 2: 3, 4: 1},
		"AVX512": {1: 12, 2: 12, 4: 6},
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
					if q <= valueQueries[v.suffix][z] {
						genValues(f, v, elem, q, z)
					}
				}
			}
		}
	}
	for _, v := range isas {
		genAttentionSet(f, v)
	}
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
				if q <= valueQueries[v.suffix][z] {
					fmt.Fprintf(d, "\ts.Values%d[%d][%d] = %s\n", 8*elem, q, z, valuesName(v, elem, q, z))
				}
			}
		}
	}
	fmt.Fprint(d, "}\n")
}

// pool is the general registers that hold the row bases beyond the first and then the tiles.
var pool = []string{"R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}

// bases returns the registers that address q rows in threes: row i lies at base i/3 plus i%3 times DX.
func bases(q int) []string { return append([]string{"SI"}, pool[:(q-1)/3]...) }

// setBases points the bases at the rows, SI being set.
func setBases(f *file, q int) {
	b := bases(q)
	for i := 1; i < len(b); i++ {
		f.p("LEAQ (%s)(DX*2), %s", b[i-1], b[i])
		f.p("ADDQ DX, %s", b[i])
	}
}

// row addresses float d of row i.
func row(b []string, i, d int) string {
	index := ""
	if i%3 > 0 {
		index = fmt.Sprintf("(DX*%d)", i%3)
	}
	return fmt.Sprintf("%d(%s)%s", 4*d, b[i/3], index)
}

// tileKernel is a register tile: q rows of scalars times t vectors of 16 elements each.
type tileKernel struct {
	isa
	elem, q, t int
}

// vectors is the number of registers that t vectors take.
func (k tileKernel) vectors() int { return k.t * k.parts }

func (k tileKernel) r(i int) string {
	if k.parts == 1 {
		return fmt.Sprintf("Z%d", i)
	}
	return fmt.Sprintf("Y%d", i)
}

// acc is the accumulator of row i and vector register u.
func (k tileKernel) acc(i, u int) string { return k.r(i*k.vectors() + u) }

func (k tileKernel) zero(f *file) {
	for i := range k.q * k.vectors() {
		f.p("VXORPS X%[1]d, X%[1]d, X%[1]d", i)
	}
}

// load emits the load of vector register u; address gives vector u/parts' address plus an offset in bytes.
func (k tileKernel) load(f *file, u int, address func(t, off int) string, dst string) {
	op := "VMOVUPS"
	if k.elem == 2 {
		op = "VCVTPH2PS"
	}
	f.p("%s %s, %s", op, address(u/k.parts, u%k.parts*8*k.elem), dst)
}

// step emits acc[i][u] += scalar(i)·vector(u) for all of the tile.
func (k tileKernel) step(f *file, scalar func(i int) string, address func(t, off int) string) {
	free, n := k.q*k.vectors(), k.vectors()
	if k.q < n { // hold the scalars, let the vectors pass through what is left
		for i := range k.q {
			f.p("VBROADCASTSS %s, %s", scalar(i), k.r(free+i))
		}
		free += k.q
		spare := min(n, 16*(3-k.parts)-free) // 16 registers on AVX2, 32 on AVX-512
		for u := range n {
			x := k.r(free + u%spare)
			k.load(f, u, address, x)
			for i := range k.q {
				f.p("VFMADD231PS %s, %s, %s", x, k.r(k.q*n+i), k.acc(i, u))
			}
		}
		return
	}
	for u := range n {
		k.load(f, u, address, k.r(free+u))
	}
	for i := range k.q {
		if n == 1 {
			f.p("VFMADD231PS.BCST %s, %s, %s", scalar(i), k.r(free), k.acc(i, 0))
			continue
		}
		x := k.r(free + n + i%max(1, min(2, 16*(3-k.parts)-free-n)))
		f.p("VBROADCASTSS %s, %s", scalar(i), x)
		for u := range n {
			f.p("VFMADD231PS %s, %s, %s", k.r(free+u), x, k.acc(i, u))
		}
	}
}

// store writes the accumulators to rows at AX, SI bytes apart.
func (k tileKernel) store(f *file) {
	for i := range k.q {
		for u := range k.vectors() {
			f.p("VMOVUPS %s, %d(AX)", k.acc(i, u), u*k.bytes)
		}
		if i < k.q-1 {
			f.p("ADDQ SI, AX")
		}
	}
}

// genScores emits a ScoresFunc: for each count of tiles in turn, as many groups of it as there are blocks.
func genScores(f *file, v isa, elem, q int, tiles []int) {
	f.fn(scoresName(v, elem, q), "s *float32, lds int, query *float32, k *byte, table *int32, blocks, stride, dim int", 64,
		fmt.Sprintf("is Set.Scores%d[%d].", 8*elem, q))
	f.p("MOVQ s+0(FP), DI")
	f.p("MOVQ table+32(FP), BX")
	f.p("MOVQ dim+56(FP), DX")
	f.p("SHLQ $2, DX")
	for n, t := range tiles {
		next := "done"
		if n+1 < len(tiles) {
			next = fmt.Sprintf("tiles%d", tiles[n+1])
		}
		scoreGroup(f, tileKernel{v, elem, q, t}, next)
	}
	f.label("done")
	f.ret()
}

const cacheLine = 64

// keyPointers makes regs the addresses of the key blocks from table entry first on.
func keyPointers(f *file, regs []string, first int) {
	for u, r := range regs {
		f.p("MOVLQSX %d(BX), %s", 4*(first+u), r)
		f.p("IMULQ stride+48(FP), %s", r)
		f.p("ADDQ k+24(FP), %s", r)
	}
}

// unroll is how many multiply-add steps a loop's pointer arithmetic is shared by: dim is a multiple of 16.
const unroll = 4

func scoreGroup(f *file, k tileKernel, next string) {
	b := bases(k.q)
	keys := pool[len(b)-1:][:k.t]
	ahead := pool[len(b)-1+k.t:] // where the next group's keys lie, if registers are left for that
	ahead = ahead[:len(ahead)/k.t*k.t][:k.t*min(1, len(ahead)/k.t)]
	self := fmt.Sprintf("tiles%d", k.t)
	f.label(self)
	f.p("CMPQ blocks+40(FP), $%d", k.t)
	f.p("JLT %s", next)
	keyPointers(f, keys, 0)
	if len(ahead) > 0 { // at the end, the group itself once more
		for u, r := range ahead {
			f.p("MOVQ %s, %s", keys[u], r)
		}
		f.p("CMPQ blocks+40(FP), $%d", 2*k.t)
		f.p("JLT last%s", self)
		keyPointers(f, ahead, k.t)
		f.label("last" + self)
	}
	f.p("MOVQ query+16(FP), SI")
	setBases(f, k.q)
	k.zero(f)
	f.p("MOVQ dim+56(FP), CX")
	f.label("dim" + self)
	for d := range unroll {
		k.step(f, func(i int) string { return row(b, i, d) },
			func(t, off int) string { return fmt.Sprintf("%d(%s)", d*16*k.elem+off, keys[t]) })
		if at := d * 16 * k.elem; at%cacheLine == 0 {
			for _, r := range ahead {
				f.p("PREFETCHT0 %d(%s)", at, r)
			}
		}
	}
	for _, r := range b {
		f.p("ADDQ $%d, %s", 4*unroll, r)
	}
	for _, r := range append(keys[:k.t:k.t], ahead...) {
		f.p("ADDQ $%d, %s", 16*k.elem*unroll, r)
	}
	f.p("SUBQ $%d, CX", unroll)
	f.p("JNZ dim%s", self)
	f.p("MOVQ DI, AX")
	f.p("MOVQ lds+8(FP), SI")
	f.p("SHLQ $2, SI")
	k.store(f)
	f.p("ADDQ $%d, DI", 64*k.t)
	f.p("ADDQ $%d, BX", 4*k.t)
	f.p("SUBQ $%d, blocks+40(FP)", k.t)
	f.p("JMP %s", self)
}

// valuesAhead is how many blocks ahead a ValuesFunc prefetches. Blocks lie apart, so that the processor's own
// prefetcher starts anew in each; fewer do not cover the latency of memory, more outrun the first-level cache.
const valuesAhead = 4

// genValues emits a ValuesFunc. It reads exactly n rows: what lies beyond in the last block may be anything.
func genValues(f *file, v isa, elem, q, z int) {
	k := tileKernel{v, elem, q, z}
	b := bases(q)
	const value, ahead, pitch, pitch3 = "R12", "R11", "R13", "R15"
	step := func(t int, at string) {
		for off := 0; off < 16*z*elem; off += cacheLine {
			f.p("PREFETCHT0 %d%s", off, strings.Replace(at, value, ahead, 1))
		}
		k.step(f, func(i int) string { return row(b, i, t) },
			func(u, off int) string { return fmt.Sprintf("%d%s", 16*elem*u+off, at) })
	}
	advance := func(positions int) {
		for _, r := range b {
			f.p("ADDQ $%d, %s", 4*positions, r)
		}
		f.p("LEAQ (%[1]s)(%[2]s*%[3]d), %[1]s", value, pitch, positions)
		f.p("LEAQ (%[1]s)(%[2]s*%[3]d), %[1]s", ahead, pitch, positions)
	}
	f.fn(valuesName(v, elem, q, z), "o *float32, ldo int, p *float32, ldp int, v *byte, table *int32, n, stride, dim int", 72,
		fmt.Sprintf("is Set.Values%d[%d][%d].", 8*elem, q, z))
	f.p("MOVQ p+16(FP), SI")
	f.p("MOVQ ldp+24(FP), DX")
	f.p("SHLQ $2, DX")
	setBases(f, q)
	f.p("MOVQ table+40(FP), BX")
	f.p("MOVQ n+48(FP), DI")
	f.p("MOVQ dim+64(FP), %s", pitch)
	f.p("SHLQ $%d, %s", elem/2, pitch)
	f.p("LEAQ (%[1]s)(%[1]s*2), %[2]s", pitch, pitch3)
	k.zero(f)
	f.label("block")
	f.p("TESTQ DI, DI")
	f.p("JLE store")
	f.p("MOVLQSX (BX), %s", value)
	f.p("IMULQ stride+56(FP), %s", value)
	f.p("ADDQ v+32(FP), %s", value)
	f.p("MOVQ %s, %s", value, ahead) // near the end, the block itself once more
	f.p("CMPQ DI, $%d", 16*valuesAhead)
	f.p("JLE last")
	f.p("MOVLQSX %d(BX), %s", 4*valuesAhead, ahead)
	f.p("IMULQ stride+56(FP), %s", ahead)
	f.p("ADDQ v+32(FP), %s", ahead)
	f.label("last")
	f.p("ADDQ $4, BX")
	f.p("MOVL $16, CX")
	f.p("CMPQ DI, CX")
	f.p("CMOVQLT DI, CX")
	f.p("SUBQ CX, DI")
	f.p("SUBQ $4, CX")
	f.p("JLT rest")
	f.label("four")
	for t, at := range []string{"(%s)", "(%s)(%s*1)", "(%s)(%s*2)", "(%s)(" + pitch3 + "*1)"} {
		if t == 1 || t == 2 {
			step(t, fmt.Sprintf(at, value, pitch))
		} else {
			step(t, fmt.Sprintf(at, value))
		}
	}
	advance(4)
	f.p("SUBQ $4, CX")
	f.p("JGE four")
	f.label("rest")
	f.p("ADDQ $4, CX")
	f.p("JZ block")
	f.label("one")
	step(0, "("+value+")")
	advance(1)
	f.p("DECQ CX")
	f.p("JNZ one")
	f.p("JMP block")
	f.label("store")
	f.p("MOVQ o+0(FP), AX")
	f.p("MOVQ ldo+8(FP), SI")
	f.p("SHLQ $2, SI")
	k.store(f)
	f.ret()
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
