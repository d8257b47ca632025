package server

import (
	"net/http"
	"strconv"
	"time"

	"draftlab/engine/draft"
	"draftlab/engine/ledger"
	"draftlab/openai"
)

// cyclesDoc is the answer of /debug/cycles. Times are nanoseconds; a record's start counts from totals.since_unix_ns.
type cyclesDoc struct {
	Phases      []string            `json:"phases"`
	Totals      cycleTotals         `json:"totals"`
	Percentiles map[string]quantile `json:"percentiles"` // of a phase over the cycles that had it, within 1.6 %; "wall" and "other" over all
	Cycles      []cycleRecord       `json:"cycles"`
}

type quantile struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
}

// work is what sums and records have in common.
type work struct {
	Emitted        int64 `json:"emitted"`
	Drafted        int64 `json:"drafted"`
	Accepted       int64 `json:"accepted"`
	SequenceCycles int64 `json:"sequence_cycles"` // sequences that draft, summed over cycles
}

type cycleTotals struct {
	Seq          int64            `json:"seq"` // of the last record
	SinceUnix    int64            `json:"since_unix_ns"`
	Wall         int64            `json:"wall_ns"` // idle, off and the phases add up to it
	Idle         int64            `json:"idle_ns"`
	Off          int64            `json:"off_ns"` // while the ledger was switched off
	Cycles       int64            `json:"cycles"`
	DecodeCycles int64            `json:"decode_cycles"`
	VerifyCycles int64            `json:"verify_cycles"`
	Phase        map[string]int64 `json:"phase_ns"`
	DraftStep    []int64          `json:"draft_step_ns"`
	Other        map[string]int64 `json:"other_ns"`
	work
	Histogram []int64      `json:"accept_histogram"` // [n] sequence cycles that accepted n drafts
	ByShape   []shapeEntry `json:"by_shape"`
}

// shape is draft.Shape on the wire.
type shape struct {
	Steps       int  `json:"steps"`
	TopK        int  `json:"topk"`
	DraftTokens int  `json:"draft_tokens"`
	Mixed       bool `json:"mixed,omitempty"` // sequences of several shapes; the largest of each number
}

type shapeEntry struct {
	shape
	Batch   int   `json:"batch"`
	Cycles  int64 `json:"cycles"`
	Rows    int64 `json:"rows"`
	Context int64 `json:"context"` // positions before the roots, summed over sequences and cycles
	work
	Wall  int64            `json:"wall_ns"`
	Phase map[string]int64 `json:"phase_ns"`
}

type cycleRecord struct {
	Seq   int64  `json:"seq"`
	Start int64  `json:"start_ns"`
	Wall  int64  `json:"wall_ns"`
	Kind  string `json:"kind"` // cycle, idle or off; the latter two have nothing further
	*cycleWork
}

type cycleWork struct {
	Batch       int32 `json:"batch"`
	Rows        int32 `json:"rows"`
	PrefillRows int32 `json:"prefill_rows"`
	Context     int64 `json:"context"` // positions before the roots, summed over the batch
	shape
	Emitted        int32            `json:"emitted"`
	Drafted        int32            `json:"drafted"`
	SequenceCycles int32            `json:"sequence_cycles"`
	Accepted       []int64          `json:"accepted"` // [n] sequences that accepted n drafts
	Phase          map[string]int64 `json:"phase_ns"`
	DraftStep      []int64          `json:"draft_step_ns"` // [i] the drafter's pass i+2
	Other          map[string]int64 `json:"other_ns"`
}

// phaseNames are the keys of phase_ns, in the order of a cycle.
var phaseNames = func() (names []string) {
	for p := range ledger.Schedule {
		names = append(names, p.String())
	}
	return append(names, "other")
}()

// phaseMap is times by phase, those of a zero omitted.
func phaseMap(t *ledger.Times) map[string]int64 {
	m := map[string]int64{}
	for p, d := range t[:ledger.Schedule] {
		if d > 0 {
			m[phaseNames[p]] = d
		}
	}
	m["other"] = t.Other()
	return m
}

// otherMap is what "other" is made of.
func otherMap(t *ledger.Times) map[string]int64 {
	m := map[string]int64{}
	for p := ledger.Schedule; p < ledger.NumPhases; p++ {
		m[p.String()] = t[p]
	}
	return m
}

// histogram is counts up to the last that is not 0.
func histogram[T int64 | uint32](counts []T) []int64 {
	n := len(counts)
	for n > 0 && counts[n-1] == 0 {
		n--
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(counts[i])
	}
	return out
}

