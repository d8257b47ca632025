// Package trace collects what an engine does in a window of time and writes it as Chrome's trace events, which Perfetto
// (ui.perfetto.dev) and chrome://tracing show: tracks of cycles, phases and draft steps, one of each worker, and the requests.
//
// A [Trace] is filled by the engine's loop and then written by whoever asked for it. It reads no clock: times are nanoseconds since the
// origin of the device's clock. The format is described in "Trace Event Format" (Google, 2016).
package trace

import (
	"draftlab/engine/compute"
	"draftlab/engine/ledger"
)

// maxEvents bounds the memory of a trace: some 100 MB, or a quarter of an hour of a small model's cycles. What is beyond is counted.
const maxEvents = 1 << 20

// Trace is a window of an engine's life.
type Trace struct {
	first    int64 // step from which on cycles are recorded
	left     int   // cycles that are still to record; negative for no limit
	events   []event
	requests []Request
	dropped  int64
	cycles   int64

	begin, end int64
	done       chan struct{}
}

// event is something on a track of its own thread.
type event struct {
	process  process
	thread   int32
	name     string
	from, to int64
	args     any
}

// Request is the life of a request, or of what there was of it when the trace ended. Times of what has not come are 0.
type Request struct {
	ID                                 int64 // in the order of arrival
	Prompt, Cached, Output             int   // tokens
	Accepted, Cycles                   int64 // of drafts
	Preempted                          int
	Finish                             string // "" while it runs
	Submitted, Started, First, Decoded int64  // the last is the end
}

// cycleArgs are the details of a cycle.
type cycleArgs struct {
	Step        int64  `json:"step"`
	Batch       int32  `json:"batch"`
	Rows        int32  `json:"rows"`
	PrefillRows int32  `json:"prefill_rows"`
	Context     int64  `json:"context"`
	Shape       string `json:"shape"`
	Drafted     int32  `json:"drafted"`
	Accepted    int32  `json:"accepted"`
	Emitted     int32  `json:"emitted"`
}

// New returns a trace that begins at a time and takes the given number of cycles (0 for no limit) from a step on.
func New(begin, first int64, cycles int) *Trace {
	t := &Trace{begin: begin, end: begin, first: first, left: cycles, done: make(chan struct{})}
	if cycles == 0 {
		t.left = -1
	}
	return t
}

// Cycle takes the closed iteration of a ledger, and what the device logged of it. It returns false if the trace is complete.
func (t *Trace) Cycle(step int64, l *ledger.Ledger, dev compute.PassLogger) bool {
	recorded := step >= t.first
	from, to := int64(-1), int64(0)
	var phases []event
	l.Spans(func(p ledger.Phase, pass int, start, end int64) {
		if from < 0 {
			from = start
		}
		to = end
		if n := len(phases); n > 0 && phases[n-1].name == p.String() {
			phases[n-1].to = end // the passes of a draft are one phase
		} else {
			phases = append(phases, event{process: processLoop, thread: threadPhases, name: p.String(), from: start, to: end})
		}
		if recorded && pass >= 0 {
			t.add(event{process: processLoop, thread: threadDrafts, name: stepName(pass), from: start, to: end})
		}
	})
	if dev != nil {
		dev.Passes(func(worker int, p *compute.WorkerPass) {
			if recorded {
				t.add(event{process: processWorkers, thread: int32(worker), name: phaseAt(phases, p.From), from: p.From, to: p.To, args: workerArgs(p)})
			}
		})
	}
	if !recorded {
		t.begin = to // what came before is not shown
		return true
	}
	for _, e := range phases {
		t.add(e)
	}
	w := &l.Work
	t.add(event{process: processLoop, thread: threadCycles, name: cycleName(w), from: from, to: to, args: cycleArgs{
		Step: step, Batch: w.Batch, Rows: w.Rows, PrefillRows: w.PrefillRows, Context: w.Context, Shape: w.Shape.String(),
		Drafted: w.Drafted, Accepted: w.Accepted, Emitted: w.Emitted,
	}})
	t.cycles++
	t.end = to
	t.left--
	return t.left != 0
}

// cycleName says what ran.
func cycleName(w *ledger.Work) string {
	switch {
	case w.Batch == 0:
		return "prompts"
	case w.PrefillRows > 0:
		return "cycle, prompts"
	}
	return "cycle"
}

// stepName is the name of the drafter's pass i within a draft: the first drafted token comes of draft_extend.
func stepName(i int) string { return "step " + itoa(i+2) }

// phaseAt returns the name of the phase that a time lies in.
func phaseAt(phases []event, at int64) string {
	for i := range phases {
		if phases[i].from <= at && at < phases[i].to {
			return phases[i].name
		}
	}
	return "pass"
}

// workerArgs are a worker's own times by kind of operation, in microseconds, and how long it waited for others in between.
func workerArgs(p *compute.WorkerPass) map[string]float64 {
	args := map[string]float64{}
	waited := p.To - p.From
	for k, d := range p.Kinds {
		if d > 0 {
			args[compute.Kind(k).String()+"_us"] = float64(d) / 1e3
			waited -= d
		}
	}
	args["waited_us"] = float64(waited) / 1e3
	return args
}

// add appends an event as long as there is room.
func (t *Trace) add(e event) {
	if len(t.events) == maxEvents {
		t.dropped++
		return
	}
	t.events = append(t.events, e)
}

// Request takes a request that has ended, or that runs while the trace ends.
func (t *Trace) Request(r Request) {
	if len(t.requests) == maxEvents {
		t.dropped++
		return
	}
	t.requests = append(t.requests, r)
}

// Finish ends the trace: nothing is taken any more.
func (t *Trace) Finish(end int64) {
	t.end = max(t.end, end)
	close(t.done)
}

// Done is closed when the trace has ended.
func (t *Trace) Done() <-chan struct{} { return t.done }

// Cycles returns the number of recorded cycles. The trace has ended.
func (t *Trace) Cycles() int64 { return t.cycles }
