package main

import (
	"fmt"
	"slices"
	"strings"
)

// distance512 is how far ahead of the weights in use the AVX-512 kernels prefetch, in bytes. The
// hardware's own prefetcher keeps up with one row; with eight the kernel's loads come too far
// apart for it. 2048 to 8192 measured alike, less or none up to a third slower.
const distance512 = 4096

// Registers of the AVX-512 kernels. Weights rotate through four; a float sum is needed per row and
// stream, an integer sum per row of the stream at work.
const (
	zW     = 0
	zAcc   = 4  // + row·streams + stream
	zSuper = 16 // + 2·stream: d, and dmin in the next, of a super-block (free where sums are at most 12)
	zDot   = 20 // + row
	zD     = 28
	zM     = 29
	zTmp   = 30
	zMask  = 31
)

// kernel512 is one AVX-512 kernel in the making. It walks its groups in one or two streams: the
// first half of the groups and the second half side by side, since one core gets more of the
// memory's bandwidth from two streams.
type kernel512 struct {
	*file
	rows    int
	streams int // in the loop being emitted
}

// Addresses of the streams' weights (R12: bytes from the first to the second) and outputs (R8 likewise).
var (
	weightsAt = []string{"(SI)", "(SI)(R12*1)"}
	outputAt  = []string{"(BX)", "(BX)(R8*1)"}
)

// emit emits a whole function around the loop bodies: body sums the group at SI of each
// stream and moves SI past the first stream's. A group has blockBytes for each perBlocks blocks.
func (k *kernel512) emit(name, doc string, streams, blockBytes, perBlocks int, body func()) {
	k.fn(name, matmulArgs, matmulArgBytes, doc)
	k.p("MOVQ w+0(FP), SI")
	k.p("MOVQ y+16(FP), DX")
	k.p("MOVQ ldy+40(FP), R10")
	k.p("SHLQ $2, R10")
	k.p("MOVQ add+48(FP), R11")
	k.p("MOVL $0x0f0f0f0f, AX")
	k.p("VPBROADCASTD AX, Z%d", zMask)
	k.p("MOVQ groups+32(FP), R9")
	if streams == 2 {
		k.p("SHRQ $1, R9")
		k.p("MOVQ R9, R8")
		k.p("SHLQ $6, R8")
		k.p("MOVQ blocks+24(FP), R12")
		if perBlocks > 1 {
			k.p("SHRQ $3, R12")
		}
		k.p("IMULQ $%d, R12", blockBytes)
		k.p("IMULQ R9, R12")
		k.loop(2, body)
		k.p("ADDQ R12, SI") // past the second stream; an odd group may be left
		k.p("ADDQ R8, DX")
		k.p("MOVQ groups+32(FP), R9")
		k.p("ANDQ $1, R9")
	}
	k.loop(1, body)
	k.ret()
}

// loop emits the loop over the R9 groups of each stream.
func (k *kernel512) loop(streams int, body func()) {
	k.streams = streams
	k.p("TESTQ R9, R9")
	k.p("JZ %s", k.tag("done"))
	k.label(k.tag("group"))
	k.p("MOVQ x+8(FP), DI")
	k.p("MOVQ blocks+24(FP), CX")
	for i := range k.rows * streams {
		k.p("VPXORD Z%d, Z%d, Z%d", zAcc+i, zAcc+i, zAcc+i)
	}
	body()
	k.store()
	k.p("ADDQ $64, DX")
	k.p("DECQ R9")
	k.p("JNZ %s", k.tag("group"))
	k.label(k.tag("done"))
}

// tag makes a label distinct for the loop being emitted.
func (k *kernel512) tag(label string) string { return fmt.Sprintf("%s%d", label, k.streams) }

// acc is the register of a float sum.
func (k *kernel512) acc(row, stream int) int { return zAcc + row*k.streams + stream }

// store writes (or, if R11 is not 0, adds) the float sums to y at DX.
func (k *kernel512) store() {
	each := func(instruction string) {
		k.p("MOVQ DX, BX")
		for r := range k.rows {
			for s := range k.streams {
				k.p(instruction, outputAt[s], k.acc(r, s))
			}
			k.p("ADDQ R10, BX")
		}
	}
	k.p("TESTQ R11, R11")
	k.p("JZ %s", k.tag("store"))
	each("VADDPS %s, Z%[2]d, Z%[2]d")
	k.label(k.tag("store"))
	each("VMOVUPS Z%[2]d, %[1]s")
}

// int512 is a kernel512 for an integer format.
type int512 struct {
	kernel512
	q *intFormat
}

