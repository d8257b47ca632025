package main

import "fmt"

// distance512 is how far ahead of the weights in use the AVX-512 kernels prefetch, in bytes. The
// hardware's own prefetcher keeps up with one row; with eight the kernel's loads come too far
// apart for it.
const distance512 = 4096

// Registers of the AVX-512 integer kernels: Z0–Z7 unpacked codes of a block's eight k-quads, then
// (row r) float sums, integer sums, and single ones.
const (
	zAcc   = 8  // + row
	zDot   = 16 // + row
	zD     = 24
	zM     = 25
	zTmp   = 26 // and 27: alternating, so that a row need not wait for the last
	zSuper = 28 // d, and dmin in the next, of a super-block
	zMask  = 31
)

// intAVX512 emits MatMulFunc for an integer format. Per group: float sums of all rows stay in
// registers over the whole reduction; per block the codes are unpacked once and multiplied with
// every row's, four bytes at a time broadcast from memory.
func intAVX512(f *file, q *intFormat, rows int, name string) {
	f.fn(name, matmulArgs, matmulArgBytes, matmulDoc(q.name, rows, "AVX-512 VNNI"))
	stride, codes := q.blockBytes()
	f.p("MOVQ w+0(FP), SI")
	f.p("MOVQ y+16(FP), DX")
	f.p("MOVQ groups+32(FP), R9")
	f.p("MOVQ ldy+40(FP), R10")
	f.p("SHLQ $2, R10")
	f.p("MOVQ add+48(FP), R11")
	if q.nibbles {
		f.p("MOVL $0x0f0f0f0f, AX")
		f.p("VPBROADCASTD AX, Z%d", zMask)
	}
	f.label("group")
	f.p("MOVQ x+8(FP), DI")
	f.p("MOVQ blocks+24(FP), CX")
	for r := range rows {
		f.p("VPXORD Z%d, Z%d, Z%d", zAcc+r, zAcc+r, zAcc+r)
	}
	if q.super {
		f.label("super")
		f.p("VCVTPH2PS (SI), Z%d", zSuper)
		if q.offset {
			f.p("VCVTPH2PS 32(SI), Z%d", zSuper+1)
		}
		f.p("ADDQ $%d, SI", q.head)
	}
	f.label("block")
	factors512(f, q)
	if q.halves {
		dots512(f, q, rows, codes, 0, 4, atMinus32a)
		sums512(f, rows, zD, "")
		dots512(f, q, rows, codes, 4, 8, atMinus32b)
		sums512(f, rows, zM, "")
	} else {
		dots512(f, q, rows, codes, 0, 8, q.init)
		sums512(f, rows, zD, q.addOffset())
	}
	f.p("ADDQ $%d, SI", stride)
	f.p("ADDQ $%d, DI", rows*intUnit)
	nextBlock(f, q)
	store512(f, rows, 1)
	f.p("ADDQ $64, DX")
	f.p("DECQ R9")
	f.p("JNZ group")
	f.ret()
}

// factors512 loads a block's factors into zD and zM.
func factors512(f *file, q *intFormat) {
	if !q.super {
		f.p("VCVTPH2PS (SI), Z%d", zD)
		if q.offset {
			f.p("VCVTPH2PS 32(SI), Z%d", zM)
		}
		return
	}
	widen := "VPMOVZXBD"
	if q.halves {
		widen = "VPMOVSXBD"
	}
	for i := range 2 {
		f.p("%s %d(SI), Z%d", widen, 16*i, zD+i)
		f.p("VCVTDQ2PS Z%d, Z%d", zD+i, zD+i)
		from := zSuper
		if i == 1 && q.offset {
			from++
		}
		f.p("VMULPS Z%d, Z%d, Z%d", from, zD+i, zD+i)
	}
}

// dots512 sets every row's integer sum to its products with k-quads from to to, zeros subtracted.
func dots512(f *file, q *intFormat, rows, codes, from, to, init int) {
	for r := range rows {
		if init != 0 {
			f.p("VPBROADCASTD %d(DI), Z%d", r*intUnit+init, zDot+r)
		} else {
			f.p("VPXORD Z%d, Z%d, Z%d", zDot+r, zDot+r, zDot+r)
		}
	}
	for k := from; k < to; k++ {
		prefetch512(f, q, k)
		if !q.nibbles {
			f.p("VMOVDQU32 %d(SI), Z%d", codes+64*k, k)
		} else if k%2 == 0 {
			f.p("VPSRLD $4, %d(SI), Z%d", codes+32*k, k+1)
			f.p("VPANDD %d(SI), Z%d, Z%d", codes+32*k, zMask, k)
			f.p("VPANDD Z%d, Z%d, Z%d", zMask, k+1, k+1)
		}
		for r := range rows {
			f.p("VPDPBUSD.BCST %d(DI), Z%d, Z%d", r*intUnit+4*k, k, zDot+r)
		}
	}
}

// prefetch512 prefetches its share of the cache lines of the block distance512 ahead. Spread over
// the k-quads they find a free fill buffer more often than all at once.
func prefetch512(f *file, q *intFormat, quad int) {
	stride, _ := q.blockBytes()
	lines := (stride + 63) / 64
	for line := (quad*lines + 7) / 8; line < ((quad+1)*lines+7)/8; line++ {
		f.p("PREFETCHT0 %d(SI)", distance512+64*line)
	}
}

