package cpu

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// scoreFloats bounds the score matrix of a wave of tiles: 1 Mi floats (4 MiB) stay in the second-level
// caches of the workers together. A single tile that needs more gets more.
const scoreFloats = 1 << 20

// scoreCall bounds the key blocks of one kernel call, so that the collector never waits long on assembly:
// 8192 positions of 12 queries take some 100 µs.
const scoreCall = 512

// tile is up to TileRows consecutive rows of one sequence, which share the loads of keys and values.
type tile struct {
	row, rows int
	slots     int // slots that any of its rows sees
}

// attentionPlan cuts a batch into tiles; it is the same for all layers of a pass.
type attentionPlan struct{ tiles []tile }

// prepare lists the tiles of a batch.
func (p *attentionPlan) prepare(b *compute.Batch) {
	p.tiles = p.tiles[:0]
	for r := 0; r < b.Rows; {
		t := tile{row: r}
		for t.rows < kernel.TileRows && r < b.Rows && b.Seq[r] == b.Seq[t.row] {
			t.slots = max(t.slots, sees(b, r))
			t.rows++
			r++
		}
		p.tiles = append(p.tiles, t)
	}
}

// sees returns the number of slots up to the last that row r sees.
func sees(b *compute.Batch, r int) int { return int(b.Tail[r]) + bits.Len64(b.Mask[r]) }

// ropeAppend rotates queries into the attention's own buffer and appends keys and values.
type ropeAppend struct {
	qkv *tensor
	kv  *kv
	*heads
}

// heads is one layer's view of what the layers of a program share.
type heads struct {
	spec   *compute.AttentionSpec
	group  int // query heads of a key/value head
	bias   []float32
	shared *rotation
}

// rotation is what the layers of a program share: this pass's cosines and sines, and the rotated queries.
type rotation struct {
	rope     *compute.Rope
	cos, sin []float32 // [rows, HeadDim/2]
	q        []float32 // [KVHeads, rows, group, HeadDim]
}

// run computes the angles of the batch's positions. The angle is a float32 product, as Hugging Face
// transformers computes it, so that long positions agree.
func (s *rotation) run(w *worker, b *compute.Batch, rows int) {
	half := len(s.rope.InvFreq)
	from, to := share(rows, w.id, w.d.pool.n)
	for r := from; r < to; r++ {
		for i, f := range s.rope.InvFreq {
			sin, cos := math.Sincos(float64(float32(b.Pos[r]) * float32(f)))
			s.cos[r*half+i], s.sin[r*half+i] = float32(cos)*s.rope.Scale, float32(sin)*s.rope.Scale
		}
	}
}

// RopeAppend implements [compute.Recorder].
func (r *recorder) RopeAppend(qkv compute.Tensor, store compute.KV, s *compute.AttentionSpec) {
	r.grow(s.HeadDim, rowBuffer)
	r.add(compute.KindRope, &ropeAppend{qkv.(*tensor), store.(*kv), r.headsOf(s)})
}

func (s *ropeAppend) run(w *worker, b *compute.Batch, rows int) {
	per := s.spec.Heads + 2*s.spec.KVHeads
	from, to := share(rows*per, w.id, w.d.pool.n)
	// Heads outermost: the rows of a sequence lie side by side in the same cache lines of a key block.
	for i := from; i < to; i++ {
		s.one(w, b, rows, i%rows, i/rows)
	}
}

