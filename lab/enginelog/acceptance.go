package enginelog

import "fmt"

const (
	// useless is the accept length up to which a drafter does nothing: one at random stays below, one that works at all is above 1.2.
	useless = 1.05
	// lowFirst is the acceptance of first drafts below which wiring is suspected: drafters that got the wrong layers' states had 10 to 30 %, the
	// same drafters with the right ones 45 % and more.
	lowFirst = 0.35
)

// acceptance says what is conspicuous about how many drafts are accepted, "" if nothing is.
func (g *group) acceptance() string {
	d := g.accept.dist()
	if d == nil || d.N < 3 {
		return ""
	}
	first, atMost := d.P50-1, "at most " // the acceptance of first drafts is one of the shares that an accept length sums up
	if x := g.first.dist(); x != nil {
		first, atMost = x.P50, ""
	}
	switch {
	case d.P90 <= useless:
		return fmt.Sprintf("the accept length is %.2f: drafts are hardly ever accepted. Is the drafter one for this target, under the right algorithm name (an EAGLE-3 head runs as EAGLE without an error, at 1.00), and does it get the states of the right layers? draftlab doctor measures that", d.P50)
	case first < lowFirst:
		return fmt.Sprintf("only %s%.0f %% of first drafts are accepted, which for a trained drafter looks like a wiring fault (layers, positions, vocabulary map, chat template); look-up in the text is often no better. draftlab doctor measures the wiring", atMost, 100*first)
	}
	return ""
}

const (
	// third is the number of values that a third of a log must have for its ends to be compared.
	third = 30
	// worn is the share of accepted drafts that is left at a log's end when it is called a decline.
	worn = 0.9
)

// decline says that fewer drafts are accepted at the end of a log than at its beginning, "" if not.
func (g *group) decline() string {
	n := len(g.accept) / 3
	if n < third {
		return ""
	}
	first, last := g.accept[:n].dist().P50, g.accept[len(g.accept)-n:].dist().P50
	if first-1 < 0.1 || last-1 >= worn*(first-1) {
		return ""
	}
	return fmt.Sprintf("the accept length declines over the log: %.2f in its first third, %.2f in its last. Unless the requests became others or longer, the drafter's part of the key/value cache is suspect "+
		"(reused prefixes, a sequence beyond the drafter's length): does a restart bring it back?", first, last)
}

// gaps says that vLLM accepted nothing in some of its intervals, where it did well in others.
func (g *group) gaps() string {
	none := 0
	for _, x := range g.accept {
		if x <= noDraft {
			none++
		}
	}
	if g.first == nil || g.drafted > 0 || none < 3 || 10*none > 9*len(g.accept) {
		return ""
	}
	return fmt.Sprintf("in %d of %d intervals no draft was accepted, and in the others they were: vLLM stops drafting for all requests while one is longer than the drafter's max_model_len, and goes on verifying "+
		"(its issue 58080). Compare max_position_embeddings of the drafter with the lengths of requests", none, len(g.accept))
}

// noDraft is the accept length up to which an interval of some hundred cycles had no draft that was meant.
const noDraft = 1.01
