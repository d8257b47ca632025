package engine

import (
	"draftlab/engine/draft"
	"draftlab/engine/sample"
)

// grower grows a sequence's candidate tree: a draft.Builder under rule A, a draft.Fixed under rule B.
type grower interface {
	Start(shape draft.Shape, root int32, minProb float32)
	Propose(i int, tokens []int32, probs []float32)
	Next() []draft.Row
	Tree(t *draft.Tree)
}

// proposer is the scratch with which rule B draws and tests candidates.
type proposer struct {
	sampler *sample.Sampler // of the drafter's vocabulary
	logits  []float32       // [DraftVocab]
	tokens  [sample.MaxCandidates]int32
	probs   [sample.MaxCandidates]float32
	nodes   [sample.MaxCandidates]int
}

// A node has no more candidates than can be drawn.
const _ = uint(sample.MaxCandidates - draft.MaxTopK)

func newProposer(vocab int) proposer {
	return proposer{sampler: sample.New(vocab), logits: make([]float32, vocab)}
}

// drawsCandidates prepares a sequence for rule B: for each run of the drafter in a draft it keeps a distribution over vocab tokens.
func (s *sequence) drawsCandidates(vocab int) {
	s.fixed = draft.NewFixed(s.spec.Shape)
	s.builder = s.fixed
	s.drawn = make([]sample.Proposal, s.fixed.Rows())
	for i := range s.drawn {
		s.drawn[i].IDs, s.drawn[i].Weights = make([]int32, 0, vocab), make([]uint64, 0, vocab)
	}
}

// draw draws the candidates behind an output row of the drafter's last run: from its distribution at the request's temperature, under the
// request's filters, since what they drop is never accepted. A row that is not finite has no candidates.
func (e *Engine) draw(dr *drafting, i, out int) {
	s, p := dr.s, &e.proposer
	want, run := s.fixed.Want(i)
	if want == 0 {
		return
	}
	e.drafter.LogitRow(out, p.logits)
	own := &s.req.Sampling
	d, err := p.sampler.Distribution(&sample.Params{
		Temperature: own.Temperature, TopK: own.TopK, TopP: own.TopP, MinP: own.MinP, RepetitionPenalty: 1,
	}, p.logits, nil)
	if err != nil {
		return
	}
	q := &s.drawn[run]
	q.Set(&d, e.drafter.TargetIDs())
	n := q.Draw(want, own.Seed, s.emitted()+int(dr.depth), p.tokens[:], p.probs[:])
	s.fixed.Propose(i, p.tokens[:n], p.probs[:n])
}

// verify is rule B at a node that has children, whose logits are output row out of the last pass.
func (e *Engine) verify(s *sequence, t *draft.Tree, node, out int) (token Token, child int, err error) {
	e.model.LogitRow(out, e.logits)
	d, err := e.sampler.Distribution(&s.req.Sampling, e.logits, s.history)
	if err != nil {
		return token, -1, e.failed(s, err)
	}
	p, n := &e.proposer, 0
	for c := t.FirstChild(node); c >= 0; c = t.NextSibling(c) {
		p.tokens[n], p.nodes[n] = t.Token[c], c
		n++
	}
	id, at := d.Verify(&s.drawn[s.fixed.Run(node)], p.tokens[:n], s.req.Sampling.Seed, s.emitted())
	child = -1
	if at >= 0 {
		child = p.nodes[at]
	}
	return e.withLogprobs(s, id), child, nil
}
