package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// process is a group of tracks.
type process int

const (
	processLoop process = iota + 1
	processWorkers
	processRequests
)

// The tracks of the loop.
const (
	threadCycles = iota
	threadPhases
	threadDrafts
)

// chromeEvent is an event on the wire: a span (ph X, times in microseconds since the trace's begin), or a name (ph M).
type chromeEvent struct {
	Name  string   `json:"name"`
	Phase string   `json:"ph"`
	TS    *float64 `json:"ts,omitempty"`
	Dur   *float64 `json:"dur,omitempty"`
	PID   int      `json:"pid"`
	TID   int      `json:"tid"`
	Cat   string   `json:"cat,omitempty"`
	Args  any      `json:"args,omitempty"`
}

// Write writes a trace that has ended; origin is that of the device's clock.
func (t *Trace) Write(w io.Writer, origin time.Time) error {
	b := bufio.NewWriter(w)
	head, err := json.Marshal(map[string]any{
		"begin_unix_ns": origin.UnixNano() + t.begin, "begin_ns": t.begin, "end_ns": t.end, "cycles": t.cycles, "dropped_events": t.dropped,
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(b, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[", head); err != nil {
		return err
	}
	separator := "\n"
	emit := func(e *chromeEvent) error {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = b.WriteString(separator + string(data))
		separator = ",\n"
		return err
	}
	if err := t.emit(emit); err != nil {
		return err
	}
	if _, err := b.WriteString("\n]}\n"); err != nil {
		return err
	}
	return b.Flush()
}

// emit hands out all events, names first.
func (t *Trace) emit(emit func(*chromeEvent) error) error {
	lanes := t.lanes()
	for _, e := range t.names(lanes) {
		if err := emit(&e); err != nil {
			return err
		}
	}
	for i := range t.events {
		e := &t.events[i]
		if err := emit(t.span(e.process, int(e.thread), e.name, "loop", e.from, e.to, e.args)); err != nil {
			return err
		}
	}
	for i := range t.requests {
		for _, e := range t.requestSpans(&t.requests[i], lanes[i]) {
			if err := emit(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is an event on the wire, cut to the window.
func (t *Trace) span(p process, thread int, name, category string, from, to int64, args any) *chromeEvent {
	from, to = max(from, t.begin), min(to, t.end)
	ts, dur := float64(from-t.begin)/1e3, float64(max(0, to-from))/1e3
	return &chromeEvent{Name: name, Phase: "X", TS: &ts, Dur: &dur, PID: int(p), TID: thread, Cat: category, Args: args}
}

// names are the events that name processes and threads.
func (t *Trace) names(lanes []int) (out []chromeEvent) {
	type args struct {
		Name string `json:"name"`
	}
	group := func(p process, name string) {
		out = append(out, chromeEvent{Name: "process_name", Phase: "M", PID: int(p), Args: args{name}})
	}
	track := func(p process, id int, name string) {
		out = append(out, chromeEvent{Name: "thread_name", Phase: "M", PID: int(p), TID: id, Args: args{name}})
	}
	group(processLoop, "engine")
	track(processLoop, threadCycles, "cycles")
	track(processLoop, threadPhases, "phases")
	track(processLoop, threadDrafts, "draft steps")
	group(processWorkers, "workers")
	workers := -1
	for i := range t.events {
		if t.events[i].process == processWorkers {
			workers = max(workers, int(t.events[i].thread))
		}
	}
	for i := range workers + 1 {
		track(processWorkers, i, "worker "+itoa(i))
	}
	group(processRequests, "requests")
	if len(lanes) > 0 {
		for i := range slices.Max(lanes) + 1 {
			track(processRequests, i, "place "+itoa(i))
		}
	}
	return out
}

// lanes gives each request a track on which no other one overlaps it: the first that is free when it arrives.
func (t *Trace) lanes() []int {
	slices.SortFunc(t.requests, func(a, b Request) int { return int(min(1, max(-1, a.Submitted-b.Submitted))) })
	var free []int64 // by lane: when its last request ends
	lanes := make([]int, len(t.requests))
	for i := range t.requests {
		r := &t.requests[i]
		lane := slices.IndexFunc(free, func(end int64) bool { return end <= r.Submitted })
		if lane < 0 {
			lane, free = len(free), append(free, 0)
		}
		free[lane], lanes[i] = max(r.Submitted, r.Decoded), lane
	}
	return lanes
}

// requestSpans are a request and its stages within it.
func (t *Trace) requestSpans(r *Request, lane int) (out []*chromeEvent) {
	end := r.Decoded
	if end <= t.begin || r.Submitted >= t.end {
		return nil
	}
	out = append(out, t.span(processRequests, lane, "request "+strconv.FormatInt(r.ID, 10), "request", r.Submitted, end, map[string]any{
		"prompt_tokens": r.Prompt, "cached_tokens": r.Cached, "output_tokens": r.Output, "finish_reason": r.Finish,
		"accepted": r.Accepted, "cycles": r.Cycles, "preempted": r.Preempted,
	}))
	stages := []struct {
		name     string
		from, to int64
	}{{"queue", r.Submitted, r.Started}, {"prefill", r.Started, r.First}, {"decode", r.First, end}}
	for _, s := range stages {
		if s.from == 0 {
			break // it has not come so far
		}
		if s.to == 0 {
			s.to = end
		}
		if s.to > t.begin && s.from < t.end {
			out = append(out, t.span(processRequests, lane, s.name, "request", s.from, s.to, nil))
		}
	}
	return out
}
