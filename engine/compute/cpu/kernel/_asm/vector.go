package main

import "math"

// The constants of vector kernels, in the order of their table.
const (
	cLog2E constant = iota
	cMagic          // 1.5·2²³ + 127: adding it rounds to an integer and leaves the biased exponent in the low bits
	cLn2Hi
	cLn2Lo
	cExp6
	cExp5
	cExp4
	cExp3
	cExp2
	cOne
	cExpFloor // below it exp is +0 (expFloor in vector_generic.go)
	cSiluFloor
	cLowest // −MaxFloat32
)

// Predicates of VCMPPS that never signal.
const (
	equal          = 0x00
	ordered        = 0x07
	lessEqual      = 0x12
	notLess        = 0x15 // true for NaN
	fromExp        = cLog2E
	lastInRegister = cLowest
)

func genVector(f *file) {
	ln2hi := float64(float32(0.693359375)) // 10 bits: n·ln2hi is exact
	f.asm.WriteString("\n")
	f.constants([]float64{
		math.Log2E, 3<<22 + 127, ln2hi, math.Ln2 - ln2hi,
		// (eʳ−1−r)/r² on |r| ≤ ½·ln 2, least relative error of eʳ (0.05 ulp) with the first two terms held at 1.
		0x1.6a23173c11c02p-10, 0x1.123a8e109d123p-7, 0x1.5558f5a761aa6p-5, 0x1.55549071e14aep-3, 0x1.fffffb92b6e37p-2, 1,
		-87.33, -88, -math.MaxFloat32,
	})
	f.table("vectorIota", []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	for _, v := range isas {
		genRMSNorm(f, v)
		genSwiGLU(f, v)
		genElementwise(f, v)
		genSoftmaxExp(f, v)
		genSumExp(f, v)
		genArgMax(f, v)
		genReadMem(f, v)
	}
	genQuantize(f)
	genResidual(f)
	genCopyUnits(f)
	genRope(f)
	genSumOrdered(f)
}

// exp emits value x → exp(x) in dst; x, t, n and spare are overwritten. Cody–Waite reduction by n·ln 2, a
// polynomial of degree 6, then a product with 2ⁿ, which keeps NaN. 1 ulp from expFloor to 88.
func exp(f *file, v isa, x, t, n, dst, spare reg) {
	v.mark(f, notLess, cExpFloor, x, spare)
	v.op(f, "VMOVAPS", cLog2E, t)
	v.op(f, "VFMADD213PS", cMagic, x, t)
	v.op(f, "VSUBPS", cMagic, t, n)
	v.op(f, "VFNMADD231PS", cLn2Hi, n, x)
	v.op(f, "VFNMADD231PS", cLn2Lo, n, x)
	v.op(f, "VPSLLD", "$23", t, t)
	v.op(f, "VMOVAPS", cExp6, dst)
	for c := cExp5; c <= cExp2; c++ {
		v.op(f, "VFMADD213PS", c, x, dst)
	}
	v.op(f, "VFMADD213PS", cOne, x, dst)
	v.op(f, "VFMADD213PS", cOne, x, dst)
	v.masked(f, "VMULPS", t, dst, dst, spare)
}

func genRMSNorm(f *file, v isa) {
	f.fn("rmsNorm"+v.suffix, "y, x, gain *float32, n int, eps float32", 36, "is Set.RMSNorm.")
	f.p("MOVQ y+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ gain+16(FP), DX")
	f.p("MOVQ n+24(FP), CX")
	v.zero(f, 0)
	f.p("MOVQ SI, R8")
	f.p("MOVQ CX, R9")
	f.label("sum")
	v.op(f, "VMOVUPS", mem{"R8", 0}, reg(2))
	v.op(f, "VFMADD231PS", reg(2), reg(2), reg(0))
	f.p("ADDQ $64, R8")
	f.p("SUBQ $16, R9")
	f.p("JNZ sum")
	v.fold(f, "VADDPS")
	f.p("VXORPS X1, X1, X1")
	f.p("VCVTSI2SSQ CX, X1, X1")
	f.p("VDIVSS X1, X0, X0")
	f.p("VADDSS eps+32(FP), X0, X0")
	f.p("VSQRTSS X0, X0, X0")
	f.p("VMOVSS %s, X1", cOne.address())
	f.p("VDIVSS X0, X1, X0")
	v.broadcast(f, "X0", 2)
	f.label("scale")
	v.op(f, "VMULPS", mem{"SI", 0}, reg(2), reg(3))
	v.op(f, "VMULPS", mem{"DX", 0}, reg(3), reg(3))
	v.op(f, "VMOVUPS", reg(3), mem{"DI", 0})
	f.p("ADDQ $64, SI")
	f.p("ADDQ $64, DX")
	f.p("ADDQ $64, DI")
	f.p("SUBQ $16, CX")
	f.p("JNZ scale")
	f.ret()
}

func genSwiGLU(f *file, v isa) {
	f.fn("swiGLU"+v.suffix, "y, gate, up *float32, n int", 32, "is Set.SwiGLU.")
	f.p("MOVQ y+0(FP), DI")
	f.p("MOVQ gate+8(FP), SI")
	f.p("MOVQ up+16(FP), DX")
	f.p("MOVQ n+24(FP), CX")
	v.keep(f, fromExp, lastInRegister)
	f.label("loop")
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(5))
	v.zero(f, 0)
	v.op(f, "VSUBPS", reg(5), reg(0), reg(0))
	exp(f, v, 0, 1, 2, 3, 4)
	v.op(f, "VADDPS", cOne, reg(3), reg(3))
	v.mark(f, notLess, cSiluFloor, 5, 4)
	v.masked(f, "VDIVPS", reg(3), reg(5), 0, 4)
	v.op(f, "VMULPS", mem{"DX", 0}, reg(0), reg(0))
	v.op(f, "VMOVUPS", reg(0), mem{"DI", 0})
	f.p("ADDQ $64, SI")
	f.p("ADDQ $64, DX")
	f.p("ADDQ $64, DI")
	f.p("SUBQ $16, CX")
	f.p("JNZ loop")
	f.ret()
}

