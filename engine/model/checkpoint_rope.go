package model

import (
	"fmt"
	"math"
)

// ropeJSON is rope_scaling of a config.json.
type ropeJSON struct {
	Type    string `json:"rope_type"`
	Factor  float  `json:"factor"`
	LowFreq float  `json:"low_freq_factor,omitempty"`
	HiFreq  float  `json:"high_freq_factor,omitempty"`
	Context int    `json:"original_max_position_embeddings,omitempty"`
}

// checkpointRope returns the value of rope_scaling, nil for plain rotary embeddings.
func (c *Config) checkpointRope() (*ropeJSON, error) {
	s := c.Rope.Scaling
	if s.Divisors != nil {
		if s.Kind != RopePlain {
			return nil, fmt.Errorf("tensor %s together with %s scaling has no form in config.json", ropeDivisors, s.Kind)
		}
		var err error
		if s, err = llama3Of(c.Rope, c.HeadDim); err != nil {
			return nil, err
		}
	}
	if s.Kind == RopePlain {
		return nil, nil
	}
	return &ropeJSON{string(s.Kind), float(s.Factor), float(s.LowFreq), float(s.HiFreq), s.Context}, nil
}

// ropeTolerance is how far a frequency may lie, relatively, from the one that the divisors give. Divisors are stored
// as float32, which costs 6e-8; the rule's parameters, where they have to be fitted, cost a few times that. A
// frequency that is off by 1e-6 turns position 100 000 of the fastest pair by a tenth of a radian, and the blended
// pairs, the only ones that are not exact, turn a hundred times slower.
const ropeTolerance = 1e-6

// llama3Of returns the llama3 rule that makes the divisors of r: llama.cpp stores what the rule makes of each
// frequency instead of the rule. It is an error if no such rule is found.
//
// The largest divisor is the factor. The published models share the other three numbers, so those are tried
// first, and so are the plain answers: all divisors 1, or all the same. In between, the rule blends:
//
//	1/d = (1−s)/factor + s    with s = (context·f/2π − low)/(high − low)
//
// so s is a line over the frequency f, of which two points give slope and intercept. (low, high, context) are thereby
// known up to a common factor, which does not matter to the frequencies; low = 1 is what every published model has.
func llama3Of(r RopeConfig, headDim int) (RopeScaling, error) {
	div := r.Scaling.Divisors
	want := r.InvFreq(headDim)
	factor := 1.0
	for _, d := range div {
		factor = max(factor, float64(d))
	}
	for _, s := range []RopeScaling{
		{},
		{Kind: RopeLinear, Factor: factor},
		{Kind: RopeLlama3, Factor: factor, LowFreq: 1, HiFreq: 4, Context: 8192},
	} {
		if sameFreq(RopeConfig{r.Theta, s}, want) {
			return s, nil
		}
	}
	if s, ok := fitLlama3(r, headDim, factor); ok && sameFreq(RopeConfig{r.Theta, s}, want) {
		return s, nil
	}
	return RopeScaling{}, fmt.Errorf("tensor %s is not what the llama3 rule makes of rope theta %v: config.json has no way to say it", ropeDivisors, r.Theta)
}

// fitLlama3 solves for the rule by the blended frequencies that lie furthest apart.
func fitLlama3(r RopeConfig, headDim int, factor float64) (RopeScaling, bool) {
	type point struct{ f, s float64 }
	var blended []point
	for i, d := range r.Scaling.Divisors {
		s := (1/float64(d) - 1/factor) / (1 - 1/factor)
		if s > 1e-3 && s < 1-1e-3 { // near the ends rounding decides on which side a frequency lies
			blended = append(blended, point{math.Pow(r.Theta, -float64(2*i)/float64(headDim)), s})
		}
	}
	if len(blended) < 2 {
		return RopeScaling{}, false
	}
	a, b := blended[0], blended[len(blended)-1]
	slope := (a.s - b.s) / (a.f - b.f)
	intercept := a.s - slope*a.f // −low/(high−low)
	high := 1 - 1/intercept
	context := 2 * math.Pi * slope * (high - 1)
	s := RopeScaling{Kind: RopeLlama3, Factor: factor, LowFreq: 1, HiFreq: high, Context: int(math.Round(context))}
	if near := math.Round(high); math.Abs(high-near) < 1e-3*near {
		s.HiFreq = near // published ones are whole; what sameFreq then says decides
	}
	rope := RopeConfig{r.Theta, s}
	return s, context < maxContext && rope.validate() == nil
}

// sameFreq reports whether a rule gives the frequencies.
func sameFreq(r RopeConfig, want []float64) bool {
	for i, f := range r.InvFreq(2 * len(want)) {
		if math.Abs(f-want[i]) > ropeTolerance*want[i] {
			return false
		}
	}
	return true
}

// FreqDivisors returns what a GGUF stores in place of a rule for scaling (RopeScaling.Divisors), [headDim/2]: the
// plain frequency of each pair over the scaled one.
func (r *RopeConfig) FreqDivisors(headDim int) []float32 {
	d := make([]float32, headDim/2)
	for i, f := range r.InvFreq(headDim) {
		d[i] = float32(math.Pow(r.Theta, -float64(2*i)/float64(headDim)) / f)
	}
	return d
}
