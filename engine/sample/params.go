package sample

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Params are one request's sampling parameters. Start from [Defaults]: the zero value is not valid.
type Params struct {
	// Temperature divides the logits, ≥ 0; 0 takes the best token. 1 leaves the model's distribution.
	Temperature float64
	// TopK keeps the K best tokens; 0 or -1 keeps all, as does a K of the vocabulary's size or more.
	TopK int
	// TopP keeps the smallest set of best tokens whose probabilities sum to at least P, in [0, 1];
	// 1 keeps all, 0 the best alone.
	TopP float64
	// MinP drops tokens less probable than P times the best one, in [0, 1]; 0 drops none.
	MinP float64
	// RepetitionPenalty divides positive and multiplies negative logits of tokens that the prompt or
	// the output holds (CTRL, as in Hugging Face transformers), > 0; 1 changes nothing.
	RepetitionPenalty float64
	// PresencePenalty is subtracted from the logits of tokens that the output holds, in [-2, 2]. As in
	// vLLM and SGLang the prompt does not count.
	PresencePenalty float64
	// FrequencyPenalty is subtracted once for each time that the output holds a token, in [-2, 2].
	FrequencyPenalty float64
	// LogitBias is added to logits before all else: ascending ids, values in [-100, 100]. [NewLogitBias] makes one.
	LogitBias []Bias
	// Seed keys the generator. Two requests of one seed draw the same numbers.
	Seed uint64
}

// Bias is a value to add to one token's logit.
type Bias struct {
	ID    int32
	Value float32
}

// Defaults returns greedy decoding with every filter and penalty off.
func Defaults() Params { return Params{TopP: 1, RepetitionPenalty: 1} }

// NewLogitBias returns the biases of a map from token id to value in the order that [Params] wants.
func NewLogitBias(m map[int32]float32) []Bias {
	list := make([]Bias, 0, len(m))
	for id, v := range m {
		list = append(list, Bias{ID: id, Value: v})
	}
	slices.SortFunc(list, func(a, b Bias) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Greedy reports whether the choice is the best logit of the row as it came, so that a caller may
// use a device's own arg-max (lowest id among equals) and leave the logits there.
func (p *Params) Greedy() bool {
	return p.Temperature == 0 && !p.adjusts()
}

// adjusts reports whether a bias or penalty changes logits.
func (p *Params) adjusts() bool { return len(p.LogitBias) > 0 || p.Penalises() }

// Penalises reports whether the choice depends on the sequence's earlier tokens, so that Sample needs their History.
func (p *Params) Penalises() bool {
	return p.RepetitionPenalty != 1 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

// Validate checks ranges. An error names the field as the OpenAI API spells it, the value and the range.
func (p *Params) Validate() error {
	for _, f := range []struct {
		name  string
		value float64
		ok    bool
		want  string
	}{
		{"temperature", p.Temperature, p.Temperature >= 0, "0 or more"},
		{"top_k", float64(p.TopK), p.TopK >= -1, "0 or -1 (off), or 1 or more"},
		{"top_p", p.TopP, p.TopP >= 0 && p.TopP <= 1, "from 0 to 1"},
		{"min_p", p.MinP, p.MinP >= 0 && p.MinP <= 1, "from 0 to 1"},
		{"repetition_penalty", p.RepetitionPenalty, p.RepetitionPenalty > 0, "more than 0"},
		{"presence_penalty", p.PresencePenalty, math.Abs(p.PresencePenalty) <= 2, "from -2 to 2"},
		{"frequency_penalty", p.FrequencyPenalty, math.Abs(p.FrequencyPenalty) <= 2, "from -2 to 2"},
	} {
		if !f.ok || math.IsInf(f.value, 0) { // a NaN fails every comparison above
			return fmt.Errorf("%s = %v: it must be a number %s", f.name, f.value, f.want)
		}
	}
	for i, b := range p.LogitBias {
		switch {
		case b.ID < 0:
			return fmt.Errorf("logit_bias: token id %d is negative", b.ID)
		case i > 0 && b.ID <= p.LogitBias[i-1].ID:
			return fmt.Errorf("logit_bias: token id %d after %d: ids must ascend", b.ID, p.LogitBias[i-1].ID)
		case !(b.Value >= -100 && b.Value <= 100):
			return fmt.Errorf("logit_bias of token %d = %v: it must be a number from -100 to 100", b.ID, b.Value)
		}
	}
	return nil
}
