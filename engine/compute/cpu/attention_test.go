package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// attentionCase is a batch over random queries, keys and values.
type attentionCase struct {
	heads, kvHeads, dim int
	float32             bool
	first               int // slots below it are hidden
	seqs                []seqCase
}

// seqCase is one sequence: slots already stored, then the rows of the pass; mask[i] (if given) makes row i a tree node.
type seqCase struct {
	stored, rows int
	mask         []uint64
}

// TestAttentionAgainstDefinition compares every kernel set with a float64 evaluation of the
// definition, over grouped heads, several sequences, odd lengths and trees.
func TestAttentionAgainstDefinition(t *testing.T) {
	tree := []uint64{0b1, 0b11, 0b101, 0b1011, 0b10101} // two branches below one root
	cases := []attentionCase{
		{heads: 9, kvHeads: 3, dim: 64, seqs: []seqCase{{stored: 0, rows: 1}}},
		{heads: 9, kvHeads: 3, dim: 64, seqs: []seqCase{{stored: 37, rows: 5, mask: tree}, {stored: 0, rows: 19}, {stored: 100, rows: 1}}},
		{heads: 4, kvHeads: 4, dim: 16, seqs: []seqCase{{stored: 15, rows: 2}, {stored: 3, rows: 3}}},
		{heads: 14, kvHeads: 2, dim: 64, float32: true, seqs: []seqCase{{stored: 33, rows: 9}}},
		{heads: 6, kvHeads: 2, dim: 128, seqs: []seqCase{{stored: 250, rows: 11}}},
		{heads: 5, kvHeads: 5, dim: 48, float32: true, seqs: []seqCase{{stored: 16, rows: 16}}},
		{heads: 2, kvHeads: 1, dim: 80, seqs: []seqCase{{stored: 31, rows: 5, mask: tree}}},
		{heads: 9, kvHeads: 3, dim: 64, first: 1, seqs: []seqCase{{stored: 1, rows: 3}, {stored: 18, rows: 5, mask: tree}}},
		{heads: 2, kvHeads: 1, dim: 64, first: 20, seqs: []seqCase{{stored: 20, rows: 5, mask: tree}, {stored: 41, rows: 2}}},
	}
	for i, c := range cases {
		for _, set := range kernel.Sets() {
			for _, threads := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%d/%s/%d", i, set.Name, threads), func(t *testing.T) { c.run(t, set, threads) })
			}
		}
	}
}

func (c *attentionCase) run(t *testing.T, set *kernel.Set, threads int) {
	d, err := New(threads, set)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	store, err := d.NewKV(compute.KVSpec{Layers: 1, Heads: c.kvHeads, HeadDim: c.dim, Blocks: 64, Float32: c.float32})
	if err != nil {
		t.Fatal(err)
	}
	width := (c.heads + 2*c.kvHeads) * c.dim
	b := compute.NewBatch(64, 4, 1)
	spec := &compute.AttentionSpec{
		Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Scale: float32(1 / math.Sqrt(float64(c.dim))),
		Rope: &compute.Rope{InvFreq: make([]float64, c.dim/2), Scale: 1}, // no rotation: the definition stays simple
	}
	qkv := d.NewTensor(64, width).(*tensor)
	y := d.NewOperand(64, c.heads*c.dim, compute.Float32).(*operand)
	prog := d.Record(b, func(r compute.Recorder) {
		r.RopeAppend(qkv, store, spec)
		r.Attention(y, qkv, store, spec)
	})
	// Random block tables, then the stored slots in passes of their own, then the rows under test.
	perm, used := rng.Perm(64), 0
	data := make([][][]float32, len(c.seqs)) // [seq][slot] qkv row
	for s, sc := range c.seqs {
		for range (sc.stored + sc.rows + 15) / 16 {
			b.Blocks[s] = append(b.Blocks[s], int32(perm[used]))
			used++
		}
		for range sc.stored + sc.rows {
			row := make([]float32, width)
			for j := range row {
				row[j] = float32(rng.NormFloat64())
			}
			data[s] = append(data[s], row)
		}
	}
	add := func(s, slot int) {
		r := b.Append(int32(s), 0, int32(slot))
		copy(qkv.row(r), data[s][slot])
	}
	for s, sc := range c.seqs {
		for slot := 0; slot < sc.stored; slot += 8 {
			b.Reset()
			for i := slot; i < min(slot+8, sc.stored); i++ {
				add(s, i)
			}
			d.Run(prog)
		}
	}
	b.Reset()
	for s, sc := range c.seqs {
		for i := range sc.rows {
			add(s, sc.stored+i)
			if sc.mask != nil {
				b.Tail[b.Rows-1], b.Mask[b.Rows-1] = int32(sc.stored), sc.mask[i]
			}
		}
	}
	b.First = int32(c.first)
	d.Run(prog)
	c.compare(t, b, y, data)
}

// compare evaluates the definition for every row of the batch.
func (c *attentionCase) compare(t *testing.T, b *compute.Batch, y *operand, data [][][]float32) {
	tol := 2e-3 // float16 keys and values
	if c.float32 {
		tol = 1e-5
	}
	for r := range b.Rows {
		rows := data[b.Seq[r]]
		for h := range c.heads {
			want := c.reference(b, r, h, rows)
			for j, w := range want {
				col := h*c.dim + j
				got := unit(y, b.Rows, r, col)
				if math.Abs(float64(got)-w) > tol {
					t.Fatalf("row %d head %d lane %d: %g, want %g", r, h, j, got, w)
				}
			}
		}
	}
}

// reference is softmax(q·K)·V of one head over the slots that row r sees.
func (c *attentionCase) reference(b *compute.Batch, r, h int, rows [][]float32) []float64 {
	q := rows[b.Slot[r]][h*c.dim:][:c.dim]
	kv := h / (c.heads / c.kvHeads)
	var sum float64
	out := make([]float64, c.dim)
	for slot := range rows {
		tail := int(b.Tail[r])
		if slot < c.first || slot >= tail && (slot-tail > 63 || b.Mask[r]>>(slot-tail)&1 == 0) {
			continue
		}
		var dot float64
		for j, k := range rows[slot][(c.heads+kv)*c.dim:][:c.dim] {
			dot += float64(k) * float64(q[j])
		}
		w := math.Exp(dot / math.Sqrt(float64(c.dim)))
		sum += w
		for j, v := range rows[slot][(c.heads+c.kvHeads+kv)*c.dim:][:c.dim] {
			out[j] += w * float64(v)
		}
	}
	for j := range out {
		out[j] /= sum
	}
	return out
}

// unit reads one float of a float operand.
func unit(o *operand, rows, r, col int) float32 {
	at := kernel.TileOffset(rows, r, col/kernel.BlockCols, o.blocks, kernel.FloatUnit) + 4*(col%kernel.BlockCols)
	bits := uint32(o.floats[at]) | uint32(o.floats[at+1])<<8 | uint32(o.floats[at+2])<<16 | uint32(o.floats[at+3])<<24
	return math.Float32frombits(bits)
}
