package main

import "fmt"

// chunk is how many positions a ValuesFunc takes at a time where not all slices fit the registers: it walks the
// slices' rows of a chunk in turn, so that a row's cache lines come from memory once, and keeps the sums in
// o meanwhile. Fewer positions would store the sums more often, more would not stay in the first-level cache.
// Blocks lie apart, so that the processor's own prefetcher starts anew in each: rows are prefetched a chunk ahead.
const (
	chunkBlocks = 4
	chunk       = 16 * chunkBlocks
)

// Registers of a ValuesFunc beside the bases; DI counts the chunk's positions, CX the block's, BX walks the table.
const (
	valueRow   = "R12"
	aheadRow   = "R11" // a row chunkBlocks blocks ahead
	slicesOff  = "R14" // offset of the slices at work, in bytes of a row
	pitch      = "R13"
	pitchThree = "R15"
)

// tableStart is where chunks keep the table's first entry: in the place of ldp, which DX holds.
const tableStart = "ldp+24(FP)"

// genValues emits a ValuesFunc that holds t of z slices at once. It reads exactly n rows: what lies beyond in
// the last block may be anything.
func genValues(f *file, v isa, elem, q, z, t int) {
	f.fn(valuesName(v, elem, q, z), "o *float32, ldo int, p *float32, ldp int, v *byte, table *int32, n, stride, dim int", 72,
		fmt.Sprintf("is Set.Values%d[%d][%d].", 8*elem, q, z))
	k := tileKernel{v, elem, q, t}
	f.p("MOVQ ldp+24(FP), DX")
	f.p("SHLQ $2, DX")
	f.p("MOVQ dim+64(FP), %s", pitch)
	f.p("SHLQ $%d, %s", elem/2, pitch)
	f.p("LEAQ (%[1]s)(%[1]s*2), %[2]s", pitch, pitchThree)
	k.zero(f)
	f.p("XORL %[1]s, %[1]s", slicesOff)
	if t == z {
		f.p("MOVQ n+48(FP), DI")
		valueRows(f, k, false)
		sumsAddress(f, elem)
		k.store(f)
		f.ret()
		return
	}
	f.p("MOVQ table+40(FP), AX")
	f.p("MOVQ AX, %s", tableStart)
	for first := 0; first < z; first += t {
		sumsAddress(f, elem)
		f.p("ADDQ $%d, AX", 64*first)
		k.store(f)
	}
	f.label("chunk")
	f.p("MOVQ n+48(FP), DI")
	f.p("TESTQ DI, DI")
	f.p("JLE done")
	f.p("XORL %[1]s, %[1]s", slicesOff)
	f.label("slices")
	sumsAddress(f, elem)
	k.reload(f)
	f.p("MOVL $%d, AX", chunk)
	f.p("MOVQ n+48(FP), DI")
	f.p("CMPQ DI, AX")
	f.p("CMOVQGT AX, DI")
	valueRows(f, k, true)
	sumsAddress(f, elem)
	k.store(f)
	f.p("ADDQ $%d, %s", 16*elem*t, slicesOff)
	f.p("CMPQ %s, $%d", slicesOff, 16*elem*z)
	f.p("JLT slices")
	f.p("ADDQ $%d, p+16(FP)", 4*chunk)
	f.p("ADDQ $%d, table+40(FP)", 4*chunkBlocks)
	f.p("SUBQ $%d, n+48(FP)", chunk)
	f.p("JMP chunk")
	f.label("done")
	f.ret()
}

// sumsAddress makes AX the first row of the sums of the slices at work and SI the pitch of rows.
func sumsAddress(f *file, elem int) {
	f.p("MOVQ o+0(FP), AX")
	f.p("LEAQ (AX)(%s*%d), AX", slicesOff, 4/elem)
	f.p("MOVQ ldo+8(FP), SI")
	f.p("SHLQ $2, SI")
}

