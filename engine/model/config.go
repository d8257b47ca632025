package model

import (
	"fmt"
	"math"
)

// Arch is a family of models that share a forward pass; its text is GGUF's general.architecture.
type Arch string

// The known families. Mistral is Llama with another name.
const (
	Llama Arch = "llama"
	Qwen2 Arch = "qwen2" // biases on q, k and v
	Qwen3 Arch = "qwen3" // RMS norm on each head of q and k
)

// Config is an architecture with every hyper-parameter resolved: what a forward pass needs to know
// apart from the weights.
type Config struct {
	Arch       Arch
	Layers     int
	Hidden     int // width of the residual stream
	FFN        int // width inside the feed-forward block
	Heads      int // query heads
	KVHeads    int // key/value heads; divides Heads
	HeadDim    int // even; Heads·HeadDim need not equal Hidden
	Vocab      int
	MaxContext int // positions the model was made for
	// Window is the number of positions that a sliding-window layer sees, 0 for none. The forward pass
	// attends to everything, so a context beyond the window is refused.
	Window int

	NormEps  float32
	Rope     RopeConfig
	TiedHead bool // the embedding matrix is also the head
	QKVBias  bool
	QKNorm   bool

	BOS int32   // −1 if the file names none
	EOS []int32 // every id that ends a text, without duplicates
}

// The largest sizes that are believed. They lie well above any published dense model; their purpose is that
// a hostile file cannot ask for an absurd allocation or overflow a product.
const (
	maxLayers  = 1 << 10
	maxWidth   = 1 << 18 // Hidden, and Heads·HeadDim
	maxFFN     = 1 << 20
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 10
	maxVocab   = 1 << 22
	maxContext = 1 << 24
)

// Validate reports the first hyper-parameter that is out of bounds or contradicts another.
func (c Config) Validate() error {
	switch c.Arch {
	case Llama, Qwen2, Qwen3:
	default:
		return fmt.Errorf("architecture %q is not supported (known: llama, qwen2, qwen3)", c.Arch)
	}
	for _, f := range []struct {
		name    string
		val, hi int
	}{
		{"layers", c.Layers, maxLayers},
		{"hidden size", c.Hidden, maxWidth},
		{"feed-forward size", c.FFN, maxFFN},
		{"attention heads", c.Heads, maxHeads},
		{"key/value heads", c.KVHeads, maxHeads},
		{"head dimension", c.HeadDim, maxHeadDim},
		{"vocabulary size", c.Vocab, maxVocab},
		{"context length", c.MaxContext, maxContext},
	} {
		if f.val < 1 || f.val > f.hi {
			return fmt.Errorf("%s = %d: want 1 to %d", f.name, f.val, f.hi)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d attention heads are not a multiple of %d key/value heads", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("head dimension = %d: want an even number", c.HeadDim)
	case c.Heads*c.HeadDim > maxWidth:
		return fmt.Errorf("%d heads of %d are wider than %d", c.Heads, c.HeadDim, maxWidth)
	case c.Window < 0:
		return fmt.Errorf("sliding window = %d: want 0 or more", c.Window)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("norm epsilon = %v: want more than 0 and less than 1", c.NormEps)
	}
	for _, id := range c.EOS {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("end-of-text id = %d: want 0 to %d", id, c.Vocab-1)
		}
	}
	if c.BOS < -1 || int(c.BOS) >= c.Vocab {
		return fmt.Errorf("begin-of-text id = %d: want 0 to %d", c.BOS, c.Vocab-1)
	}
	return c.Rope.validate()
}

// QKVRows is the height of the fused query, key and value matrix.
func (c Config) QKVRows() int { return (c.Heads + 2*c.KVHeads) * c.HeadDim }

// addEOS adds an end-of-text id unless it is there already.
func (c *Config) addEOS(id int32) {
	for _, have := range c.EOS {
		if have == id {
			return
		}
	}
	c.EOS = append(c.EOS, id)
}

// RopeConfig says how the rotary embedding's frequencies are made.
type RopeConfig struct {
	Theta   float64
	Scaling RopeScaling
}

// RopeScaling changes the frequencies for contexts longer than those of the first training.
type RopeScaling struct {
	Kind    RopeKind
	Factor  float64
	LowFreq float64 // llama3: low_freq_factor
	HiFreq  float64 // llama3: high_freq_factor
	Context int     // llama3: original_max_position_embeddings
	// Divisors divide frequency i (GGUF's rope_freqs.weight, [HeadDim/2]). Files have them instead of Llama 3's rule; nil for none.
	Divisors []float32
}

// RopeKind is a rule for scaling rotary frequencies.
type RopeKind string

// The known rules.
const (
	RopePlain  RopeKind = ""
	RopeLinear RopeKind = "linear" // all frequencies divided by Factor
	RopeLlama3 RopeKind = "llama3" // low frequencies divided by Factor, high ones kept, a ramp between
)

func (r *RopeConfig) validate() error {
	if !(r.Theta >= 1 && r.Theta <= 1e12) {
		return fmt.Errorf("rope theta = %v: want 1 to 1e12", r.Theta)
	}
	s := &r.Scaling
	switch s.Kind {
	case RopePlain:
		return nil
	case RopeLinear, RopeLlama3:
		if !(s.Factor > 0 && s.Factor <= 1e6) {
			return fmt.Errorf("rope scaling factor = %v: want more than 0 and at most 1e6", s.Factor)
		}
	default:
		return fmt.Errorf("rope scaling type %q is not supported (known: default, linear, llama3)", s.Kind)
	}
	if s.Kind == RopeLlama3 {
		if !(s.LowFreq > 0 && s.HiFreq > s.LowFreq && s.HiFreq <= 1e6) {
			return fmt.Errorf("rope scaling: low_freq_factor = %v, high_freq_factor = %v: want 0 < low < high", s.LowFreq, s.HiFreq)
		}
		if s.Context < 1 || s.Context > maxContext {
			return fmt.Errorf("rope scaling: original context = %d: want 1 to %d", s.Context, maxContext)
		}
	}
	return nil
}

// InvFreq returns the rotary frequencies, [headDim/2]: the angle of position p in pair i is p·InvFreq[i].
//
// They are rounded to float32 because that is what models are trained with (Hugging Face computes and keeps
// them so); at position 100 000 the difference is a visible angle. The llama3 rule is the one of
// transformers' modeling_rope_utils, first published with Llama 3.1.
func (r *RopeConfig) InvFreq(headDim int) []float64 {
	f := make([]float64, headDim/2)
	s := &r.Scaling
	for i := range f {
		v := math.Pow(r.Theta, -float64(2*i)/float64(headDim))
		switch s.Kind {
		case RopeLinear:
			v /= s.Factor
		case RopeLlama3:
			v = s.llama3(v)
		}
		if s.Divisors != nil {
			v /= float64(s.Divisors[i])
		}
		f[i] = float64(float32(v))
	}
	return f
}

// llama3 scales one frequency: by turns made within the original context.
func (s *RopeScaling) llama3(v float64) float64 {
	turns := float64(s.Context) * v / (2 * math.Pi)
	switch {
	case turns < s.LowFreq:
		return v / s.Factor
	case turns > s.HiFreq:
		return v
	}
	ramp := (turns - s.LowFreq) / (s.HiFreq - s.LowFreq)
	return (1-ramp)*v/s.Factor + ramp*v
}
