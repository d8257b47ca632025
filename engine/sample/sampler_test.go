package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// gaussian returns n logits with a standard deviation, as a fixed stream of a seed.
func gaussian(seed uint64, n int, sd float64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 99))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(sd * rng.NormFloat64())
	}
	return row
}

// history returns the history of a prompt and an output.
func history(prompt, output []int32) *History {
	h := NewHistory(prompt)
	for _, id := range output {
		h.Push(id)
	}
	return h
}

// probabilities returns a distribution by token id.
func probabilities(d *Distribution, vocab int) []float64 {
	probs := make([]float64, vocab)
	for id := range probs {
		probs[id] = float64(d.Weight(int32(id))) / float64(d.Total)
	}
	return probs
}

func TestDistributionAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 2000 {
		vocab := 1 + rng.IntN(300)
		row := gaussian(uint64(round), vocab, 1+5*rng.Float64())
		for range rng.IntN(vocab) { // ties
			row[rng.IntN(vocab)] = row[rng.IntN(vocab)]
		}
		p, prompt, output := randomParams(rng, vocab)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		d, err := New(vocab).Distribution(&p, row, history(prompt, output))
		if err != nil {
			t.Fatal(err)
		}
		want := reference(&p, row, prompt, output)
		for id, got := range probabilities(&d, vocab) {
			if math.Abs(got-want[id]) > 2e-6 {
				t.Fatalf("round %d, %+v, vocabulary %d: token %d has %v, want %v", round, p, vocab, id, got, want[id])
			}
		}
	}
}

// randomParams returns parameters in which each stage is off in about half of the cases.
func randomParams(rng *rand.Rand, vocab int) (p Params, prompt, output []int32) {
	p = Defaults()
	on := func() bool { return rng.IntN(2) == 0 }
	if rng.IntN(8) > 0 {
		p.Temperature = 0.1 + 2*rng.Float64()
	}
	if on() {
		p.TopK = 1 + rng.IntN(vocab+3)
	}
	if on() {
		p.TopP = rng.Float64()
	}
	if on() {
		p.MinP = 0.5 * rng.Float64()
	}
	if on() {
		p.RepetitionPenalty = 0.5 + rng.Float64()
	}
	if on() {
		p.PresencePenalty = 4*rng.Float64() - 2
	}
	if on() {
		p.FrequencyPenalty = 4*rng.Float64() - 2
	}
	if on() {
		p.LogitBias = NewLogitBias(map[int32]float32{int32(rng.IntN(vocab)): 3, int32(rng.IntN(vocab)): -100})
	}
	for range 10 {
		prompt = append(prompt, int32(rng.IntN(vocab)))
		output = append(output, int32(rng.IntN(vocab)))
	}
	return p, prompt, output
}

