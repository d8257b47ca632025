package profile

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"draftlab/lab/scrape"
	"draftlab/lab/stats"
)

// counterSource watches a server that has counters and gauges only.
type counterSource struct {
	conn   *conn
	engine *engine
	whole  bool

	first, last *scrape.Metrics
	began, now  time.Time
	shape       *Shape
	traceDir    string
	// Time-weighted sums over the intervals between polls, an interval taken as the mean of its ends.
	busy, running float64 // seconds with requests; sequence seconds
	wasRunning    float64
	accept, cycle []float64 // of polls while requests ran: the gauges' accept length, and the cycle time that follows from them, ms
}

// Poll reads the metrics.
func (s *counterSource) Poll(ctx context.Context, now time.Time) error {
	m, err := fetchMetrics(ctx, s.conn)
	if err != nil {
		return err
	}
	running, _ := m.Sum(s.engine.running)
	if s.last == nil {
		s.began = now
		if !s.whole {
			s.first = m
		}
		s.readShape(ctx)
	} else {
		dt := now.Sub(s.now).Seconds()
		s.running += dt * (running + s.wasRunning) / 2
		s.busy += dt * (min(running, 1) + min(s.wasRunning, 1)) / 2
	}
	s.last, s.now, s.wasRunning = m, now, running
	s.gauges(m, running)
	return nil
}

// gauges keeps what SGLang says of its last interval.
func (s *counterSource) gauges(m *scrape.Metrics, running float64) {
	accept, ok := m.Max(s.engine.acceptLength)
	if !ok || accept < 1 || running < 1 {
		return
	}
	keepFloat(&s.accept, accept)
	if rate, ok := m.Sum(s.engine.throughput); ok && rate > 0 {
		keepFloat(&s.cycle, 1e3*accept*running/rate)
	}
}

func keepFloat(list *[]float64, x float64) {
	if len(*list) == maxCycles {
		*list = append((*list)[:0], (*list)[maxCycles/2:]...)
	}
	*list = append(*list, x)
}

// readShape asks SGLang how it drafts. Others show it in their counters, or not at all.
func (s *counterSource) readShape(ctx context.Context) {
	if s.engine.name != "sglang" {
		return
	}
	for _, path := range []string{"/server_info", "/get_server_info"} {
		var info struct {
			Steps       *int `json:"speculative_num_steps"`
			TopK        *int `json:"speculative_eagle_topk"`
			DraftTokens *int `json:"speculative_num_draft_tokens"`
		}
		if s.conn.getJSON(ctx, path, &info) == nil {
			if info.Steps != nil && info.TopK != nil && info.DraftTokens != nil {
				s.shape = &Shape{*info.Steps, *info.TopK, *info.DraftTokens}
			}
			return
		}
	}
}

// delta is how much a counter has grown; false if the server does not have it.
func (s *counterSource) delta(name string) (float64, bool) {
	if name == "" {
		return 0, false
	}
	now, ok := s.last.Sum(name)
	if !ok {
		return 0, false
	}
	if s.first != nil {
		then, _ := s.first.Sum(name)
		now -= then
	}
	return max(0, now), true // a counter that shrinks is a server started anew
}

// observed is how many values a histogram has taken in, and their sum; zeros if the server does not have it or has started anew.
func (s *counterSource) observed(name string) (count, sum float64) {
	count, sum, _ = s.last.Observed(name)
	if s.first != nil {
		n, v, _ := s.first.Observed(name)
		count, sum = count-n, sum-v
	}
	if count <= 0 || sum <= 0 {
		return 0, 0
	}
	return count, sum
}

// deltaBy is the growth of a counter by one of its labels; of several ranks that count the same the one with the most.
func (s *counterSource) deltaBy(name, label string) map[string]float64 {
	then := map[string]float64{}
	if s.first != nil {
		for _, v := range s.first.Samples(name) {
			then[fmt.Sprint(v.Labels)] = v.Value // maps print sorted
		}
	}
	out := map[string]float64{}
	for _, v := range s.last.Samples(name) {
		out[v.Labels[label]] = max(out[v.Labels[label]], v.Value-then[fmt.Sprint(v.Labels)])
	}
	return out
}

// output is the number of output tokens.
func (s *counterSource) output() (float64, bool) {
	for _, name := range s.engine.output {
		if by := s.deltaBy(name, "mode"); len(by) > 0 && by["decode"] > 0 {
			return by["decode"], true
		}
		if n, ok := s.delta(name); ok && len(s.last.Samples(name)) > 0 && s.last.Samples(name)[0].Labels["mode"] == "" {
			return n, true
		}
	}
	return 0, false
}

// Progress is the number of cycles of sequences, or of output tokens where none are counted.
func (s *counterSource) Progress() int64 {
	if n, ok := s.delta(s.engine.drafts); ok {
		return int64(n)
	}
	n, _ := s.output()
	return int64(n)
}

