package main

import (
	"fmt"
	"strings"
)

// distance256 is distance512 for the AVX2 kernels.
const distance256 = 4096

// Registers of the AVX2 integer kernels: Y0–Y7 are the unpacked codes of a block's eight k-quads
// for 8 of the 16 lanes (W8S without VNNI: four quads' signed codes and their magnitudes).
const (
	yD    = 8
	yM    = 9
	yDot  = 10
	yAct  = 11 // four activations, broadcast
	yProd = 12
	yOnes = 13 // sixteen int16 of one
	yTmp  = 14
	yMask = 15
)

// intAVX2 returns the emitter of MatMulFunc for integer formats. Sixteen registers cannot hold
// the float sums of 8 rows, so these lie on the stack (R8, [rows][16], aligned) and the rows take turns
// with a block's unpacked codes; consecutive turns are independent, which hides their latency.
func intAVX2(vnni bool) func(f *file, q *intFormat, rows int, name string) {
	return func(f *file, q *intFormat, rows int, name string) {
		k := &kernel256{file: f, q: q, rows: rows, vnni: vnni, signed: q.maxCode > 127 && !vnni}
		k.emit(name)
	}
}

// kernel256 is one AVX2 integer kernel in the making.
type kernel256 struct {
	*file
	q    *intFormat
	rows int
	vnni bool
	// signed: multiply magnitudes with the activations' sign changed, since sums of two products of
	// codes beyond 127 exceed 16 bits.
	signed bool
}

func (k *kernel256) emit(name string) {
	isa := "AVX2"
	if k.vnni {
		isa = "AVX2 with AVX-VNNI"
	}
	// Row r's sums lie at r·rowBytes(R8); the partial integer sums of signed kernels follow them.
	k.fnFrame(name, matmulArgs, k.rows*k.rowBytes()+32, matmulArgBytes, matmulDoc(k.q.name, k.rows, isa))
	stride, codes := k.q.blockBytes()
	k.p("LEAQ 31(SP), R8")
	k.p("ANDQ $~31, R8")
	k.p("MOVQ w+0(FP), SI")
	k.p("MOVQ y+16(FP), DX")
	k.p("MOVQ groups+32(FP), R9")
	k.p("MOVQ ldy+40(FP), R10")
	k.p("SHLQ $2, R10")
	k.p("MOVQ add+48(FP), R11")
	k.constants()
	k.label("group")
	k.p("MOVQ x+8(FP), DI")
	k.p("MOVQ blocks+24(FP), CX")
	k.p("VPXOR Y0, Y0, Y0")
	for r := range k.rows {
		k.p("VMOVUPS Y0, %d(R8)", r*k.rowBytes())
		k.p("VMOVUPS Y0, %d(R8)", r*k.rowBytes()+32)
	}
	if k.q.super {
		k.label("super")
		k.p("MOVQ SI, R13")
		k.p("ADDQ $%d, SI", k.q.head)
	}
	k.label("block")
	for line := 0; line*64 < stride; line++ {
		k.p("PREFETCHT0 %d(SI)", distance256+64*line)
	}
	for half := range 2 {
		k.factors(half)
		if k.signed {
			k.signedHalf(half, codes)
		} else {
			k.half(half, codes)
		}
	}
	k.p("ADDQ $%d, SI", stride)
	k.p("ADDQ $%d, DI", k.rows*intUnit)
	nextBlock(k.file, k.q, "block", "super")
	k.store()
	k.p("ADDQ $64, DX")
	k.p("DECQ R9")
	k.p("JNZ group")
	k.ret()
}

// rowBytes is the distance between the stack places of two rows.
func (k *kernel256) rowBytes() int {
	if k.signed {
		return 96
	}
	return 64
}

func (k *kernel256) constants() {
	if k.q.nibbles {
		k.p("MOVL $0x0f0f0f0f, AX")
		k.p("VMOVD AX, X%d", yMask)
		k.p("VPBROADCASTD X%d, Y%d", yMask, yMask)
	}
	if k.signed {
		k.p("MOVL $0x80808080, AX")
		k.p("VMOVD AX, X%d", yMask)
		k.p("VPBROADCASTD X%d, Y%d", yMask, yMask)
	}
	if !k.vnni {
		k.p("MOVL $0x00010001, AX")
		k.p("VMOVD AX, X%d", yOnes)
		k.p("VPBROADCASTD X%d, Y%d", yOnes, yOnes)
	}
}

