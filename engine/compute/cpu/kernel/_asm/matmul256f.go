package main

import "fmt"

// chains256 is the most float sums that an AVX2 float kernel holds: Y0–Y7. Four broadcast
// activations (Y8–Y11), a weight and one more need the rest.
const (
	chains256 = 8
	yX        = 8
	yW        = 12
)

// floatAVX2 emits MatMulFunc for a float format. Up to four rows take both halves of one or more
// groups at once, as many chains as there are registers for; more rows take a half at a time.
func floatAVX2(f *file, format string, bytes, rows int, name string) {
	f.fn(name, matmulArgs, matmulArgBytes, matmulDoc(format, rows, "AVX2"))
	f.p("MOVQ w+0(FP), SI")
	f.p("MOVQ y+16(FP), DX")
	f.p("MOVQ groups+32(FP), R9")
	f.p("MOVQ ldy+40(FP), R10")
	f.p("SHLQ $2, R10")
	f.p("MOVQ add+48(FP), R11")
	f.p("MOVQ blocks+24(FP), R12") // bytes of a group
	f.p("IMULQ $%d, R12", 32*16*bytes)
	for n := floatGroups256(rows); n >= 1; n-- {
		f.label(fmt.Sprintf("group%d", n))
		f.p("CMPQ R9, $%d", n)
		f.p("JLT done%d", n)
		k := pass256{file: f, format: format, bytes: bytes, rows: rows, groups: n}
		if 2*rows*n <= chains256 {
			k.emit(0, 1)
		} else {
			k.emit(0)
			f.p("SUBQ R12, SI")
			k.emit(1)
		}
		for range n - 1 {
			f.p("ADDQ R12, SI")
		}
		f.p("ADDQ $%d, DX", 64*n)
		f.p("SUBQ $%d, R9", n)
		f.p("JMP group%d", n)
		f.label(fmt.Sprintf("done%d", n))
	}
	f.ret()
}

// floatGroups256 is floatGroups512 for AVX2, where two rows' chains fill the registers.
func floatGroups256(rows int) int {
	if rows <= 2 {
		return 2
	}
	return 1
}

// pass256 is a reduction over all columns for some groups side by side.
type pass256 struct {
	*file
	format              string
	bytes, rows, groups int
}

// emit sums the given halves of the groups at SI, which it moves past the first group.
func (k *pass256) emit(halves ...int) {
	const unroll = 4
	tag := fmt.Sprintf("%d%d", k.groups, halves[0])
	place := []string{"(SI)", "(SI)(R12*1)"}
	chain := func(r, g, i int) int { return (r*k.groups+g)*len(halves) + i }
	k.p("MOVQ x+8(FP), DI")
	k.p("MOVQ blocks+24(FP), CX")
	for i := range chain(k.rows, 0, 0) {
		k.p("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	k.label("block" + tag)
	k.p("MOVL $%d, R8", 32/unroll)
	k.label("cols" + tag)
	for col := range unroll {
		few := k.rows <= 4
		if few {
			for r := range k.rows {
				k.p("VBROADCASTSS %d(DI), Y%d", r*floatUnit+4*col, yX+r)
			}
		}
		for g := range k.groups {
			if 16*k.bytes*col%64 == 0 {
				k.p("PREFETCHT0 %d%s", distance256+16*k.bytes*col, place[g])
			}
			for i, half := range halves {
				k.widen(fmt.Sprintf("%d%s", k.bytes*(16*col+8*half), place[g]))
				for r := range k.rows {
					x := yX + r
					if !few {
						x = yX + r%4
						k.p("VBROADCASTSS %d(DI), Y%d", r*floatUnit+4*col, x)
					}
					k.p("VFMADD231PS Y%d, Y%d, Y%d", x, yW, chain(r, g, i))
				}
			}
		}
	}
	k.p("ADDQ $%d, SI", 16*k.bytes*unroll)
	k.p("ADDQ $%d, DI", 4*unroll)
	k.p("DECL R8")
	k.p("JNZ cols%s", tag)
	k.p("ADDQ $%d, DI", floatUnit*(k.rows-1))
	k.p("DECQ CX")
	k.p("JNZ block%s", tag)
	k.store(tag, halves, chain)
}

// widen loads 8 weights as float32 into yW.
func (k *pass256) widen(at string) {
	switch k.format {
	case "F16":
		k.p("VCVTPH2PS %s, Y%d", at, yW)
	case "BF16":
		k.p("VPMOVZXWD %s, Y%d", at, yW)
		k.p("VPSLLD $16, Y%d, Y%d", yW, yW)
	default:
		k.p("VMOVUPS %s, Y%d", at, yW)
	}
}

// store writes (or, if R11 is not 0, adds) the sums to y at DX.
func (k *pass256) store(tag string, halves []int, chain func(r, g, i int) int) {
	each := func(emit func(at, y int)) {
		k.p("MOVQ DX, BX")
		for r := range k.rows {
			for g := range k.groups {
				for i, half := range halves {
					emit(64*g+32*half, chain(r, g, i))
				}
			}
			k.p("ADDQ R10, BX")
		}
	}
	k.p("TESTQ R11, R11")
	k.p("JZ store%s", tag)
	each(func(at, y int) { k.p("VADDPS %d(BX), Y%d, Y%d", at, y, y) })
	k.label("store" + tag)
	each(func(at, y int) { k.p("VMOVUPS Y%d, %d(BX)", y, at) })
}
