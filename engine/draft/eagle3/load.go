package eagle3

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"draftlab/engine/compute"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// Format is how a drafter's matrices lie on the device.
//
// The default target's drafter on 100 held-out prompts, chains of 5, one AVX-512 VNNI thread where a plain token takes
// 6.0 ms: Q8 drafts in 0.47 ms a step with 2.74 tokens a cycle, Q4 in 0.26 ms with 2.67; bfloat16 took 1.9 times as long
// as Q8 at 2.88 tokens instead of 2.87 (on 40 of the prompts). So Q8 costs no acceptance that could be measured, and Q4 trades 2.5 % of it for
// nearly half the time. Four bits for the head alone, or for the feed-forward block, lie in between.
type Format uint8

const (
	// Q8 encodes them at load as Q8_0; it is the default.
	Q8 Format = iota
	// Q4 encodes them as Q4_0, which was faster than Q4_1 and accepted no less.
	Q4
	// Stored keeps them as they lie in the file.
	Stored
)

// ParseFormat reads "q8", "q4" or "stored".
func ParseFormat(s string) (Format, error) {
	switch s {
	case "q8":
		return Q8, nil
	case "q4":
		return Q4, nil
	case "stored":
		return Stored, nil
	}
	return 0, fmt.Errorf("drafter format %q: want q8, q4 or stored", s)
}

// String returns the format as ParseFormat reads it.
func (f Format) String() string { return [...]string{"q8", "q4", "stored"}[f] }

// of returns the type in which a tensor is packed.
func (f Format) of(stored quant.Type) quant.Type {
	return [...]quant.Type{quant.Q8_0, quant.Q4_0, stored}[f]
}

// Load reads the drafter in dir, config.json and safetensors, and packs it for the target's device. The target must have
// been loaded with Config.TapLayers.
//
// Every key and every tensor is checked before the first is packed: all that the configuration asks for are there in
// their exact shapes, none is left over, and the drafter fits the target. Errors name the file and the key or tensor.
func Load(dev compute.Device, dir string, target *model.Model, opt Options) (_ *Drafter, err error) {
	cfg, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := cfg.fits(target, opt.LayerIDs); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := &builder{d: &Drafter{cfg: cfg, opt: opt, dev: dev, target: target}, release: f.Release}
	if err := b.from(f); err != nil {
		return nil, err
	}
	return b.d, nil
}

// from builds the drafter out of a file's tensors.
func (b *builder) from(f *weights.File) error {
	return f.Load(func() error { return b.index(f.Tensors()) }, b.build)
}

// open opens the weights in dir.
func open(dir string) (*weights.File, error) {
	if _, err := os.Stat(filepath.Join(dir, "pytorch_model.bin")); err == nil {
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
			return nil, fmt.Errorf("%s: the weights are a pytorch_model.bin, which is not read: convert it to model.safetensors", dir)
		}
	}
	f, err := weights.Open(dir)
	if err != nil {
		return nil, err
	}
	if f.Format() != "safetensors" {
		return nil, errors.Join(fmt.Errorf("%s: a drafter's weights are read from safetensors, this is %s", f.Path(), f.Format()), f.Close())
	}
	return f, nil
}

// builder fills a drafter whose configuration and options are set.
type builder struct {
	d       *Drafter
	tensors map[string]weights.Tensor // by SpecForge's names
	release func(weights.Tensor)
	loose   bool // d2t is kept as it lies, for a drafter that can be rewired
}

// canonical returns SpecForge's name of a tensor: speculators call the layer layers.0, and some exports put model. before
// every name.
func canonical(name string) string {
	name = strings.TrimPrefix(name, "model.")
	if rest, ok := strings.CutPrefix(name, "layers.0."); ok {
		return "midlayer." + rest
	}
	return name
}

