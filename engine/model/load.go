package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"draftlab/engine/compute"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// Load reads the model at path (see weights.Open) and packs it for the device, matrix by matrix; the file's
// pages are given back after each, so that peak memory stays near one copy of the model. Nothing of the file
// is used after Load has returned.
//
// Every key and every tensor is checked before the first is packed. Errors name the file and the key or tensor.
func Load(dev compute.Device, path string, opt Options) (_ *Model, err error) {
	f, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cfg, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	names := &hfNames
	if f.Format() == "gguf" {
		names = &ggufNames
	}
	m := &Model{cfg: cfg, opt: opt, dev: dev}
	b := &builder{
		m: m, src: f, names: names,
		// Only Llama files are permuted: llama.cpp rotates halves for Qwen.
		unpermute: f.Format() == "gguf" && cfg.Arch == Llama,
	}
	if err := f.Load(func() error { return checkTensors(f, &m.cfg, names) }, b.build); err != nil {
		return nil, err
	}
	return m, nil
}

// checkTensors wants every tensor of the configuration in its exact shape, and no other.
func checkTensors(f *weights.File, c *Config, names *naming) error {
	wanted := map[string]bool{ropeDivisors: names == &ggufNames}
	want := func(r role, l int) error {
		name := names.name(r, l)
		wanted[name] = true
		t, ok := f.Tensor(name)
		switch shape := c.shape(r); {
		case !ok:
			return fmt.Errorf("tensor %s is missing", name)
		case !slices.Equal(t.Shape, shape):
			return fmt.Errorf("tensor %s has shape %v, want %v", name, t.Shape, shape)
		case !t.Type.Known():
			return fmt.Errorf("tensor %s holds %s, which is no weight format", name, t.TypeName())
		}
		return nil
	}
	for _, r := range c.globalRoles() {
		if err := want(r, 0); err != nil {
			return err
		}
	}
	for l := range c.Layers {
		for _, r := range c.layerRoles() {
			if err := want(r, l); err != nil {
				return err
			}
		}
	}
	var left []string
	for _, t := range f.Tensors() {
		if !wanted[t.Name] && !harmless(t.Name) && !sameHead(f, c, names, t) {
			left = append(left, fmt.Sprintf("%.80q", t.Name))
		}
	}
	if len(left) > 8 {
		left = append(left[:8], fmt.Sprintf("and %d more", len(left)-8))
	}
	if len(left) > 0 {
		return fmt.Errorf("tensors that a %s model has no use for: %s", c.Arch, strings.Join(left, ", "))
	}
	return nil
}

// sameHead reports whether t is the head of a tied model that was stored all the same, with the bytes of the
// embedding. A head that differs is refused: one of the two must be wrong.
func sameHead(f *weights.File, c *Config, names *naming, t weights.Tensor) bool {
	if !c.TiedHead || t.Name != names[roleHead] {
		return false
	}
	e, _ := f.Tensor(names[roleEmbed])
	return t.Type == e.Type && slices.Equal(t.Shape, e.Shape) && slices.Equal(t.Data, e.Data)
}

// source hands out tensors by name: a weights.File, or a generator of random ones.
type source interface {
	// Tensor returns a tensor that exists, whose data stay valid until Release.
	Tensor(name string) (weights.Tensor, bool)
	Release(weights.Tensor)
}

// builder fills a model whose configuration and options are set.
type builder struct {
	m         *Model
	src       source
	names     *naming
	unpermute bool // q and k rows lie in GGUF's rotary order
	done      int64
	total     int64
}

// build packs all weights and allocates what passes need.
func (b *builder) build() error {
	m := b.m
	if err := m.opt.check(&m.cfg); err != nil {
		return err
	}
	m.opt.TapLayers = slices.Clone(m.opt.TapLayers)
	b.total = m.cfg.ParamCount()
	var err error
	if m.embed, err = b.matrix(part{role: roleEmbed}); err != nil {
		return err
	}
	if m.head = m.embed; !m.cfg.TiedHead {
		if m.head, err = b.matrix(part{role: roleHead}); err != nil {
			return err
		}
	}
	if m.outNorm, err = b.vector(roleOutNorm, 0); err != nil {
		return err
	}
	rope := &compute.Rope{InvFreq: m.cfg.Rope.InvFreq(m.cfg.HeadDim), Scale: 1}
	m.layers = make([]layer, m.cfg.Layers)
	for l := range m.layers {
		if err := b.layer(l, rope); err != nil {
			return err
		}
	}
	return m.allocate()
}

