package main

import "math"

// This file holds the kernels that 256-bit registers serve as well as 512-bit ones: both sets use them.

// Offsets in the table quantConst.
const (
	qPermute = 0 // the order in which packed codes leave the two halves of a register
	qShift   = 32
	qShift2  = 48
	q127     = 64
	qFloor   = 68
	qMax     = 72
	qAbs     = 76
	qOne     = 80
)

// genQuantize emits Set.Quantize; every step is exact or one rounding, so it equals the generic one.
func genQuantize(f *file) {
	f.asm.WriteString("\n")
	f.table("quantConst", []uint32{
		0, 4, 1, 5, 2, 6, 3, 7,
		0, 0, 3, 7, // −Σ·8, −Σ·128
		5, 5, 32, 32, // −Σ₀·32, −Σ₁·32, 0, 0
		math.Float32bits(127), math.Float32bits(0x1p-119), math.Float32bits(math.MaxFloat32), 1<<31 - 1, math.Float32bits(1),
	})
	f.fn("quantizeAVX2", "dst *byte, x *float32, blocks, stride int", 32, "is Set.Quantize.")
	f.p("MOVQ dst+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ blocks+16(FP), CX")
	f.p("MOVQ stride+24(FP), DX")
	f.p("VBROADCASTSS quantConst<>+%d(SB), Y15", qAbs)
	f.p("VBROADCASTSS quantConst<>+%d(SB), X14", q127)
	f.p("VBROADCASTSS quantConst<>+%d(SB), X13", qFloor)
	f.p("VBROADCASTSS quantConst<>+%d(SB), X12", qMax)
	f.label("loop")
	quantizeCodes(f)
	quantizeSums(f)
	f.p("SUBQ $-128, SI")
	f.p("ADDQ DX, DI")
	f.p("DECQ CX")
	f.p("JNZ loop")
	f.ret()
}

// quantizeCodes leaves the codes of one block as integers in Y0–Y3 and s in all lanes of X5.
func quantizeCodes(f *file) {
	for i := range 4 {
		f.p("VMOVUPS %d(SI), Y%d", 32*i, i)
		f.p("VANDPS Y%d, Y15, Y%d", i, 4+i)
	}
	f.p("VPMAXUD Y5, Y4, Y4")
	f.p("VPMAXUD Y7, Y6, Y6")
	f.p("VPMAXUD Y6, Y4, Y4")
	f.p("VEXTRACTI128 $1, Y4, X5")
	f.p("VPMAXUD X5, X4, X4")
	f.p("VPSHUFD $0x4e, X4, X5")
	f.p("VPMAXUD X5, X4, X4")
	f.p("VPSHUFD $0xb1, X4, X5")
	f.p("VPMAXUD X5, X4, X4") // max|x|
	f.p("VDIVPS X14, X4, X5")
	f.p("VDIVPS X4, X14, X6")
	f.p("VCMPPS $%#x, X13, X4, X7", notLess)
	f.p("VCMPPS $%#x, X12, X4, X8", lessEqual)
	f.p("VANDPS X7, X5, X5")
	f.p("VANDPS X7, X8, X8")
	f.p("VBROADCASTSS X6, Y6")
	f.p("VBROADCASTSS X8, Y8")
	for i := range 4 {
		f.p("VMULPS Y6, Y%[1]d, Y%[1]d", i)
	}
	for i := range 4 {
		f.p("VCVTPS2DQ Y%[1]d, Y%[1]d", i)
		f.p("VPAND Y8, Y%[1]d, Y%[1]d", i)
	}
}

