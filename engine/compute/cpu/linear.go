package cpu

import (
	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// How much of the weights one kernel call covers.
const (
	// streamBytes bounds a call when the rows fit one tile: the weights pass by once, and the bound only keeps a
	// call of assembly short enough (tens of microseconds) for the collector not to wait on it.
	streamBytes = 512 << 10
	// reuseBytes bounds it when several tiles use the same weights: they should stay in the first-level
	// cache beside a tile of activations. Found on 32–48 KiB caches; larger loses to misses, smaller to calls.
	reuseBytes = 16 << 10
	// fewBytes bounds it when a few tiles use them: they come from memory at nearly its speed, which two long streams
	// reach and short ones do not, and are read again from the second-level cache.
	fewBytes = 128 << 10
	// gluBlocks is how many 32-column blocks of a SwiGLU are computed before they are quantised: the
	// scratch (tile rows × 32 · gluBlocks floats, twice) should stay in the first-level cache.
	gluBlocks = 8
	// wideTiles is how many tiles must use the same weights before a copy with wider codes pays for its making.
	wideTiles = 4
	// pairGroups bounds the groups of a call for operands of two terms, whose products wait in a scratch of
	// TileRows · 16 · pairGroups floats until they are joined: that should stay in the first-level cache, too.
	pairGroups = 32
)

// matMul is y (+)= W·x.
type matMul struct {
	y   *tensor
	w   *matrix
	x   *operand
	add int
}

// MatMul implements [compute.Recorder].
func (r *recorder) MatMul(y compute.Tensor, w compute.Matrix, x compute.Operand, ep compute.Epilogue) {
	s := &matMul{y.(*tensor), w.(*matrix), x.(*operand), 0}
	if ep == compute.Add {
		s.add = 1
	}
	r.check(s.w, s.x, s.y.ld)
	r.widens(0, s.w, s.w.chunk(kernel.TileRows+1))
	r.add(compute.KindMatMul, s)
}

// check panics if an operand or an output width does not fit a matrix, and makes room for its products.
func (r *recorder) check(m *matrix, x *operand, ld int) {
	switch {
	case m.cols != x.cols:
		panic("cpu: operand and matrix differ in columns")
	case m.in == compute.Int8 && x.ints == nil || m.in == compute.Float32 && x.floats == nil:
		panic("cpu: the operand lacks the representation that the matrix reads")
	case ld < m.groups*kernel.GroupRows:
		panic("cpu: the output is narrower than the matrix")
	}
	if x.terms == 2 {
		r.grow(kernel.TileRows*pairGroups*kernel.GroupRows, pairBuffer)
	}
}

func (s *matMul) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(s.w.groups, w.id, w.d.pool.n)
	w.multiply(s.w, s.x, rows, from, to, s.y.data, s.y.ld, s.add)
}

// multiply computes groups [from, to) of W·x for all rows. Row r, group g goes to y[r·ld + 16·g].
func (w *worker) multiply(m *matrix, x *operand, rows, from, to int, y []float32, ld, add int) {
	chunk := m.chunk(rows * x.terms)
	if x.terms == 2 {
		chunk = min(chunk, pairGroups)
	}
	for g := from; g < to; g += chunk {
		n := min(chunk, to-g)
		weights := w.widen(0, m, rows, g, n)
		for r := 0; r < rows; r += kernel.TileRows {
			w.tile(weights, x, r, min(kernel.TileRows, rows-r), g, n, y[r*ld+g*kernel.GroupRows:], ld, add)
		}
	}
}

// chunk is how many groups one kernel call takes if so many rows are multiplied with them: an even number
// where it can be, since kernels read a call's first and second half side by side.
func (m *matrix) chunk(rows int) int {
	limit := reuseBytes
	switch {
	case rows <= kernel.TileRows:
		limit = streamBytes
	case rows <= wideTiles*kernel.TileRows:
		limit = fewBytes
	}
	n := max(1, limit*m.groups/int(m.bytes))
	if n > 1 {
		n &^= 1
	}
	return n
}

// widened is a copy of some groups of a matrix, its 4-bit codes made 8-bit ones, which the kernels need not unpack.
type widened struct {
	matrix
	data []byte
}

