package sample

import (
	"errors"
	"fmt"
	"math"
)

// ErrNonFinite is wrapped by the error for a row with a NaN or +Inf, or with nothing but -Inf. A
// single -Inf is a masked token: it is never drawn.
var ErrNonFinite = errors.New("the logits are not finite")

// blockLen is the number of logits whose maximum (and later whose sum of weights) is kept. The
// K best logits lie in the K best blocks, so that top-k reads only K·blockLen of them; 64 balances
// that against the number of blocks (768 at 49152 tokens).
const blockLen = 64

// Sampler holds the scratch of one vocabulary's choices: 16 bytes a token, and 16 a block. It
// keeps nothing from call to call, so one Sampler serves all requests of an engine loop; it belongs
// to one goroutine. After New it allocates only to make an error.
type Sampler struct {
	row     []float32 // [vocabulary] the logits after bias and penalties
	weights []uint64  // [vocabulary]
	ids     []int32   // [vocabulary] candidate tokens
	blocks  []int32   // [blocks] candidate blocks
	maxima  []float32 // [blocks] largest logit
	sums    []uint64  // [blocks] summed weights
	bins    [maxBins]uint64
}

// New returns a Sampler for rows of vocab logits, from 1 to 2^20-1.
func New(vocab int) *Sampler {
	if vocab < 1 || vocab > maxVocab {
		panic(fmt.Sprintf("sample: vocabulary of %d tokens: it must be from 1 to %d", vocab, maxVocab))
	}
	blocks := (vocab + blockLen - 1) / blockLen
	return &Sampler{
		row:     make([]float32, vocab),
		weights: make([]uint64, vocab),
		ids:     make([]int32, vocab),
		blocks:  make([]int32, blocks),
		maxima:  make([]float32, blocks),
		sums:    make([]uint64, blocks),
	}
}

// Sample chooses the token at an output position (0 is the first) from a row of logits, [vocabulary],
// which it does not change. history may be nil if p has no penalties; p must be valid. The token is a
// function of the arguments alone (invariant 1). It fails on a row that wraps [ErrNonFinite] and on
// a bias for a token outside the vocabulary.
func (s *Sampler) Sample(p *Params, logits []float32, history *History, position int) (int32, error) {
	best, err := s.prepare(p, logits, history)
	if err != nil || p.Temperature == 0 {
		return best, err
	}
	d := s.filter(p, best)
	return d.Draw(Uniform(p.Seed, position)), nil
}

// Distribution returns what Sample draws from. At temperature 0 all weight is on the best token.
func (s *Sampler) Distribution(p *Params, logits []float32, history *History) (Distribution, error) {
	best, err := s.prepare(p, logits, history)
	if err != nil {
		return Distribution{}, err
	}
	if p.Temperature == 0 {
		s.ids[0], s.weights[best] = best, 1<<weightBits
		return Distribution{IDs: s.ids[:1], Weights: s.weights, Total: 1 << weightBits}, nil
	}
	return s.filter(p, best), nil
}

// prepare fills row and maxima and returns the best token.
func (s *Sampler) prepare(p *Params, logits []float32, history *History) (int32, error) {
	if len(logits) != len(s.row) {
		panic(fmt.Sprintf("sample: a row of %d logits for a vocabulary of %d", len(logits), len(s.row)))
	}
	copy(s.row, logits)
	if err := s.scan(); err != nil {
		return 0, err
	}
	if p.adjusts() {
		if err := s.adjust(p, history); err != nil {
			return 0, err
		}
	}
	return s.best()
}

// scan finds the largest logit of each block and refuses rows that are not finite.
func (s *Sampler) scan() error {
	for b := range s.maxima {
		if err := s.scanBlock(b); err != nil {
			return err
		}
	}
	return nil
}

// scanBlock finds one block's largest logit. It compares bits as integers, which costs a few
// instructions a logit; comparing floats would mispredict a branch at each new maximum.
func (s *Sampler) scanBlock(b int) error {
	top, size := int32(math.MinInt32), int32(0)
	block := s.row[b*blockLen : min((b+1)*blockLen, len(s.row))]
	for _, v := range block {
		bits := int32(math.Float32bits(v))
		size = max(size, bits&math.MaxInt32)
		top = max(top, bits^int32(uint32(bits>>31)>>1)) // ordered as the values are
	}
	const infinity = 0x7f800000
	if size > infinity || top >= infinity {
		for i, v := range block {
			if v != v || v > math.MaxFloat32 {
				return fmt.Errorf("%w: token %d has %v", ErrNonFinite, b*blockLen+i, v)
			}
		}
	}
	s.maxima[b] = math.Float32frombits(uint32(top ^ int32(uint32(top>>31)>>1)))
	return nil
}

// adjust applies bias, then penalties, to the few tokens that they name, and rescans their blocks.
func (s *Sampler) adjust(p *Params, history *History) error {
	if n := len(p.LogitBias); n > 0 && int(p.LogitBias[n-1].ID) >= len(s.row) {
		return fmt.Errorf("logit_bias: token id %d is outside the vocabulary of %d", p.LogitBias[n-1].ID, len(s.row))
	}
	for _, b := range p.LogitBias {
		s.row[b.ID] = clamp(s.row[b.ID], s.row[b.ID]+b.Value)
	}
	if p.Penalises() {
		if history == nil {
			panic("sample: penalties without a History")
		}
		for i := range history.entries {
			e := &history.entries[i]
			s.row[e.id] = penalise(p, e, s.row[e.id])
		}
	}
	for _, b := range p.LogitBias {
		if err := s.scanBlock(int(b.ID) / blockLen); err != nil {
			return err
		}
	}
	if p.Penalises() {
		for i := range history.entries {
			if err := s.scanBlock(int(history.entries[i].id) / blockLen); err != nil {
				return err
			}
		}
	}
	return nil
}

// penalise returns a logit after the repetition, frequency and presence penalties.
func penalise(p *Params, e *entry, v float32) float32 {
	w := float64(v)
	if w > 0 {
		w /= p.RepetitionPenalty
	} else {
		w *= p.RepetitionPenalty
	}
	w -= float64(p.FrequencyPenalty * float64(e.output))
	if e.output > 0 {
		w -= p.PresencePenalty
	}
	return clamp(v, float32(w))
}

// clamp keeps an adjusted logit finite if it was so before: an overflow must neither mask a token nor
// make the row invalid. A masked token stays masked.
func clamp(before, after float32) float32 {
	if math.IsInf(float64(before), -1) {
		return before
	}
	return min(max(after, -math.MaxFloat32), math.MaxFloat32)
}

// best returns the lowest id of the largest logit, or an error if every token is masked.
func (s *Sampler) best() (int32, error) {
	at := 0
	for b, v := range s.maxima {
		if v > s.maxima[at] {
			at = b
		}
	}
	if math.IsInf(float64(s.maxima[at]), -1) {
		return 0, fmt.Errorf("%w: every token has -Inf", ErrNonFinite)
	}
	i := at * blockLen
	for s.row[i] != s.maxima[at] {
		i++
	}
	return int32(i), nil
}
