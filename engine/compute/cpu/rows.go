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