// one handles head h of row r: query heads first, then keys, then values.
func (s *ropeAppend) one(w *worker, b *compute.Batch, rows, r, h int) {
	set, sp, dim := w.d.set, s.spec, s.spec.HeadDim
	x := w.row[:dim]
	copy(x, s.qkv.row(r)[h*dim:])
	if s.bias != nil {
		set.Add(&x[0], &s.bias[h*dim], dim)
	}
	slot := int(b.Slot[r])
	at := int(b.Blocks[b.Seq[r]][slot/compute.BlockSlots])*s.kv.block + max(0, h-sp.Heads)%sp.KVHeads*s.kv.head
	slot %= compute.BlockSlots
	layer := s.kv.layers[sp.Layer]
	switch {
	case h < sp.Heads:
		s.rotate(set, x, sp.QNorm, r)
		copy(s.shared.q[((h/s.group*rows+r)*s.group+h%s.group)*dim:], x)
	case h < sp.Heads+sp.KVHeads:
		s.rotate(set, x, sp.KNorm, r)
		if s.kv.elem == 2 {
			set.StoreK16(&layer[0][at+2*slot], &x[0], dim)
		} else {
			set.StoreK32(&layer[0][at+4*slot], &x[0], dim)
		}
	case s.kv.elem == 2:
		set.StoreV16(&layer[1][at+2*slot*dim], &x[0], dim)
	default:
		set.StoreV32(&layer[1][at+4*slot*dim], &x[0], dim)
	}
}

// rotate norms (if the model does) and rotates one head of row r in place.
func (s *ropeAppend) rotate(set *kernel.Set, x []float32, gain compute.Vector, r int) {
	if gain != nil {
		set.RMSNorm(&x[0], &x[0], &gain.(*vector).data[0], len(x), s.spec.NormEps)
	}
	half := len(x) / 2
	set.Rope(&x[0], &s.shared.cos[r*half], &s.shared.sin[r*half], half)
}

// headsOf makes a layer's view of its program's rotation, which the first layer's request records.
func (r *recorder) headsOf(s *compute.AttentionSpec) *heads {
	half := s.HeadDim / 2
	if s.Heads%s.KVHeads != 0 || s.HeadDim%kernel.GroupRows != 0 || len(s.Rope.InvFreq) != half {
		panic(fmt.Sprintf("cpu: %d query heads over %d key/value heads of %d, %d rotary frequencies", s.Heads, s.KVHeads, s.HeadDim, len(s.Rope.InvFreq)))
	}
	if r.rotation == nil {
		rows := r.p.batch.MaxRows
		r.rotation = &rotation{
			rope: s.Rope, cos: floatsAligned(rows * half), sin: floatsAligned(rows * half),
			q: floatsAligned(rows * s.Heads * s.HeadDim),
		}
		r.add(compute.KindRope, r.rotation)
	}
	if r.rotation.rope != s.Rope {
		panic("cpu: layers of one program with different rotary embeddings")
	}
	h := &heads{spec: s, group: s.Heads / s.KVHeads, shared: r.rotation}
	if s.Bias != nil {
		h.bias = s.Bias.(*vector).data
	}
	return h
}

// attention is softmax(q·K)·V in waves of tiles: scores cut by positions, soft-max by queries, sums
// over values by head dimensions, with a barrier after each, so that two workers share three heads evenly.
type attention struct {
	y  *operand
	o  *tensor // sums before they are packed, where heads do not fall on whole blocks
	kv *kv
	*heads
	direct bool // a head's output is whole blocks of y
}

// Attention implements [compute.Recorder].
func (r *recorder) Attention(y compute.Operand, _ compute.Tensor, store compute.KV, s *compute.AttentionSpec) {
	a := &attention{y: y.(*operand), kv: store.(*kv), heads: r.headsOf(s)}
	a.direct = s.HeadDim%kernel.BlockCols == 0
	r.grow(kernel.MaxQueries*s.HeadDim, outBuffer)
	r.packs(a.y)
	if !a.direct {
		a.o = r.d.NewTensor(r.p.batch.MaxRows, s.Heads*s.HeadDim).(*tensor)
	}
	r.d.growScores(s.Heads * kernel.TileRows * (store.Blocks() | 1) * compute.BlockSlots)
	r.add(compute.KindAttention, a)
}

// span is where a tile's scores lie: [KVHeads · queries, ld] from off, denominators from den.
type span struct{ off, ld, den, queries, blocks int }