// TestFiltersByHand pins the edges of each filter on logits log(8), log(4), log(2), log(2), log(1) in
// a shuffled order, whose probabilities are 8, 4, 2, 2 and 1 seventeenths.
func TestFiltersByHand(t *testing.T) {
	row := make([]float32, 5)
	for i, v := range []float64{2, 8, 1, 2, 4} {
		row[i] = float32(math.Log(v))
	}
	for _, c := range []struct {
		name string
		set  func(*Params)
		want []int32 // tokens kept
	}{
		{"nothing", func(p *Params) {}, []int32{0, 1, 2, 3, 4}},
		{"top-k 1", func(p *Params) { p.TopK = 1 }, []int32{1}},
		{"top-k 3 takes the lower id of a tie", func(p *Params) { p.TopK = 3 }, []int32{0, 1, 4}},
		{"top-k 5", func(p *Params) { p.TopK = 5 }, []int32{0, 1, 2, 3, 4}},
		{"top-k beyond the vocabulary", func(p *Params) { p.TopK = 6 }, []int32{0, 1, 2, 3, 4}},
		{"top-k off by -1", func(p *Params) { p.TopK = -1 }, []int32{0, 1, 2, 3, 4}},
		{"top-p 0", func(p *Params) { p.TopP = 0 }, []int32{1}},
		{"top-p just below 8/17", func(p *Params) { p.TopP = 7.99 / 17 }, []int32{1}},
		{"top-p just above 8/17", func(p *Params) { p.TopP = 8.01 / 17 }, []int32{1, 4}},
		{"top-p takes the lower id of a tie", func(p *Params) { p.TopP = 13.0 / 17 }, []int32{0, 1, 4}},
		{"top-p all but the last", func(p *Params) { p.TopP = 15.9 / 17 }, []int32{0, 1, 3, 4}},
		{"top-p next to 1", func(p *Params) { p.TopP = math.Nextafter(1, 0) }, []int32{0, 1, 2, 3, 4}},
		{"top-p 1", func(p *Params) { p.TopP = 1 }, []int32{0, 1, 2, 3, 4}},
		{"min-p just below 1/4", func(p *Params) { p.MinP = 0.2499 }, []int32{0, 1, 3, 4}},
		{"min-p just above 1/4", func(p *Params) { p.MinP = 0.2501 }, []int32{1, 4}},
		{"min-p 1", func(p *Params) { p.MinP = 1 }, []int32{1}},
		{"top-p is of what top-k left", func(p *Params) { p.TopK, p.TopP = 2, 0.7 }, []int32{1, 4}},
		{"min-p after top-p", func(p *Params) { p.TopP, p.MinP = 0.9, 0.3 }, []int32{1, 4}},
	} {
		p := Defaults()
		p.Temperature = 1
		c.set(&p)
		d, err := New(5).Distribution(&p, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		sum := uint64(0)
		for id := range int32(5) {
			if w := d.Weight(id); w > 0 {
				got = append(got, id)
				sum += w
			}
		}
		if !slices.Equal(got, c.want) || sum != d.Total {
			t.Errorf("%s: kept %v with total %d (sum %d), want %v", c.name, got, d.Total, sum, c.want)
		}
	}
}

func TestGreedyTakesLowestIDOfEquals(t *testing.T) {
	for _, vocab := range []int{1, 63, 64, 65, 1000} {
		row := gaussian(1, vocab, 1)
		for i := range row {
			row[i] = min(row[i], 0.5)
		}
		first, last := vocab/2, vocab-1
		row[first], row[last] = 7, 7
		p := Defaults()
		if id, err := New(vocab).Sample(&p, row, nil, 0); err != nil || int(id) != first {
			t.Errorf("vocabulary %d: token %d, %v, want %d", vocab, id, err, first)
		}
	}
	p := Defaults()
	zeros := []float32{float32(math.Copysign(0, -1)), 0, 0}
	if id, _ := New(3).Sample(&p, zeros, nil, 0); id != 0 {
		t.Errorf("of -0, 0, 0 token %d, want 0: zeros are equal", id)
	}
}

func TestGreedyAfterPenaltiesAndBias(t *testing.T) {
	row := []float32{5, 4, 3, -1}
	s := New(4)
	for _, c := range []struct {
		name string
		set  func(*Params)
		want int32
	}{
		{"repetition", func(p *Params) { p.RepetitionPenalty = 2 }, 1},         // 2.5, 4, 3
		{"frequency", func(p *Params) { p.FrequencyPenalty = 1 }, 1},           // 3, 4, 3
		{"presence", func(p *Params) { p.PresencePenalty = 0.9 }, 0},           // once however often
		{"bias", func(p *Params) { p.LogitBias = []Bias{{0, -3}, {2, 2}} }, 2}, // 2, 4, 5
	} {
		p := Defaults()
		c.set(&p)
		id, err := s.Sample(&p, row, history([]int32{3}, []int32{0, 0}), 0)
		if err != nil || id != c.want {
			t.Errorf("%s: token %d, %v, want %d", c.name, id, err, c.want)
		}
	}
	if !slices.Equal(row, []float32{5, 4, 3, -1}) {
		t.Errorf("the caller's logits changed: %v", row)
	}
}

func TestNonFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, temperature := range []float64{0, 1} {
		p := Defaults()
		p.Temperature = temperature
		for _, row := range [][]float32{{1, nan, 2}, {nan, nan, nan}, {1, inf, 2}, {-inf, -inf, -inf}, {3, 2, -nan}} {
			if _, err := New(3).Sample(&p, row, nil, 0); !errors.Is(err, ErrNonFinite) {
				t.Errorf("%v at temperature %v: error %v", row, temperature, err)
			}
		}
		for pos := range 100 {
			if id, err := New(3).Sample(&p, []float32{-inf, 0, -inf}, nil, pos); id != 1 || err != nil {
				t.Errorf("the one token that is not masked: got %d, %v", id, err)
			}
		}
		// A bias does not revive a masked token, and an overflow neither masks a token nor fails.
		p.LogitBias = []Bias{{0, 100}, {1, -100}}
		p.RepetitionPenalty = 1e30
		row := []float32{-inf, -math.MaxFloat32, -inf}
		if id, err := New(3).Sample(&p, row, history(nil, []int32{0, 1}), 0); id != 1 || err != nil {
			t.Errorf("after an overflow: got %d, %v", id, err)
		}
	}
}

