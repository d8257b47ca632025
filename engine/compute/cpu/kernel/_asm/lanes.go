package main

import (
	"fmt"
	"math"
	"strings"
)

// isa is one vector width. The kernels of vector.go are written once over 16-lane values: on AVX-512
// a value is one Z register, on AVX2 two Y registers (lanes 0–7 and 8–15), so that both sets do the same
// arithmetic in the same order (K3, K4).
type isa struct {
	suffix string
	parts  int // registers a 16-lane value takes
	bytes  int // bytes a register holds
}

var (
	avx2   = isa{"AVX2", 2, 32}
	avx512 = isa{"AVX512", 1, 64}
	isas   = []isa{avx2, avx512}
)

// reg is a 16-lane value: on AVX2 there are 8 of them, on AVX-512 32.
type reg int

// mem is 16 floats in memory.
type mem struct {
	base string
	off  int
}

// constant is a float (or bit pattern) in the table that constants writes, for all lanes.
type constant int

// firstConst is where AVX-512 keeps the constants: Z16 + constant, when keep has loaded them.
const firstConst = 16

// name returns register part h of r.
func (v isa) name(r reg, h int) string {
	if v.parts == 1 {
		return fmt.Sprintf("Z%d", r)
	}
	return fmt.Sprintf("Y%d", 2*int(r)+h)
}

// operand formats part h of one operand.
func (v isa) operand(a any, h int) string {
	switch a := a.(type) {
	case reg:
		return v.name(a, h)
	case mem:
		return fmt.Sprintf("%d(%s)", a.off+h*v.bytes, a.base)
	case constant:
		if v.parts == 1 {
			return fmt.Sprintf("Z%d", firstConst+int(a))
		}
		return a.address()
	}
	return fmt.Sprint(a)
}

// op emits an instruction on every part of its operands, in Go's order (destination last).
func (v isa) op(f *file, name string, operands ...any) {
	for h := range v.parts {
		s := make([]string, len(operands))
		for i, a := range operands {
			s[i] = v.operand(a, h)
		}
		f.p("%s %s", name, strings.Join(s, ", "))
	}
}

// keep loads the constants from first to last into registers where there is room for them.
func (v isa) keep(f *file, first, last constant) {
	for c := first; c <= last && v.parts == 1; c++ {
		f.p("VBROADCASTSS %s, %s", c.address(), v.operand(c, 0))
	}
}

// address is the constant in memory, eight times side by side.
func (c constant) address() string { return fmt.Sprintf("vectorConst<>+%d(SB)", 32*int(c)) }

// broadcast fills a value with the float at src (memory or an X register).
func (v isa) broadcast(f *file, src string, dst reg) {
	for h := range v.parts {
		f.p("VBROADCASTSS %s, %s", src, v.name(dst, h))
	}
}

// zero clears a value.
func (v isa) zero(f *file, r reg) {
	for h := range v.parts {
		f.p("VXORPS X%[1]d, X%[1]d, X%[1]d", v.parts*int(r)+h)
	}
}

// fold reduces value 0 to X0 by op in the order of K4, using value 1.
func (v isa) fold(f *file, op string) {
	if v.parts == 1 {
		f.p("VEXTRACTF64X4 $1, Z0, Y1")
	}
	f.p("%s Y1, Y0, Y0", op)
	f.p("VEXTRACTF128 $1, Y0, X1")
	f.p("%s X1, X0, X0", op)
	f.p("VPSHUFD $0x4e, X0, X1")
	f.p("%s X1, X0, X0", op)
	f.p("VPSHUFD $0xb1, X0, X1")
	f.p("%s X1, X0, X0", op)
}

// mark and masked keep the lanes of dst where r stands to bound as predicate says and zero the others: mark
// notes the lanes (in K1, or in the value spare), and masked emits the instruction that makes dst.
func (v isa) mark(f *file, predicate int, bound constant, r, spare reg) {
	if v.parts == 1 {
		f.p("VCMPPS $%#x, %s, %s, K1", predicate, v.operand(bound, 0), v.name(r, 0))
		return
	}
	v.op(f, fmt.Sprintf("VCMPPS $%#x,", predicate), bound, r, spare)
}

func (v isa) masked(f *file, op string, a, b any, dst, spare reg) {
	if v.parts == 1 {
		f.p("%s.Z %s, %s, K1, %s", op, v.operand(a, 0), v.operand(b, 0), v.name(dst, 0))
		return
	}
	v.op(f, op, a, b, dst)
	v.op(f, "VANDPS", spare, dst, dst)
}

// table writes a read-only symbol of 32-bit words.
func (f *file) table(name string, words []uint32) {
	for i, w := range words {
		fmt.Fprintf(&f.asm, "DATA %s<>+%d(SB)/4, $%#08x\n", name, 4*i, w)
	}
	fmt.Fprintf(&f.asm, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(words))
}

// constants writes the table behind constant.
func (f *file) constants(values []float64) {
	var words []uint32
	for _, x := range values {
		for range 8 {
			words = append(words, math.Float32bits(float32(x)))
		}
	}
	f.table("vectorConst", words)
}
