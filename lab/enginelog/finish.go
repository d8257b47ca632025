package enginelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Report describes the lines so far. The summary can go on.
func (s *Summary) Report() *Report {
	r := &Report{Lines: s.lines, First: stamp(s.first), Last: stamp(s.last), Pressure: s.pressure, Decode: []Group{},
		Boots: []Boot{}, Faults: orEmpty(s.faults), Notices: orEmpty(s.notices), Requests: []Requests{}, Warnings: []string{}}
	switch {
	case s.sglang > s.vllm:
		r.Engine = "sglang"
	case s.vllm > 0:
		r.Engine = "vllm"
	case s.llamacpp > 0:
		r.Engine = "llama.cpp"
	}
	if text := s.idle(); text != "" {
		r.Warnings = append(r.Warnings, text)
	}
	r.Pressure.Queue, r.Pressure.Usage = s.queue.dist(), s.usage.dist()
	if s.prompts.Lines > 0 {
		p := s.prompts
		p.HitRate = p.Cached / max(1, p.New+p.Cached)
		p.Throughput = s.promptRate.dist()
		r.Prefill = &p
	}
	for _, ranks := range slices.Sorted(maps.Keys(s.groups)) {
		if g := s.groups[ranks]; g.Lines > 0 || len(g.iteration) > 0 || len(g.accept) > 0 {
			r.Decode = append(r.Decode, g.report())
			r.Warnings = append(r.Warnings, g.warnings()...)
		}
	}
	for i := range s.boots {
		r.Boots = append(r.Boots, s.boots[i].report())
	}
	for key, n := range s.requests {
		key.Count = n
		r.Requests = append(r.Requests, key)
	}
	slices.SortFunc(r.Requests, func(a, b Requests) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Request, b.Request), cmp.Compare(a.Status, b.Status))
	})
	if r.Engine == "vllm" && len(r.Decode) > 0 {
		r.Warnings = append(r.Warnings, "vLLM's throughput is of an interval and its running requests of one moment: cycle times are rough where load changes")
	}
	return r
}

func orEmpty(m []Message) []Message { return append([]Message{}, m...) }

// stamp writes a time as the logs do, without a year where there is none.
func stamp(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Year() == 0:
		return t.Format("01-02 15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// unsteady reports that the group's every line follows a rest.
func (g *group) unsteady() bool { return len(g.rate) == 0 && len(g.allRate) > 0 }

func (g *group) report() Group {
	out := g.Group
	rate, cycle, plain := g.rate, g.cycle, g.plain
	if g.unsteady() {
		rate, cycle, plain, out.AfterRest = g.allRate, g.allCycle, g.allPlain, 0
	}
	out.AcceptLength, out.Running, out.Iteration = g.accept.dist(), g.running.dist(), g.iteration.dist()
	out.Throughput, out.Cycle, out.Plain = rate.dist(), cycle.dist(), plain.dist()
	out.ByContext = g.reach.report()
	return out
}

// warnings says what the reader of the group's figures must know.
func (g *group) warnings() (out []string) {
	name := ""
	if g.Ranks != "" {
		name = g.Ranks + ": "
	}
	if g.unsteady() {
		out = append(out, name+"every decode line follows a rest of the server, so throughput and cycle time include pauses and prefill: send longer outputs or a steady load")
	}
	if g.WithoutGraph > 0 {
		out = append(out, fmt.Sprintf("%s%d of %d decode batches that say so ran without a CUDA graph: raise the largest graph's batch size, or find out why capture is off", name, g.WithoutGraph, g.GraphStated))
	}
	if text := g.acceptance(); text != "" {
		out = append(out, name+text)
	}
	if text := fall(g.reach.report()); text != "" {
		out = append(out, name+text)
	} else if text := g.decline(); text != "" {
		out = append(out, name+text)
	}
	if text := g.gaps(); text != "" {
		out = append(out, name+text)
	}
	return out
}

const (
	// useless is the accept length up to which a drafter does nothing: one at random stays below, one that works at all is above 1.2.
	useless = 1.05
	// lowFirst is the acceptance of first drafts below which wiring is suspected: drafters that got the wrong layers' states had 10 to 30 %, the
	// same drafters with the right ones 45 % and more.
	lowFirst = 0.35
)

// acceptance says what is conspicuous about how many drafts are accepted, "" if nothing is.
func (g *group) acceptance() string {
	d := g.accept.dist()
	if d == nil || d.N < 3 {
		return ""
	}
	first, atMost := d.P50-1, "at most " // the acceptance of first drafts is one of the shares that an accept length sums up
	if x := g.first.dist(); x != nil {
		first, atMost = x.P50, ""
	}
	switch {
	case d.P90 <= useless:
		return fmt.Sprintf("the accept length is %.2f: drafts are hardly ever accepted. Is the drafter one for this target, under the right algorithm name (an EAGLE-3 head runs as EAGLE without an error, at 1.00), and does it get the states of the right layers? draftlab doctor measures that", d.P50)
	case first < lowFirst:
		return fmt.Sprintf("only %s%.0f %% of first drafts are accepted, which for a trained drafter looks like a wiring fault (layers, positions, vocabulary map, chat template); look-up in the text is often no better. draftlab doctor measures the wiring", atMost, 100*first)
	}
	return ""
}

const (
	// third is the number of values that a third of a log must have for its ends to be compared.
	third = 30
	// worn is the share of accepted drafts that is left at a log's end when it is called a decline.
	worn = 0.8
)

// decline says that fewer drafts are accepted at the end of a log than at its beginning, "" if not.
func (g *group) decline() string {
	n := len(g.accept) / 3
	if n < third {
		return ""
	}
	first, last := g.accept[:n].dist().P50, g.accept[len(g.accept)-n:].dist().P50
	if first-1 < 0.1 || last-1 >= worn*(first-1) {
		return ""
	}
	return fmt.Sprintf("the accept length declines over the log: %.2f in its first third, %.2f in its last. Unless the requests became others or longer, the drafter's part of the key/value cache is suspect "+
		"(reused prefixes, a sequence beyond the drafter's length): does a restart bring it back?", first, last)
}

// gaps says that vLLM accepted nothing in some of its intervals, where it did well in others.
func (g *group) gaps() string {
	none := 0
	for _, x := range g.accept {
		if x <= noDraft {
			none++
		}
	}
	if g.first == nil || g.drafted > 0 || none < 3 || 10*none > 9*len(g.accept) {
		return ""
	}
	return fmt.Sprintf("in %d of %d intervals no draft was accepted, and in the others they were: vLLM stops drafting for all requests while one is longer than the drafter's max_model_len, and goes on verifying "+
		"(its issue 58080). Compare max_position_embeddings of the drafter with the lengths of requests", none, len(g.accept))
}

// noDraft is the accept length up to which an interval of some hundred cycles had no draft that was meant.
const noDraft = 1.01