// widens makes room for groups groups of m, widened, in the i-th copy of every worker.
func (r *recorder) widens(i int, m *matrix, groups int) {
	n := 0
	for j := range m.panels {
		if f := m.panels[j].format; r.d.set.Widen[f] != nil {
			n = max(n, groups*kernel.GroupBytes(f.Wide(), m.cols))
		}
	}
	for j := range r.d.workers {
		v := &r.d.workers[j].wide[i]
		if n > len(v.data) {
			v.data = bytesAligned(n)
		}
		if cap(v.panels) < len(m.panels) {
			v.panels = make([]panel, 0, len(m.panels))
		}
	}
}

// widen returns a matrix with groups [g, g+n) of m as is best for so many rows: m itself, or the worker's i-th copy,
// which lacks the other groups and is good until the next call.
func (w *worker) widen(i int, m *matrix, rows, g, n int) *matrix {
	if rows <= wideTiles*kernel.TileRows {
		return m
	}
	v := &w.wide[i]
	v.blocks, v.in = m.blocks, m.in
	v.panels = v.panels[:0]
	free := v.data
	for j := range m.panels {
		p := m.panels[j]
		a, z := max(g, p.first), min(g+n, p.first+p.groups)
		if widen := w.d.set.Widen[p.format]; widen != nil && a < z {
			from := p.data[(a-p.first)*p.groupBytes:]
			p.format = p.format.Wide()
			p.first, p.groups, p.groupBytes = a, z-a, kernel.GroupBytes(p.format, m.cols)
			p.data, free = free[:p.groups*p.groupBytes], free[p.groups*p.groupBytes:]
			widen(&p.data[0], &from[0], p.groups*m.blocks)
		}
		v.panels = append(v.panels, p)
	}
	return &v.matrix
}

// tile computes n groups from group g for one tile of t rows from row r into (or onto) y, [t, ld] from its start.
func (w *worker) tile(m *matrix, x *operand, r, t, g, n int, y []float32, ld, add int) {
	switch {
	case m.in == compute.Float32:
		w.groups(m, x.floats[r*m.blocks*kernel.FloatUnit:], t, g, n, y, ld, add)
	case x.terms == 1:
		w.groups(m, x.ints[r*m.blocks*kernel.IntUnit:], t, g, n, y, ld, add)
	case 2*t <= kernel.TileRows:
		// One pass over the weights serves both terms.
		cols := n * kernel.GroupRows
		w.groups(m, x.ints[2*r*m.blocks*kernel.IntUnit:], 2*t, g, n, w.pair, cols, 0)
		for i := range t {
			w.join(y[i*ld:i*ld+cols], w.pair[i*cols:], w.pair[(t+i)*cols:], add)
		}
	default:
		units := x.ints[2*r*m.blocks*kernel.IntUnit:]
		w.groups(m, units, t, g, n, y, ld, add)
		w.groups(m, units[t*m.blocks*kernel.IntUnit:], t, g, n, y, ld, 1)
	}
}

// join adds the products of both terms in the order in which two passes would: (y +) first + second.
func (w *worker) join(y, first, second []float32, add int) {
	if add != 0 {
		w.d.set.Add(&y[0], &first[0], len(y))
	} else {
		copy(y, first)
	}
	w.d.set.Add(&y[0], &second[0], len(y))
}

// groups computes n groups from group g for t rows whose units begin at x.
func (w *worker) groups(m *matrix, x []byte, t, g, n int, y []float32, ld, add int) {
	for i := range m.panels {
		p := &m.panels[i]
		a, z := max(g, p.first), min(g+n, p.first+p.groups)
		if a < z {
			mul := w.d.set.MatMul[p.format][t]
			mul(&p.data[(a-p.first)*p.groupBytes], &x[0], &y[(a-g)*kernel.GroupRows], m.blocks, z-a, ld, add)
		}
	}
}

// swiGLU is y = silu(gate·x) ⊙ (up·x), quantised at once.
type swiGLU struct {
	y        *operand
	gate, up *matrix
	x        *operand
}