// index takes the tensors of a file by their canonical names and checks that all are there, in their shapes, and no other.
func (b *builder) index(list []weights.Tensor) error {
	b.tensors = map[string]weights.Tensor{}
	for _, t := range list {
		name := canonical(t.Name)
		if _, twice := b.tensors[name]; twice {
			return fmt.Errorf("tensor %.80q is there twice, under another name", t.Name)
		}
		b.tensors[name] = t
	}
	wanted := b.d.cfg.shapes()
	for _, w := range wanted {
		t, ok := b.tensors[w.name]
		switch {
		case !ok && w.optional:
		case !ok:
			return fmt.Errorf("tensor %s is missing", w.name)
		case !slices.Equal(t.Shape, w.shape):
			return fmt.Errorf("tensor %s has shape %v, want %v", t.Name, t.Shape, w.shape)
		case t.Kind != w.kind || t.Kind == weights.Weights && !t.Type.Known():
			return fmt.Errorf("tensor %s holds %s, want %s", t.Name, t.TypeName(), w.holds())
		}
	}
	var left []string
	for _, t := range list {
		if !slices.ContainsFunc(wanted, func(w tensor) bool { return w.name == canonical(t.Name) }) {
			left = append(left, fmt.Sprintf("%.80q", t.Name))
		}
	}
	if len(left) > 8 {
		left = append(left[:8], fmt.Sprintf("and %d more", len(left)-8))
	}
	if len(left) > 0 {
		return fmt.Errorf("tensors that this drafter has no use for: %s", strings.Join(left, ", "))
	}
	return nil
}

// tensor is what a configuration says of one tensor.
type tensor struct {
	name     string
	shape    []int
	kind     weights.Kind
	optional bool
}

func (t tensor) holds() string {
	return map[weights.Kind]string{weights.Weights: "weights", weights.I64: "I64", weights.Bool: "BOOL"}[t.kind]
}

// shapes lists the tensors of a drafter, by SpecForge's names.
func (c *Config) shapes() []tensor {
	h, q, kv := c.Hidden, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	whole := c.DraftVocab == c.Vocab // then the target's head will do, and no map is needed
	list := []tensor{
		{name: "fc.weight", shape: []int{h, taps * c.TargetHidden}},
		{name: "midlayer.input_layernorm.weight", shape: []int{h}},
		{name: "midlayer.hidden_norm.weight", shape: []int{h}},
		{name: "midlayer.self_attn.q_proj.weight", shape: []int{q, 2 * h}},
		{name: "midlayer.self_attn.k_proj.weight", shape: []int{kv, 2 * h}},
		{name: "midlayer.self_attn.v_proj.weight", shape: []int{kv, 2 * h}},
		{name: "midlayer.self_attn.o_proj.weight", shape: []int{h, q}},
		{name: "midlayer.post_attention_layernorm.weight", shape: []int{h}},
		{name: "midlayer.mlp.gate_proj.weight", shape: []int{c.FFN, h}},
		{name: "midlayer.mlp.up_proj.weight", shape: []int{c.FFN, h}},
		{name: "midlayer.mlp.down_proj.weight", shape: []int{h, c.FFN}},
		{name: "norm.weight", shape: []int{h}},
		{name: "lm_head.weight", shape: []int{c.DraftVocab, h}, optional: whole && h == c.TargetHidden},
		{name: "embed_tokens.weight", shape: []int{c.Vocab, h}, optional: h == c.TargetHidden},
		{name: "d2t", shape: []int{c.DraftVocab}, kind: weights.I64, optional: whole},
		{name: "t2d", shape: []int{c.Vocab}, kind: weights.Bool, optional: true},
	}
	if c.NormBeforeFC {
		list = append(list, tensor{name: "input_norm.weight", shape: []int{taps * c.TargetHidden}})
	}
	for i := 0; c.FCNorm && i < taps; i++ {
		list = append(list, tensor{name: fmt.Sprintf("fc_norm.%d.weight", i), shape: []int{c.TargetHidden}})
	}
	return list
}

