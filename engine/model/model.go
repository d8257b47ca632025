package model

import (
	"fmt"

	"draftlab/engine/compute"
)

// Options are the sizes of a model's buffers and the ways in which it may depart from its file.
type Options struct {
	// Context is the longest sequence in positions; 0 means the model's own limit, more than that is refused.
	Context int
	// Blocks is the number of key/value blocks of compute.BlockSlots positions each, at least 1.
	Blocks int
	// MaxRows, MaxSeqs and MaxOut bound a batch: rows, sequences, and rows with logits. At least 1 each.
	MaxRows, MaxSeqs, MaxOut int
	// TapLayers lists the hidden states to keep: id n is the input of layer n, and the id after the last
	// layer's is the last layer's output before the final norm. Nil keeps none.
	TapLayers []int
	// Float32 decodes every weight to float32 and stores keys and values so: the path that checks the others.
	Float32 bool
	// Progress, if not nil, is told after each tensor how many of the weights (Config.ParamCount) are packed.
	Progress func(done, total int64)
}

// maxBatch bounds Options.MaxRows, MaxSeqs and MaxOut.
const maxBatch = 1 << 16

// check reports the first option that is out of bounds for the model, and fills in Context.
func (o *Options) check(c *Config) error {
	if o.Context == 0 {
		o.Context = c.MaxContext
	}
	if o.Context < 1 || o.Context > c.MaxContext {
		return fmt.Errorf("context = %d: the model's limit is %d", o.Context, c.MaxContext)
	}
	if c.Window > 0 && o.Context > c.Window {
		return fmt.Errorf("sliding window = %d: sliding-window attention is not supported; a context of at most %d does not need it (asked for: %d)",
			c.Window, c.Window, o.Context)
	}
	for _, f := range []struct {
		name    string
		val, hi int
	}{
		{"blocks", o.Blocks, 1 << 24},
		{"rows of a batch", o.MaxRows, maxBatch},
		{"sequences of a batch", o.MaxSeqs, maxBatch},
		{"output rows of a batch", o.MaxOut, maxBatch},
	} {
		if f.val < 1 || f.val > f.hi {
			return fmt.Errorf("%s = %d: want 1 to %d", f.name, f.val, f.hi)
		}
	}
	for i, n := range o.TapLayers {
		if n < 0 || n > c.Layers {
			return fmt.Errorf("tap layer %d: want 0 to %d", n, c.Layers)
		}
		for _, m := range o.TapLayers[:i] {
			if m == n {
				return fmt.Errorf("tap layer %d is listed twice", n)
			}
		}
	}
	return nil
}

// layer is one transformer block on the device.
type layer struct {
	attnNorm, ffnNorm compute.Vector
	qkv, o            compute.Matrix
	gate, up, down    compute.Matrix
	attn              compute.AttentionSpec
}

// Model is a model on a device, with its key/value storage, its batch and its recorded pass. It belongs to
// the goroutine that calls its device, and its memory is freed by the device's Close.
type Model struct {
	cfg Config
	opt Options
	dev compute.Device

	embed   compute.Matrix // [Vocab, Hidden]; the same matrix as head if tied
	head    compute.Matrix // [Vocab, Hidden]
	outNorm compute.Vector
	layers  []layer
	kv      compute.KV

	batch   *compute.Batch
	program compute.Program

	x      compute.Tensor  // [MaxRows, Hidden] residual stream
	xn     compute.Operand // [MaxRows, Hidden] its norm; fineXn in two terms
	fineXn compute.Operand
	qkv    compute.Tensor  // [MaxRows, QKVRows]
	att    compute.Operand // [MaxRows, Heads·HeadDim]
	ff     compute.Operand // [MaxRows, FFN]; fineFF in two terms
	fineFF compute.Operand
	taps   []compute.Tensor
	last   compute.Tensor  // [MaxOut, Hidden] the rows whose logits are wanted
	lastn  compute.Operand // [MaxOut, Hidden]
	out    compute.Tensor  // [MaxOut, Vocab] logits

	vectorBytes int64 // of norms and biases
}

// Config returns the architecture.
func (m *Model) Config() Config { return m.cfg }

