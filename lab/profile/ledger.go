package profile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"draftlab/lab/stats"
)

// cyclesDoc is what /debug/cycles answers. Times are nanoseconds.
type cyclesDoc struct {
	Phases      []string                    `json:"phases"`
	Totals      totals                      `json:"totals"`
	Percentiles map[string]map[string]int64 `json:"percentiles"`
	Cycles      []record                    `json:"cycles"`
}

// totals are sums since the server's start.
type totals struct {
	Seq            int64            `json:"seq"`
	WallNS         int64            `json:"wall_ns"`
	IdleNS         int64            `json:"idle_ns"`
	OffNS          int64            `json:"off_ns"`
	Cycles         int64            `json:"cycles"`
	PhaseNS        map[string]int64 `json:"phase_ns"`
	OtherNS        map[string]int64 `json:"other_ns"`
	Emitted        int64            `json:"emitted"`
	Accepted       int64            `json:"accepted"`
	SequenceCycles int64            `json:"sequence_cycles"`
	Histogram      []int64          `json:"accept_histogram"`
	ByShape        []byShape        `json:"by_shape"`
}

// shapeKey tells apart cycles that may be averaged.
type shapeKey struct {
	Steps       int  `json:"steps"`
	TopK        int  `json:"topk"`
	DraftTokens int  `json:"draft_tokens"`
	Mixed       bool `json:"mixed"`
	Batch       int  `json:"batch"`
}

// byShape are the sums over cycles of one shape and batch size.
type byShape struct {
	shapeKey
	Cycles         int64            `json:"cycles"`
	Accepted       int64            `json:"accepted"`
	SequenceCycles int64            `json:"sequence_cycles"`
	WallNS         int64            `json:"wall_ns"`
	PhaseNS        map[string]int64 `json:"phase_ns"`
}

// record is one cycle, or idle time.
type record struct {
	Seq     int64            `json:"seq"`
	Kind    string           `json:"kind"`
	WallNS  int64            `json:"wall_ns"`
	PhaseNS map[string]int64 `json:"phase_ns"`
	shapeKey
}

// shapeTimes are the times of the cycles of one shape that had no prompt rows, in ms.
type shapeTimes struct {
	walls  []float64
	phases map[string][]float64
}

// pageSize is how many records are asked for at once: a second of a fast model, in half a megabyte.
const pageSize = 1000

// fetchCycles asks for up to limit records after since; since -1 asks for the last ones.
func fetchCycles(ctx context.Context, c *conn, since int64, limit int) (*cyclesDoc, error) {
	path := fmt.Sprintf("/debug/cycles?limit=%d", limit)
	if since >= 0 {
		path += fmt.Sprintf("&since=%d", since)
	}
	var doc cyclesDoc
	if err := c.getJSON(ctx, path, &doc); err != nil {
		return nil, err
	}
	return &doc, nil
}

// ledgerSource watches draftlab's own server.
type ledgerSource struct {
	conn  *conn
	whole bool

	phases      []string
	base, last  totals
	percentiles map[string]map[string]int64 // the server's own, since its start
	polled      bool
	began, now  time.Time
	seq         int64                // of the last record read
	walls       []float64            // ms, of the cycles seen
	times       map[string][]float64 // ms by phase, of the cycles that had it
	shapes      map[shapeKey]*shapeTimes
	lost        int64 // records that were overwritten before they were read
}

// maxCycles bounds the cycles whose times are kept for percentiles: hours. Beyond it the older half is forgotten.
const maxCycles = 1 << 20

// Poll reads the sums, and the records since the last call.
func (s *ledgerSource) Poll(ctx context.Context, now time.Time) error {
	if !s.polled {
		doc, err := fetchCycles(ctx, s.conn, -1, 0)
		if err != nil {
			return err
		}
		s.polled, s.began, s.now, s.times, s.shapes = true, now, now, map[string][]float64{}, map[shapeKey]*shapeTimes{}
		s.phases, s.last, s.percentiles, s.seq = doc.Phases, doc.Totals, doc.Percentiles, doc.Totals.Seq
		if !s.whole {
			s.base = doc.Totals
		}
		return nil
	}
	for {
		doc, err := fetchCycles(ctx, s.conn, s.seq, pageSize)
		if err != nil {
			return err
		}
		if doc.Totals.Seq < s.seq {
			return fmt.Errorf("%s was started anew: its ledger begins again", s.conn.base)
		}
		s.last, s.percentiles, s.now = doc.Totals, doc.Percentiles, now
		before := s.seq
		for i := range doc.Cycles {
			s.add(&doc.Cycles[i])
		}
		if len(doc.Cycles) < pageSize || s.seq == before { // the latter is no ledger's answer, and would go on for ever
			return nil
		}
	}
}

