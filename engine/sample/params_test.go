package sample

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestValidateNamesTheField(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		field string
		set   func(*Params)
	}{
		{"temperature", func(p *Params) { p.Temperature = -0.1 }},
		{"temperature", func(p *Params) { p.Temperature = nan }},
		{"temperature", func(p *Params) { p.Temperature = inf }},
		{"top_k", func(p *Params) { p.TopK = -2 }},
		{"top_p", func(p *Params) { p.TopP = -0.01 }},
		{"top_p", func(p *Params) { p.TopP = 1.01 }},
		{"top_p", func(p *Params) { p.TopP = nan }},
		{"min_p", func(p *Params) { p.MinP = 1.01 }},
		{"min_p", func(p *Params) { p.MinP = nan }},
		{"repetition_penalty", func(p *Params) { p.RepetitionPenalty = 0 }},
		{"repetition_penalty", func(p *Params) { p.RepetitionPenalty = nan }},
		{"repetition_penalty", func(p *Params) { p.RepetitionPenalty = inf }},
		{"presence_penalty", func(p *Params) { p.PresencePenalty = 2.1 }},
		{"frequency_penalty", func(p *Params) { p.FrequencyPenalty = -2.1 }},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{-1, 0}} }},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{3, 0}, {3, 0}} }},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{3, 100.5}} }},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{3, float32(nan)}} }},
	} {
		p := Defaults()
		if err := p.Validate(); err != nil {
			t.Fatalf("defaults: %v", err)
		}
		c.set(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.field) {
			t.Errorf("error %v, want one that starts with %q", err, c.field)
		}
	}
	if err := new(Params).Validate(); err == nil {
		t.Error("the zero value is accepted")
	}
}

func TestValidateAcceptsTheEnds(t *testing.T) {
	for _, p := range []Params{
		{Temperature: 2, TopK: -1, TopP: 0, MinP: 0, RepetitionPenalty: 0.01, PresencePenalty: -2, FrequencyPenalty: -2},
		{TopK: 1 << 30, TopP: 1, MinP: 1, RepetitionPenalty: 100, PresencePenalty: 2, FrequencyPenalty: 2},
		{TopP: 1, RepetitionPenalty: 1, LogitBias: []Bias{{0, -100}, {5, 100}}},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestNewLogitBiasSorts(t *testing.T) {
	got := NewLogitBias(map[int32]float32{9: 1, 2: -1, 4: 0.5})
	if want := []Bias{{2, -1}, {4, 0.5}, {9, 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGreedy(t *testing.T) {
	p := Defaults()
	if !p.Greedy() {
		t.Error("the defaults are not greedy")
	}
	p.PresencePenalty = 1
	if p.Greedy() {
		t.Error("greedy despite a penalty: the raw arg-max would be wrong")
	}
}
