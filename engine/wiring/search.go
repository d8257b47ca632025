package wiring

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"draftlab/engine/draft/eagle3"
)

// score is what a wiring got on the texts that choose: by text, how many drafts were accepted and from how many positions.
type score struct {
	accepted, positions []float64
}

// mean is the drafts accepted a position.
func (s score) mean() float64 { return ratio(s.accepted, s.positions, 0.5).Value }

// beats reports whether s is better than o at the given confidence, so that what is as good does not displace what is there.
func (s score) beats(o score, confidence float64) bool {
	diff := make([]float64, len(s.accepted))
	for i := range diff {
		diff[i] = s.accepted[i] - o.accepted[i]
	}
	return ratio(diff, s.positions, confidence).Low > 0
}

// What a change must show on the texts that choose: one that a common mistake explains little more than a standard error, since it is
// judged on other texts anyway; one to any other layer, of which there are many, more.
const (
	leastHint = 0.8
	leastOdd  = 0.99
)

// search looks for the wiring that acceptance supports: one dimension after the other, the best of each kept, until a round changes nothing,
// then every layer in each third's place. It only proposes: what it finds is judged on other texts.
type search struct {
	space    *space
	try      func(w eagle3.Wiring, steps int) (score, error)
	sweep    bool      // try every layer
	deadline time.Time // after which nothing new is tried
	progress func(tried int)

	scores map[eagle3.Wiring]score // chains of Steps
	first  map[eagle3.Wiring]score // first drafts alone
	cut    bool                    // the deadline came
}

// rounds bounds the search; faults come in ones and twos, and each round mends one of a dimension.
const rounds = 3

func (s *search) run(ctx context.Context) (best eagle3.Wiring, err error) {
	s.scores, s.first = map[eagle3.Wiring]score{}, map[eagle3.Wiring]score{}
	best = s.space.configured
	if _, err := s.score(ctx, best, Steps); err != nil {
		return best, err
	}
	for range rounds {
		before := best
		for _, d := range s.space.dimensions() {
			if best, err = s.improve(ctx, best, d.from(best), Steps, leastHint); err != nil {
				return best, err
			}
		}
		if s.sweep {
			if best, err = s.layers(ctx, best); err != nil {
				return best, err
			}
		}
		if best == before {
			break
		}
	}
	return s.simplify(ctx, best)
}

// simplify goes back to what is configured, or to every engine's default, in each thing where that is no worse.
func (s *search) simplify(ctx context.Context, best eagle3.Wiring) (eagle3.Wiring, error) {
	c := &s.space.configured
	for _, back := range []func(w *eagle3.Wiring){
		func(w *eagle3.Wiring) { *w = *c },
		func(w *eagle3.Wiring) { w.RopeTheta = c.RopeTheta },
		func(w *eagle3.Wiring) { w.NormBeforeResidual = c.NormBeforeResidual },
		func(w *eagle3.Wiring) { w.NormOutput = c.NormOutput },
		func(w *eagle3.Wiring) { w.Layers = s.space.standard() },
		func(w *eagle3.Wiring) { w.Layers = c.Layers },
	} {
		w := best
		if back(&w); w == best || !s.space.has(w.Layers) || s.late() {
			continue
		}
		held, err := s.score(ctx, best, Steps)
		if err != nil {
			return best, err
		}
		simpler, err := s.score(ctx, w, Steps)
		if err != nil {
			return best, err
		}
		if !held.beats(simpler, confidence) {
			best = w
		}
	}
	return best, nil
}

// improve returns the best of a wiring and its alternatives.
func (s *search) improve(ctx context.Context, best eagle3.Wiring, list []eagle3.Wiring, steps int, least float64) (eagle3.Wiring, error) {
	held, err := s.score(ctx, best, steps)
	if err != nil {
		return best, err
	}
	top, topScore := best, held
	for _, w := range list {
		if w == best || s.late() {
			continue
		}
		got, err := s.score(ctx, w, steps)
		if err != nil {
			return best, err
		}
		if got.beats(held, least) && got.mean() > topScore.mean() {
			top, topScore = w, got
		}
	}
	return top, nil
}

// layers tries other states in each third's place: every stride-th layer by first drafts, then those beside the best, stride halved
// each time. States of neighbouring layers are alike, so that acceptance rises over several layers towards the right one.
func (s *search) layers(ctx context.Context, best eagle3.Wiring) (eagle3.Wiring, error) {
	const coarse = 16 // layers in the first look: every second of 30
	for third := range best.Layers {
		if s.late() {
			break
		}
		stride := 1
		for len(s.space.kept)/stride > coarse {
			stride *= 2
		}
		list := s.replaced(best, third, func(at int) bool { return at%stride == 0 })
		for {
			var err error
			if best, err = s.improve(ctx, best, list, 1, leastOdd); err != nil {
				return best, err
			}
			if stride == 1 || s.late() {
				break
			}
			stride /= 2
			here := slices.Index(s.space.kept, best.Layers[third])
			list = s.replaced(best, third, func(at int) bool { return at == here-stride || at == here+stride })
		}
	}
	return best, nil
}

// replaced returns a wiring with other states for one of its thirds.
func (s *search) replaced(w eagle3.Wiring, third int, want func(at int) bool) (list []eagle3.Wiring) {
	for at, layer := range s.space.kept {
		if want(at) && !slices.Contains(w.Layers[:], layer) {
			o := w
			o.Layers[third] = layer
			list = append(list, o)
		}
	}
	return list
}

func (s *search) late() bool {
	if !s.deadline.IsZero() && time.Now().After(s.deadline) {
		s.cut = true
	}
	return s.cut
}

func (s *search) score(ctx context.Context, w eagle3.Wiring, steps int) (score, error) {
	if ctx.Err() != nil {
		return score{}, context.Cause(ctx)
	}
	known := s.scores
	if steps == 1 {
		known = s.first
	}
	if got, ok := known[w]; ok {
		return got, nil
	}
	got, err := s.try(w, steps)
	if err == nil {
		known[w] = got
		s.progress(len(s.scores) + len(s.first))
	}
	return got, err
}

// runnersUp returns the n best of the other wirings: the nearest rivals of a verdict.
func (s *search) runnersUp(n int, without ...eagle3.Wiring) (list []eagle3.Wiring) {
	for w := range s.scores {
		if !slices.Contains(without, w) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b eagle3.Wiring) int {
		switch x, y := s.scores[a].mean(), s.scores[b].mean(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) // the same order always
	})
	return list[:min(n, len(list))]
}