// add keeps the times of a cycle.
func (s *ledgerSource) add(r *record) {
	if r.Seq <= s.seq {
		return // read already
	}
	s.lost += r.Seq - s.seq - 1
	s.seq = r.Seq
	if r.Kind != "cycle" {
		return
	}
	keep(&s.walls, r.WallNS)
	own := s.shape(r)
	if own != nil {
		keep(&own.walls, r.WallNS)
	}
	for _, name := range s.phases {
		ns := r.PhaseNS[name] // a phase that a cycle does not have is left out of its record
		if ns > 0 {
			keepIn(s.times, name, ns)
		}
		if own != nil {
			keepIn(own.phases, name, ns)
		}
	}
}

// maxShapes bounds how many shapes and batch sizes have times of their own.
const maxShapes = 64

// shape is where the times of a cycle's shape are kept; nil if the cycle is not like others of its shape.
func (s *ledgerSource) shape(r *record) *shapeTimes {
	if r.Mixed || r.PhaseNS["prefill"] > 0 {
		return nil
	}
	own := s.shapes[r.shapeKey]
	if own == nil && len(s.shapes) < maxShapes {
		own = &shapeTimes{phases: map[string][]float64{}}
		s.shapes[r.shapeKey] = own
	}
	return own
}

func keepIn(lists map[string][]float64, name string, ns int64) {
	list := lists[name]
	keep(&list, ns)
	lists[name] = list
}

func keep(list *[]float64, ns int64) {
	if len(*list) == maxCycles {
		*list = append((*list)[:0], (*list)[maxCycles/2:]...)
	}
	*list = append(*list, float64(ns)/1e6)
}

// Progress is the number of cycles since the first call of Poll.
func (s *ledgerSource) Progress() int64 { return s.last.Cycles - s.base.Cycles }

// Report describes what the ledger shows.
func (s *ledgerSource) Report() *Report {
	if !s.polled {
		return nil
	}
	d := s.diff()
	cycles := d.Cycles
	busy := float64(d.WallNS-d.IdleNS-d.OffNS) / 1e9
	r := &Report{Engine: "draftlab", URL: s.conn.base, Seconds: float64(d.WallNS) / 1e9, BusySeconds: ptr(busy), Cycles: &cycles, SeqCycles: ptr(d.SequenceCycles),
		Accepted: d.Histogram, Phases: []Phase{}, Other: []Phase{}, Missing: []string{}, Warnings: []string{}}
	if !s.whole { // the idle time that still runs has no record yet
		r.Seconds = s.now.Sub(s.began).Seconds()
	}
	if d.SequenceCycles > 0 {
		r.AcceptLength = ptr(1 + float64(d.Accepted)/float64(d.SequenceCycles))
	}
	if busy > 0 {
		r.TokS = ptr(float64(d.Emitted) / busy)
	}
	if cycles > 0 {
		r.Cycle = ptr(s.phase("wall", s.walls, d.WallNS-d.IdleNS-d.OffNS, cycles, busy))
		for _, name := range s.phases {
			if ns := d.PhaseNS[name]; ns > 0 {
				r.Phases = append(r.Phases, s.phase(name, s.times[name], ns, cycles, busy))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(d.OtherNS)) {
			p := s.phase(name, nil, d.OtherNS[name], cycles, busy)
			p.P50Ms, p.P90Ms, p.P99Ms = nil, nil, nil
			r.Other = append(r.Other, p)
		}
	}
	s.conclude(r, d)
	if s.lost > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d records were overwritten before they were read: percentiles are of the others, sums of all", s.lost))
	}
	if d.OffNS > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the ledger was switched off for %.1f s", float64(d.OffNS)/1e9))
	}
	return r
}

// phase describes one part: its percentiles from the cycles seen, or from the server where all since its start counts.
func (s *ledgerSource) phase(name string, times []float64, totalNS, cycles int64, busy float64) Phase {
	p := Phase{Name: name, TotalMs: float64(totalNS) / 1e6, MeanMs: ptr(float64(totalNS) / 1e6 / float64(cycles))}
	if busy > 0 {
		p.Share = float64(totalNS) / 1e9 / busy
	}
	if s.whole {
		if q := s.percentiles[name]; q != nil {
			p.P50Ms, p.P90Ms, p.P99Ms = ptr(float64(q["p50"])/1e6), ptr(float64(q["p90"])/1e6), ptr(float64(q["p99"])/1e6)
		}
	} else if len(times) > 0 {
		p.P50Ms, p.P90Ms, p.P99Ms = ptr(stats.Median(times)), ptr(stats.Quantile(times, .9)), ptr(stats.Quantile(times, .99))
	}
	return p
}