// build packs all weights and allocates what passes need. The tensors have been checked.
func (b *builder) build() error {
	d := b.d
	d.taps = [taps]int{0, 1, 2} // the target keeps the configuration's states in its order
	c := &d.cfg
	t := d.target.Options()
	err := d.opt.fill(&t)
	if err == nil {
		err = b.readMap()
	}
	vector := func(to *compute.Vector, name string) {
		if err == nil {
			*to = b.vector(name)
		}
	}
	matrix := func(to *compute.Matrix, names ...string) {
		if err == nil {
			*to, err = b.matrix(names...)
		}
	}
	for i := 0; c.FCNorm && i < taps; i++ {
		vector(&d.fcNorm[i], fmt.Sprintf("fc_norm.%d.weight", i))
	}
	if c.NormBeforeFC {
		vector(&d.fcGain, "input_norm.weight")
	}
	const layer, attn, mlp = "midlayer.", "midlayer.self_attn.", "midlayer.mlp."
	matrix(&d.fc, "fc.weight")
	vector(&d.inputNorm, layer+"input_layernorm.weight")
	vector(&d.hiddenNorm, layer+"hidden_norm.weight")
	matrix(&d.qkv, attn+"q_proj.weight", attn+"k_proj.weight", attn+"v_proj.weight")
	matrix(&d.o, attn+"o_proj.weight")
	vector(&d.ffnNorm, layer+"post_attention_layernorm.weight")
	matrix(&d.gate, mlp+"gate_proj.weight")
	matrix(&d.up, mlp+"up_proj.weight")
	matrix(&d.down, mlp+"down_proj.weight")
	vector(&d.outNorm, "norm.weight")
	d.head, d.embed = d.target.Head(), d.target.Embedding()
	if b.has("lm_head.weight") {
		matrix(&d.head, "lm_head.weight")
	}
	if b.has("embed_tokens.weight") {
		matrix(&d.embed, "embed_tokens.weight")
	}
	if err != nil {
		return err
	}
	d.attn = compute.AttentionSpec{
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, NormEps: c.NormEps,
		Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
		Rope:  &compute.Rope{InvFreq: c.Rope.InvFreq(c.HeadDim), Scale: 1},
	}
	return d.allocate()
}

func (b *builder) has(name string) bool { _, ok := b.tensors[name]; return ok }

// vector puts a gain on the device.
func (b *builder) vector(name string) compute.Vector {
	t := b.tensors[name]
	defer b.release(t)
	v := make([]float32, t.Shape[0])
	quant.Decode(t.Type, v, t.Data)
	return b.d.dev.NewVector(v)
}

// matrix packs tensors on top of each other.
func (b *builder) matrix(names ...string) (compute.Matrix, error) {
	var parts []compute.Part
	for _, name := range names {
		t := b.tensors[name]
		defer b.release(t)
		to := b.d.opt.Format.of(t.Type)
		if b.d.target.Options().Float32 {
			to = quant.F32
		}
		p := compute.Part{Name: t.Name, Type: uint32(to), Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Data}
		if to != t.Type {
			var err error
			if p.Data, err = recode(to, t); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
		}
		parts = append(parts, p)
	}
	return b.d.dev.NewMatrix(parts...)
}

// recode returns a matrix in another format.
func recode(to quant.Type, t weights.Tensor) ([]byte, error) {
	rows, cols := t.Shape[0], t.Shape[1]
	from, err := quant.RowBytes(t.Type, cols)
	if err != nil {
		return nil, err
	}
	size, err := quant.RowBytes(to, cols)
	if err != nil {
		return nil, err
	}
	row, out := make([]float32, cols), make([]byte, rows*size)
	for r := range rows {
		quant.Decode(t.Type, row, t.Data[r*from:(r+1)*from])
		quant.Encode(to, out[r*size:(r+1)*size], row)
	}
	return out, nil
}

// readMap resolves d2t, whose element i is what to add to draft id i to get the target's, and holds t2d to it. Draft ids
// are in the order of the target's. A drafter that can be rewired keeps the elements instead.
func (b *builder) readMap() error {
	c := &b.d.cfg
	offsets := make([]int64, c.DraftVocab)
	d2t, have := b.tensors["d2t"]
	if have {
		var err error
		if offsets, err = d2t.Int64s(); err != nil {
			return err
		}
	}
	if b.loose {
		b.d.offsets = offsets
		return nil
	}
	last := int64(-1)
	for i, off := range offsets {
		id := int64(i) + off
		if off < 0 || off >= int64(c.Vocab-i) {
			return fmt.Errorf("tensor %s: draft id %d plus %d is outside the vocabulary of %d (elements are offsets)", d2t.Name, i, off, c.Vocab)
		}
		if id <= last {
			return fmt.Errorf("tensor %s: draft id %d stands for token %d, the one before it for %d: want ascending tokens", d2t.Name, i, id, last)
		}
		b.d.ids = append(b.d.ids, int32(id))
		last = id
	}
	t2d, have := b.tensors["t2d"]
	if !have {
		return nil
	}
	in, err := t2d.Bools()
	if err != nil {
		return err
	}
	rest := b.d.ids
	for id, in := range in {
		drafted := len(rest) > 0 && int(rest[0]) == id
		if drafted != in {
			return fmt.Errorf("tensor %s says %v of token %d, d2t says %v", t2d.Name, in, id, drafted)
		}
		if drafted {
			rest = rest[1:]
		}
	}
	return nil
}
