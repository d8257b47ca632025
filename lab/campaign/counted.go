package campaign

import (
	"draftlab/lab/client"
	"draftlab/lab/trial"
)

// count fills in what an answer does not tell, and the server's counters around it or plain arithmetic do. SGLang's answers to chats say
// nothing of drafts before mid-2026; its counter of verifications does, and what was written beyond a token each was accepted, but for the token that the
// prompt's pass gives. A draft that reaches beyond the last token counts as refused. Like the ledger, the counts of requests that ran at
// once stand with the first one; their passes are not told apart.
func (t *turn) count(k trial.Knobs) {
	tokens, n := 0, len(t.trials)
	if s := t.trials[0].Sample; n == 1 && s.Error == "" && s.Spec != nil && s.DecodeSteps == 0 {
		s.DecodeSteps = int(s.Spec.Cycles) // each is a pass, and there are no others
	}
	for _, x := range t.trials {
		if x.Sample.Error != "" || x.Sample.Spec != nil || x.Sample.DecodeSteps > 0 {
			return
		}
		tokens += x.Sample.OutputTokens - 1
	}
	first := t.trials[0]
	switch {
	case tokens < 1:
	case k.Plain():
		if n == 1 {
			first.Sample.DecodeSteps = tokens
		}
	case first.Ledger != nil && first.Ledger.Cycles > 0:
		cycles := first.Ledger.Cycles
		if cycles > int64(tokens) || cycles*int64(k.Steps+1) < int64(tokens) {
			return // counted late, or of other requests, too
		}
		first.Sample.Spec = &client.Speculation{Cycles: cycles, Drafted: cycles * int64(k.DraftTokens-1), Accepted: int64(tokens) - cycles}
		if n == 1 {
			first.Sample.DecodeSteps = int(cycles)
		}
	}
}
