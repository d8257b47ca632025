package main

import "fmt"

// pool is the general registers that hold the row bases beyond the first and then the tiles.
var pool = []string{"R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}

// bases returns the registers that address q rows in threes: row i lies at base i/3 plus i%3 times DX.
func bases(q int) []string { return append([]string{"SI"}, pool[:(q-1)/3]...) }

// setBases points the bases at the rows, SI being set.
func setBases(f *file, q int) {
	b := bases(q)
	for i := 1; i < len(b); i++ {
		f.p("LEAQ (%s)(DX*2), %s", b[i-1], b[i])
		f.p("ADDQ DX, %s", b[i])
	}
}

// row addresses float d of row i.
func row(b []string, i, d int) string {
	index := ""
	if i%3 > 0 {
		index = fmt.Sprintf("(DX*%d)", i%3)
	}
	return fmt.Sprintf("%d(%s)%s", 4*d, b[i/3], index)
}

// tileKernel is a register tile: q rows of scalars times t vectors of 16 elements each.
type tileKernel struct {
	isa
	elem, q, t int
}

// vectors is the number of registers that t vectors take.
func (k tileKernel) vectors() int { return k.t * k.parts }

func (k tileKernel) r(i int) string {
	if k.parts == 1 {
		return fmt.Sprintf("Z%d", i)
	}
	return fmt.Sprintf("Y%d", i)
}

// acc is the accumulator of row i and vector register u.
func (k tileKernel) acc(i, u int) string { return k.r(i*k.vectors() + u) }

func (k tileKernel) zero(f *file) {
	for i := range k.q * k.vectors() {
		f.p("VXORPS X%[1]d, X%[1]d, X%[1]d", i)
	}
}

// load emits the load of vector register u; address gives vector u/parts' address plus an offset in bytes.
func (k tileKernel) load(f *file, u int, address func(t, off int) string, dst string) {
	op := "VMOVUPS"
	if k.elem == 2 {
		op = "VCVTPH2PS"
	}
	f.p("%s %s, %s", op, address(u/k.parts, u%k.parts*8*k.elem), dst)
}

// step emits acc[i][u] += scalar(i)·vector(u) for all of the tile.
func (k tileKernel) step(f *file, scalar func(i int) string, address func(t, off int) string) {
	free, n := k.q*k.vectors(), k.vectors()
	if k.q < n { // hold the scalars, let the vectors pass through what is left
		for i := range k.q {
			f.p("VBROADCASTSS %s, %s", scalar(i), k.r(free+i))
		}
		free += k.q
		spare := min(n, 16*(3-k.parts)-free) // 16 registers on AVX2, 32 on AVX-512
		for u := range n {
			x := k.r(free + u%spare)
			k.load(f, u, address, x)
			for i := range k.q {
				f.p("VFMADD231PS %s, %s, %s", x, k.r(k.q*n+i), k.acc(i, u))
			}
		}
		return
	}
	for u := range n {
		k.load(f, u, address, k.r(free+u))
	}
	for i := range k.q {
		if n == 1 {
			f.p("VFMADD231PS.BCST %s, %s, %s", scalar(i), k.r(free), k.acc(i, 0))
			continue
		}
		x := k.r(free + n + i%max(1, min(2, 16*(3-k.parts)-free-n)))
		f.p("VBROADCASTSS %s, %s", scalar(i), x)
		for u := range n {
			f.p("VFMADD231PS %s, %s, %s", k.r(free+u), x, k.acc(i, u))
		}
	}
}

// store writes the accumulators to rows at AX, SI bytes apart.
func (k tileKernel) store(f *file) {
	for i := range k.q {
		for u := range k.vectors() {
			f.p("VMOVUPS %s, %d(AX)", k.acc(i, u), u*k.bytes)
		}
		if i < k.q-1 {
			f.p("ADDQ SI, AX")
		}
	}
}

// reload reads back what store wrote.
func (k tileKernel) reload(f *file) {
	for i := range k.q {
		for u := range k.vectors() {
			f.p("VMOVUPS %d(AX), %s", u*k.bytes, k.acc(i, u))
		}
		if i < k.q-1 {
			f.p("ADDQ SI, AX")
		}
	}
}
