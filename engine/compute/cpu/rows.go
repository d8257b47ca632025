package cpu

import (
	"fmt"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// embedRows looks up token embeddings.
type embedRows struct {
	x     *tensor
	table *matrix
}

// EmbedRows implements [compute.Recorder].
func (r *recorder) EmbedRows(x compute.Tensor, table compute.Matrix) {
	m := table.(*matrix)
	if len(m.panels) != 1 {
		panic("cpu: an embedding table of several parts")
	}
	r.add(compute.KindEmbed, &embedRows{x.(*tensor), m})
}

func (s *embedRows) run(w *worker, b *compute.Batch, rows int) {
	p := &s.table.panels[0]
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		id := int(b.Token[r])
		if id < 0 || id >= s.table.rows {
			panic(fmt.Sprintf("cpu: token %d outside the embedding table of %d", id, s.table.rows))
		}
		g := id / kernel.GroupRows
		kernel.DecodeRow(s.x.row(r)[:s.x.cols], p.format, p.data[g*p.groupBytes:(g+1)*p.groupBytes], id%kernel.GroupRows, s.table.cols)
	}
}

// norm is an RMS norm into an operand.
type norm struct {
	y    *operand
	x    *tensor
	gain *vector
	eps  float32
}

// Norm implements [compute.Recorder].
func (r *recorder) Norm(y compute.Operand, x compute.Tensor, gain compute.Vector, eps float32) {
	s := &norm{y.(*operand), x.(*tensor), gain.(*vector), eps}
	if s.x.cols%kernel.GroupRows != 0 {
		panic(fmt.Sprintf("cpu: norm over %d columns, not a multiple of %d", s.x.cols, kernel.GroupRows))
	}
	r.grow(s.x.ld, rowBuffer)
	r.packs(s.y)
	r.add(compute.KindNorm, s)
}

func (s *norm) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		w.d.set.RMSNorm(&w.row[0], s.x.at(r, 0), &s.gain.data[0], s.x.cols, s.eps)
		w.put(s.y, rows, r, 0, s.y.blocks, w.row)
	}
}

// normInto is an RMS norm into some columns of a tensor.
type normInto struct {
	y    *tensor
	col  int
	x    *tensor
	gain *vector
	eps  float32
}

// NormInto implements [compute.Recorder].
func (r *recorder) NormInto(y compute.Tensor, col int, x compute.Tensor, gain compute.Vector, eps float32) {
	s := &normInto{y.(*tensor), col, x.(*tensor), gain.(*vector), eps}
	if s.x.cols%kernel.GroupRows != 0 || col%kernel.GroupRows != 0 || col+s.x.cols > s.y.cols || s.gain.n != s.x.cols {
		panic(fmt.Sprintf("cpu: norm of %d columns by %d gains into column %d of %d", s.x.cols, s.gain.n, col, s.y.cols))
	}
	r.add(compute.KindNorm, s)
}

func (s *normInto) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		w.d.set.RMSNorm(s.y.at(r, s.col), s.x.at(r, 0), &s.gain.data[0], s.x.cols, s.eps)
	}
}

// gather fetches rows of two tensors.
type gather struct {
	dst, src, prev *tensor
	col            int
}

// Gather implements [compute.Recorder].
func (r *recorder) Gather(dst compute.Tensor, col int, src, prev compute.Tensor) {
	s := &gather{dst: dst.(*tensor), src: src.(*tensor), col: col}
	if prev != nil {
		s.prev = prev.(*tensor)
	}
	if col+s.src.cols > s.dst.cols || s.prev != nil && s.prev.cols != s.src.cols {
		panic(fmt.Sprintf("cpu: gathering %d columns into column %d of %d", s.src.cols, col, s.dst.cols))
	}
	r.add(compute.KindCopy, s)
}

func (s *gather) run(w *worker, b *compute.Batch, rows int) {
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		src, f := s.src, int(b.From[r])
		if f < 0 {
			src, f = s.prev, ^f
		}
		copy(s.dst.row(r)[s.col:s.col+src.cols], src.row(f))
	}
}

// convert packs rows into an operand as they are.
type convert struct {
	y *operand
	x *tensor
}

// Convert implements [compute.Recorder].
func (r *recorder) Convert(y compute.Operand, x compute.Tensor) {
	s := &convert{y.(*operand), x.(*tensor)}
	r.packs(s.y)
	r.add(compute.KindNorm, s)
}

func (s *convert) run(w *worker, _ *compute.Batch, rows int) {
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		w.put(s.y, rows, r, 0, s.y.blocks, s.x.row(r))
	}
}

// copyRows copies rows as they are, or those that the batch selects.
type copyRows struct {
	dst, src *tensor
	selected bool
}

// CopyRows implements [compute.Recorder].
func (r *recorder) CopyRows(dst, src compute.Tensor) {
	r.add(compute.KindCopy, &copyRows{dst.(*tensor), src.(*tensor), false})
}

// SelectOut implements [compute.Recorder].
func (r *recorder) SelectOut(dst, src compute.Tensor) {
	r.outs = true
	r.add(compute.KindCopy, &copyRows{dst.(*tensor), src.(*tensor), true})
}

func (s *copyRows) run(w *worker, b *compute.Batch, rows int) {
	from, to := share(rows, w.id, w.d.pool.n)
	for i := from; i < to; i++ {
		r := i
		if s.selected {
			r = int(b.Out[i])
		}
		copy(s.dst.row(i), s.src.row(r))
	}
}