// factors loads the factors of 8 lanes.
func (k *kernel256) factors(half int) {
	if !k.q.super {
		k.p("VCVTPH2PS %d(SI), Y%d", 16*half, yD)
		if k.q.offset {
			k.p("VCVTPH2PS %d(SI), Y%d", 32+16*half, yM)
		}
		return
	}
	widen := "VPMOVZXBD"
	if k.q.halves {
		widen = "VPMOVSXBD"
	}
	k.p("VCVTPH2PS %d(R13), Y%d", 16*half, yTmp)
	for i := range 2 {
		k.p("%s %d(SI), Y%d", widen, 16*i+8*half, yD+i)
		k.p("VCVTDQ2PS Y%d, Y%d", yD+i, yD+i)
		if i == 1 && k.q.offset {
			k.p("VCVTPH2PS %d(R13), Y%d", 32+16*half, yTmp)
		}
		k.p("VMULPS Y%d, Y%d, Y%d", yTmp, yD+i, yD+i)
	}
}

// half unpacks a block's codes for 8 lanes and adds every row's products.
func (k *kernel256) half(half, codes int) {
	for quad := range 8 {
		if !k.q.nibbles {
			k.p("VMOVDQU %d(SI), Y%d", codes+64*quad+32*half, quad)
		} else if quad%2 == 0 {
			k.p("VMOVDQU %d(SI), Y%d", codes+32*quad+32*half, quad)
			k.p("VPSRLD $4, Y%d, Y%d", quad, quad+1)
			k.p("VPAND Y%d, Y%d, Y%d", yMask, quad, quad)
			k.p("VPAND Y%d, Y%d, Y%d", yMask, quad+1, quad+1)
		}
	}
	k.eachRow(fmt.Sprintf("row%d", half), func() {
		if k.q.halves {
			k.dots(0, 4, atMinus32a)
			k.sums(half, yD)
			k.dots(4, 8, atMinus32b)
			k.sums(half, yM)
			return
		}
		k.dots(0, 8, k.q.init)
		k.sums(half, yD)
	})
}

// eachRow loops over the rows: BX walks their units, R12 their places on the stack.
func (k *kernel256) eachRow(label string, body func()) {
	k.p("MOVQ DI, BX")
	k.p("MOVQ R8, R12")
	if k.rows == 1 {
		body()
		return
	}
	k.p("MOVL $%d, AX", k.rows)
	k.label(label)
	body()
	k.p("ADDQ $%d, BX", intUnit)
	k.p("ADDQ $%d, R12", k.rowBytes())
	k.p("DECL AX")
	k.p("JNZ %s", label)
}

// dots sets yDot to a row's products with k-quads from to to, zeros subtracted.
func (k *kernel256) dots(from, to, init int) {
	if k.vnni {
		k.dotsVNNI(from, to, init)
		return
	}
	// As many quads' sums of two products as fit 16 bits are added before they are widened.
	span := 32767 / (2 * 127 * k.q.maxCode)
	for quad := from; quad < to; quad++ {
		k.p("VPBROADCASTD %d(BX), Y%d", 4*quad, yAct)
		if quad%span == 0 {
			k.p("VPMADDUBSW Y%d, Y%d, Y%d", yAct, quad, yProd)
		} else {
			k.p("VPMADDUBSW Y%d, Y%d, Y%d", yAct, quad, yAct)
			k.p("VPADDW Y%d, Y%d, Y%d", yAct, yProd, yProd)
		}
		if quad%span == span-1 || quad == to-1 {
			k.widenSum(quad-from < span)
		}
	}
	if init != 0 {
		k.p("VPBROADCASTD %d(BX), Y%d", init, yAct)
		k.p("VPADDD Y%d, Y%d, Y%d", yAct, yDot, yDot)
	}
}

// dotsVNNI is dots in two chains: in one, a row's five cycles a quad would fill the processor's
// scheduler with waiting instructions before it reaches enough rows.
func (k *kernel256) dotsVNNI(from, to, init int) {
	if init != 0 {
		k.p("VPBROADCASTD %d(BX), Y%d", init, yDot)
	} else {
		k.p("VPXOR Y%d, Y%d, Y%d", yDot, yDot, yDot)
	}
	k.p("VPXOR Y%d, Y%d, Y%d", yProd, yProd, yProd)
	for quad := from; quad < to; quad++ {
		k.p("VPBROADCASTD %d(BX), Y%d", 4*quad, yAct)
		k.vpdpbusd(yAct, quad, []int{yDot, yProd}[quad%2])
	}
	k.p("VPADDD Y%d, Y%d, Y%d", yProd, yDot, yDot)
}

