package main

import (
	"fmt"
	"strings"
)

// tileRows is kernel.TileRows: the most rows of a tile.
const tileRows = 8

// Sizes and places of package kernel's packed activations and weights (see its package comment).
const (
	intUnit   = 64  // bytes of a row's block of codes
	floatUnit = 128 // bytes of a row's block of floats
	superSize = 8   // blocks that share a K format's factors

	atScale    = 32 // f32 s
	atScaleSum = 36 // f32 s·Σ
	atMinus8   = 40 // i32 −8·Σ
	atMinus128 = 44 // i32 −128·Σ
	atMinus32a = 48 // i32 −32·Σ of columns 0–15
	atMinus32b = 52 // i32 −32·Σ of columns 16–31
)

// intFormat describes a packed format of integer codes.
type intFormat struct {
	name    string
	nibbles bool // two 4-bit codes a byte
	head    int  // bytes of float16 factors before a block, or before a super-block
	offset  bool // the factors include an offset m
	super   bool // 8 blocks share the factors and have a byte or two of their own each
	halves  bool // the block's halves have factors of their own (W6K)
	init    int  // where the unit holds −zero·Σ, 0 if the codes have no zero to subtract
	maxCode int  // largest code: what AVX2's saturating 16-bit sums are planned for
}

var intFormats = []intFormat{
	{name: "W4S", nibbles: true, head: 32, init: atMinus8, maxCode: 15},
	{name: "W4SM", nibbles: true, head: 64, offset: true, maxCode: 15},
	{name: "W4K", nibbles: true, head: 64, offset: true, super: true, maxCode: 15},
	{name: "W8S", head: 32, init: atMinus128, maxCode: 255},
	{name: "W8SM", head: 64, offset: true, maxCode: 31},
	{name: "W8K", head: 64, offset: true, super: true, maxCode: 31},
	{name: "W6K", head: 32, super: true, halves: true, init: atMinus32a, maxCode: 63},
}

// codeBytes returns the bytes of a block's codes.
func (f *intFormat) codeBytes() int {
	if f.nibbles {
		return 256
	}
	return 512
}

// blockBytes returns the distance from one block to the next and where in it the codes begin.
func (f *intFormat) blockBytes() (stride, codes int) {
	if f.super {
		return 32 + f.codeBytes(), 32
	}
	return f.head + f.codeBytes(), f.head
}

// addOffset returns the instruction that adds (K formats: subtracts) the offset's product, "" for no offset.
func (f *intFormat) addOffset() string {
	switch {
	case !f.offset:
		return ""
	case f.super:
		return "VFNMADD231PS"
	}
	return "VFMADD231PS"
}

// nextBlock ends a kernel's loops over the blocks CX left to do: K formats have a multiple of superSize.
func nextBlock(f *file, q *intFormat, block, super string) {
	f.p("DECQ CX")
	if q.super {
		f.p("TESTQ $%d, CX", superSize-1)
		f.p("JNZ %s", block)
		f.p("TESTQ CX, CX")
		f.p("JNZ %s", super)
		return
	}
	f.p("JNZ %s", block)
}

// floatFormats are the packed formats of float values, with the bytes of one value.
var floatFormats = []struct {
	name  string
	bytes int
}{{"F16", 2}, {"BF16", 2}, {"F32", 4}}

const (
	matmulArgs     = "w, x *byte, y *float32, blocks, groups, ldy, add int"
	matmulArgBytes = 56
)

// matmulSet is an instruction set as far as matrix products differ.
type matmulSet struct {
	name   string // as in the functions' names
	ints   func(f *file, q *intFormat, rows int, name string)
	floats func(f *file, format string, bytes, rows int, name string)
	shares string // the set whose float kernels serve this one too
}

func genMatMul(f *file) {
	sets := []matmulSet{
		{name: "AVX2", ints: intAVX2(false), floats: floatAVX2},
		{name: "AVX2VNNI", ints: intAVX2(true), shares: "AVX2"},
		{name: "AVX512", ints: intAVX512, floats: floatAVX512},
	}
	for _, s := range sets {
		var table strings.Builder
		for i := range intFormats {
			q := &intFormats[i]
			names := make([]string, tileRows)
			for r := range names {
				names[r] = fmt.Sprintf("matmul%sx%d%s", q.name, r+1, s.name)
				s.ints(f, q, r+1, names[r])
			}
			tableLine(&table, q.name, names)
		}
		for _, q := range floatFormats {
			names := make([]string, tileRows)
			for r := range names {
				if s.floats == nil {
					names[r] = fmt.Sprintf("matmul%sx%d%s", q.name, r+1, s.shares)
					continue
				}
				names[r] = fmt.Sprintf("matmul%sx%d%s", q.name, r+1, s.name)
				s.floats(f, q.name, q.bytes, r+1, names[r])
			}
			tableLine(&table, q.name, names)
		}
		fmt.Fprintf(&f.decl, "\n// matmul%s fills in a set's matrix products.\nfunc matmul%s(s *Set) {\n%s}\n", s.name, s.name, table.String())
	}
	genWiden(f)
}

func tableLine(b *strings.Builder, format string, names []string) {
	fmt.Fprintf(b, "\ts.MatMul[%s] = [TileRows + 1]MatMulFunc{nil,\n\t\t%s}\n", format, strings.Join(names, ", "))
}

// matmulDoc is the one-line comment of a generated function.
func matmulDoc(format string, rows int, isa string) string {
	return fmt.Sprintf("is MatMulFunc for %s and tiles of %d (%s).", format, rows, isa)
}
