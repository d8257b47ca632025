package eagle3

import (
	"fmt"

	"draftlab/engine/compute"
	"draftlab/engine/model"
)

// Options are the sizes of a drafter's buffers and the ways in which it may depart from its file. Sizes of 0 are the target's.
type Options struct {
	// MaxRows, MaxSeqs and MaxOut bound a pass: rows, sequences, and rows whose proposals are wanted.
	MaxRows, MaxSeqs, MaxOut int
	// MaxTop is the most candidates of a row, at least 1 (0 is 1).
	MaxTop int
	// Format is how the weights lie on the device. It is ignored where the target is float32: so is the drafter then.
	Format Format
	// LayerIDs says what the layer ids of the drafter's config.json count.
	LayerIDs LayerIDs
}

// fill puts the target's sizes for those that are 0 and reports the first that is out of bounds.
func (o *Options) fill(t *model.Options) error {
	for _, f := range []struct {
		name    string
		val     *int
		missing int
	}{
		{"rows of a draft batch", &o.MaxRows, t.MaxRows},
		{"sequences of a draft batch", &o.MaxSeqs, t.MaxSeqs},
		{"output rows of a draft batch", &o.MaxOut, t.MaxOut},
		{"candidates of a row", &o.MaxTop, 1},
	} {
		if *f.val == 0 {
			*f.val = f.missing
		}
		if *f.val < 1 || *f.val > 1<<16 {
			return fmt.Errorf("%s = %d: want 1 to %d", f.name, *f.val, 1<<16)
		}
	}
	return nil
}

// Drafter is an EAGLE-3 head on the device of its target, with its own key/value storage, batch and recorded passes. It
// belongs to the goroutine that calls the device, and its memory is freed by the device's Close.
type Drafter struct {
	cfg    Config
	opt    Options
	dev    compute.Device
	target *model.Model
	ids    []int32   // [DraftVocab] target id of each draft id
	taps   [taps]int // which of the target's Taps the thirds of fc take, from the first on

	offsets []int64 // [DraftVocab] d2t as it lies in the file, of a drafter that can be rewired

	fcNorm     [taps]compute.Vector // [TargetHidden]; nil unless the file has them
	fcGain     compute.Vector       // [3·TargetHidden]; likewise
	fc         compute.Matrix       // [Hidden, 3·TargetHidden]
	embed      compute.Matrix       // [Vocab, Hidden]; the target's unless the file has one
	inputNorm  compute.Vector       // [Hidden] on embeddings
	hiddenNorm compute.Vector       // [Hidden] on states
	qkv        compute.Matrix       // [(Heads+2·KVHeads)·HeadDim, 2·Hidden]
	attn       compute.AttentionSpec
	o          compute.Matrix // [Hidden, Heads·HeadDim]
	ffnNorm    compute.Vector
	gate, up   compute.Matrix // [FFN, Hidden]
	down       compute.Matrix // [Hidden, FFN]
	outNorm    compute.Vector
	head       compute.Matrix // [DraftVocab, Hidden]
	kv         compute.KV

	features *compute.Batch // the selected rows of the target's pass
	fuse     compute.Program
	batch    *compute.Batch
	program  compute.Program

	tapped   compute.Tensor  // [target's MaxRows, TargetHidden] one selected tap, where it is normed by itself
	fused    compute.Tensor  // [target's MaxRows, 3·TargetHidden]
	fusedOp  compute.Operand // the same
	feature  compute.Tensor  // [target's MaxRows + MaxSeqs, Hidden]: of the last pass, then restored ones
	nFeature int             // rows that Features made
	restored int             // rows that Restore made
	saved    compute.Tensor  // [blocks, Hidden] features by block
	output   compute.Tensor  // [MaxRows, Hidden]: states of the last Run
	nOutput  int             // rows of the last Run

	x     compute.Tensor  // [MaxRows, Hidden] residual stream
	e     compute.Tensor  // [MaxRows, Hidden] embeddings
	cat   compute.Tensor  // [MaxRows, 2·Hidden] normed embedding and state
	catOp compute.Operand // the same
	proj  compute.Tensor  // [MaxRows, (Heads+2·KVHeads)·HeadDim]
	att   compute.Operand // [MaxRows, Heads·HeadDim]
	xn    compute.Operand // [MaxRows, Hidden]
	ff    compute.Operand // [MaxRows, FFN]
	last  compute.Tensor  // [MaxOut, Hidden]
	lastn compute.Operand // [MaxOut, Hidden]
	out   compute.Tensor  // [MaxOut, DraftVocab] logits
}

// Config returns the architecture.
func (d *Drafter) Config() Config { return d.cfg }

// Batch returns the batch that Run runs, always the same one; see [Drafter.Append] for what a row means.
func (d *Drafter) Batch() *compute.Batch { return d.batch }

// TargetIDs returns the target's id of each draft id, strictly ascending, [DraftVocab]. It must not be changed.
func (d *Drafter) TargetIDs() []int32 { return d.ids }

// allocate makes the buffers that passes share and records the passes.
func (d *Drafter) allocate() error {
	c, o, t, dev := &d.cfg, &d.opt, d.target.Options(), d.dev
	kv, err := dev.NewKV(compute.KVSpec{Layers: 1, Heads: c.KVHeads, HeadDim: c.HeadDim, Blocks: t.Blocks, Float32: t.Float32})
	if err != nil {
		return fmt.Errorf("key/value storage: %w", err)
	}
	d.kv = kv
	d.tapped = dev.NewTensor(t.MaxRows, c.TargetHidden)
	d.fused = dev.NewTensor(t.MaxRows, taps*c.TargetHidden)
	d.fusedOp = dev.NewOperand(t.MaxRows, taps*c.TargetHidden, d.fc.Input())
	d.feature = dev.NewTensor(t.MaxRows+o.MaxSeqs, c.Hidden)
	d.saved = dev.NewTensor(t.Blocks, c.Hidden)
	d.output = dev.NewTensor(o.MaxRows, c.Hidden)

	d.x, d.e = dev.NewTensor(o.MaxRows, c.Hidden), dev.NewTensor(o.MaxRows, c.Hidden)
	d.cat = dev.NewTensor(o.MaxRows, 2*c.Hidden)
	d.catOp = dev.NewOperand(o.MaxRows, 2*c.Hidden, d.qkv.Input())
	d.proj = dev.NewTensor(o.MaxRows, d.qkv.Rows())
	d.att = dev.NewOperand(o.MaxRows, c.Heads*c.HeadDim, d.o.Input())
	d.xn = dev.NewOperand(o.MaxRows, c.Hidden, d.gate.Input()|d.up.Input())
	d.ff = dev.NewOperand(o.MaxRows, c.FFN, d.down.Input())
	d.last = dev.NewTensor(o.MaxOut, c.Hidden)
	d.lastn = dev.NewOperand(o.MaxOut, c.Hidden, d.head.Input())
	d.out = dev.NewTensor(o.MaxOut, c.DraftVocab)

	d.features = compute.NewBatch(t.MaxRows, 1, 1)
	d.batch = compute.NewBatch(o.MaxRows, o.MaxSeqs, o.MaxOut)
	d.batch.First = 1
	d.batch.GrowTop(o.MaxTop)
	d.record()
	return nil
}

// record records the passes as configuration and wiring have them.
func (d *Drafter) record() {
	d.fuse = d.dev.Record(d.features, d.fusePass)
	d.program = d.dev.Record(d.batch, d.pass)
}