// widenSum adds pairs of yProd's 16-bit sums to the integer sums, which it starts if first is true.
func (k *kernel256) widenSum(first bool) {
	if first {
		k.p("VPMADDWD Y%d, Y%d, Y%d", yOnes, yProd, yDot)
		return
	}
	k.p("VPMADDWD Y%d, Y%d, Y%d", yOnes, yProd, yProd)
	k.p("VPADDD Y%d, Y%d, Y%d", yProd, yDot, yDot)
}

// signedHalf is half for codes of all 8 bits: code−128 is signed, its magnitude fits where
// VPMADDUBSW wants unsigned bytes, and 2·128·127 fits 16 bits. Eight registers hold four quads'
// codes and magnitudes, so the rows take two turns.
func (k *kernel256) signedHalf(half, codes int) {
	for turn := range 2 {
		for i := range 4 {
			k.p("VPXOR %d(SI), Y%d, Y%d", codes+64*(4*turn+i)+32*half, yMask, i)
			k.p("VPABSB Y%d, Y%d", i, 4+i)
		}
		k.eachRow(fmt.Sprintf("row%d%d", half, turn), func() {
			if turn == 1 {
				k.p("VMOVDQU 64(R12), Y%d", yDot)
			}
			for i := range 4 {
				k.p("VPBROADCASTD %d(BX), Y%d", 4*(4*turn+i), yAct)
				k.p("VPSIGNB Y%d, Y%d, Y%d", i, yAct, yAct)
				k.p("VPMADDUBSW Y%d, Y%d, Y%d", yAct, 4+i, yProd)
				k.widenSum(turn == 0 && i == 0)
			}
			if turn == 0 {
				k.p("VMOVDQU Y%d, 64(R12)", yDot)
			} else {
				k.sums(half, yD)
			}
		})
	}
}

// sums adds a row's integer sums to its float sums, in the order of sums512.
func (k *kernel256) sums(half, d int) {
	k.p("VCVTDQ2PS Y%d, Y%d", yDot, yDot)
	k.p("VBROADCASTSS %d(BX), Y%d", atScale, yTmp)
	k.p("VMULPS Y%d, Y%d, Y%d", yTmp, d, yTmp)
	k.p("VMOVUPS %d(R12), Y%d", 32*half, yAct)
	k.p("VFMADD231PS Y%d, Y%d, Y%d", yTmp, yDot, yAct)
	if add := k.q.addOffset(); add != "" {
		k.p("VBROADCASTSS %d(BX), Y%d", atScaleSum, yTmp)
		k.p("%s Y%d, Y%d, Y%d", add, yTmp, yM, yAct)
	}
	k.p("VMOVUPS Y%d, %d(R12)", yAct, 32*half)
}

// store writes (or, if R11 is not 0, adds) the sums on the stack to y at DX.
func (k *kernel256) store() {
	k.p("MOVQ DX, BX")
	k.p("TESTQ R11, R11")
	k.p("JZ store")
	for r := range k.rows {
		for half := range 2 {
			k.p("VMOVUPS %d(R8), Y0", r*k.rowBytes()+32*half)
			k.p("VADDPS %d(BX), Y0, Y0", 32*half)
			k.p("VMOVUPS Y0, %d(BX)", 32*half)
		}
		k.p("ADDQ R10, BX")
	}
	k.p("JMP next")
	k.label("store")
	for r := range k.rows {
		for half := range 2 {
			k.p("VMOVUPS %d(R8), Y0", r*k.rowBytes()+32*half)
			k.p("VMOVUPS Y0, %d(BX)", 32*half)
		}
		k.p("ADDQ R10, BX")
	}
	k.label("next")
}

// vpdpbusd emits the VEX form, which Go's assembler does not know: acc += Σ of 4 products of u8 and s8.
func (f *file) vpdpbusd(s8, u8, acc int) {
	bytes := []byte{
		0xc4,
		byte(^acc>>3&1<<7|1<<6|^s8>>3&1<<5) | 2, // map 0F38; R and B inverted
		byte(^u8&15<<3 | 1<<2 | 1),              // W0, vvvv inverted, 256 bits, prefix 66
		0x50,
		byte(3<<6 | acc&7<<3 | s8&7),
	}
	hex := make([]string, len(bytes))
	for i, b := range bytes {
		hex[i] = fmt.Sprintf("BYTE $0x%02x", b)
	}
	f.p("%s // VPDPBUSD Y%d, Y%d, Y%d", strings.Join(hex, "; "), s8, u8, acc)
}
