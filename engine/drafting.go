package engine

import (
	"draftlab/engine/compute"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/ledger"
	"draftlab/engine/sched"
)

// candidates are what one run of the drafter proposes behind a row: scratch.
type candidates struct {
	tokens []int32
	probs  []float32
}

// drafting is a sequence whose next candidates are being drafted.
type drafting struct {
	s     *sequence
	root  int   // slot of the root
	first int   // row in the last run of its first row there
	rows  int   // how many rows it had there
	depth int32 // level of its next rows: 0 for the root's children
}

// extendPrefill makes the drafter's rows of prompt chunks and, behind a prompt's end, the first candidates.
func (e *Engine) extendPrefill(chunks []sched.Chunk) {
	e.drafts = e.drafts[:0]
	if e.drafter != nil {
		e.featureRows = e.featureRows[:0]
		row := 0
		for _, c := range chunks {
			for i := range c.N {
				if e.seqs[c.Seq].drafter {
					e.featureRows = append(e.featureRows, int32(row+i))
				}
			}
			row += c.N
		}
		e.extend(ledger.PrefillDraft, len(chunks), func(i int) (s *sequence, from, n int, out bool) {
			c := chunks[i]
			s = e.seqs[c.Seq]
			return s, c.From, c.N, c.Last && !s.over()
		})
	}
	for _, c := range chunks {
		if s := e.seqs[c.Seq]; c.Last && !s.over() {
			e.lookUp(s)
		}
	}
}

// extendCycle makes the drafter's rows of the accepted paths and drafts the next candidates.
func (e *Engine) extendCycle(steps []sched.Step) {
	e.drafts = e.drafts[:0]
	if e.drafter != nil {
		e.featureRows = e.featureRows[:0]
		for _, st := range steps {
			if s := e.seqs[st.Seq]; s.drafter && !s.over() {
				for _, node := range s.path {
					e.featureRows = append(e.featureRows, int32(s.out)+node) // every row of the pass has logits
				}
			}
		}
		e.extend(ledger.DraftExtend, len(steps), func(i int) (s *sequence, from, n int, out bool) {
			s = e.seqs[steps[i].Seq]
			if s.over() {
				return s, 0, 0, false
			}
			return s, steps[i].Root, len(s.path), true
		})
	}
	for _, st := range steps {
		if s := e.seqs[st.Seq]; !s.over() {
			e.lookUp(s)
		}
	}
}

// over reports whether the pass in progress ended the sequence.
func (s *sequence) over() bool {
	return s.last.ended || s.last.err != nil || s.emitted() >= s.limit
}

// extend makes the drafter's rows behind n target rows of each of count sequences: the row of slot s+1 joins the target's
// state at s and the token at s+1. Sequence i has its rows from slot from on; if out, it is to get new candidates.
func (e *Engine) extend(phase ledger.Phase, count int, of func(i int) (s *sequence, from, n int, out bool)) {
	if len(e.featureRows) == 0 {
		return
	}
	e.count.enter(phase)
	d := e.drafter
	d.Features(e.featureRows)
	b := d.Batch()
	b.Reset()
	b.Top = 0
	feature, seq := int32(0), int32(0)
	for i := range count {
		s, from, n, out := of(i)
		if !s.drafter || n == 0 {
			continue
		}
		b.Blocks[seq] = s.table.Blocks
		first := b.Rows
		if s.resumed { // the row behind a cached prefix needs the state at its end
			s.resumed = false
			d.Append(seq, s.tokens[from], int32(from), d.Restore(s.table.Blocks[from/compute.BlockSlots-1]))
		}
		for j := range n {
			slot := from + j
			if (slot+1)%compute.BlockSlots == 0 {
				d.Save(s.table.Blocks[slot/compute.BlockSlots], int(feature))
			}
			if slot+1 < len(s.tokens) {
				d.Append(seq, s.tokens[slot+1], int32(slot+1), feature)
			}
			feature++
		}
		if out {
			b.Top = max(b.Top, s.top())
			b.WantLogits(b.Rows - 1)
			e.drafts = append(e.drafts, drafting{s: s, root: len(s.tokens) - 1, first: b.Rows - 1, rows: 1})
		}
		if b.Rows > first {
			seq++
		}
	}
	if b.Rows == 0 {
		return
	}
	if err := d.Run(); err != nil {
		panic("engine: " + err.Error()) // the target ran the same tokens and positions
	}
	e.grow()
}

// top is how many candidates with probabilities a sequence wants of a row; 0 asks for the best alone, or for logits.
func (s *sequence) top() int {
	if s.fixed != nil || s.spec.Shape.IsChain() && s.spec.PMin == 0 {
		return 0
	}
	return s.spec.Shape.TopK
}

// grow drafts level by level, all sequences of e.drafts in the same runs of the drafter.
func (e *Engine) grow() {
	e.count.enter(ledger.Draft)
	out := 0
	for i := range e.drafts {
		dr := &e.drafts[i]
		shape := dr.s.spec.Shape.Cap(dr.s.limit-dr.s.emitted()-1, dr.s.spec.Shape.Rows())
		dr.s.builder.Start(shape, dr.s.tokens[dr.root], dr.s.spec.PMin)
		e.propose(dr, 0, out)
		out++
	}
	for pass := 0; e.level(pass); pass++ {
	}
	e.count.enter(ledger.Draft)
	for i := range e.drafts {
		e.drafts[i].s.builder.Tree(&e.drafts[i].s.tree)
	}
}

