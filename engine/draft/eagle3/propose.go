package eagle3

import "fmt"

// Best returns the most probable token, by its target id, behind output row i of the last Run.
func (d *Drafter) Best(i int) int32 { return d.ids[d.batch.Best[i]] }

// Propose writes the candidates behind output row i of the last Run, whose batch asked for them by Top: target ids by
// descending probability, with their soft-max probabilities over the draft vocabulary. It returns how many there
// are: Top, or fewer where logits are not numbers or the vocabulary is smaller.
func (d *Drafter) Propose(i int, tokens []int32, probs []float32) (n int) {
	b := d.batch
	if i < 0 || i >= b.Outs || len(tokens) < b.Top || len(probs) < b.Top {
		panic(fmt.Sprintf("eagle3: %d candidates of output row %d of %d", b.Top, i, b.Outs))
	}
	at := i * b.MaxTop
	for n < b.Top && b.TopProb[at+n] > 0 {
		tokens[n], probs[n] = d.ids[b.TopID[at+n]], b.TopProb[at+n]
		n++
	}
	return n
}

// Logits copies the logits of the first outs output rows to dst, [outs, DraftVocab]; TargetIDs maps their columns.
func (d *Drafter) Logits(dst []float32, outs int) {
	if outs > d.batch.Outs || len(dst) != outs*d.cfg.DraftVocab {
		panic(fmt.Sprintf("eagle3: %d floats for %d rows of logits; the batch has %d of %d", len(dst), outs, d.batch.Outs, d.cfg.DraftVocab))
	}
	d.dev.Read(d.out, outs, dst)
}

// LogitRow copies the logits of output row i of the last Run to dst, [DraftVocab].
func (d *Drafter) LogitRow(i int, dst []float32) {
	if i < 0 || i >= d.batch.Outs || len(dst) != d.cfg.DraftVocab {
		panic(fmt.Sprintf("eagle3: %d floats for output row %d; the batch has %d rows of %d", len(dst), i, d.batch.Outs, d.cfg.DraftVocab))
	}
	d.dev.ReadRow(d.out, i, dst)
}