// Options returns the options with Context resolved.
func (m *Model) Options() Options { return m.opt }

// Batch returns the batch that Forward runs. It is the same one always; fill it anew before each pass.
func (m *Model) Batch() *compute.Batch { return m.batch }

// KV returns the key/value storage, for CopyKV and for counting blocks.
func (m *Model) KV() compute.KV { return m.kv }

// Embedding returns the embedding matrix [Vocab, Hidden], which a drafter shares.
func (m *Model) Embedding() compute.Matrix { return m.embed }

// Head returns the output matrix [Vocab, Hidden], which may be the embedding matrix.
func (m *Model) Head() compute.Matrix { return m.head }

// Taps returns the tensors [MaxRows, Hidden] of the last pass' hidden states, in the order of Options.TapLayers.
func (m *Model) Taps() []compute.Tensor { return m.taps }

// allocate makes the buffers that passes share and records the pass.
func (m *Model) allocate() error {
	c, o, dev := &m.cfg, &m.opt, m.dev
	kv, err := dev.NewKV(compute.KVSpec{
		Layers: c.Layers, Heads: c.KVHeads, HeadDim: c.HeadDim, Blocks: o.Blocks, Float32: o.Float32,
	})
	if err != nil {
		return fmt.Errorf("key/value storage: %w", err)
	}
	m.kv = kv
	m.x = dev.NewTensor(o.MaxRows, c.Hidden)
	m.qkv = dev.NewTensor(o.MaxRows, c.QKVRows())
	m.att = dev.NewOperand(o.MaxRows, c.Heads*c.HeadDim, m.inputs(func(l *layer) compute.Input { return l.o.Input() }))
	norm := m.inputs(func(l *layer) compute.Input { return l.qkv.Input() | l.gate.Input() | l.up.Input() })
	m.xn, m.fineXn = dev.NewOperand(o.MaxRows, c.Hidden, norm), dev.NewOperand(o.MaxRows, c.Hidden, fine(norm))
	ff := m.inputs(func(l *layer) compute.Input { return l.down.Input() })
	m.ff, m.fineFF = dev.NewOperand(o.MaxRows, c.FFN, ff), dev.NewOperand(o.MaxRows, c.FFN, fine(ff))
	for range o.TapLayers {
		m.taps = append(m.taps, dev.NewTensor(o.MaxRows, c.Hidden))
	}
	m.last = dev.NewTensor(o.MaxOut, c.Hidden)
	m.lastn = dev.NewOperand(o.MaxOut, c.Hidden, m.head.Input())
	m.out = dev.NewTensor(o.MaxOut, c.Vocab)
	m.batch = compute.NewBatch(o.MaxRows, o.MaxSeqs, o.MaxOut)
	m.program = dev.Record(m.batch, m.pass)
	return nil
}

// inputs unites what the matrices of all layers want of one operand.
func (m *Model) inputs(of func(*layer) compute.Input) (in compute.Input) {
	for i := range m.layers {
		in |= of(&m.layers[i])
	}
	return in
}

// fine replaces 8-bit activations by those of two terms.
func fine(in compute.Input) compute.Input {
	if in&compute.Int8 != 0 {
		in = in&^compute.Int8 | compute.Int16
	}
	return in
}

// fineLayers is the number of last layers whose feed-forward block reads fine activations.
//
// What the rounding of 8-bit activations does to the output was measured operation by operation on the
// default target (docs/LOG.md): most comes from the inputs of q, k and v, all layers, and of the feed-forward blocks of
// the last two and, less, the first two. The former read two terms; the rest, five sixths of the multiplications, reads one.
// With one term everywhere the arg-max differs at 2.8 % of positions, so at 2.1 %, with the first two layers as well at
// 1.8 %; each further layer costs a verified row some 2 %.
const fineLayers = 2

// ffn returns the operands of layer i's feed-forward block.
func (m *Model) ffn(i int) (xn, ff compute.Operand) {
	if i >= len(m.layers)-fineLayers {
		return m.fineXn, m.fineFF
	}
	return m.xn, m.ff
}

