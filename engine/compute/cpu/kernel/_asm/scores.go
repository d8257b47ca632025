package main

import "fmt"

// genScores emits a ScoresFunc: for each count of tiles in turn, as many groups of it as there are blocks.
func genScores(f *file, v isa, elem, q int, tiles []int) {
	f.fn(scoresName(v, elem, q), "s *float32, lds int, query *float32, k *byte, table *int32, blocks, stride, dim int", 64,
		fmt.Sprintf("is Set.Scores%d[%d].", 8*elem, q))
	f.p("MOVQ s+0(FP), DI")
	f.p("MOVQ table+32(FP), BX")
	f.p("MOVQ dim+56(FP), DX")
	f.p("SHLQ $2, DX")
	for n, t := range tiles {
		next := "done"
		if n+1 < len(tiles) {
			next = fmt.Sprintf("tiles%d", tiles[n+1])
		}
		scoreGroup(f, tileKernel{v, elem, q, t}, next)
	}
	f.label("done")
	f.ret()
}

const cacheLine = 64

// keyPointers makes regs the addresses of the key blocks from table entry first on.
func keyPointers(f *file, table string, regs []string, first int) {
	for u, r := range regs {
		f.p("MOVLQSX %d(%s), %s", 4*(first+u), table, r)
		f.p("IMULQ stride+48(FP), %s", r)
		f.p("ADDQ k+24(FP), %s", r)
	}
}

// unroll is how many multiply-add steps a loop's pointer arithmetic is shared by: dim is a multiple of 16.
const unroll = 4

func scoreGroup(f *file, k tileKernel, next string) {
	b := bases(k.q)
	keys := pool[len(b)-1:][:k.t]
	ahead := pool[len(b)-1+k.t:] // where the next group's keys lie, if registers are left for that
	ahead = ahead[:len(ahead)/k.t*k.t][:k.t*min(1, len(ahead)/k.t)]
	self := fmt.Sprintf("tiles%d", k.t)
	f.label(self)
	f.p("CMPQ blocks+40(FP), $%d", k.t)
	f.p("JLT %s", next)
	keyPointers(f, "BX", keys, 0)
	if len(ahead) > 0 {
		f.p("CMPQ blocks+40(FP), $%d", 2*k.t)
		f.p("JLT last%s", self)
		keyPointers(f, "BX", ahead, k.t)
		f.p("JMP start%s", self)
		f.label("last" + self) // the next head's first keys: heads lie side by side in a block, and its call comes next
		f.p("MOVQ table+32(FP), AX")
		keyPointers(f, "AX", ahead, 0)
		f.p("MOVQ dim+56(FP), AX")
		f.p("SHLQ $%d, AX", 4+k.elem/2)
		for _, r := range ahead {
			f.p("ADDQ AX, %s", r)
		}
		f.label("start" + self)
	}
	f.p("MOVQ query+16(FP), SI")
	setBases(f, k.q)
	k.zero(f)
	f.p("MOVQ dim+56(FP), CX")
	f.label("dim" + self)
	for d := range unroll {
		k.step(f, func(i int) string { return row(b, i, d) },
			func(t, off int) string { return fmt.Sprintf("%d(%s)", d*16*k.elem+off, keys[t]) })
		if at := d * 16 * k.elem; at%cacheLine == 0 {
			for _, r := range ahead {
				f.p("PREFETCHT0 %d(%s)", at, r)
			}
		}
	}
	for _, r := range b {
		f.p("ADDQ $%d, %s", 4*unroll, r)
	}
	for _, r := range append(keys[:k.t:k.t], ahead...) {
		f.p("ADDQ $%d, %s", 16*k.elem*unroll, r)
	}
	f.p("SUBQ $%d, CX", unroll)
	f.p("JNZ dim%s", self)
	f.p("MOVQ DI, AX")
	f.p("MOVQ lds+8(FP), SI")
	f.p("SHLQ $2, SI")
	k.store(f)
	f.p("ADDQ $%d, DI", 64*k.t)
	f.p("ADDQ $%d, BX", 4*k.t)
	f.p("SUBQ $%d, blocks+40(FP)", k.t)
	f.p("JMP %s", self)
}
