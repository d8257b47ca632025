package sample

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// FuzzSample feeds arbitrary bits as logits and parameters. Whatever they are, Validate or Sample
// refuses them, or a token comes out that has a weight, and the same one again from a fresh Sampler.
func FuzzSample(f *testing.F) {
	row := func(values ...float32) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	f.Add(row(1, 2, 3), 1.0, 2, 0.9, 0.1, 1.2, 0.5, -0.5, uint64(1), int32(1), float32(3))
	f.Add(row(float32(math.NaN()), 2), 0.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0, uint64(0), int32(0), float32(0))
	f.Add(row(float32(math.Inf(-1)), float32(math.Inf(-1)), -math.MaxFloat32), 5e-324, -1, 0.0, 1.0, 1e-300, 2.0, 2.0, uint64(9), int32(2), float32(-100))
	f.Fuzz(func(t *testing.T, raw []byte, temperature float64, topK int, topP, minP, repetition, presence, frequency float64, seed uint64, biased int32, bias float32) {
		logits := make([]float32, min(len(raw)/4, 4096))
		if len(logits) == 0 {
			return
		}
		finite, open := true, false
		for i := range logits {
			logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			finite = finite && logits[i] <= math.MaxFloat32
			open = open || logits[i] >= -math.MaxFloat32
		}
		p := Params{
			Temperature: temperature, TopK: topK, TopP: topP, MinP: minP, RepetitionPenalty: repetition,
			PresencePenalty: presence, FrequencyPenalty: frequency, Seed: seed, LogitBias: []Bias{{biased, bias}},
		}
		if p.Validate() != nil {
			return
		}
		h := history([]int32{0}, []int32{int32(len(logits) - 1), 0, 0})
		id, err := New(len(logits)).Sample(&p, logits, h, 3)
		if err != nil {
			if outside := int(biased) >= len(logits); !outside && errors.Is(err, ErrNonFinite) == (finite && open) {
				t.Fatalf("%v of a row with finite=%v and a token that is not masked=%v", err, finite, open)
			}
			return
		}
		s := New(len(logits))
		d, err := s.Distribution(&p, logits, h)
		if err != nil || d.Weight(id) == 0 {
			t.Fatalf("token %d has weight 0, error %v", id, err)
		}
		if again, _ := s.Sample(&p, logits, h, 3); again != id {
			t.Fatalf("token %d, then %d", id, again)
		}
	})
}
