package sample

import (
	"fmt"
	"math/bits"
	"slices"
)

// MaxCandidates bounds the candidates that [Proposal.Draw] draws at one place.
const MaxCandidates = 16

// Proposal is the distribution that the candidates for one output position are drawn from: token IDs[i] has probability
// Weights[i] / Total. It is all of rule B's q: a token that it does not list has probability 0, so a drafter's vocabulary may be
// smaller than the target's. The zero Proposal lists nothing.
type Proposal struct {
	IDs     []int32  // ascending
	Weights []uint64 // [len(IDs)]
	Total   uint64
}

// Set makes q the distribution d with its token i called ids[i]; ids ascend. It allocates only where q lacks capacity.
func (q *Proposal) Set(d *Distribution, ids []int32) {
	q.IDs, q.Weights, q.Total = q.IDs[:0], q.Weights[:0], d.Total
	add := func(i int32) { // a filter may leave a token in that the drafter rules out
		if w := d.Weights[i]; w > 0 {
			q.IDs, q.Weights = append(q.IDs, ids[i]), append(q.Weights, w)
		}
	}
	if d.IDs != nil {
		for _, i := range d.IDs {
			add(i)
		}
		return
	}
	for i := range d.Weights {
		add(int32(i))
	}
}

// Draw draws up to n tokens without replacement, each from what the ones before it leave of q, and writes them to tokens
// and to probs the probability (under all of q) of each. It returns how many there are: fewer than n where q has fewer. The draws
// depend on seed and output position alone, and q stays as it is. It panics if n is above MaxCandidates.
func (q *Proposal) Draw(n int, seed uint64, position int, tokens []int32, probs []float32) (drawn int) {
	if n > MaxCandidates {
		panic(fmt.Sprintf("sample: %d candidates at one place, at most %d can be drawn", n, MaxCandidates))
	}
	var at [MaxCandidates]int
	var taken [MaxCandidates]uint64
	left := q.Total
	for ; drawn < n && left > 0; drawn++ {
		rest, _ := bits.Mul64(keyed(seed, position, purposeDraft, uint32(drawn)), left)
		i := 0
		for rest >= q.Weights[i] {
			rest -= q.Weights[i]
			i++
		}
		tokens[drawn], probs[drawn] = q.IDs[i], float32(float64(q.Weights[i])/float64(q.Total))
		at[drawn], taken[drawn] = i, q.Weights[i]
		q.Weights[i] = 0
		left -= taken[drawn]
	}
	for k := range drawn {
		q.Weights[at[k]] = taken[k]
	}
	return drawn
}

// Verify is rule B at one output position (Leviathan et al. 2023; several candidates: recursive rejection without replacement, as in
// SpecInfer and Sequoia): d is the target's distribution, and candidates are, in their order, what q.Draw drew, or as many of the first
// of them as were kept for reasons that do not depend on the rest. Each is accepted with probability min(1, p/q); a rejected one leaves
// the residual max(p−q, 0) to the next, and takes itself out of q. Verify returns the token, whose distribution is d's,
// and the index of the candidate that it is, −1 if it is drawn from what all of them left.
//
// A candidate chosen in another way, the most probable one say, makes the result wrong: p/q is the right chance only for a token
// that comes up with probability q.
//
// Weights are integers, and q is put on the scale of d by rounding down, so a probability is off by 2^-43 at most. Verify uses up both d
// and q. All its draws depend on seed and position alone.
func (d *Distribution) Verify(q *Proposal, candidates []int32, seed uint64, position int) (token int32, accepted int) {
	for i, id := range candidates {
		if d.accept(q, id, keyed(seed, position, purposeTest, uint32(i))) {
			return id, i
		}
	}
	return d.Draw(Uniform(seed, position)), -1
}

// accept puts one candidate to the test. If it is rejected, d becomes the residual and q loses it.
func (d *Distribution) accept(q *Proposal, id int32, random uint64) bool {
	i, ok := slices.BinarySearch(q.IDs, id)
	if !ok || q.Weights[i] == 0 {
		panic(fmt.Sprintf("sample: candidate %d cannot have been drawn from the proposal", id))
	}
	scale := float64(d.Total) / float64(q.Total)
	p, limit := d.Weight(id), scaled(q.Weights[i], scale)
	at, _ := bits.Mul64(random, limit)
	if p > limit || at < p {
		return true
	}
	if d.common(q, scale, false) < d.Total {
		d.Total -= d.common(q, scale, true)
	} else if p > 0 {
		return true // p is q but for rounding: nothing is left to draw from
	}
	q.Total -= q.Weights[i]
	q.Weights[i] = 0
	return false
}

// scaled is a proposal's weight on the scale of the distribution that it is compared with. One product, rounded once and cut off,
// is the same number on every machine.
func scaled(w uint64, scale float64) uint64 { return uint64(float64(w) * scale) }

// common returns the mass that d and q have in common, Σ min(p, q) on d's scale, and takes it off d if asked to; Total is left alone.
func (d *Distribution) common(q *Proposal, scale float64, take bool) (sum uint64) {
	at := 0
	for i, id := range q.IDs {
		if d.IDs != nil {
			for at < len(d.IDs) && d.IDs[at] < id {
				at++
			}
			if at == len(d.IDs) {
				break
			}
			if d.IDs[at] != id {
				continue
			}
		}
		w := min(d.Weights[id], scaled(q.Weights[i], scale))
		sum += w
		if !take {
			continue
		}
		d.Weights[id] -= w
		if d.IDs == nil {
			d.sums[int(id)/blockLen] -= w
		}
	}
	return sum
}