// Report describes what the metrics allow.
func (s *counterSource) Report() *Report {
	if s.last == nil {
		return nil
	}
	r := &Report{Engine: s.engine.name, URL: s.conn.base, Seconds: s.now.Sub(s.began).Seconds(), Phases: []Phase{}, Other: []Phase{},
		Missing: slices.Clone(s.engine.missing), Warnings: []string{}, Shape: s.shape}
	if s.whole {
		r.Warnings = append(r.Warnings, "of the server's whole life: rates need watching")
	} else {
		r.BusySeconds = ptr(s.busy)
	}
	drafts, counted := s.delta(s.engine.drafts)
	if counted {
		r.SeqCycles = ptr(int64(drafts))
	}
	if s.busy > 0 {
		r.Batch = ptr(s.running / s.busy)
		if n, ok := s.output(); ok {
			r.TokS = ptr(n / s.busy)
		}
	}
	survival := s.acceptance(r, drafts)
	s.cycleTime(r, drafts)
	s.phases(r)
	s.conclude(r, survival)
	return r
}

// acceptance fills in the accept length, and returns the share of cycles that accepted more than i drafts.
func (s *counterSource) acceptance(r *Report, drafts float64) (survival []float64) {
	if accepted, ok := s.delta(s.engine.accepted); ok && drafts > 0 {
		r.AcceptLength = ptr(1 + accepted/drafts)
		by := s.deltaBy(s.engine.perPosition, "position")
		for i := 0; ; i++ {
			n, ok := by[strconv.Itoa(i)]
			if !ok {
				break
			}
			survival = append(survival, n/drafts)
		}
		if len(survival) > 0 {
			r.Shape = &Shape{Steps: len(survival), TopK: 1, DraftTokens: len(survival) + 1}
		}
	} else if len(s.accept) > 0 {
		r.AcceptLength = ptr(stats.Mean(s.accept))
	}
	if r.AcceptLength == nil {
		r.Missing = append(r.Missing, "the accept length: no speculation was seen while watching")
	}
	return survival
}

// cycleTime fills in the time of a cycle: the time that a sequence waits from one draft to the next.
func (s *counterSource) cycleTime(r *Report, drafts float64) {
	var ms, p50 float64
	gaps, waited := s.observed(s.engine.gaps)
	generating, ok := s.delta(s.engine.generating)
	switch {
	case gaps > 0:
		ms = 1e3 * waited / gaps
	case ok && drafts > 0:
		ms = 1e3 * generating / drafts
	case len(s.cycle) > 0:
		ms, p50 = stats.Mean(s.cycle), stats.Median(s.cycle)
	case drafts > 0 && s.running > 0:
		ms = 1e3 * s.running / drafts
	}
	if ms <= 0 {
		return
	}
	r.Cycle = &Phase{Name: "wall", MeanMs: ptr(ms), TotalMs: 1e3 * s.busy, Share: 1}
	if _, drafting := s.last.Sum(s.engine.drafts); gaps > 0 && !drafting {
		r.PlainStepMs = ptr(ms)
	}
	if p50 > 0 { // of the server's intervals, not of single cycles
		r.Warnings = append(r.Warnings, fmt.Sprintf("the cycle's time is accept length × running / throughput of the server's own intervals, median %.2f ms", p50))
	}
}

// phases fills in SGLang's times, and what of the busy time they leave.
func (s *counterSource) phases(r *Report) {
	if s.engine.phases == "" {
		return
	}
	by := s.deltaBy(s.engine.phases, "category")
	if len(by) == 0 {
		r.Missing = append(r.Missing, noDeviceTimer)
		return
	}
	var sum float64
	for name, seconds := range by {
		if name != "idle" {
			sum += seconds
		}
	}
	busy := max(s.busy, sum) // polls see the ends of the busy time only roughly
	add := func(name string, seconds float64) {
		p := Phase{Name: name, TotalMs: 1e3 * seconds, Share: seconds / busy}
		if r.Cycle != nil {
			p.MeanMs = ptr(p.Share * *r.Cycle.MeanMs)
		}
		r.Phases = append(r.Phases, p)
	}
	if busy <= 0 {
		return
	}
	for _, c := range categories {
		if by[c.theirs] > 0 {
			add(c.ours, by[c.theirs])
		}
	}
	if rest := s.busy - sum; rest > 0 && !s.whole {
		add("other", rest)
	}
}

// conclude says what follows.
func (s *counterSource) conclude(r *Report, survival []float64) {
	if r.Cycle == nil || r.AcceptLength == nil {
		return
	}
	f := &Facts{CycleMs: *r.Cycle.MeanMs, AcceptLength: *r.AcceptLength, Survival: survival}
	if r.Batch != nil {
		f.Batch = *r.Batch
	}
	if r.Shape != nil {
		f.Steps, f.TopK, f.DraftTokens = r.Shape.Steps, r.Shape.TopK, r.Shape.DraftTokens
	}
	for _, p := range r.Phases {
		if p.MeanMs != nil && p.Name != "idle" {
			f.Phases = append(f.Phases, Part{p.Name, *p.MeanMs})
		}
	}
	if s.conn.plainMs > 0 {
		f.PlainMs, r.PlainStepMs = s.conn.plainMs, ptr(s.conn.plainMs)
	} else {
		r.Missing = append(r.Missing, "a plain step's time: this server speculates in every cycle; measure plain decoding in another start, and give it with --plain")
	}
	r.WhatIf, r.Basis = WhatIf(f), "the server's counters while it was watched"
	if s.whole {
		r.Basis = "the server's counters since its start"
	}
}