// quantizeSums packs the codes and writes the unit.
func quantizeSums(f *file) {
	f.p("VPADDD Y1, Y0, Y9")
	f.p("VPADDD Y3, Y2, Y10")
	f.p("VPACKSSDW Y1, Y0, Y0")
	f.p("VPACKSSDW Y3, Y2, Y2")
	f.p("VPACKSSWB Y2, Y0, Y0")
	f.p("VMOVDQU quantConst<>+%d(SB), Y1", qPermute)
	f.p("VPERMD Y0, Y1, Y0")
	f.p("VMOVDQU Y0, (DI)")
	f.p("VPHADDD Y10, Y9, Y9")
	f.p("VEXTRACTI128 $1, Y9, X10")
	f.p("VPADDD X10, X9, X9")
	f.p("VPSHUFD $0xb1, X9, X10")
	f.p("VPADDD X10, X9, X9") // Σ₀ Σ₀ Σ₁ Σ₁
	f.p("VPSHUFD $0x4e, X9, X10")
	f.p("VPADDD X10, X9, X10") // Σ
	f.p("VCVTDQ2PS X10, X11")
	f.p("VMOVSS quantConst<>+%d(SB), X4", qOne)
	f.p("VBLENDPS $1, X4, X11, X11")
	f.p("VMULPS X5, X11, X11") // s, s·Σ
	f.p("VPXOR X4, X4, X4")
	f.p("VPSUBD X10, X4, X10")
	f.p("VPSLLVD quantConst<>+%d(SB), X10, X10", qShift)
	f.p("VBLENDPS $12, X10, X11, X11")
	f.p("VMOVUPS X11, 32(DI)")
	f.p("VPSHUFD $8, X9, X9")
	f.p("VPSUBD X9, X4, X9")
	f.p("VPSLLVD quantConst<>+%d(SB), X9, X9", qShift2)
	f.p("VMOVDQU X9, 48(DI)")
}

// genResidual emits Set.Residual: one rounding a value, so it equals the generic one.
func genResidual(f *file) {
	f.fn("residualAVX2", "dst, x *float32, units *byte, blocks, stride int", 40, "is Set.Residual.")
	f.p("MOVQ dst+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ units+16(FP), BX")
	f.p("MOVQ blocks+24(FP), CX")
	f.p("MOVQ stride+32(FP), DX")
	f.label("loop")
	f.p("VBROADCASTSS 32(BX), Y8") // s
	for i := range 4 {
		f.p("VPMOVSXBD %d(BX), Y%d", 8*i, i)
		f.p("VCVTDQ2PS Y%[1]d, Y%[1]d", i)
		f.p("VMOVUPS %d(SI), Y%d", 32*i, 4+i)
		f.p("VFNMADD231PS Y8, Y%d, Y%d", i, 4+i)
		f.p("VMOVUPS Y%d, %d(DI)", 4+i, 32*i)
	}
	f.p("SUBQ $-128, SI")
	f.p("SUBQ $-128, DI")
	f.p("ADDQ DX, BX")
	f.p("DECQ CX")
	f.p("JNZ loop")
	f.ret()
}

func genCopyUnits(f *file) {
	f.fn("copyUnitsAVX2", "dst *byte, x *float32, blocks, stride int", 32, "is Set.CopyUnits.")
	f.p("MOVQ dst+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ blocks+16(FP), CX")
	f.p("MOVQ stride+24(FP), DX")
	f.label("loop")
	for i := range 4 {
		f.p("VMOVUPS %d(SI), Y%d", 32*i, i)
	}
	for i := range 4 {
		f.p("VMOVUPS Y%d, %d(DI)", i, 32*i)
	}
	f.p("SUBQ $-128, SI")
	f.p("ADDQ DX, DI")
	f.p("DECQ CX")
	f.p("JNZ loop")
	f.ret()
}

func genRope(f *file) {
	f.fn("ropeAVX2", "x, cos, sin *float32, half int", 32, "is Set.Rope.")
	f.p("MOVQ x+0(FP), DI")
	f.p("MOVQ cos+8(FP), SI")
	f.p("MOVQ sin+16(FP), DX")
	f.p("MOVQ half+24(FP), CX")
	f.p("LEAQ (DI)(CX*4), R8")
	f.label("loop")
	f.p("VMOVUPS (DI), Y0")
	f.p("VMOVUPS (R8), Y1")
	f.p("VMOVUPS (SI), Y2")
	f.p("VMOVUPS (DX), Y3")
	f.p("VMULPS Y3, Y1, Y4")
	f.p("VMULPS Y3, Y0, Y5")
	f.p("VFMSUB213PS Y4, Y2, Y0")
	f.p("VFMADD213PS Y5, Y2, Y1")
	f.p("VMOVUPS Y0, (DI)")
	f.p("VMOVUPS Y1, (R8)")
	for _, p := range []string{"DI", "R8", "SI", "DX"} {
		f.p("ADDQ $32, %s", p)
	}
	f.p("SUBQ $8, CX")
	f.p("JNZ loop")
	f.ret()
}

