package eagle3

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"draftlab/engine/compute"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// RandomConfig is the drafter that published ones for such a target look like: the target's widths, heads and rotary
// embedding, and a draft vocabulary of the given size (0 is the target's, or 32 000 if that is less). It takes the default
// hidden states, of a target too shallow for them the first, middle and last.
func RandomConfig(t model.Config, draftVocab int) (Config, error) {
	c := Config{
		Hidden: t.Hidden, TargetHidden: t.Hidden, FFN: t.FFN, Heads: t.Heads, KVHeads: t.KVHeads, HeadDim: t.HeadDim,
		Vocab: t.Vocab, DraftVocab: draftVocab, NormEps: t.NormEps, Rope: t.Rope,
	}
	if draftVocab == 0 {
		c.DraftVocab = min(t.Vocab, 32000)
	}
	if c.DraftVocab < 1 || c.DraftVocab > c.Vocab {
		return Config{}, fmt.Errorf("draft vocabulary = %d: want 1 to the target's %d", c.DraftVocab, c.Vocab)
	}
	if t.Layers < 2 {
		return Config{}, fmt.Errorf("a target of %d layers has no three hidden states", t.Layers)
	}
	if t.Layers < minLayers {
		c.Layers = []int{0, t.Layers / 2, t.Layers}
	}
	return c, c.validate()
}

// Random makes a drafter of RandomConfig (whose Config.TapLayers, by InputIDs, the target has been loaded with) with seeded random weights, for measurements that depend on shapes alone: what it
// proposes is noise. Its draft vocabulary is spread evenly over the target's. Each weight depends on the seed and its tensor's name alone.
func Random(dev compute.Device, target *model.Model, seed uint64, draftVocab int, opt Options) (*Drafter, error) {
	cfg, err := RandomConfig(target.Config(), draftVocab)
	if err == nil {
		err = cfg.fits(target, InputIDs)
	}
	if err != nil {
		return nil, fmt.Errorf("random drafter: %w", err)
	}
	b := &builder{
		d:       &Drafter{cfg: cfg, opt: opt, dev: dev, target: target},
		release: func(weights.Tensor) {},
	}
	if err = b.index(randomTensors(&cfg, seed)); err == nil {
		err = b.build()
	}
	if err != nil {
		return nil, fmt.Errorf("random drafter: %w", err)
	}
	return b.d, nil
}

// randomTensors makes the tensors of a drafter, matrices and gains in bfloat16. It leaves out the optional ones but the head.
func randomTensors(c *Config, seed uint64) (list []weights.Tensor) {
	for _, w := range c.shapes() {
		if w.optional && w.name != "lm_head.weight" {
			continue
		}
		if w.name == "d2t" {
			offsets := make([]int64, c.DraftVocab)
			for i := range offsets {
				offsets[i] = int64(i)*int64(c.Vocab)/int64(c.DraftVocab) - int64(i)
			}
			list = append(list, weights.FromInts(w.name, offsets, len(offsets)))
			continue
		}
		n, mean, std := w.shape[0], 1.0, 0.1 // a gain
		if len(w.shape) == 2 {
			n, mean, std = w.shape[0]*w.shape[1], 0, 1/math.Sqrt(float64(w.shape[1]))
		}
		data := randomBF16(rand.New(rand.NewPCG(seed, hash(w.name))), n, mean, std)
		list = append(list, weights.Tensor{Name: w.name, Type: quant.BF16, Shape: w.shape, Data: data})
	}
	return list
}

// randomBF16 returns n numbers, uniform around mean with the standard deviation std.
func randomBF16(rng *rand.Rand, n int, mean, std float64) []byte {
	data := make([]byte, 0, 2*n)
	for range n {
		v := mean + std*math.Sqrt(12)*(float64(rng.Uint32())/(1<<32)-0.5)
		data = binary.LittleEndian.AppendUint16(data, quant.F32ToBF16(float32(v)))
	}
	return data
}

// hash is the 64-bit FNV-1a hash.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
