package engine

import (
	"errors"
	"fmt"

	"draftlab/engine/draft"
	"draftlab/engine/sample"
)

// CheckSimulation returns an error for a simulation that the options' own way of speculating cannot have, as Open does.
func (o *Options) CheckSimulation() error {
	if o.SimulateAcceptLength == 0 {
		return nil
	}
	if o.Spec.Drafter != DraftModel {
		return fmt.Errorf("simulated acceptance with drafter %s: it needs drafts in every cycle, of a checkpoint or a random head", o.Spec.Drafter)
	}
	s, err := draft.NewSimulation(o.SimulateAcceptLength, o.Spec.Shape.Steps)
	if err != nil {
		return err
	}
	return canSimulate(s, &o.Spec)
}

// canSimulate returns an error if a way of speculating cannot have its acceptance simulated.
func canSimulate(s *draft.Simulation, spec *Spec) error {
	switch {
	case spec.Drafter == DraftNone:
		return nil
	case spec.Drafter == DraftNgram:
		return errors.New("acceptance is simulated: look-up drafts only where it finds something; use the drafter eagle3")
	case spec.Rule == RuleB:
		return errors.New("acceptance is simulated: rule b has nothing to accept; use rule a")
	case spec.PMin > 0:
		return errors.New("acceptance is simulated: p-min would cut drafts by probabilities that mean nothing; use 0")
	}
	return s.Fits(spec.Shape)
}

// simulates checks a request's own way of speculating where acceptance is simulated.
func (e *Engine) simulates(spec *Spec) error {
	if e.simulation == nil {
		return nil
	}
	return canSimulate(e.simulation, spec)
}

// simulateFor prepares a sequence that speculates: nothing ends its text but its length, and its dice depend on its seed and prompt.
func (e *Engine) simulateFor(s *sequence) {
	s.guess = e.simulation.AppendGuess(nil, s.spec.Shape.TopK, s.spec.Shape.Steps)
	s.req.Stop = nil
	s.h.res.Simulated = e.simulation.AcceptLength
	// Requests with one seed, as all greedy ones may have, must not throw the same dice: FNV-1a over the prompt tells them apart.
	s.dice = 0xcbf29ce484222325 ^ s.req.Sampling.Seed
	for _, id := range s.req.Prompt {
		s.dice = (s.dice ^ uint64(uint32(id))) * 0x100000001b3
	}
}

// walkBlindly is walk with simulated acceptance: the drafts on the way to the deepest node are accepted as the dice say, and
// the target adds a token of its own.
func (e *Engine) walkBlindly(s *sequence, t *draft.Tree, out int) (o outcome) {
	depth := int32(t.MaxDepth())
	leaf := int32(0)
	for t.Depth[leaf] < depth {
		leaf++
	}
	e.path = append(e.path[:0], make([]int32, depth+1)...)
	for n := leaf; n >= 0; n = t.Parent[n] {
		e.path[t.Depth[n]] = n
	}
	chance := e.simulation.Chance(int(depth))
	for i := int32(1); i <= depth; i++ {
		if !sample.Chance(s.dice, s.emitted(), chance) {
			e.path = e.path[:i]
			break
		}
		if s.req.Logprobs {
			e.model.LogitRow(out+int(e.path[i-1]), e.logits)
		}
		e.take(s, e.withLogprobs(s, t.Token[e.path[i]]))
		o.emitted++
	}
	token, err := e.choose(s, out+int(e.path[len(e.path)-1]))
	if err != nil {
		o.err = err
		return o
	}
	e.take(s, token)
	o.emitted++
	return o
}

// take makes a token part of the output.
func (e *Engine) take(s *sequence, t Token) {
	s.push(t)
	e.fresh = append(e.fresh, t)
}
