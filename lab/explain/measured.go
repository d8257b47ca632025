package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"draftlab/lab/costmodel"
)

// leastCycles is how many cycles of a shape a ledger must have seen for their means to be used. With fewer the first
// cycles of requests, which are cold, weigh more than the rest.
const leastCycles = 20

// Read reads figures from any of three kinds of file: YAML as Parse describes it, a server's ledger as /debug/cycles of draftlab
// serve answers it, or the result.json of a campaign.
func Read(name string, source []byte) (*Case, error) {
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // some editors put it in front
	var probe struct {
		Totals   json.RawMessage `json:"totals"`
		Baseline json.RawMessage `json:"baseline"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(source), []byte("{")) || json.Unmarshal(source, &probe) != nil {
		return Parse(name, source)
	}
	var c *Case
	var err error
	switch {
	case probe.Totals != nil:
		c, err = fromLedger(source)
	case probe.Baseline != nil:
		c, err = fromCampaign(source)
	default:
		return Parse(name, source)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if p := c.check(); p != nil {
		return nil, fmt.Errorf("%s: %s: %s", name, p.path[2:], p.text)
	}
	return c, nil
}

func exactly(v float64) number { return number{value: v, known: true} }

func (c *Case) doubt(code, format string, a ...any) {
	c.doubts = append(c.doubts, costmodel.Doubt{Code: code, Text: fmt.Sprintf(format, a...)})
}

// ledgerShape is what a ledger has summed up over the cycles of one shape and batch.
type ledgerShape struct {
	Steps          int64              `json:"steps"`
	TopK           int64              `json:"topk"`
	DraftTokens    int64              `json:"draft_tokens"`
	Mixed          bool               `json:"mixed"`
	Batch          float64            `json:"batch"`
	Cycles         float64            `json:"cycles"`
	Rows           float64            `json:"rows"`
	Context        float64            `json:"context"`
	Accepted       float64            `json:"accepted"`
	SequenceCycles float64            `json:"sequence_cycles"`
	Wall           float64            `json:"wall_ns"`
	Phase          map[string]float64 `json:"phase_ns"`
}

// cycleMs is a cycle without the prompts that were read in between.
func (s *ledgerShape) cycleMs() float64 {
	return (s.Wall - s.Phase["prefill"] - s.Phase["prefill.draft"]) / s.Cycles / 1e6
}

func (s *ledgerShape) ms(phase string) number { return exactly(s.Phase[phase] / s.Cycles / 1e6) }

// fromLedger makes a case of a ledger's sums. The batch with most plain cycles is the case's.
func fromLedger(source []byte) (*Case, error) {
	var doc struct {
		Totals struct {
			Histogram []int64       `json:"accept_histogram"`
			ByShape   []ledgerShape `json:"by_shape"`
		} `json:"totals"`
	}
	if err := json.Unmarshal(source, &doc); err != nil {
		return nil, fmt.Errorf("the ledger: %w", err)
	}
	c := new(Case)
	plain, most := map[float64]float64{}, 0.0
	for _, s := range doc.Totals.ByShape {
		if s.Steps == 0 && !s.Mixed && s.Cycles >= leastCycles && s.cycleMs() > 0 {
			plain[s.Batch] = s.Batch / s.cycleMs() * 1000
			if s.Cycles > most {
				most, c.Batch, c.PlainTokS = s.Cycles, exactly(s.Batch), exactly(plain[s.Batch])
			}
		}
	}
	if most == 0 {
		return nil, fmt.Errorf("the ledger has fewer than %d cycles of plain decoding to compare with: let the server decode without drafts, too", leastCycles)
	}
	for _, s := range doc.Totals.ByShape {
		if s.Steps > 0 {
			c.addLedger(s, plain)
		}
	}
	if len(c.Arms) == 0 {
		return nil, fmt.Errorf("the ledger has no speculative shape with %d cycles or more at a batch at which it has plain decoding, too", leastCycles)
	}
	if a := &c.Arms[0]; len(c.Arms) == 1 && len(c.doubts) == 0 && a.TopK.value == 1 && len(doc.Totals.Histogram) > 1 {
		a.setHistogram(doc.Totals.Histogram)
	}
	return c, nil
}

// addLedger adds a speculative shape of a ledger, or says why not.
func (c *Case) addLedger(s ledgerShape, plain map[float64]float64) {
	name := costmodel.Shape{Steps: int(s.Steps), TopK: int(s.TopK), DraftTokens: int(s.DraftTokens), Batch: s.Batch}
	base, ok := plain[s.Batch]
	switch {
	case s.Mixed:
		c.doubt("mixed_shapes", "%g cycles held sequences of several shapes and were left out", s.Cycles)
		return
	case s.Cycles < leastCycles || s.SequenceCycles <= 0 || s.cycleMs() <= 0:
		c.doubt("few_cycles", "%v: only %g cycles, left out", name, s.Cycles)
		return
	case !ok:
		c.doubt("no_plain_at_batch", "%v: the ledger has no plain decoding at batch %g, left out", name, s.Batch)
		return
	}
	if rows := s.Rows / s.Cycles; math.Abs(rows/name.Rows()-1) > agree {
		c.doubt("rows_differ", "%v: a verification has %.2f rows on average, not %g, as drafts ended early", name, rows, name.Rows())
	}
	a := arm{
		Steps: whole{s.Steps, true}, TopK: whole{s.TopK, true}, DraftTokens: whole{s.DraftTokens, true}, Batch: exactly(s.Batch),
		Cycles: whole{int64(s.Cycles), true}, Context: exactly(s.Context / s.Cycles / s.Batch), CycleMs: exactly(s.cycleMs()),
		VerifyMs: s.ms("verify"), DraftMs: s.ms("draft"), AcceptMs: s.ms("accept"), ExtendMs: s.ms("draft_extend"), OtherMs: s.ms("other"),
		AcceptLength: exactly(1 + s.Accepted/s.SequenceCycles),
	}
	if s.Batch != c.Batch.value {
		a.PlainTokS = exactly(base)
	}
	c.Arms = append(c.Arms, a)
}

// setHistogram fits a histogram to the arm's depth; sequences without a draft count as none accepted.
func (a *arm) setHistogram(counts []int64) {
	if shape(a.Steps, a.TopK, a.DraftTokens, 1).Check() != nil {
		return // the check of the case will say so; a depth from a file sizes nothing before
	}
	a.AcceptHistogram = make([]whole, a.Steps.int()+1)
	for i := range a.AcceptHistogram {
		a.AcceptHistogram[i].known = true
		if i < len(counts) {
			a.AcceptHistogram[i].value = counts[i]
		}
	}
}