// genElementwise emits Add and Scale.
func genElementwise(f *file, v isa) {
	f.fn("add"+v.suffix, "y, x *float32, n int", 24, "is Set.Add.")
	f.p("MOVQ y+0(FP), DI")
	f.p("MOVQ x+8(FP), SI")
	f.p("MOVQ n+16(FP), CX")
	f.label("loop")
	v.op(f, "VMOVUPS", mem{"DI", 0}, reg(0))
	v.op(f, "VADDPS", mem{"SI", 0}, reg(0), reg(0))
	v.op(f, "VMOVUPS", reg(0), mem{"DI", 0})
	f.p("ADDQ $64, SI")
	f.p("ADDQ $64, DI")
	f.p("SUBQ $16, CX")
	f.p("JNZ loop")
	f.ret()

	f.fn("scale"+v.suffix, "x *float32, n int, a float32", 20, "is Set.Scale.")
	f.p("MOVQ x+0(FP), DI")
	f.p("MOVQ n+8(FP), CX")
	v.broadcast(f, "a+16(FP)", 1)
	f.label("loop")
	v.op(f, "VMULPS", mem{"DI", 0}, reg(1), reg(0))
	v.op(f, "VMOVUPS", reg(0), mem{"DI", 0})
	f.p("ADDQ $64, DI")
	f.p("SUBQ $16, CX")
	f.p("JNZ loop")
	f.ret()
}

// tailMask notes which of 16 lanes lie below register count, in K2 or in value r.
func tailMask(f *file, v isa, count string, r reg) {
	if v.parts == 1 {
		f.p("MOVL $1, BX") // count is the low byte of CX
		f.p("SHLL CX, BX")
		f.p("DECL BX")
		f.p("KMOVW BX, K2")
		return
	}
	f.p("VMOVD %s, X%d", count, 2*int(r)+1)
	f.p("VPBROADCASTD X%[1]d, Y%[1]d", 2*int(r)+1)
	for h := range 2 { // part 1 holds the count until its own turn
		f.p("VPCMPGTD vectorIota<>+%d(SB), Y%d, Y%d", 32*h, 2*int(r)+1, 2*int(r)+h)
	}
}