// run walks the waves. Every worker computes the same cut, so that all meet the same barriers.
func (s *attention) run(w *worker, b *compute.Batch, rows int) {
	d := w.d
	for tiles := d.plan.tiles; len(tiles) > 0; {
		n := s.cut(w, tiles)
		s.scores(w, b, tiles[:n], rows)
		d.pool.barrier()
		s.softmax(w, b, tiles[:n])
		d.pool.barrier()
		s.values(w, b, tiles[:n], rows)
		if tiles = tiles[n:]; len(tiles) > 0 {
			d.pool.barrier() // the scratch is used again
		}
	}
	if !s.direct {
		d.pool.barrier()
		from, to := share(rows, w.id, d.pool.n)
		for r := from; r < to; r++ {
			w.put(s.y, rows, r, 0, s.y.blocks, s.o.row(r))
		}
	}
}

// cut lays out the scores of the first tiles that fit the scratch (one at least) in w.spans and returns their number.
func (s *attention) cut(w *worker, tiles []tile) int {
	w.spans = w.spans[:0]
	off, den := 0, 0
	for i := range tiles {
		sp := span{off: off, den: den, queries: tiles[i].rows * s.group}
		sp.blocks = (tiles[i].slots + compute.BlockSlots - 1) / compute.BlockSlots
		// An odd number of cache lines between queries keeps them out of the same cache set.
		sp.ld = (sp.blocks | 1) * compute.BlockSlots
		off += s.spec.KVHeads * sp.queries * sp.ld
		den += roundUp(s.spec.KVHeads*sp.queries, 8)
		if i > 0 && (off > scoreFloats || den > len(w.d.dens)) {
			return i
		}
		w.spans = append(w.spans, sp)
	}
	return len(tiles)
}

// growScores makes room for the scores of one tile, tileFloats at most, or of a wave. Memory that no
// context ever reaches is reserved but not touched.
func (d *Device) growScores(tileFloats int) {
	if n := max(scoreFloats, tileFloats); len(d.scores) < n {
		mem, err := d.mem.mapped(4*n, false)
		if err != nil {
			panic("cpu: " + err.Error())
		}
		d.scores = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), n)
		d.dens = floatsAligned(max(scoreFloats/kernel.GroupRows, tileFloats/kernel.GroupRows))
	}
}

// scores computes this worker's share of the wave's score columns.
func (s *attention) scores(w *worker, b *compute.Batch, tiles []tile, rows int) {
	dim, kvHeads := s.spec.HeadDim, s.spec.KVHeads
	total := 0
	for i := range tiles {
		total += kvHeads * w.spans[i].blocks
	}
	from, to := share(total, w.id, w.d.pool.n)
	at := 0 // units of (tile, head, block) passed so far
	for i := range tiles {
		t, sp := &tiles[i], &w.spans[i]
		for h := range kvHeads {
			a, z := max(from-at, 0), min(to-at, sp.blocks)
			at += sp.blocks
			if a >= z {
				continue
			}
			q := s.shared.q[(h*rows+t.row)*s.group*dim:]
			table := b.Blocks[b.Seq[t.row]]
			for ; a < z; a += scoreCall {
				out := w.d.scores[sp.off+h*sp.queries*sp.ld+a*compute.BlockSlots:]
				s.scoreBlocks(w, q, out, sp.ld, sp.queries, h, table[a:min(a+scoreCall, z)])
			}
		}
	}
}

// scoreBlocks scores queries against the key blocks of one head, in the largest bites that the kernels take.
func (s *attention) scoreBlocks(w *worker, q, out []float32, ld, queries, h int, blocks []int32) {
	dim := s.spec.HeadDim
	set := &w.d.set.Scores16
	if s.kv.elem == 4 {
		set = &w.d.set.Scores32
	}
	keys := &s.kv.layers[s.spec.Layer][0][h*s.kv.head]
	for i := 0; i < queries; {
		n := min(queries-i, kernel.MaxQueries)
		for set[n] == nil {
			n--
		}
		set[n](&out[i*ld], ld, &q[i*dim], keys, &blocks[0], len(blocks), s.kv.block, dim)
		i += n
	}
}

// softmax turns this worker's share of the wave's scores into weights and their sums.
func (s *attention) softmax(w *worker, b *compute.Batch, tiles []tile) {
	total := 0
	for i := range tiles {
		total += s.spec.KVHeads * w.spans[i].queries
	}
	from, to := share(total, w.id, w.d.pool.n)
	at := 0
	for i := range tiles {
		t, sp := &tiles[i], &w.spans[i]
		n := s.spec.KVHeads * sp.queries
		a, z := max(from-at, 0), min(to-at, n)
		at += n
		for k := a; k < z; k += 8 {
			s.softmaxRows(w, b, t, sp, k, min(8, z-k))
		}
	}
}