// valueRows emits the sums over DI positions from p and table on: all there are, or a chunk of them.
func valueRows(f *file, k tileKernel, chunked bool) {
	b := bases(k.q)
	f.p("MOVQ p+16(FP), SI")
	setBases(f, k.q)
	f.p("MOVQ table+40(FP), BX")
	f.label("block")
	f.p("TESTQ DI, DI")
	f.p("JLE summed")
	valueBlock(f, chunked)
	f.p("MOVL $16, CX")
	f.p("CMPQ DI, CX")
	f.p("CMOVQLT DI, CX")
	f.p("SUBQ CX, DI")
	f.p("SUBQ $4, CX")
	f.p("JLT rest")
	f.label("four")
	for i, index := range []string{"", "(" + pitch + "*1)", "(" + pitch + "*2)", "(" + pitchThree + "*1)"} {
		valueStep(f, k, b, i, index)
	}
	valueAdvance(f, b, 4)
	f.p("SUBQ $4, CX")
	f.p("JGE four")
	f.label("rest")
	f.p("ADDQ $4, CX")
	f.p("JZ block")
	f.label("one")
	valueStep(f, k, b, 0, "")
	valueAdvance(f, b, 1)
	f.p("DECQ CX")
	f.p("JNZ one")
	f.p("JMP block")
	f.label("summed")
}

// valueBlock finds the next block's first row and the one to prefetch: chunkBlocks blocks ahead, counted on into
// the next head's, which lie beside this one's and are wanted next.
func valueBlock(f *file, chunked bool) {
	find := func(entry, dst string) {
		f.p("MOVLQSX %s, %s", entry, dst)
		f.p("IMULQ stride+56(FP), %s", dst)
		f.p("ADDQ v+32(FP), %s", dst)
		f.p("ADDQ %s, %s", slicesOff, dst)
	}
	find("(BX)", valueRow)
	f.p("MOVQ DI, AX") // positions from this block on
	first := "table+40(FP)"
	if chunked {
		first = tableStart
		f.p("MOVQ n+48(FP), AX")
		f.p("SUBQ $%d, AX", chunk)
		f.p("JGE more")
		f.p("XORL AX, AX")
		f.label("more")
		f.p("ADDQ DI, AX")
	}
	f.p("CMPQ AX, $%d", chunk)
	f.p("JLE near")
	find(fmt.Sprintf("%d(BX)", 4*chunkBlocks), aheadRow)
	f.p("JMP found")
	f.label("near")
	f.p("MOVQ %s, %s", valueRow, aheadRow)
	f.p("ADDQ $15, AX")
	f.p("SHRQ $4, AX")
	f.p("SHLQ $2, AX")
	f.p("NEGQ AX")
	f.p("ADDQ %s, AX", first)
	f.p("ADDQ $%d, AX", 4*chunkBlocks)
	f.p("CMPQ AX, BX") // in a table of fewer blocks the entry may not be there
	f.p("JHI found")
	find("(AX)", aheadRow)
	f.p("MOVQ %s, AX", pitch)
	f.p("SHLQ $4, AX")
	f.p("ADDQ AX, %s", aheadRow)
	f.label("found")
	f.p("ADDQ $4, BX")
}

func valueStep(f *file, k tileKernel, b []string, position int, index string) {
	for off := 0; off < 16*k.t*k.elem; off += cacheLine {
		f.p("PREFETCHT0 %d(%s)%s", off, aheadRow, index)
	}
	k.step(f, func(i int) string { return row(b, i, position) },
		func(u, off int) string { return fmt.Sprintf("%d(%s)%s", 16*k.elem*u+off, valueRow, index) })
}

func valueAdvance(f *file, b []string, positions int) {
	for _, r := range b {
		f.p("ADDQ $%d, %s", 4*positions, r)
	}
	for _, r := range []string{valueRow, aheadRow} {
		f.p("LEAQ (%[1]s)(%[2]s*%[3]d), %[1]s", r, pitch, positions)
	}
}