// maxLoop emits acc 0 = the maximum per lane of CX elements at SI (both consumed down to CX%16 elements);
// NaN never wins. Values 0–7 are used, and the labels that begin with "max".
func maxLoop(f *file, v isa) {
	for r := range reg(4) {
		v.broadcast(f, cLowest.address(), r)
	}
	maxSteps(f, v)
}

func maxSteps(f *file, v isa) {
	f.label("max4")
	f.p("CMPQ CX, $64")
	f.p("JLT max1")
	for r := range reg(4) {
		v.op(f, "VMOVUPS", mem{"SI", 64 * int(r)}, r+4)
	}
	for r := range reg(4) {
		v.op(f, "VMAXPS", r, r+4, r)
	}
	f.p("ADDQ $256, SI")
	f.p("SUBQ $64, CX")
	f.p("JMP max4")
	f.label("max1")
	f.p("CMPQ CX, $16")
	f.p("JLT maxed")
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(4))
	v.op(f, "VMAXPS", reg(0), reg(4), reg(0))
	f.p("ADDQ $64, SI")
	f.p("SUBQ $16, CX")
	f.p("JMP max1")
	f.label("maxed")
	v.op(f, "VMAXPS", reg(0), reg(1), reg(0))
	v.op(f, "VMAXPS", reg(2), reg(3), reg(2))
	v.op(f, "VMAXPS", reg(0), reg(2), reg(0))
}

func genSoftmaxExp(f *file, v isa) {
	f.fn("softmaxExp"+v.suffix, "s *float32, n int, scale float32", 20, "is Set.SoftmaxExp.")
	f.p("MOVQ s+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	maxLoop(f, v)
	f.p("MOVQ CX, R8") // elements of the last, partial vector
	f.p("TESTQ CX, CX")
	f.p("JZ whole")
	tailMask(f, v, "CX", 7)
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(4))
	if v.parts == 1 {
		f.p("VMAXPS Z0, Z4, K2, Z0")
	} else {
		v.op(f, "VMAXPS", reg(0), reg(4), reg(4))
		v.op(f, "VBLENDVPS", reg(7), reg(4), reg(0), reg(0))
	}
	f.label("whole")
	v.fold(f, "VMAXPS")
	v.broadcast(f, "X0", 5)
	v.broadcast(f, "scale+16(FP)", 6)
	f.p("MOVQ s+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	v.keep(f, fromExp, lastInRegister)
	f.label("loop")
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(0))
	v.op(f, "VSUBPS", reg(5), reg(0), reg(0))
	v.op(f, "VMULPS", reg(6), reg(0), reg(0))
	exp(f, v, 0, 1, 2, 3, 4)
	v.op(f, "VMOVUPS", reg(3), mem{"SI", 0})
	f.p("ADDQ $64, SI")
	f.p("SUBQ $16, CX")
	f.p("JGT loop")
	f.p("TESTQ R8, R8")
	f.p("JZ done")
	if v.parts == 1 {
		f.p("VMOVAPS.Z Z3, K2, Z3")
	} else {
		v.op(f, "VANDPS", reg(7), reg(3), reg(3))
	}
	v.op(f, "VMOVUPS", reg(3), mem{"SI", -64})
	f.label("done")
	f.ret()
}

