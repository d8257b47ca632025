package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"draftlab/engine/compute"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// RandomPrefix marks a model name as a shape for LoadRandom.
const RandomPrefix = "random:"

// randomTypes are the formats that a shape may end in.
var randomTypes = map[string]quant.Type{
	"f32": quant.F32, "f16": quant.F16, "bf16": quant.BF16,
	"q4_0": quant.Q4_0, "q4_1": quant.Q4_1, "q5_0": quant.Q5_0, "q5_1": quant.Q5_1, "q8_0": quant.Q8_0,
	"q4_k": quant.Q4_K, "q5_k": quant.Q5_K, "q6_k": quant.Q6_K,
}

// randomShapes are published models and three tiny ones, whose sizes divide into every block format.
var randomShapes = map[string]Config{
	"tiny":         shapeOf(Llama, 3, 256, 512, 4, 2, 64, 320, 2048, 1e4, true),
	"tiny-qwen2":   shapeOf(Qwen2, 3, 256, 512, 8, 2, 32, 320, 2048, 1e6, true),
	"tiny-qwen3":   shapeOf(Qwen3, 3, 256, 768, 4, 1, 128, 320, 2048, 1e6, false),
	"smollm2-135m": shapeOf(Llama, 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, true),
	"smollm2-360m": shapeOf(Llama, 32, 960, 2560, 15, 5, 64, 49152, 8192, 1e5, true),
	"smollm2-1.7b": shapeOf(Llama, 24, 2048, 8192, 32, 32, 64, 49152, 8192, 1.3e5, true),
	"llama-3.2-1b": llama3(shapeOf(Llama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, true), 32),
	"llama-3.2-3b": llama3(shapeOf(Llama, 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, true), 32),
	"llama-3.1-8b": llama3(shapeOf(Llama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, false), 8),
	"qwen2.5-0.5b": shapeOf(Qwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, true),
	"qwen2.5-1.5b": shapeOf(Qwen2, 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1e6, true),
	"qwen2.5-7b":   shapeOf(Qwen2, 28, 3584, 18944, 28, 4, 128, 152064, 32768, 1e6, false),
	"qwen3-0.6b":   shapeOf(Qwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, true),
	"qwen3-1.7b":   shapeOf(Qwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6, true),
	"qwen3-4b":     shapeOf(Qwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6, true),
	"qwen3-8b":     shapeOf(Qwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, false),
}

func shapeOf(arch Arch, layers, hidden, ffn, heads, kvHeads, headDim, vocab, context int, theta float64, tied bool) Config {
	eps := float32(1e-5)
	if arch != Llama {
		eps = 1e-6
	}
	return Config{
		Arch: arch, Layers: layers, Hidden: hidden, FFN: ffn, Heads: heads, KVHeads: kvHeads, HeadDim: headDim,
		Vocab: vocab, MaxContext: context, NormEps: eps, Rope: RopeConfig{Theta: theta},
		TiedHead: tied, QKVBias: arch == Qwen2, QKNorm: arch == Qwen3, BOS: -1,
	}
}

func llama3(c Config, factor float64) Config {
	c.Rope.Scaling = RopeScaling{Kind: RopeLlama3, Factor: factor, LowFreq: 1, HiFreq: 4, Context: 8192}
	return c
}

// RandomShapes lists the shapes that LoadRandom knows, sorted.
func RandomShapes() []string { return slices.Sorted(maps.Keys(randomShapes)) }

// RandomFormats lists the weight formats that may follow a shape, sorted.
func RandomFormats() []string { return slices.Sorted(maps.Keys(randomTypes)) }