// pass is the forward pass of every known family, top to bottom.
func (m *Model) pass(r compute.Recorder) {
	eps := m.cfg.NormEps
	r.EmbedRows(m.x, m.embed)
	for i := range m.layers {
		l := &m.layers[i]
		m.tap(r, i)

		// Attention: x += O·attention(norm(x)).
		r.Norm(m.fineXn, m.x, l.attnNorm, eps)
		r.MatMul(m.qkv, l.qkv, m.fineXn, compute.Store)
		r.RopeAppend(m.qkv, m.kv, &l.attn) // q and k: bias, norm, rotation; k and v: into the cache
		r.Attention(m.att, m.qkv, m.kv, &l.attn)
		r.MatMul(m.x, l.o, m.att, compute.Add)

		// Feed forward: x += down·(silu(gate·norm(x)) ⊙ up·norm(x)).
		xn, ff := m.ffn(i)
		r.Norm(xn, m.x, l.ffnNorm, eps)
		r.SwiGLU(ff, l.gate, l.up, xn)
		r.MatMul(m.x, l.down, ff, compute.Add)
	}
	m.tap(r, len(m.layers))

	// Logits, for the rows whose logits are wanted only.
	r.SelectOut(m.last, m.x)
	r.Norm(m.lastn, m.last, m.outNorm, eps)
	r.Head(m.out, m.head, m.lastn)
}

// tap keeps the residual stream as it is now if id n is tapped.
func (m *Model) tap(r compute.Recorder, n int) {
	for j, id := range m.opt.TapLayers {
		if id == n {
			r.CopyRows(m.taps[j], m.x)
		}
	}
}

// Forward runs the pass on what the batch holds: it appends keys and values, and sets logits, taps and
// Batch.Best. The error is for what a caller's caller may get wrong, and leaves everything untouched: a
// token outside the vocabulary, or a position beyond the context.
//
// It panics if the batch breaks its own contract (rows out of order, a slot outside its blocks).
func (m *Model) Forward() error {
	if err := m.check(); err != nil {
		return err
	}
	m.dev.Run(m.program)
	return nil
}

// check looks at every index that kernels will follow unchecked.
func (m *Model) check() error {
	b := m.batch
	if err := b.Check(m.kv.Blocks()); err != nil {
		panic("model: " + err.Error())
	}
	for r := range b.Rows {
		if t := b.Token[r]; t < 0 || int(t) >= m.cfg.Vocab {
			return fmt.Errorf("token id %d: the vocabulary has %d", t, m.cfg.Vocab)
		}
		if p := b.Pos[r]; p < 0 || int(p) >= m.opt.Context {
			return fmt.Errorf("position %d is beyond the context of %d tokens", p, m.opt.Context)
		}
	}
	return nil
}

// Logits copies the logits of the first outs output rows to dst, [outs, Vocab].
func (m *Model) Logits(dst []float32, outs int) {
	if outs > m.batch.Outs || len(dst) != outs*m.cfg.Vocab {
		panic(fmt.Sprintf("model: %d floats for %d rows of logits; the batch has %d of %d", len(dst), outs, m.batch.Outs, m.cfg.Vocab))
	}
	m.dev.Read(m.out, outs, dst)
}

// LogitRow copies the logits of output row i to dst, [Vocab].
func (m *Model) LogitRow(i int, dst []float32) {
	if i < 0 || i >= m.batch.Outs || len(dst) != m.cfg.Vocab {
		panic(fmt.Sprintf("model: %d floats for output row %d; the batch has %d rows of %d", len(dst), i, m.batch.Outs, m.cfg.Vocab))
	}
	m.dev.ReadRow(m.out, i, dst)
}

// Tap copies the first rows rows of tap j (of Options.TapLayers) to dst, [rows, Hidden].
func (m *Model) Tap(j, rows int, dst []float32) {
	if rows > m.batch.Rows || len(dst) != rows*m.cfg.Hidden {
		panic(fmt.Sprintf("model: %d floats for %d tapped rows; the batch has %d of %d", len(dst), rows, m.batch.Rows, m.cfg.Hidden))
	}
	m.dev.Read(m.taps[j], rows, dst)
}