// softmaxRows handles up to eight queries of a tile, whose ordered sums run side by side.
func (s *attention) softmaxRows(w *worker, b *compute.Batch, t *tile, sp *span, k, count int) {
	first := w.d.scores[sp.off+k*sp.ld:]
	for i := range count {
		x := first[i*sp.ld:][:sp.blocks*compute.BlockSlots]
		r := t.row + (k+i)%sp.queries/s.group
		n := sees(b, r)
		hide(x, int(b.First), int(b.Tail[r]), b.Mask[r])
		w.d.set.SoftmaxExp(&x[0], n, s.spec.Scale)
		clear(x[min(roundUp(n, kernel.GroupRows), len(x)):])
	}
	w.d.set.SumOrdered(&w.d.dens[sp.den+k], &first[0], sp.ld, count, t.slots)
}

// hide sets to −Inf the scores of slots below first, and of those from tail on that the mask leaves out.
func hide(x []float32, first, tail int, mask uint64) {
	inf := float32(math.Inf(-1))
	for i := range first {
		x[i] = inf
	}
	for i := range bits.Len64(mask) {
		if mask>>i&1 == 0 {
			x[tail+i] = inf
		}
	}
}

// values computes this worker's share of the wave's sums over values, cut by slices of the head dimension.
func (s *attention) values(w *worker, b *compute.Batch, tiles []tile, rows int) {
	unit := kernel.BlockCols // lanes of a share: whole blocks, so that the worker can quantise its own
	if !s.direct {
		unit = kernel.GroupRows
	}
	dim := s.spec.HeadDim
	per := dim / unit
	from, to := share(len(tiles)*s.spec.KVHeads*per, w.id, w.d.pool.n)
	for u := from; u < to; {
		i, h, first := u/per/s.spec.KVHeads, u/per%s.spec.KVHeads, u%per
		n := min(per-first, to-u)                                  // units of this head
		z := min(n*unit, kernel.MaxSlices*kernel.GroupRows) / unit // that one call takes
		for w.d.set.Values16[1][z*unit/kernel.GroupRows] == nil {
			z--
		}
		s.slice(w, b, &tiles[i], &w.spans[i], h, first*unit, z*unit/kernel.GroupRows, rows)
		u += z
	}
}

// slice sums 16·z lanes from lane of one head's values for all queries of a tile.
func (s *attention) slice(w *worker, b *compute.Batch, t *tile, sp *span, h, lane, z, rows int) {
	dim := s.spec.HeadDim
	set := &w.d.set.Values16
	if s.kv.elem == 4 {
		set = &w.d.set.Values32
	}
	values := &s.kv.layers[s.spec.Layer][1][h*s.kv.head+lane*s.kv.elem]
	table := &b.Blocks[b.Seq[t.row]][0]
	for i := 0; i < sp.queries; {
		n := min(sp.queries-i, kernel.MaxQueries)
		for set[n][z] == nil {
			n--
		}
		k := h*sp.queries + i
		set[n][z](&w.out[0], dim, &w.d.scores[sp.off+k*sp.ld], sp.ld, values, table, t.slots, s.kv.block, dim)
		for j := range n {
			x := w.out[j*dim:][:z*kernel.GroupRows]
			w.d.set.Scale(&x[0], len(x), 1/w.d.dens[sp.den+k+j])
			s.store(w, rows, t.row+(i+j)/s.group, (h*s.group+(i+j)%s.group)*dim+lane, x)
		}
		i += n
	}
}

// store packs (or keeps for packing) x as columns col… of row r.
func (s *attention) store(w *worker, rows, r, col int, x []float32) {
	if !s.direct {
		copy(s.o.row(r)[col:], x)
		return
	}
	w.put(s.y, rows, r, col/kernel.BlockCols, len(x)/kernel.BlockCols, x)
}