// SwiGLU implements [compute.Recorder].
func (r *recorder) SwiGLU(y compute.Operand, gate, up compute.Matrix, x compute.Operand) {
	s := &swiGLU{y.(*operand), gate.(*matrix), up.(*matrix), x.(*operand)}
	if s.gate.rows != s.up.rows || s.gate.rows != s.y.cols || s.y.cols%kernel.BlockCols != 0 {
		panic("cpu: gate, up and output of a SwiGLU differ in width, or the width is not a multiple of 32")
	}
	r.check(s.gate, s.x, s.y.cols)
	r.check(s.up, s.x, s.y.cols)
	r.widens(0, s.gate, 2*gluBlocks)
	r.widens(1, s.up, 2*gluBlocks)
	r.packs(s.y)
	const n = kernel.TileRows * gluBlocks * kernel.BlockCols
	r.grow(n, rowBuffer)
	r.grow(n, upBuffer)
	r.add(compute.KindMatMul, s)
}

func (s *swiGLU) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(s.y.blocks, w.id, w.d.pool.n)
	for blk := from; blk < to; blk += gluBlocks {
		n := min(gluBlocks, to-blk)
		gate, up := w.widen(0, s.gate, rows, blk*2, n*2), w.widen(1, s.up, rows, blk*2, n*2)
		for r := 0; r < rows; r += kernel.TileRows {
			s.chunk(w, gate, up, rows, r, blk, n)
		}
	}
}

// chunk computes n blocks of output from blk for the tile that starts at row r.
func (s *swiGLU) chunk(w *worker, gate, up *matrix, rows, r, blk, n int) {
	t := min(kernel.TileRows, rows-r)
	cols := n * kernel.BlockCols
	w.tile(gate, s.x, r, t, blk*2, n*2, w.row, cols, 0)
	w.tile(up, s.x, r, t, blk*2, n*2, w.up, cols, 0)
	w.d.set.SwiGLU(&w.row[0], &w.row[0], &w.up[0], t*cols)
	for i := range t {
		w.put(s.y, rows, r+i, blk, n, w.row[i*cols:])
	}
}

// head is the output projection and the arg-max of each output row.
type head struct {
	logits *tensor
	w      *matrix
	x      *operand
	best   []candidate // [worker, MaxOut]
	maxOut int
}

// candidate is a worker's best id among the columns that it computed.
type candidate struct {
	id    int32
	logit float32
}

// Head implements [compute.Recorder].
func (r *recorder) Head(logits compute.Tensor, w compute.Matrix, x compute.Operand) {
	s := &head{logits: logits.(*tensor), w: w.(*matrix), x: x.(*operand), maxOut: r.p.batch.MaxOut}
	r.check(s.w, s.x, s.logits.ld)
	r.widens(0, s.w, s.w.chunk(kernel.TileRows+1))
	s.best = make([]candidate, r.d.pool.n*s.maxOut)
	r.add(compute.KindHead, s)
	r.add(compute.KindHead, &bestOf{s})
}

func (s *head) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(s.w.groups, w.id, w.d.pool.n)
	w.multiply(s.w, s.x, rows, from, to, s.logits.data, s.logits.ld, 0)
	a, z := from*kernel.GroupRows, min(to*kernel.GroupRows, s.w.rows)
	for r := range rows {
		c := candidate{id: -1}
		if a < z {
			i := w.d.set.ArgMax(s.logits.at(r, a), z-a)
			c = candidate{int32(a + i), s.logits.data[r*s.logits.ld+a+i]}
		}
		s.best[w.id*s.maxOut+r] = c
	}
}

// bestOf joins the workers' candidates.
type bestOf struct{ h *head }

func (s *bestOf) run(w *worker, b *compute.Batch, rows int) {
	if w.id != 0 {
		return
	}
	for r := range rows {
		best := s.h.best[r]
		for id := 1; id < w.d.pool.n; id++ {
			c := s.h.best[id*s.h.maxOut+r]
			// Workers hold ascending ids, so only a larger logit wins; a NaN never does.
			if c.id >= 0 && (best.id < 0 || c.logit > best.logit || best.logit != best.logit) {
				best = c
			}
		}
		b.Best[r], b.BestLogit[r] = best.id, best.logit
	}
}
