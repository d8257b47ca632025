package enginelog

import (
	"fmt"
	"slices"

	"draftlab/lab/stats"
)

const (
	// useless is the accept length up to which a drafter does nothing: one at random stays below, one that works at all is above 1.2.
	useless = 1.05
	// lowFirst is the acceptance of first drafts below which wiring is suspected: drafters that got the wrong layers' states had 10 to 30 %, the
	// same drafters with the right ones 45 % and more.
	lowFirst = 0.35
	// enoughFirst is the number of values that such a suspicion must rest on: SGLang's are of 40 cycles each, and one text is drafted worse than another.
	enoughFirst = 10
	// seldom is the share of drafts accepted from which a low accept length means few drafts, and not bad ones.
	seldom = 0.2
)

// acceptance says what is conspicuous about how many drafts are accepted, "" if nothing is.
func (g *group) acceptance() string {
	d := g.accept.dist()
	if d == nil || d.N < 3 {
		return ""
	}
	taken := g.taken.dist()
	first, atMost := d.P50-1, "at most " // the acceptance of first drafts is one of the shares that an accept length sums up
	if x := g.first.dist(); x != nil {
		first, atMost = x.P50, ""
	} else if taken != nil {
		first = 1 // of llama.cpp before mid-2026 it is not known: cycles without a draft are in the accept length, too
	}
	switch {
	case d.P90 <= useless && (taken == nil || taken.P50 < seldom):
		return fmt.Sprintf("the accept length is %.2f: drafts are hardly ever accepted. Is the drafter one for this target, under the right algorithm name (an EAGLE-3 head runs as EAGLE without an error, at 1.00), and does it get the states of the right layers? draftlab doctor measures that", d.P50)
	case first < lowFirst && d.N >= enoughFirst:
		return fmt.Sprintf("only %s%.0f %% of first drafts are accepted, which for a trained drafter looks like a wiring fault (layers, positions, vocabulary map, chat template); look-up in the text, and text sampled at a high temperature, are often no better. draftlab doctor measures the wiring", atMost, 100*first)
	}
	return ""
}

const (
	// third is the number of values that a third of a log must have for its ends to be compared: of fewer the kinds of text decide.
	third = 100
	// worn is the share of accepted drafts that is left at a log's end when it is called a decline.
	worn = 0.9
)

// decline says that fewer drafts are accepted at the end of a log than at its beginning, "" if not.
func (g *group) decline() string {
	n := len(g.accept) / 3
	if n < third {
		return ""
	}
	begin, end := g.accept[:n], g.accept[len(g.accept)-n:]
	first, last := begin.dist().P50, end.dist().P50
	if first-1 < 0.1 || last-1 >= worn*(first-1) || !end.below(begin) {
		return ""
	}
	return fmt.Sprintf("the accept length declines over the log: %.2f in its first third, %.2f in its last. Unless the requests became others or longer, the drafter's part of the key/value cache is suspect "+
		"(reused prefixes, a sequence beyond the drafter's length): does a restart bring it back?", first, last)
}

// gaps says that vLLM accepted nothing in some of its intervals, where it did well in others.
func (g *group) gaps() string {
	if g.barren < 3 || 10*g.barren > 9*g.judged {
		return ""
	}
	return fmt.Sprintf("in %d of %d intervals no draft was accepted, and in the others they were: vLLM stops drafting for all requests while one is longer than the drafter's max_model_len, and goes on verifying "+
		"(its issue 58080). Compare max_position_embeddings of the drafter with the lengths of requests", g.barren, g.judged)
}

const (
	// manyDrafts is the number of draft tokens of an interval that must have been refused to mean something: the end of one answer has a few.
	manyDrafts = 300
	// noDraft is the accept length up to which such an interval had no draft that was meant.
	noDraft = 1.01
)

// pieces is the number of parts in which values are compared.
const pieces = 5

// below reports whether the mean of every fifth of v is below that of every fifth of w: of values that are alike, once in 252 times by chance.
// Neighbouring values are of the same requests, so that single ones are not independent. Both must have that many values at least.
func (v values) below(w values) bool {
	return slices.Max(v.fifths()) < slices.Min(w.fifths())
}

// fifths are the means of the values' parts.
func (v values) fifths() []float64 {
	means := make([]float64, pieces)
	for i := range means {
		means[i] = stats.Mean(v[i*len(v)/pieces : (i+1)*len(v)/pieces])
	}
	return means
}