func (b *builder) layer(l int, rope *compute.Rope) (err error) {
	c := &b.m.cfg
	to := &b.m.layers[l]
	var qOrder, kOrder []int32
	if b.unpermute {
		qOrder, kOrder = interleaved(c.Heads, c.HeadDim), interleaved(c.KVHeads, c.HeadDim)
	}
	for _, w := range []struct {
		to    *compute.Matrix
		parts []part
	}{
		{&to.qkv, []part{{roleQ, l, qOrder}, {roleK, l, kOrder}, {roleV, l, nil}}},
		{&to.o, []part{{role: roleO, layer: l}}},
		{&to.gate, []part{{role: roleGate, layer: l}}},
		{&to.up, []part{{role: roleUp, layer: l}}},
		{&to.down, []part{{role: roleDown, layer: l}}},
	} {
		if *w.to, err = b.matrix(w.parts...); err != nil {
			return err
		}
	}
	to.attn = compute.AttentionSpec{
		Layer: l, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		NormEps: c.NormEps, Scale: float32(1 / math.Sqrt(float64(c.HeadDim))), Rope: rope,
	}
	if c.QKVBias {
		if to.attn.Bias, err = b.vector3(l, roleQBias, roleKBias, roleVBias); err != nil {
			return err
		}
	}
	if c.QKNorm {
		if to.attn.QNorm, err = b.vector(roleQNorm, l); err != nil {
			return err
		}
		if to.attn.KNorm, err = b.vector(roleKNorm, l); err != nil {
			return err
		}
	}
	if to.attnNorm, err = b.vector(roleAttnNorm, l); err != nil {
		return err
	}
	to.ffnNorm, err = b.vector(roleFFNNorm, l)
	return err
}

// part is a tensor that goes into a matrix, its rows in the given order (nil: as they lie).
type part struct {
	role  role
	layer int
	order []int32
}

// matrix packs tensors on top of each other and releases them.
func (b *builder) matrix(parts ...part) (compute.Matrix, error) {
	var list []compute.Part
	var elements int
	for _, p := range parts {
		t := b.tensor(p.role, p.layer)
		defer b.src.Release(t)
		q := compute.Part{Name: t.Name, Type: uint32(t.Type), Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Data, RowOrder: p.order}
		elements += q.Rows * q.Cols
		if b.m.opt.Float32 && t.Type != quant.F32 {
			q.Type, q.Data = uint32(quant.F32), decodeBytes(t)
		}
		list = append(list, q)
	}
	w, err := b.m.dev.NewMatrix(list...)
	if err != nil {
		return nil, err
	}
	b.progress(elements)
	return w, nil
}

// tensor returns a tensor of the model; checkTensors has seen it.
func (b *builder) tensor(r role, l int) weights.Tensor {
	name := b.names.name(r, l)
	t, ok := b.src.Tensor(name)
	if !ok {
		panic("model: no tensor " + name)
	}
	return t
}

func (b *builder) vector(r role, l int) (compute.Vector, error) {
	v, err := b.floats(r, l)
	if err != nil {
		return nil, err
	}
	return b.m.dev.NewVector(v), nil
}

// vector3 joins three vectors of a layer into one; the first two follow the rows of q and k.
func (b *builder) vector3(l int, roles ...role) (compute.Vector, error) {
	var all []float32
	for _, r := range roles {
		v, err := b.floats(r, l)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return b.m.dev.NewVector(all), nil
}

func (b *builder) floats(r role, l int) ([]float32, error) {
	t := b.tensor(r, l)
	defer b.src.Release(t)
	v, err := decodeVector(t, b.m.cfg.shape(r)[0])
	if err != nil {
		return nil, err
	}
	b.progress(len(v))
	b.m.vectorBytes += int64(4 * len(v))
	return v, nil
}

// decodeVector decodes a vector of n elements in any format.
func decodeVector(t weights.Tensor, n int) ([]float32, error) {
	if len(t.Shape) != 1 || t.Shape[0] != n || !t.Type.Known() {
		return nil, fmt.Errorf("tensor %s is %s %v, want %d weights", t.Name, t.TypeName(), t.Shape, n)
	}
	v := make([]float32, n)
	quant.Decode(t.Type, v, t.Data)
	return v, nil
}

// decodeBytes decodes a matrix into the bytes of an F32 one.
func decodeBytes(t weights.Tensor) []byte {
	const chunk = 256 // the longest block, so that every chunk but the last is whole blocks
	var v [chunk]float32
	data := make([]byte, 0, 4*t.Elements())
	step := chunk / t.Type.BlockElems() * t.Type.BlockBytes()
	for src := t.Data; len(src) > 0; {
		n := min(step, len(src))
		floats := v[:n/t.Type.BlockBytes()*t.Type.BlockElems()]
		quant.Decode(t.Type, floats, src[:n])
		for _, x := range floats {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		src = src[n:]
	}
	return data
}

func (b *builder) progress(elements int) {
	b.done += int64(elements)
	if b.m.opt.Progress != nil {
		b.m.opt.Progress(b.done, b.total)
	}
}