func genSumExp(f *file, v isa) {
	f.fn("sumExp"+v.suffix, "x *float32, n int, top float32) (sum float32", 28, "is Set.SumExp.")
	f.p("MOVQ x+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	v.broadcast(f, "top+16(FP)", 5)
	v.zero(f, 6)
	v.keep(f, fromExp, lastInRegister)
	f.label("loop")
	f.p("CMPQ CX, $16")
	f.p("JLT last")
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(0))
	v.op(f, "VSUBPS", reg(5), reg(0), reg(0))
	exp(f, v, 0, 1, 2, 3, 4)
	v.op(f, "VADDPS", reg(3), reg(6), reg(6))
	f.p("ADDQ $64, SI")
	f.p("SUBQ $16, CX")
	f.p("JMP loop")
	f.label("last")
	f.p("TESTQ CX, CX")
	f.p("JZ whole")
	tailMask(f, v, "CX", 7)
	v.op(f, "VMOVUPS", mem{"SI", 0}, reg(0))
	v.op(f, "VSUBPS", reg(5), reg(0), reg(0))
	exp(f, v, 0, 1, 2, 3, 4)
	if v.parts == 1 {
		f.p("VMOVAPS.Z Z3, K2, Z3")
	} else {
		v.op(f, "VANDPS", reg(7), reg(3), reg(3))
	}
	v.op(f, "VADDPS", reg(3), reg(6), reg(6))
	f.label("whole")
	v.op(f, "VMOVAPS", reg(6), reg(0))
	v.fold(f, "VADDPS")
	f.p("VMOVSS X0, sum+24(FP)")
	f.ret()
}

func genArgMax(f *file, v isa) {
	f.fn("argMax"+v.suffix, "x *float32, n int) (at int", 24, "is Set.ArgMax.")
	f.p("MOVQ x+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	f.p("MOVL $0xff800000, AX") // −Inf may win
	f.p("VMOVD AX, X0")
	for r := reg(3); r >= 0; r-- {
		v.broadcast(f, "X0", r)
	}
	maxSteps(f, v)
	v.fold(f, "VMAXPS")
	f.label("maxTail")
	f.p("TESTQ CX, CX")
	f.p("JZ find")
	f.p("VMOVSS (SI), X1")
	f.p("VMAXSS X0, X1, X0")
	f.p("ADDQ $4, SI")
	f.p("DECQ CX")
	f.p("JMP maxTail")
	f.label("find")
	v.broadcast(f, "X0", 1)
	f.p("MOVQ x+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	f.p("XORL DX, DX")
	f.label("scan")
	f.p("CMPQ CX, $16")
	f.p("JLT scanTail")
	if v.parts == 1 {
		f.p("VCMPPS $%d, (SI), Z1, K1", equal)
		f.p("KMOVW K1, AX")
	} else {
		f.p("VCMPPS $%d, (SI), Y2, Y4", equal)
		f.p("VCMPPS $%d, 32(SI), Y2, Y5", equal)
		f.p("VMOVMSKPS Y4, AX")
		f.p("VMOVMSKPS Y5, BX")
		f.p("SHLL $8, BX")
		f.p("ORL BX, AX")
	}
	f.p("TESTL AX, AX")
	f.p("JNZ found")
	f.p("ADDQ $64, SI")
	f.p("ADDQ $16, DX")
	f.p("SUBQ $16, CX")
	f.p("JMP scan")
	f.label("found")
	f.p("BSFL AX, AX")
	f.p("ADDQ AX, DX")
	f.p("JMP done")
	f.label("scanTail")
	f.p("TESTQ CX, CX")
	f.p("JZ none")
	f.p("VUCOMISS (SI), X0") // unordered sets the parity flag
	f.p("JNE scanNext")
	f.p("JPC done")
	f.label("scanNext")
	f.p("ADDQ $4, SI")
	f.p("INCQ DX")
	f.p("DECQ CX")
	f.p("JMP scanTail")
	f.label("none")
	f.p("XORL DX, DX")
	f.label("done")
	f.p("MOVQ DX, at+16(FP)")
	f.ret()
}

// genReadMem emits the bandwidth probe: plain loads in order. Software prefetch and several streams were tried
// and read no faster.
func genReadMem(f *file, v isa) {
	f.fn("readMem"+v.suffix, "p *byte, n int", 16, "is Set.ReadMem.")
	f.p("MOVQ p+0(FP), SI")
	f.p("MOVQ n+8(FP), CX")
	f.label("loop")
	for off := 0; off < 1024; off += 64 {
		v.op(f, "VMOVUPS", mem{"SI", off}, reg(off/64%4))
	}
	f.p("ADDQ $1024, SI")
	f.p("SUBQ $1024, CX")
	f.p("JGT loop")
	f.ret()
}