// intAVX512 emits MatMulFunc for an integer format. Float sums of all rows stay in registers over
// the whole reduction; per block the codes are unpacked once and multiplied with every row's,
// four bytes at a time broadcast from memory.
func intAVX512(f *file, q *intFormat, rows int, name string) {
	k := &int512{kernel512{file: f, rows: rows}, q}
	stride, _ := q.blockBytes()
	streams, bytes, per := 2, stride, 1
	if q.super {
		bytes, per = q.head+superSize*stride, superSize
		if rows > 4 { // the super-blocks' factors need registers of their own
			streams = 1
		}
	}
	k.emit(name, matmulDoc(q.name, rows, "AVX-512 VNNI"), streams, bytes, per, k.body)
}

func (k *int512) body() {
	if k.q.super {
		k.label(k.tag("super"))
		for s := range k.streams {
			k.p("VCVTPH2PS %s, Z%d", weightsAt[s], zSuper+2*s)
			if k.q.offset {
				k.p("VCVTPH2PS 32%s, Z%d", weightsAt[s], zSuper+2*s+1)
			}
		}
		k.p("ADDQ $%d, SI", k.q.head)
	}
	k.label(k.tag("block"))
	for s := range k.streams {
		k.factors(s)
		if k.q.halves {
			k.dots(s, 0, 4, atMinus32a)
			k.sums(s, zD)
			k.dots(s, 4, 8, atMinus32b)
			k.sums(s, zM)
		} else {
			k.dots(s, 0, 8, k.q.init)
			k.sums(s, zD)
		}
	}
	stride, _ := k.q.blockBytes()
	k.p("ADDQ $%d, SI", stride)
	k.p("ADDQ $%d, DI", k.rows*intUnit)
	nextBlock(k.file, k.q, k.tag("block"), k.tag("super"))
}

// factors loads a block's factors into zD and zM.
func (k *int512) factors(stream int) {
	at := weightsAt[stream]
	if !k.q.super {
		k.p("VCVTPH2PS %s, Z%d", at, zD)
		if k.q.offset {
			k.p("VCVTPH2PS 32%s, Z%d", at, zM)
		}
		return
	}
	widen := "VPMOVZXBD"
	if k.q.halves {
		widen = "VPMOVSXBD"
	}
	for i := range 2 {
		k.p("%s %d%s, Z%d", widen, 16*i, at, zD+i)
		k.p("VCVTDQ2PS Z%d, Z%d", zD+i, zD+i)
		from := zSuper + 2*stream
		if i == 1 && k.q.offset {
			from++
		}
		k.p("VMULPS Z%d, Z%d, Z%d", from, zD+i, zD+i)
	}
}

// dots sets every row's integer sum to its products with k-quads from to to, zeros subtracted.
func (k *int512) dots(stream, from, to, init int) {
	for r := range k.rows {
		if init != 0 {
			k.p("VPBROADCASTD %d(DI), Z%d", r*intUnit+init, zDot+r)
		} else {
			k.p("VPXORD Z%d, Z%d, Z%d", zDot+r, zDot+r, zDot+r)
		}
	}
	_, codes := k.q.blockBytes()
	at := weightsAt[stream]
	for quad := from; quad < to; quad++ {
		k.prefetch(stream, quad)
		w := zW + quad%4
		if !k.q.nibbles {
			k.p("VMOVDQU32 %d%s, Z%d", codes+64*quad, at, w)
		} else if quad%2 == 0 {
			k.p("VPSRLD $4, %d%s, Z%d", codes+32*quad, at, w+1)
			k.p("VPANDD %d%s, Z%d, Z%d", codes+32*quad, at, zMask, w)
			k.p("VPANDD Z%d, Z%d, Z%d", zMask, w+1, w+1)
		}
		for r := range k.rows {
			k.p("VPDPBUSD.BCST %d(DI), Z%d, Z%d", r*intUnit+4*quad, w, zDot+r)
		}
	}
}

// prefetch prefetches its share of the cache lines of the block distance512 ahead. Spread over
// the k-quads they find a free fill buffer more often than all at once.
func (k *int512) prefetch(stream, quad int) {
	stride, _ := k.q.blockBytes()
	lines := (stride + 63) / 64
	for line := (quad*lines + 7) / 8; line < ((quad+1)*lines+7)/8; line++ {
		k.p("PREFETCHT0 %d%s", distance512+64*line, weightsAt[stream])
	}
}

// sums adds every row's integer sum to its float sum: acc += dot·(d·s) and, if the format has an
// offset, acc ± m·(s·Σ).
func (k *int512) sums(stream, d int) {
	add := k.q.addOffset()
	for r := range k.rows {
		acc := k.acc(r, stream)
		k.p("VMULPS.BCST %d(DI), Z%d, Z%d", r*intUnit+atScale, d, zTmp)
		k.p("VCVTDQ2PS Z%d, Z%d", zDot+r, zDot+r)
		k.p("VFMADD231PS Z%d, Z%d, Z%d", zTmp, zDot+r, acc)
		if add != "" {
			k.p("%s.BCST %d(DI), Z%d, Z%d", add, r*intUnit+atScaleSum, zM, acc)
		}
	}
}