// sums512 adds every row's integer sum to its float sum: acc += dot·(d·s), and with the
// instruction addOffset, if the format has one, acc ± m·(s·Σ).
func sums512(f *file, rows, d int, addOffset string) {
	for r := range rows {
		t := zTmp + r%2
		f.p("VMULPS.BCST %d(DI), Z%d, Z%d", r*intUnit+atScale, d, t)
		f.p("VCVTDQ2PS Z%d, Z%d", zDot+r, zDot+r)
		f.p("VFMADD231PS Z%d, Z%d, Z%d", t, zDot+r, zAcc+r)
		if addOffset != "" {
			f.p("%s.BCST %d(DI), Z%d, Z%d", addOffset, r*intUnit+atScaleSum, zM, zAcc+r)
		}
	}
}

// store512 writes (or, if R11 is not 0, adds) the float sums of rows rows to y at DX, for n groups side by side.
func store512(f *file, rows, n int) {
	f.p("MOVQ DX, BX")
	f.p("TESTQ R11, R11")
	f.p("JZ store%d", n)
	for r := range rows {
		for g := range n {
			f.p("VADDPS %d(BX), Z%d, Z%d", 64*g, zAcc+r*n+g, zAcc+r*n+g)
		}
		f.p("ADDQ R10, BX")
	}
	f.p("MOVQ DX, BX")
	f.label(fmt.Sprintf("store%d", n))
	for r := range rows {
		for g := range n {
			f.p("VMOVUPS Z%d, %d(BX)", zAcc+r*n+g, 64*g)
		}
		f.p("ADDQ R10, BX")
	}
}

// floatAVX512 emits MatMulFunc for a float format. Few rows are too few chains to hide the
// latency of a fused multiply-add, so they take several groups at once; what is left over goes one by one.
func floatAVX512(f *file, format string, bytes, rows int, name string) {
	f.fn(name, matmulArgs, matmulArgBytes, matmulDoc(format, rows, "AVX-512"))
	f.p("MOVQ w+0(FP), SI")
	f.p("MOVQ y+16(FP), DX")
	f.p("MOVQ groups+32(FP), R9")
	f.p("MOVQ ldy+40(FP), R10")
	f.p("SHLQ $2, R10")
	f.p("MOVQ add+48(FP), R11")
	f.p("MOVQ blocks+24(FP), R12") // bytes of a group
	f.p("IMULQ $%d, R12", 32*16*bytes)
	for n := floatGroups512(rows); n >= 1; n-- {
		f.label(fmt.Sprintf("group%d", n))
		f.p("CMPQ R9, $%d", n)
		f.p("JLT done%d", n)
		floatPass512(f, format, bytes, rows, n)
		f.p("ADDQ $%d, DX", 64*n)
		f.p("SUBQ $%d, R9", n)
		f.p("JMP group%d", n)
		f.label(fmt.Sprintf("done%d", n))
	}
	f.ret()
}

// floatGroups512 is how many groups side by side a tile of rows takes: enough chains for what
// memory delivers. Four groups for one row were slower than two: as many streams confuse the prefetcher.
func floatGroups512(rows int) int {
	if rows <= 4 {
		return 2
	}
	return 1
}

// floatPass512 sums n groups (at SI, which it moves past them) for all rows.
func floatPass512(f *file, format string, bytes, rows, n int) {
	const unroll = 4
	place := []string{"(SI)", "(SI)(R12*1)"}
	f.p("MOVQ x+8(FP), DI")
	f.p("MOVQ blocks+24(FP), CX")
	for i := range rows * n {
		f.p("VPXORD Z%d, Z%d, Z%d", zAcc+i, zAcc+i, zAcc+i)
	}
	f.label(fmt.Sprintf("block%d", n))
	f.p("MOVL $%d, R8", 32/unroll)
	f.label(fmt.Sprintf("cols%d", n))
	for k := range unroll {
		for g := range n {
			if 16*bytes*k%64 == 0 {
				f.p("PREFETCHT0 %d%s", distance512+16*bytes*k, place[g])
			}
			widen512(f, format, fmt.Sprintf("%d%s", 16*bytes*k, place[g]), g)
		}
		for r := range rows {
			for g := range n {
				f.p("VFMADD231PS.BCST %d(DI), Z%d, Z%d", r*floatUnit+4*k, g, zAcc+r*n+g)
			}
		}
	}
	f.p("ADDQ $%d, SI", 16*bytes*unroll)
	f.p("ADDQ $%d, DI", 4*unroll)
	f.p("DECL R8")
	f.p("JNZ cols%d", n)
	f.p("ADDQ $%d, DI", floatUnit*(rows-1))
	f.p("DECQ CX")
	f.p("JNZ block%d", n)
	store512(f, rows, n)
	for range n - 1 {
		f.p("ADDQ R12, SI")
	}
}

// widen512 loads 16 weights as float32.
func widen512(f *file, format, at string, z int) {
	switch format {
	case "F16":
		f.p("VCVTPH2PS %s, Z%d", at, z)
	case "BF16":
		f.p("VPMOVZXWD %s, Z%d", at, z)
		f.p("VPSLLD $16, Z%d, Z%d", z, z)
	default:
		f.p("VMOVUPS %s, Z%d", at, z)
	}
}
