package sample

import (
	"cmp"
	"math"
	"slices"
)

// reference computes the distribution by its definition: floating-point probabilities, full sorts,
// one stage after the other. It returns probabilities by token id.
func reference(p *Params, logits []float32, prompt, output []int32) []float64 {
	row := make([]float64, len(logits))
	for i, v := range logits {
		row[i] = float64(v)
	}
	for _, b := range p.LogitBias {
		row[b.ID] += float64(b.Value)
	}
	count := map[int32]float64{}
	for _, id := range output {
		count[id]++
	}
	for i := range row {
		id := int32(i)
		if count[id] > 0 || slices.Contains(prompt, id) {
			if row[i] > 0 {
				row[i] /= p.RepetitionPenalty
			} else {
				row[i] *= p.RepetitionPenalty
			}
		}
		row[i] -= p.FrequencyPenalty * count[id]
		if count[id] > 0 {
			row[i] -= p.PresencePenalty
		}
	}
	order := make([]int, len(row))
	for i := range order {
		order[i] = i
	}
	// float32, as in the sampler, so that both see the same ties
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(float32(row[b]), float32(row[a])) })
	if p.Temperature == 0 {
		probs := make([]float64, len(row))
		probs[order[0]] = 1
		return probs
	}
	if p.TopK > 0 && p.TopK < len(order) {
		order = order[:p.TopK]
	}
	probs := softmax(row, order, p.Temperature)
	sum, n := 0.0, 0
	for n < len(order) && (n == 0 || sum < p.TopP) {
		sum += probs[order[n]]
		n++
	}
	if p.TopP < 1 {
		order = order[:n]
	}
	kept := order[:0]
	best := probs[order[0]]
	for _, id := range order {
		if probs[id] >= p.MinP*best {
			kept = append(kept, id)
		}
	}
	return softmax(row, kept, p.Temperature)
}

// softmax returns the probabilities of the ids given at a temperature, 0 for others.
func softmax(row []float64, ids []int, temperature float64) []float64 {
	probs := make([]float64, len(row))
	sum := 0.0
	for _, id := range ids {
		probs[id] = math.Exp((row[id] - row[ids[0]]) / temperature)
		sum += probs[id]
	}
	for i := range probs {
		probs[i] /= sum
	}
	return probs
}
