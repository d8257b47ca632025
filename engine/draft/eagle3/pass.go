package eagle3

import (
	"fmt"

	"draftlab/engine/compute"
)

// fusePass makes features of the selected rows of the target's pass: fc over the three tapped states side by side.
func (d *Drafter) fusePass(r compute.Recorder) {
	width := d.cfg.TargetHidden
	for i, t := range d.taps {
		tap := d.target.Taps()[t]
		if d.cfg.FCNorm {
			r.Gather(d.tapped, 0, tap, nil)
			r.NormInto(d.fused, i*width, d.tapped, d.fcNorm[i], d.cfg.NormEps)
		} else {
			r.Gather(d.fused, i*width, tap, nil)
		}
	}
	if d.cfg.NormBeforeFC {
		r.NormInto(d.fused, 0, d.fused, d.fcGain, d.cfg.NormEps)
	}
	r.Convert(d.fusedOp, d.fused)
	r.MatMul(d.feature, d.fc, d.fusedOp, compute.Store)
}

// pass is the drafter, top to bottom. Extending over verified rows and drafting differ only in where a row's state comes
// from: a feature of the target, or what an earlier row of the drafter put out.
func (d *Drafter) pass(r compute.Recorder) {
	c := &d.cfg
	r.EmbedRows(d.e, d.embed)
	r.Gather(d.x, 0, d.feature, d.output)

	// Attention reads embedding and state side by side, each normed by itself; the residual is the state alone.
	r.NormInto(d.cat, 0, d.e, d.inputNorm, c.NormEps)
	r.NormInto(d.cat, c.Hidden, d.x, d.hiddenNorm, c.NormEps)
	if c.NormBeforeResidual {
		r.NormInto(d.x, 0, d.x, d.hiddenNorm, c.NormEps)
	}
	r.Convert(d.catOp, d.cat)
	r.MatMul(d.proj, d.qkv, d.catOp, compute.Store)
	r.RopeAppend(d.proj, d.kv, &d.attn)
	r.Attention(d.att, d.proj, d.kv, &d.attn)
	r.MatMul(d.x, d.o, d.att, compute.Add)

	// Feed forward: x += down·(silu(gate·norm(x)) ⊙ up·norm(x)).
	r.Norm(d.xn, d.x, d.ffnNorm, c.NormEps)
	r.SwiGLU(d.ff, d.gate, d.up, d.xn)
	r.MatMul(d.x, d.down, d.ff, compute.Add)

	// What the next step's rows take as their state: before the norm, unless the drafter was trained otherwise.
	if c.NormOutput {
		r.NormInto(d.output, 0, d.x, d.outNorm, c.NormEps)
	} else {
		r.CopyRows(d.output, d.x)
	}

	r.SelectOut(d.last, d.x)
	r.Norm(d.lastn, d.last, d.outNorm, c.NormEps)
	r.Head(d.out, d.head, d.lastn)
	r.TopK(d.out)
}

// Features makes feature i of row rows[i] of the target's last pass, for all of rows: a hidden state that the drafter may
// take. Features of earlier passes are lost, restored ones included.
func (d *Drafter) Features(rows []int32) {
	last := d.target.Batch().Rows
	for i, r := range rows {
		if r < 0 || int(r) >= last {
			panic(fmt.Sprintf("eagle3: feature of row %d of the target's %d", r, last))
		}
		d.features.From[i] = r
	}
	d.features.Rows, d.nFeature, d.restored = len(rows), len(rows), 0
	d.dev.Run(d.fuse)
}

// Save keeps feature i as that of the last slot known of a key/value block, until it is saved anew. Whoever saves the last
// row of every pass and every block that the pass fills finds what a sequence needs to go on, even one that takes over
// the block as a cached prefix: its first drafter row behind the block needs this feature, and the target will not compute it again.
func (d *Drafter) Save(block int32, i int) {
	if i < 0 || i >= d.nFeature {
		panic(fmt.Sprintf("eagle3: feature %d of %d", i, d.nFeature))
	}
	d.dev.CopyRow(d.saved, int(block), d.feature, i)
}

// Restore brings back the feature saved for a block and returns its index, good until the next Features. There is room
// for one of each sequence.
func (d *Drafter) Restore(block int32) int32 {
	if d.restored >= d.opt.MaxSeqs {
		panic(fmt.Sprintf("eagle3: more than %d restored features", d.opt.MaxSeqs))
	}
	i := d.features.MaxRows + d.restored
	d.restored++
	d.dev.CopyRow(d.feature, i, d.saved, int(block))
	return int32(i)
}

// Append adds a row to the batch: the feature or state that from names is that of the sequence's token at slot−1, token
// the one at slot, so that slot is at least 1; the row stores its key and value at slot, and what it proposes is for slot+1.
//
// from is the index of a feature (of Features or Restore), or the ^index of a row of the last Run. The row sees
// slots 1 to its own. A row of a tree needs other Pos, Tail and Mask in the batch, Pos being one less than its token's.
func (d *Drafter) Append(seq, token, slot, from int32) int {
	b := d.batch
	r := b.Append(seq, token, slot)
	b.Pos[r], b.From[r] = slot-1, from
	return r
}

// Run runs the drafter on what the batch holds: it stores keys and values, and sets states, logits and candidates. The error
// is for what a caller's caller may get wrong, and leaves everything untouched: a token outside the vocabulary, or a position
// beyond the context. It panics if the batch breaks its own contract.
func (d *Drafter) Run() error {
	if err := d.check(); err != nil {
		return err
	}
	d.dev.Run(d.program)
	d.nOutput = d.batch.Rows
	return nil
}

// check looks at every index that kernels will follow unchecked.
func (d *Drafter) check() error {
	b := d.batch
	if err := b.Check(d.kv.Blocks()); err != nil {
		panic("eagle3: " + err.Error())
	}
	for r := range b.Rows {
		if t := b.Token[r]; t < 0 || int(t) >= d.cfg.Vocab {
			return fmt.Errorf("token id %d: the vocabulary has %d", t, d.cfg.Vocab)
		}
		if p := b.Pos[r]; p < 0 || int(p) >= d.target.Options().Context {
			return fmt.Errorf("position %d is beyond the context of %d tokens", p, d.target.Options().Context)
		}
		d.checkFrom(r)
	}
	return nil
}

// checkFrom panics unless row r's state exists.
func (d *Drafter) checkFrom(r int) {
	f := int(d.batch.From[r])
	restored := d.features.MaxRows
	switch {
	case f >= 0 && (f < d.nFeature || f >= restored && f < restored+d.restored):
	case f < 0 && ^f < d.nOutput:
	default:
		panic(fmt.Sprintf("eagle3: row %d takes state %d; there are %d features and %d rows of the last run", r, f, d.nFeature, d.nOutput))
	}
}
