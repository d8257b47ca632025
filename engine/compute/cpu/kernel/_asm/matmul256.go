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
// the float sums of 8 rows, so these lie on the stack (R8, aligned) and the rows take turns
// with a block's unpacked codes; consecutive turns are independent, which hides their latency.
// Few rows read two streams as the AVX-512 kernels do; more are bound by arithmetic.
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
	signed  bool
	streams int // in the loop being emitted
}

// Addresses of the streams' weights and super-block factors (R11: bytes from the first to the
// second stream) and outputs (AX likewise).
var (
	weightsAt256 = []string{"(SI)", "(SI)(R11*1)"}
	superAt256   = []string{"(R13)", "(R13)(R11*1)"}
	outputAt256  = []string{"(BX)", "(BX)(AX*1)"}
)

// A row's place on the stack: 64 bytes of float sums a stream, and the partial integer sums of signed kernels.
const (
	rowBytes256  = 160
	partialAt256 = 128
)

func (k *kernel256) emit(name string) {
	isa := "AVX2"
	if k.vnni {
		isa = "AVX2 with AVX-VNNI"
	}
	k.fnFrame(name, matmulArgs, k.rows*rowBytes256+32, matmulArgBytes, matmulDoc(k.q.name, k.rows, isa))
	k.p("LEAQ 31(SP), R8")
	k.p("ANDQ $~31, R8")
	k.p("MOVQ w+0(FP), SI")
	k.p("MOVQ y+16(FP), DX")
	k.p("MOVQ ldy+40(FP), R10")
	k.p("SHLQ $2, R10")
	k.constants()
	k.p("MOVQ groups+32(FP), R9")
	if k.rows <= 2 {
		stride, _ := k.q.blockBytes()
		k.p("SHRQ $1, R9")
		k.p("MOVQ blocks+24(FP), R11")
		if k.q.super {
			k.p("SHRQ $3, R11")
			stride = k.q.head + superSize*stride
		}
		k.p("IMULQ $%d, R11", stride)
		k.p("IMULQ R9, R11")
		k.loop(2)
		k.p("ADDQ R11, SI") // past the second stream; an odd group may be left
		k.p("MOVQ groups+32(FP), R9")
		k.p("MOVQ R9, AX")
		k.p("SHRQ $1, AX")
		k.p("SHLQ $6, AX")
		k.p("ADDQ AX, DX")
		k.p("ANDQ $1, R9")
	}
	k.loop(1)
	k.ret()
}

// tag makes a label distinct for the loop being emitted.
func (k *kernel256) tag(label string) string { return fmt.Sprintf("%s%d", label, k.streams) }

