package search

import (
	"math"
	"slices"

	"draftlab/lab/costmodel"
)

// drafts is how often drafts are accepted: at depth k+1, of the sequences whose draft at depth k was.
type drafts []float64

// ofChain takes the rates from a chain's histogram; nil if it has no cycles. Depths that were never reached have the rate before them.
func ofChain(histogram []int64) (d drafts) {
	alive := int64(0)
	for _, n := range histogram {
		alive += n
	}
	if alive == 0 {
		return nil
	}
	for _, n := range histogram[:len(histogram)-1] {
		if alive == 0 {
			d = append(d, d[len(d)-1])
			continue
		}
		d = append(d, float64(alive-n)/float64(alive))
		alive -= n
	}
	return d
}

// ofMean takes one rate for all depths from the drafts that cycles of a chain accepted together; nil without cycles.
func ofMean(steps int, cycles, accepted float64) drafts {
	if cycles == 0 {
		return nil
	}
	rate := bisect(1, func(rate float64) bool {
		mean, alive := 0.0, 1.0
		for range steps {
			alive *= rate
			mean += alive
		}
		return mean < accepted/cycles
	})
	return slices.Repeat(drafts{rate}, steps)
}

// bisect finds where, from 0 to most, too small ends.
func bisect(most float64, tooSmall func(float64) bool) float64 {
	lo, hi := 0.0, most
	for range 40 {
		if mid := (lo + hi) / 2; tooSmall(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// rate is that of a depth, from 1; past the deepest that was seen it stays.
func (d drafts) rate(depth int) float64 { return d[min(depth, len(d))-1] }

// chains are what the measured chains tell of acceptance, the shallowest first.
type chains []counted

// counted is a chain's acceptance on a set of prompts, nil where nothing was counted.
type counted struct {
	steps int
	d     drafts
}

// at returns the rates in cycles of a depth. A chain has those of all shallower ones in it, but not quite: shallow cycles are more often
// of text that is easy to guess, which deep ones skip in one go (rates are some hundredths higher for it). So rates
// are taken from the measured chains on both sides of the depth, by the logarithms of their own.
func (c chains) at(steps int) drafts {
	up := slices.IndexFunc(c, func(k counted) bool { return k.steps >= steps })
	switch {
	case up < 0:
		return c[len(c)-1].d
	case up == 0 || c[up].steps == steps:
		return c[up].d
	}
	low, high := c[up-1], c[up]
	share := apart(steps, low.steps) / apart(high.steps, low.steps)
	mixed := slices.Clone(high.d)
	for k := range low.d {
		mixed[k] += (1 - share) * (low.d[k] - mixed[k])
	}
	return mixed
}

// What a draft misses, n candidates in its place leave to a share of never + (1 − never)·n^−siblings. Never is what no candidate of the
// drafter's catches: with 0.3 the lengths of 21 trees of the default drafter came out nearest, and with 0 those of wide ones up to 5 % too
// long. The exponent is that of a drafter of which no tree has been measured.
const never, siblings = 0.3, 1.2

// missed is the share of misses that n candidates leave.
func missed(n int, siblings float64) float64 {
	return never + (1-never)*math.Pow(float64(n), -siblings)
}

// length returns the accept length of a shape: one and the chance of each node to be on the accepted path. A tree's nodes are those that a
// drafter would choose if every cycle were the average one: of each level the topk likeliest grow topk children each, and of all
// that grew, the likeliest make the tree.
func (d drafts) length(s costmodel.Shape, siblings float64) float64 {
	level, all := []float64{1}, []float64(nil)
	for depth := 1; depth <= s.Steps; depth++ {
		miss := 1 - d.rate(depth)
		var next []float64
		for _, p := range level {
			next = append(next, p*(1-miss))
			for child := 2; child <= s.TopK; child++ {
				next = append(next, p*miss*(missed(child-1, siblings)-missed(child, siblings)))
			}
		}
		all = append(all, next...)
		level = likeliest(next, s.TopK)
	}
	total := 1.0
	for _, p := range likeliest(all, s.DraftTokens-1) {
		total += p
	}
	return total
}

// likeliest returns the n greatest.
func likeliest(p []float64, n int) []float64 {
	p = slices.Clone(p)
	slices.SortFunc(p, func(a, b float64) int {
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	return p[:min(n, len(p))]
}

// mostSiblings bounds the exponent: beyond it a second candidate catches all that is ever caught.
const mostSiblings = 8

// fitSiblings finds the exponent that gives a tree the accept length that it had, or the nearest that there is.
func (d drafts) fitSiblings(s costmodel.Shape, length float64) float64 {
	return bisect(mostSiblings, func(exponent float64) bool { return d.length(s, exponent) < length })
}