func TestBiasOutsideVocabulary(t *testing.T) {
	p := Defaults()
	p.LogitBias = []Bias{{3, 1}}
	if _, err := New(3).Sample(&p, make([]float32, 3), nil, 0); err == nil || !strings.Contains(err.Error(), "token id 3") {
		t.Errorf("error %v", err)
	}
}

// TestExtremeTemperatures checks the two limits: ties of the best at 0+, uniform at infinity.
func TestExtremeTemperatures(t *testing.T) {
	row := []float32{1, 2, 2, -5}
	for temperature, want := range map[float64][]float64{
		math.SmallestNonzeroFloat64: {0, 0.5, 0.5, 0},
		math.MaxFloat64:             {0.25, 0.25, 0.25, 0.25},
	} {
		p := Defaults()
		p.Temperature = temperature
		d, err := New(4).Distribution(&p, row, nil)
		if got := probabilities(&d, 4); err != nil || !slices.Equal(got, want) {
			t.Errorf("temperature %v: %v, %v, want %v", temperature, got, err, want)
		}
	}
}

// TestFrequencies compares the frequencies of drawn tokens with the exact distribution by chi-square,
// at 0.9999 quantiles for 1 to 9 degrees of freedom.
func TestFrequencies(t *testing.T) {
	quantiles := []float64{15.1, 18.4, 21.1, 23.5, 25.7, 27.9, 29.9, 31.8, 33.7}
	const draws = 40000
	row := []float32{0.3, -1, 2, 1.5, -0.5, 0, 1, -2, 0.7, 0.9}
	for _, c := range []Params{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.5, TopP: 0.9},
		{Temperature: 1.5, TopP: 1, TopK: 4},
		{Temperature: 1, TopP: 1, MinP: 0.2, FrequencyPenalty: 1},
	} {
		c.RepetitionPenalty, c.Seed = 1, 1234
		s, prompt, output := New(len(row)), []int32{1}, []int32{2, 2}
		count := make([]float64, len(row))
		h := history(prompt, output)
		for pos := range draws {
			id, err := s.Sample(&c, row, h, pos)
			if err != nil {
				t.Fatal(err)
			}
			count[id]++
		}
		chi, df := 0.0, -1
		for id, prob := range reference(&c, row, prompt, output) {
			switch want := prob * draws; {
			case want > 0:
				chi += (count[id] - want) * (count[id] - want) / want
				df++
			case count[id] > 0:
				t.Errorf("%+v: token %d of probability 0 came %v times", c, id, count[id])
			}
		}
		if chi > quantiles[df-1] {
			t.Errorf("%+v: chi-square %.1f of %d degrees of freedom", c, chi, df)
		}
	}
}