// loop emits the loop over the R9 groups of each stream.
func (k *kernel256) loop(streams int) {
	k.streams = streams
	stride, codes := k.q.blockBytes()
	k.p("TESTQ R9, R9")
	k.p("JZ %s", k.tag("done"))
	k.label(k.tag("group"))
	k.p("MOVQ x+8(FP), DI")
	k.p("MOVQ blocks+24(FP), CX")
	k.p("VPXOR Y0, Y0, Y0")
	for r := range k.rows {
		for at := 0; at < 64*streams; at += 32 {
			k.p("VMOVUPS Y0, %d(R8)", r*rowBytes256+at)
		}
	}
	if k.q.super {
		k.label(k.tag("super"))
		k.p("MOVQ SI, R13")
		k.p("ADDQ $%d, SI", k.q.head)
	}
	k.label(k.tag("block"))
	for s := range streams {
		for line := 0; line*64 < stride; line++ {
			k.p("PREFETCHT0 %d%s", distance256+64*line, weightsAt256[s])
		}
		for half := range 2 {
			k.factors(s, half)
			if k.signed {
				k.signedHalf(s, half, codes)
			} else {
				k.half(s, half, codes)
			}
		}
	}
	k.p("ADDQ $%d, SI", stride)
	k.p("ADDQ $%d, DI", k.rows*intUnit)
	nextBlock(k.file, k.q, k.tag("block"), k.tag("super"))
	k.store()
	k.p("ADDQ $64, DX")
	k.p("DECQ R9")
	k.p("JNZ %s", k.tag("group"))
	k.label(k.tag("done"))
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
func (k *kernel256) factors(stream, half int) {
	at, super := weightsAt256[stream], superAt256[stream]
	if !k.q.super {
		k.p("VCVTPH2PS %d%s, Y%d", 16*half, at, yD)
		if k.q.offset {
			k.p("VCVTPH2PS %d%s, Y%d", 32+16*half, at, yM)
		}
		return
	}
	widen := "VPMOVZXBD"
	if k.q.halves {
		widen = "VPMOVSXBD"
	}
	k.p("VCVTPH2PS %d%s, Y%d", 16*half, super, yTmp)
	for i := range 2 {
		k.p("%s %d%s, Y%d", widen, 16*i+8*half, at, yD+i)
		k.p("VCVTDQ2PS Y%d, Y%d", yD+i, yD+i)
		if i == 1 && k.q.offset {
			k.p("VCVTPH2PS %d%s, Y%d", 32+16*half, super, yTmp)
		}
		k.p("VMULPS Y%d, Y%d, Y%d", yTmp, yD+i, yD+i)
	}
}

// half unpacks a block's codes for 8 lanes and adds every row's products.
func (k *kernel256) half(stream, half, codes int) {
	at := weightsAt256[stream]
	for quad := range 8 {
		if !k.q.nibbles {
			k.p("VMOVDQU %d%s, Y%d", codes+64*quad+32*half, at, quad)
		} else if quad%2 == 0 {
			k.p("VMOVDQU %d%s, Y%d", codes+32*quad+32*half, at, quad)
			k.p("VPSRLD $4, Y%d, Y%d", quad, quad+1)
			k.p("VPAND Y%d, Y%d, Y%d", yMask, quad, quad)
			k.p("VPAND Y%d, Y%d, Y%d", yMask, quad+1, quad+1)
		}
	}
	sums := 64*stream + 32*half
	k.eachRow(fmt.Sprintf("row%d%d%d", k.streams, stream, half), func() {
		if k.q.halves {
			k.dots(0, 4, atMinus32a)
			k.sums(sums, yD)
			k.dots(4, 8, atMinus32b)
			k.sums(sums, yM)
			return
		}
		k.dots(0, 8, k.q.init)
		k.sums(sums, yD)
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
	k.p("ADDQ $%d, R12", rowBytes256)
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
func (k *kernel256) signedHalf(stream, half, codes int) {
	for turn := range 2 {
		for i := range 4 {
			k.p("VPXOR %d%s, Y%d, Y%d", codes+64*(4*turn+i)+32*half, weightsAt256[stream], yMask, i)
			k.p("VPABSB Y%d, Y%d", i, 4+i)
		}
		k.eachRow(fmt.Sprintf("row%d%d%d%d", k.streams, stream, half, turn), func() {
			if turn == 1 {
				k.p("VMOVDQU %d(R12), Y%d", partialAt256, yDot)
			}
			for i := range 4 {
				k.p("VPBROADCASTD %d(BX), Y%d", 4*(4*turn+i), yAct)
				k.p("VPSIGNB Y%d, Y%d, Y%d", i, yAct, yAct)
				k.p("VPMADDUBSW Y%d, Y%d, Y%d", yAct, 4+i, yProd)
				k.widenSum(turn == 0 && i == 0)
			}
			if turn == 0 {
				k.p("VMOVDQU Y%d, %d(R12)", yDot, partialAt256)
			} else {
				k.sums(64*stream+32*half, yD)
			}
		})
	}
}

// sums adds a row's integer sums to its float sums at R12, in the order of the AVX-512 kernels.
func (k *kernel256) sums(at, d int) {
	k.p("VCVTDQ2PS Y%d, Y%d", yDot, yDot)
	k.p("VBROADCASTSS %d(BX), Y%d", atScale, yTmp)
	k.p("VMULPS Y%d, Y%d, Y%d", yTmp, d, yTmp)
	k.p("VMOVUPS %d(R12), Y%d", at, yAct)
	k.p("VFMADD231PS Y%d, Y%d, Y%d", yTmp, yDot, yAct)
	if add := k.q.addOffset(); add != "" {
		k.p("VBROADCASTSS %d(BX), Y%d", atScaleSum, yTmp)
		k.p("%s Y%d, Y%d, Y%d", add, yTmp, yM, yAct)
	}
	k.p("VMOVUPS Y%d, %d(R12)", yAct, at)
}

// store writes (or adds, if add is not 0) the sums on the stack to y at DX.
func (k *kernel256) store() {
	each := func(add bool) {
		k.p("MOVQ DX, BX")
		for r := range k.rows {
			for s := range k.streams {
				for half := range 2 {
					k.p("VMOVUPS %d(R8), Y0", r*rowBytes256+64*s+32*half)
					if add {
						k.p("VADDPS %d%s, Y0, Y0", 32*half, outputAt256[s])
					}
					k.p("VMOVUPS Y0, %d%s", 32*half, outputAt256[s])
				}
			}
			k.p("ADDQ R10, BX")
		}
	}
	if k.streams == 2 {
		k.p("MOVQ groups+32(FP), AX")
		k.p("SHRQ $1, AX")
		k.p("SHLQ $6, AX")
	}
	k.p("CMPQ add+48(FP), $0")
	k.p("JEQ %s", k.tag("store"))
	each(true)
	k.p("JMP %s", k.tag("next"))
	k.label(k.tag("store"))
	each(false)
	k.label(k.tag("next"))
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