// genSumOrdered emits Set.SumOrdered. Eight queries go together, one a lane: 4×4 transposes turn four
// positions of each into four vectors, which are added in order (K5). In a group of fewer the last query is repeated.
func genSumOrdered(f *file) {
	f.fn("sumOrderedAVX2", "out, s *float32, lds, queries, n int", 40, "is Set.SumOrdered.")
	f.p("MOVQ out+0(FP), DI")
	f.p("MOVQ s+8(FP), SI")
	f.p("MOVQ lds+16(FP), DX")
	f.p("SHLQ $2, DX")
	f.p("MOVQ queries+24(FP), BX")
	f.p("MOVQ n+32(FP), CX")
	f.p("SHLQ $2, CX")
	f.label("group")
	f.p("MOVQ SI, R8")
	for i := range 7 {
		f.p("LEAQ (R%d)(DX*1), R%d", 8+i, 9+i)
		f.p("CMPQ BX, $%d", i+1)
		f.p("CMOVQLE R%d, R%d", 8+i, 9+i)
	}
	f.p("VXORPS X0, X0, X0")
	f.p("XORL AX, AX")
	f.p("SUBQ $16, CX")
	f.p("JLT tail")
	f.label("loop")
	for i := range 4 {
		f.p("VMOVUPS (R%d)(AX*1), X%d", 8+i, 1+i)
		f.p("VINSERTF128 $1, (R%d)(AX*1), Y%[2]d, Y%[2]d", 12+i, 1+i)
	}
	f.p("VUNPCKLPS Y2, Y1, Y5")
	f.p("VUNPCKLPS Y4, Y3, Y7")
	f.p("VUNPCKHPS Y2, Y1, Y6")
	f.p("VUNPCKHPS Y4, Y3, Y8")
	f.p("VUNPCKLPD Y7, Y5, Y9")
	f.p("VUNPCKHPD Y7, Y5, Y10")
	f.p("VUNPCKLPD Y8, Y6, Y11")
	f.p("VUNPCKHPD Y8, Y6, Y12")
	for i := range 4 {
		f.p("VADDPS Y%d, Y0, Y0", 9+i)
	}
	f.p("ADDQ $16, AX")
	f.p("CMPQ AX, CX")
	f.p("JLE loop")
	f.label("tail")
	f.p("ADDQ $16, CX")
	f.label("one")
	f.p("CMPQ AX, CX")
	f.p("JGE store")
	for i := range 2 {
		f.p("VMOVSS (R%d)(AX*1), X%d", 8+4*i, 1+i)
		for j := 1; j < 4; j++ {
			f.p("VINSERTPS $%#x, (R%d)(AX*1), X%[3]d, X%[3]d", 16*j, 8+4*i+j, 1+i)
		}
	}
	f.p("VINSERTF128 $1, X2, Y1, Y1")
	f.p("VADDPS Y1, Y0, Y0")
	f.p("ADDQ $4, AX")
	f.p("JMP one")
	f.label("store")
	f.p("VMOVD BX, X1")
	f.p("VPBROADCASTD X1, Y1")
	f.p("VPCMPGTD vectorIota<>(SB), Y1, Y1")
	f.p("VMASKMOVPS Y0, Y1, (DI)")
	f.p("ADDQ $32, DI")
	f.p("LEAQ (SI)(DX*8), SI")
	f.p("SUBQ $8, BX")
	f.p("JGT group")
	f.ret()
}
