package compute

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

	Blocks [][]int32 // [MaxSeqs] block table of each sequence: slot s lies in block Blocks[seq][s/BlockSlots]

	Outs int     // rows whose logits are wanted
	Out  []int32 // [MaxOut] their row indices, ascending
	Best []int32 // [MaxOut] set by Head: arg-max of each output row
	// BestLogit is the logit of Best, set by Head; a row of NaN alone has Best 0 and a NaN here.
	BestLogit []float32 // [MaxOut]
}

// NewBatch allocates a batch for at most maxRows rows of maxSeqs sequences, maxOut of them with logits.
func NewBatch(maxRows, maxSeqs, maxOut int) *Batch {
	i32 := func(n int) []int32 { return make([]int32, n) }
	return &Batch{
		MaxRows: maxRows, MaxSeqs: maxSeqs, MaxOut: maxOut,
		Token: i32(maxRows), Pos: i32(maxRows), Slot: i32(maxRows), Seq: i32(maxRows),
		Tail: i32(maxRows), Mask: make([]uint64, maxRows),
		Blocks: make([][]int32, maxSeqs),
		Out:    i32(maxOut), Best: i32(maxOut), BestLogit: make([]float32, maxOut),
	}
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