// propose hands the candidates behind an output row of the drafter's last run to a sequence's builder, as those of its row i.
func (e *Engine) propose(dr *drafting, i, out int) {
	s := dr.s
	if s.fixed != nil {
		e.draw(dr, i, out)
		return
	}
	c := &e.candidates
	if s.top() == 0 {
		c.tokens[0] = e.drafter.Best(out)
		s.builder.Propose(i, c.tokens[:1], one)
		return
	}
	n := e.drafter.Propose(out, c.tokens, c.probs)
	if s.guess != nil {
		s.builder.Propose(i, c.tokens[:n], s.guess[:n])
		return
	}
	s.builder.Propose(i, c.tokens[:n], c.probs[:n])
}

// one is the probability of a candidate where nobody asks for it.
var one = []float32{1}

// level runs the drafter's given pass of a draft, on the rows that the builders want next, and returns false if there are none.
func (e *Engine) level(pass int) bool {
	b := e.drafter.Batch()
	b.Reset()
	b.Top = 0
	for i := range e.drafts {
		e.appendLevel(int32(i), &e.drafts[i])
	}
	if b.Rows == 0 {
		return false
	}
	e.count.enterPass(pass)
	if err := e.drafter.Run(); err != nil {
		panic("engine: " + err.Error())
	}
	out := 0
	for i := range e.drafts {
		dr := &e.drafts[i]
		for j := range dr.rows {
			e.propose(dr, j, out)
			out++
		}
	}
	for i := range e.drafts {
		e.ledger.Truncate(&e.drafts[i].s.table, e.drafts[i].s.covered)
	}
	return true
}

// appendLevel appends one sequence's rows. The drafter's keys and values of candidates lie behind the root's and are gone with
// the draft, so the blocks for them are borrowed; without any left the draft ends here.
func (e *Engine) appendLevel(seq int32, dr *drafting) {
	s, d := dr.s, e.drafter
	rows := s.builder.Next()
	s.covered = s.table.Slots()
	if len(rows) > 0 && !e.ledger.Extend(&s.table, dr.root+2+int(rows[len(rows)-1].Tail)) {
		rows = nil
	}
	b := d.Batch()
	b.Blocks[seq] = s.table.Blocks
	first := b.Rows
	for _, row := range rows {
		r := d.Append(seq, row.Token, int32(dr.root+1)+row.Tail, ^(int32(dr.first) + row.From))
		if row.Mask != 0 {
			b.Tail[r], b.Mask[r] = int32(dr.root+1), row.Mask
			b.Pos[r] = int32(dr.root) + dr.depth
		}
		b.WantLogits(r)
		b.Top = max(b.Top, s.top())
	}
	dr.first, dr.rows = first, len(rows)
	dr.depth++
}

// lookUp drafts by look-up in the sequence's own tokens, for those that do so.
func (e *Engine) lookUp(s *sequence) {
	if !s.drafter {
		s.tree.Reset(s.tokens[len(s.tokens)-1])
	}
	if s.index == nil {
		return
	}
	e.count.enter(ledger.Draft)
	e.looked = s.index.Draft(e.looked[:0], s.spec.Shape.Steps)
	for i, id := range e.looked {
		s.tree.Add(i, id, 1)
	}
}

// loadDrafter opens the EAGLE-3 head, whose target is loaded with its taps.
func (e *Engine) loadDrafter() (err error) {
	o := eagle3.Options{
		MaxRows: max(prefillRows, decodeRows) + e.opt.MaxRunning*max(1, e.opt.Limit.TopK), MaxSeqs: e.opt.MaxRunning,
		MaxOut: e.opt.MaxRunning * max(1, e.opt.Limit.TopK), MaxTop: max(1, e.opt.Limit.TopK), LayerIDs: e.opt.LayerIDs,
		Format: e.opt.DrafterFormat,
	}
	if e.opt.Drafter == RandomDrafter {
		e.drafter, err = eagle3.Random(e.dev, e.model, e.opt.Seed, 0, o)
	} else {
		e.drafter, err = eagle3.Load(e.dev, e.opt.Drafter, e.model, o)
	}
	n := max(1, e.opt.Limit.TopK)
	e.candidates = candidates{make([]int32, n), make([]float32, n)}
	if err == nil {
		e.proposer = newProposer(e.drafter.Config().DraftVocab)
	}
	return err
}

// taps asks the drafter's configuration for the target's hidden states.
func (e *Engine) taps(layers int, random func() (eagle3.Config, error)) ([]int, error) {
	if e.opt.Drafter == RandomDrafter {
		c, err := random()
		if err != nil {
			return nil, err
		}
		return c.TapLayers(layers, eagle3.InputIDs)
	}
	c, err := eagle3.ReadConfig(e.opt.Drafter)
	if err != nil {
		return nil, err
	}
	return c.TapLayers(layers, e.opt.LayerIDs)
}
