package ledger

import "draftlab/engine/draft"

// Phase is what the loop is doing.
type Phase uint8

// The phases of an iteration (design: the speculative cycle). Schedule, Bookkeeping and Stream are the parts of "other".
const (
	Prefill      Phase = iota // target pass over prompt rows
	PrefillDraft              // the drafter's part of it
	Decode                    // target pass without draft rows
	Draft                     // drafter passes 2…K and the tree
	Verify                    // target pass with draft rows
	Accept                    // sampling, walk, cache moves
	DraftExtend               // drafter pass over the verified rows, the first draft included
	Schedule                  // taking requests in, planning
	Bookkeeping               // the scheduler's report, blocks, counters
	Stream                    // handing tokens to readers, who turn them into text on goroutines of their own
	NumPhases

	idle // a rest, or an iteration that found nothing to run
	off  // the ledger was switched off
)

var phaseNames = [NumPhases]string{"prefill", "prefill.draft", "decode", "draft", "verify", "accept", "draft_extend", "schedule", "bookkeeping", "stream"}

// String returns the phase's name in logs, metrics and JSON.
func (p Phase) String() string { return phaseNames[p] }

// Other reports whether the phase is a part of "other".
func (p Phase) Other() bool { return p >= Schedule }

// Times are nanoseconds by phase.
type Times [NumPhases]int64

// Other returns the sum of Schedule, Bookkeeping and Stream.
func (t *Times) Other() int64 { return t[Schedule] + t[Bookkeeping] + t[Stream] }

// Add adds the times of o.
func (t *Times) Add(o *Times) {
	for p, d := range o {
		t[p] += d
	}
}

// Sum returns the sum of all phases.
func (t *Times) Sum() (n int64) {
	for _, d := range t {
		n += d
	}
	return n
}

// Kind is what a record is about.
type Kind uint8

// The kinds of records. Idle and Off have no phases: their wall time is all there is.
const (
	Cycle Kind = iota // an iteration of the scheduler that ran something
	Idle              // a rest between two of them
	Off               // a time in which the ledger was switched off
)

// String returns the kind's name in JSON.
func (k Kind) String() string { return [...]string{"cycle", "idle", "off"}[k] }

// MaxDraftPasses is the number of the drafter's passes in a cycle that a record tells apart; further ones count as the last. Published
// settings go up to 10 steps, which have 9 such passes.
const MaxDraftPasses = 16

// Work is what a cycle ran.
type Work struct {
	Batch       int32       // sequences in the decode or verify pass
	Rows        int32       // rows of that pass, roots included
	PrefillRows int32       // rows of the prefill pass
	Context     int64       // positions before the roots, summed over Batch
	Shape       draft.Shape // what the sequences ask for; where they differ, the largest of each number
	Mixed       bool        // they differ
	Drafting    int32       // sequences that draft, whether or not they had a draft in this cycle
	Drafted     int32       // drafted tokens that were verified
	Accepted    int32       // and accepted and emitted
	Emitted     int32       // output tokens of the decode or verify pass; the token that a prompt's last row gives is not among them

	AcceptedBy [draft.MaxNodes]uint32 // [n] sequences that draft and accepted n
}

// Sequence counts in a sequence of the decode or verify pass: its shape, rows and the positions before them.
func (w *Work) Sequence(shape draft.Shape, rows, context int) {
	if w.Batch > 0 && w.Shape != shape {
		w.Mixed = true
		shape = draft.Shape{Steps: max(w.Shape.Steps, shape.Steps), TopK: max(w.Shape.TopK, shape.TopK), DraftTokens: max(w.Shape.DraftTokens, shape.DraftTokens)}
	}
	w.Shape = shape
	w.Batch++
	w.Rows += int32(rows)
	w.Context += int64(context)
}

// Accept counts what a sequence's rows gave: emitted tokens and, if it drafts, how many drafted ones there were and how many of
// them were accepted.
func (w *Work) Accept(emitted int, drafts bool, drafted, accepted int) {
	w.Emitted += int32(emitted)
	if drafts {
		w.Drafting++
		w.Drafted += int32(drafted)
		w.Accepted += int32(accepted)
		w.AcceptedBy[accepted]++
	}
}

// Record is one entry of the ledger. The phases add up to Wall if Kind is Cycle and are 0 otherwise; Start plus Wall is the next
// record's Start. Times are nanoseconds, Start since the ledger's origin.
type Record struct {
	Seq         int64 // from 1, without gaps
	Start, Wall int64
	Kind        Kind
	Work
	Phase Times
	// DraftPass is the time of the drafter's passes within Draft, each with taking its candidates and gathering the rows that follow. What
	// Draft has beyond them is the making of the tree.
	DraftPass   [MaxDraftPasses]int64
	DraftPasses int8
}
