package compute

import (
	"fmt"
	"math/bits"
)

// Batch is all that varies between replays of a program. It is allocated once; filling it
// allocates nothing. Rows of one sequence are contiguous, in ascending order of slots.
type Batch struct {
	MaxRows, MaxSeqs, MaxOut int

	Rows  int     // live rows
	Token []int32 // [MaxRows] token ids
	Pos   []int32 // [MaxRows] rotary positions (depth in the sequence)
	Slot  []int32 // [MaxRows] key/value slot within the row's sequence
	Seq   []int32 // [MaxRows] index into Blocks, non-decreasing

	// A row sees the slots below Tail[r], and slot Tail[r]+i where bit i of Mask[r] is set. For a
	// chain Tail[r] = Slot[r]+1 and Mask[r] = 0. Along every path of a tree slots increase.
	Tail []int32  // [MaxRows]
	Mask []uint64 // [MaxRows]

	// First hides the slots below it from every row, whatever they hold: an EAGLE-3 drafter has no row for a
	// sequence's first token. It is 0 for a language model, and no row's own slot lies below it.
	First int32

	Blocks [][]int32 // [MaxSeqs] block table of each sequence: slot s lies in block Blocks[seq][s/BlockSlots]

	From []int32 // [MaxRows] rows that Recorder.Gather fetches

	Outs int     // rows whose logits are wanted
	Out  []int32 // [MaxOut] their row indices, ascending
	Best []int32 // [MaxOut] set by Head: arg-max of each output row
	// BestLogit is the logit of Best, set by Head; a row of NaN alone has Best 0 and a NaN here.
	BestLogit []float32 // [MaxOut]

	// Top is how many candidates Recorder.TopK lists of each output row, at most MaxTop (0 in a new batch): TopID and TopProb hold them
	// by descending probability, row i's from index i·MaxTop on.
	Top, MaxTop int
	TopID       []int32   // [MaxOut, MaxTop]
	TopProb     []float32 // [MaxOut, MaxTop]
}

// NewBatch allocates a batch for at most maxRows rows of maxSeqs sequences, maxOut of them with logits.
func NewBatch(maxRows, maxSeqs, maxOut int) *Batch {
	i32 := func(n int) []int32 { return make([]int32, n) }
	return &Batch{
		MaxRows: maxRows, MaxSeqs: maxSeqs, MaxOut: maxOut,
		Token: i32(maxRows), Pos: i32(maxRows), Slot: i32(maxRows), Seq: i32(maxRows),
		Tail: i32(maxRows), Mask: make([]uint64, maxRows),
		Blocks: make([][]int32, maxSeqs), From: i32(maxRows),
		Out: i32(maxOut), Best: i32(maxOut), BestLogit: make([]float32, maxOut),
	}
}

// GrowTop makes room for n candidates of each output row.
func (b *Batch) GrowTop(n int) {
	b.MaxTop = n
	b.TopID, b.TopProb = make([]int32, b.MaxOut*n), make([]float32, b.MaxOut*n)
}

// Reset empties the batch.
func (b *Batch) Reset() { b.Rows, b.Outs = 0, 0 }

// Append adds a row of a chain (it sees every slot up to its own) and returns its index.
func (b *Batch) Append(seq, token, slot int32) int {
	r := b.Rows
	b.Token[r], b.Pos[r], b.Slot[r], b.Seq[r] = token, slot, slot, seq
	b.Tail[r], b.Mask[r] = slot+1, 0
	b.Rows++
	return r
}

// WantLogits marks row r as one whose logits are wanted and returns its output index.
func (b *Batch) WantLogits(r int) int {
	b.Out[b.Outs] = int32(r)
	b.Outs++
	return b.Outs - 1
}

// Check looks at every index of the batch that kernels follow unchecked, tokens apart: rows and their order, slots and
// their blocks, of which there are blocks in all, and output rows. An error is a broken contract of the caller.
func (b *Batch) Check(blocks int) error {
	if b.Rows < 1 || b.Rows > b.MaxRows {
		return fmt.Errorf("batch of %d rows, want 1 to %d", b.Rows, b.MaxRows)
	}
	for r := range b.Rows {
		if err := b.checkRow(r, blocks); err != nil {
			return err
		}
	}
	if b.Outs < 0 || b.Outs > b.MaxOut {
		return fmt.Errorf("%d output rows, want at most %d", b.Outs, b.MaxOut)
	}
	for i, r := range b.Out[:b.Outs] {
		if r < 0 || int(r) >= b.Rows || i > 0 && r <= b.Out[i-1] {
			return fmt.Errorf("output row %d of a batch of %d, want ascending rows", r, b.Rows)
		}
	}
	return nil
}

// checkRow wants a block for every slot that row r reads or writes.
func (b *Batch) checkRow(r, blocks int) error {
	s := b.Seq[r]
	if s < 0 || int(s) >= len(b.Blocks) || r > 0 && s < b.Seq[r-1] {
		return fmt.Errorf("row %d belongs to sequence %d of %d, want non-decreasing numbers", r, s, len(b.Blocks))
	}
	table := b.Blocks[s]
	slots := int32(len(table) * BlockSlots)
	last := b.Tail[r] - 1
	if mask := b.Mask[r]; mask != 0 {
		last = b.Tail[r] + int32(bits.Len64(mask)) - 1
	}
	if b.Slot[r] < b.First || b.Slot[r] >= slots || b.Tail[r] < b.First || last >= slots {
		return fmt.Errorf("row %d writes slot %d and reads up to slot %d of a sequence of %d", r, b.Slot[r], last, slots)
	}
	if r > 0 && b.Seq[r-1] == s {
		return nil // its blocks have been looked at
	}
	for _, id := range table {
		if id < 0 || int(id) >= blocks {
			return fmt.Errorf("block %d of %d in the table of sequence %d", id, blocks, s)
		}
	}
	return nil
}