// ParseRandom resolves "llama-3.2-1b-q4_0", with or without RandomPrefix, into an architecture and the
// format of its matrices. It is an error if either is unknown, or if the format's blocks do not divide the
// shape's widths.
func ParseRandom(name string) (Config, quant.Type, error) {
	name = strings.TrimPrefix(name, RandomPrefix)
	cut := max(strings.LastIndexByte(name, '-'), 0)
	shape, format := name[:cut], strings.TrimPrefix(name[cut:], "-")
	c, ok := randomShapes[shape]
	typ, known := randomTypes[format]
	if !ok || !known {
		return Config{}, 0, fmt.Errorf("random model %q: want SHAPE-FORMAT with a shape of %s and a format of %s",
			name, strings.Join(RandomShapes(), ", "), strings.Join(RandomFormats(), ", "))
	}
	for _, cols := range []int{c.Hidden, c.FFN, c.Heads * c.HeadDim} {
		if _, err := quant.RowBytes(typ, cols); err != nil {
			return Config{}, 0, fmt.Errorf("random model %q: %w", name, err)
		}
	}
	return c, typ, nil
}

// LoadRandom makes a model of a known shape with seeded random weights, for measurements that depend on
// shapes and formats only and for tests. Every weight depends on seed and its tensor's name alone. Matrices,
// embedding and head included, are in the shape's format; norms and biases are float32. Weights are scaled
// so that activations stay of the order of 1 and logits of the order of the square root of a few.
func LoadRandom(dev compute.Device, name string, seed uint64, opt Options) (*Model, error) {
	c, typ, err := ParseRandom(name)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: c, opt: opt, dev: dev}
	b := &builder{m: m, src: newGenerator(&m.cfg, typ, seed), names: &hfNames}
	if err := b.build(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", RandomPrefix, strings.TrimPrefix(name, RandomPrefix), err)
	}
	return m, nil
}

// generator is a source of random tensors. It makes a tensor when asked and reuses released memory, so that
// a model of many gigabytes needs one matrix' worth beside the packed weights.
type generator struct {
	typ   quant.Type
	seed  uint64
	roles map[string]role
	shape func(role) []int
	free  [][]byte
}

func newGenerator(c *Config, typ quant.Type, seed uint64) *generator {
	g := &generator{typ: typ, seed: seed, roles: map[string]role{}, shape: c.shape}
	for _, r := range c.globalRoles() {
		g.roles[hfNames.name(r, 0)] = r
	}
	for l := range c.Layers {
		for _, r := range c.layerRoles() {
			g.roles[hfNames.name(r, l)] = r
		}
	}
	return g
}

// Tensor implements source.
func (g *generator) Tensor(name string) (weights.Tensor, bool) {
	r, ok := g.roles[name]
	if !ok {
		return weights.Tensor{}, false
	}
	t := weights.Tensor{Name: name, Type: quant.F32, Shape: g.shape(r)}
	key := mix(g.seed ^ fnv(name))
	if len(t.Shape) == 1 {
		mean := float32(1) // a norm's gain
		if r == roleQBias || r == roleKBias || r == roleVBias {
			mean = 0
		}
		t.Data = g.buffer(4 * t.Shape[0])
		fillBits(t.Data, key)
		toFloats(t.Data, mean, 0.1)
		return t, true
	}
	t.Type = g.typ
	rows, cols := t.Shape[0], t.Shape[1]
	rowBytes, err := quant.RowBytes(g.typ, cols)
	if err != nil {
		panic("model: " + err.Error()) // ParseRandom has looked at every width
	}
	t.Data = g.buffer(rows * rowBytes)
	fillRandom(t.Type, t.Data, key, 1/math.Sqrt(float64(cols)))
	return t, true
}

// Release implements source.
func (g *generator) Release(t weights.Tensor) { g.free = append(g.free, t.Data[:0]) }

// buffer returns n bytes: the smallest released buffer that is large enough, or a new one.
func (g *generator) buffer(n int) []byte {
	slices.SortFunc(g.free, func(a, b []byte) int { return cmp.Compare(cap(a), cap(b)) })
	for i, b := range g.free {
		if cap(b) >= n {
			g.free = slices.Delete(g.free, i, i+1)
			return b[:n]
		}
	}
	return make([]byte, n)
}

// fnv is the 64-bit FNV-1a hash.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