// TestRuleA checks invariant 1 at the sampler: a position's token is the same whatever was
// sampled before, in whatever order, by whichever Sampler, along pushed and popped drafts.
func TestRuleA(t *testing.T) {
	const vocab, length = 500, 40
	rows := make([][]float32, length)
	for i := range rows {
		rows[i] = gaussian(uint64(i), vocab, 3)
	}
	p := Params{Temperature: 0.8, TopK: 50, TopP: 0.95, RepetitionPenalty: 1.3, PresencePenalty: 0.5, Seed: 77}
	plain := make([]int32, length)
	s, h := New(vocab), NewHistory([]int32{1, 2})
	for pos, row := range rows {
		plain[pos], _ = s.Sample(&p, row, h, pos)
		h.Push(plain[pos])
	}
	rng := rand.New(rand.NewPCG(8, 8))
	other := New(vocab)
	for pos := length - 1; pos >= 0; pos-- {
		h.Pop()
		for range 3 { // a rejected draft: sampled on, then taken back
			n := rng.IntN(5)
			for range n {
				h.Push(int32(rng.IntN(vocab)))
				if _, err := other.Sample(&p, rows[rng.IntN(length)], h, pos+1); err != nil {
					t.Fatal(err)
				}
			}
			for range n {
				h.Pop()
			}
		}
		if id, err := other.Sample(&p, rows[pos], h, pos); id != plain[pos] || err != nil {
			t.Errorf("position %d: %d, %v, want %d", pos, id, err, plain[pos])
		}
	}
}

// TestTokensArePinned fixes what seeds mean: a change of these tokens breaks everyone's reproduction.
func TestTokensArePinned(t *testing.T) {
	row := gaussian(4, 1000, 4)
	p := Params{Temperature: 1, TopP: 0.98, RepetitionPenalty: 1, Seed: 2026}
	var got []int32
	for pos := range 8 {
		id, err := New(1000).Sample(&p, row, nil, pos)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, id)
	}
	if want := []int32{197, 197, 476, 941, 197, 141, 971, 674}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSampleDoesNotAllocate(t *testing.T) {
	row := gaussian(1, 5000, 3)
	s, h := New(len(row)), history([]int32{1, 2}, []int32{3, 3})
	for _, p := range benchParams() {
		if n := testing.AllocsPerRun(20, func() { _, _ = s.Sample(&p.Params, row, h, 1) }); n != 0 {
			t.Errorf("%s: %v allocations", p.name, n)
		}
	}
}

type named struct {
	name string
	Params
}

// benchParams are the settings worth timing.
func benchParams() []named {
	list := []named{
		{"greedy+penalty", Params{TopP: 1, RepetitionPenalty: 1.1}},
		{"temperature", Params{Temperature: 0.8, TopP: 1, RepetitionPenalty: 1}},
		{"topk=40", Params{Temperature: 0.8, TopP: 1, TopK: 40, RepetitionPenalty: 1}},
		{"topk=40,topp=0.95", Params{Temperature: 0.8, TopP: 0.95, TopK: 40, RepetitionPenalty: 1}},
		{"topk=5000", Params{Temperature: 0.8, TopP: 1, TopK: 5000, RepetitionPenalty: 1}},
		{"topp=0.95", Params{Temperature: 0.8, TopP: 0.95, RepetitionPenalty: 1}},
		{"minp=0.05", Params{Temperature: 0.8, TopP: 1, MinP: 0.05, RepetitionPenalty: 1}},
	}
	return list
}

func BenchmarkSample(b *testing.B) {
	for _, vocab := range []int{49152, 151936} {
		row := gaussian(7, vocab, 2.5)
		s, h := New(vocab), history([]int32{1, 2}, []int32{3, 3})
		for _, p := range benchParams() {
			b.Run(fmt.Sprintf("vocab=%d/%s", vocab, p.name), func(b *testing.B) {
				pos := 0
				for b.Loop() {
					if _, err := s.Sample(&p.Params, row, h, pos); err != nil {
						b.Fatal(err)
					}
					pos++
				}
			})
		}
	}
}