// float512 is a kernel512 for a float format.
type float512 struct {
	kernel512
	format string
	bytes  int // of a value
}

// floatAVX512 emits MatMulFunc for a float format: per row and stream one chain of fused multiply-adds.
func floatAVX512(f *file, format string, bytes, rows int, name string) {
	k := &float512{kernel512{file: f, rows: rows}, format, bytes}
	k.emit(name, matmulDoc(format, rows, "AVX-512"), 2, 32*16*bytes, 1, k.body)
}

func (k *float512) body() {
	const unroll = 4
	k.label(k.tag("block"))
	k.p("MOVL $%d, AX", 32/unroll)
	k.label(k.tag("cols"))
	for col := range unroll {
		at := 16 * k.bytes * col
		for s := range k.streams {
			if at%64 == 0 {
				k.p("PREFETCHT0 %d%s", distance512+at, weightsAt[s])
			}
			k.widen(fmt.Sprintf("%d%s", at, weightsAt[s]), zW+s)
		}
		for r := range k.rows {
			for s := range k.streams {
				k.p("VFMADD231PS.BCST %d(DI), Z%d, Z%d", r*floatUnit+4*col, zW+s, k.acc(r, s))
			}
		}
	}
	k.p("ADDQ $%d, SI", 16*k.bytes*unroll)
	k.p("ADDQ $%d, DI", 4*unroll)
	k.p("DECL AX")
	k.p("JNZ %s", k.tag("cols"))
	k.p("ADDQ $%d, DI", floatUnit*(k.rows-1))
	k.p("DECQ CX")
	k.p("JNZ %s", k.tag("block"))
}

// widen loads 16 weights as float32.
func (k *float512) widen(at string, z int) {
	switch k.format {
	case "F16":
		k.p("VCVTPH2PS %s, Z%d", at, z)
	case "BF16":
		k.p("VPMOVZXWD %s, Z%d", at, z)
		k.p("VPSLLD $16, Z%d, Z%d", z, z)
	default:
		k.p("VMOVUPS %s, Z%d", at, z)
	}
}

// widths lists the 4-bit formats with the 8-bit ones that hold the same weights, and what turns a code of one into
// one of the other.
var widths = []struct {
	from, to string
	add      int
}{{"W4S", "W8S", 128 - 8}, {"W4SM", "W8SM", 0}, {"W4K", "W8K", 0}}

// genWiden emits Set.Widen: factors are copied, codes get a byte each.
func genWiden(f *file) {
	var table strings.Builder
	for _, x := range widths {
		i := slices.IndexFunc(intFormats, func(q intFormat) bool { return q.name == x.from })
		name := fmt.Sprintf("widen%sAVX512", x.from)
		f.fn(name, "dst, w *byte, blocks int", 24, fmt.Sprintf("is WidenFunc from %s to %s.", x.from, x.to))
		widen(f, &intFormats[i], x.add)
		fmt.Fprintf(&table, "\ts.Widen[%s] = %s\n", x.from, name)
	}
	fmt.Fprintf(&f.decl, "\n// widenAVX512 fills in a set's conversions to wider formats.\nfunc widenAVX512(s *Set) {\n%s}\n", table.String())
}

func widen(f *file, q *intFormat, add int) {
	stride, codes := q.blockBytes()
	f.p("MOVQ dst+0(FP), DI")
	f.p("MOVQ w+8(FP), SI")
	f.p("MOVQ blocks+16(FP), CX")
	f.p("MOVL $0x0f0f0f0f, AX")
	f.p("VPBROADCASTD AX, Z%d", zMask)
	f.p("MOVL $%#x, AX", add*0x01010101)
	f.p("VPBROADCASTD AX, Z%d", zTmp)
	if q.super {
		f.label("super")
		f.p("VMOVDQU32 (SI), Z0")
		f.p("VMOVDQU32 Z0, (DI)")
		f.p("ADDQ $%d, SI", q.head)
		f.p("ADDQ $%d, DI", q.head)
	}
	f.label("block")
	for at := 0; at < codes; at += 32 {
		f.p("VMOVDQU %d(SI), Y0", at)
		f.p("VMOVDQU Y0, %d(DI)", at)
	}
	for i := range 4 {
		f.p("PREFETCHT0 %d(SI)", distance512+codes+64*i)
		f.p("VPANDD %d(SI), Z%d, Z0", codes+64*i, zMask)
		f.p("VPSRLD $4, %d(SI), Z1", codes+64*i)
		f.p("VPANDD Z1, Z%d, Z1", zMask)
		for j := range 2 {
			if add != 0 {
				f.p("VPADDB Z%d, Z%d, Z%d", zTmp, j, j)
			}
			f.p("VMOVDQU32 Z%d, %d(DI)", j, codes+128*i+64*j)
		}
	}
	f.p("ADDQ $%d, SI", stride)
	f.p("ADDQ $%d, DI", stride+256)
	nextBlock(f, q, "block", "super")
	f.ret()
}
