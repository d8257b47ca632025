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
	case s.draftlab:
		r.Engine = "draftlab"
	case s.sglang > s.vllm:
		r.Engine = "sglang"
	case s.vllm > 0:
		r.Engine = "vllm"
	case s.llamacpp > 0:
		r.Engine = "llama.cpp"
	}
	for _, text := range []string{s.idle(), s.starved()} {
		if text != "" {
			r.Warnings = append(r.Warnings, text)
		}
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
			r.Warnings = append(r.Warnings, g.warnings(s.lookup)...)
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

// passesALine is how many passes SGLang's decode line stands for unless told otherwise; a prefill line stands for one.
const passesALine = 40

// starved says that SGLang's decoding waits for prompts, "" if it does not. Where nothing runs nobody waits: servers that only take prompts in.
func (s *Summary) starved() string {
	var decode int64
	for _, g := range s.groups {
		decode += g.Lines
	}
	if s.sglang == 0 || s.waited < 100 || s.waited <= passesALine*decode {
		return ""
	}
	return fmt.Sprintf("%d prefill passes while requests ran, against some %d of decoding: prompts go first, and running requests wait for them, drafts or not (SGLang's issue 32549). A smaller chunked-prefill-size makes waits shorter; fewer requests, "+
		"or prefill on servers of its own, make them fewer", s.waited, passesALine*decode)
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

// warnings says what the reader of the group's figures must know. lookup is that drafts are looked up in the text: many cycles have none, and no drafter
// can be wired wrongly.
func (g *group) warnings(lookup bool) (out []string) {
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
	if text := g.acceptance(); text != "" && !lookup {
		out = append(out, name+text)
	}
	if text := g.reach.fall(); text != "" {
		out = append(out, name+text)
	} else if text := g.decline(); text != "" {
		out = append(out, name+text)
	}
	if text := g.gaps(); text != "" {
		out = append(out, name+text)
	}
	return out
}