func shapeOf(s draft.Shape, mixed bool) shape { return shape{s.Steps, s.TopK, s.DraftTokens, mixed} }

// The records that /debug/cycles returns without a limit, and the most it does with one.
const (
	defaultCycles = 100
	maxCycles     = ledger.Size
)

// handleCycles answers /debug/cycles?limit=N&since=SEQ: the ledger's sums, and of its records the last N, or with since the first N
// after that number.
func (s *Server) handleCycles(w http.ResponseWriter, r *http.Request) {
	e := s.engine.Load()
	if e == nil {
		s.fail(w, unavailable("loading", "the model is loading"))
		return
	}
	limit, since := int64(defaultCycles), int64(-1)
	for name, values := range r.URL.Query() {
		var err *openai.Error
		switch name {
		case "limit":
			limit, err = queryNumber(name, values, maxCycles)
		case "since":
			since, err = queryNumber(name, values, 1<<62)
		default:
			err = openai.Invalid(openai.Clip(name), "unknown parameter %q: there are limit and since", openai.Clip(name))
		}
		if err != nil {
			s.fail(w, err)
			return
		}
	}
	l := (*e).Ledger()
	records := l.Read(since, int(limit)) // before the sums, which then cover them
	s.writeJSON(w, http.StatusOK, newCyclesDoc(l.Snapshot(), records, (*e).Info().ClockOrigin))
}

// queryNumber reads a parameter of a URL.
func queryNumber(name string, values []string, most int64) (int64, *openai.Error) {
	n, err := strconv.ParseInt(values[0], 10, 64)
	if len(values) > 1 || err != nil || n < 0 || n > most {
		return 0, openai.Invalid(name, "%s: want one whole number, 0 to %d", name, most)
	}
	return n, nil
}

func newCyclesDoc(sums *ledger.Snapshot, records []ledger.Record, origin time.Time) *cyclesDoc {
	doc := &cyclesDoc{Phases: phaseNames, Percentiles: map[string]quantile{}, Cycles: []cycleRecord{}}
	t := &sums.Totals
	doc.Totals = cycleTotals{
		Seq: t.Seq, SinceUnix: origin.UnixNano(), Wall: t.Wall, Idle: t.Idle, Off: t.Off,
		Cycles: t.Cycles, DecodeCycles: t.DecodeCycles, VerifyCycles: t.VerifyCycles,
		Phase: phaseMap(&t.Phase), Other: otherMap(&t.Phase), DraftStep: histogram(t.DraftPass[:]),
		work: work{t.Emitted, t.Drafted, t.Accepted, t.Drafting}, Histogram: histogram(t.AcceptedBy[:]), ByShape: []shapeEntry{},
	}
	for i := range sums.Shapes {
		b := &sums.Shapes[i]
		doc.Totals.ByShape = append(doc.Totals.ByShape, shapeEntry{
			shape: shapeOf(b.Shape, b.Mixed), Batch: b.Batch, Cycles: b.Cycles, Rows: b.Rows, Context: b.Context,
			work: work{b.Emitted, b.Drafted, b.Accepted, b.Drafting}, Wall: b.Wall, Phase: phaseMap(&b.Phase),
		})
	}
	add := func(name string, h *ledger.Histogram) {
		if h.Count > 0 {
			doc.Percentiles[name] = quantile{h.Quantile(.5), h.Quantile(.9), h.Quantile(.99)}
		}
	}
	for p := range sums.Phases {
		add(phaseNames[p], &sums.Phases[p])
	}
	add("other", &sums.Others)
	add("wall", &sums.Walls)
	for i := range records {
		doc.Cycles = append(doc.Cycles, newCycleRecord(&records[i]))
	}
	return doc
}

func newCycleRecord(r *ledger.Record) cycleRecord {
	c := cycleRecord{Seq: r.Seq, Start: r.Start, Wall: r.Wall, Kind: r.Kind.String()}
	if r.Kind != ledger.Cycle {
		return c
	}
	c.cycleWork = &cycleWork{
		Batch: r.Batch, Rows: r.Rows, PrefillRows: r.PrefillRows, Context: r.Context, shape: shapeOf(r.Shape, r.Mixed),
		Emitted: r.Emitted, Drafted: r.Drafted, SequenceCycles: r.Drafting, Accepted: histogram(r.AcceptedBy[:]),
		Phase: phaseMap(&r.Phase), DraftStep: append([]int64{}, r.DraftPass[:r.DraftPasses]...), Other: otherMap(&r.Phase),
	}
	return c
}
