package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"testing"

	"draftlab/engine/trace"
)

// chromeTrace is the part of Chrome's trace event format that Perfetto needs.
type chromeTrace struct {
	Unit  string         `json:"displayTimeUnit"`
	Other map[string]any `json:"otherData"`
	Trace []struct {
		Name string          `json:"name"`
		Ph   string          `json:"ph"`
		TS   *float64        `json:"ts"`
		Dur  *float64        `json:"dur"`
		PID  *int            `json:"pid"`
		TID  *int            `json:"tid"`
		Cat  string          `json:"cat"`
		Args json.RawMessage `json:"args"`
	} `json:"traceEvents"`
}

// track is where spans lie: names of process and thread.
type track struct{ process, thread string }

type spanOf struct {
	name     string
	from, to float64 // microseconds
	args     map[string]any
}

// readTrace checks a written trace against the format, and that the spans of a track nest, and returns them by track.
func readTrace(t *testing.T, data []byte) map[track][]spanOf {
	t.Helper()
	var doc chromeTrace
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Unit != "ms" || doc.Other["dropped_events"] != 0.0 {
		t.Fatalf("unit %q, %v", doc.Unit, doc.Other)
	}
	window := (doc.Other["end_ns"].(float64) - doc.Other["begin_ns"].(float64)) / 1e3
	processes, threads := map[int]string{}, map[[2]int]string{}
	spans := map[track][]spanOf{}
	for i, e := range doc.Trace {
		var args map[string]any
		if len(e.Args) > 0 {
			if err := json.Unmarshal(e.Args, &args); err != nil {
				t.Fatal(err)
			}
		}
		if e.PID == nil || e.TID == nil || e.Name == "" {
			t.Fatalf("event %d lacks a name, process or thread", i)
		}
		switch {
		case e.Ph == "M" && e.Name == "process_name":
			processes[*e.PID] = args["name"].(string)
		case e.Ph == "M" && e.Name == "thread_name":
			threads[[2]int{*e.PID, *e.TID}] = args["name"].(string)
		case e.Ph == "X" && e.TS != nil && e.Dur != nil && *e.TS >= 0 && *e.Dur >= 0 && *e.TS+*e.Dur <= window+1e-3:
			at := track{processes[*e.PID], threads[[2]int{*e.PID, *e.TID}]}
			if at.process == "" || at.thread == "" {
				t.Fatalf("event %d lies on a track without a name", i)
			}
			spans[at] = append(spans[at], spanOf{e.Name, *e.TS, *e.TS + *e.Dur, args})
		default:
			t.Fatalf("event %d: %+v does not fit the format or the window of %.0f µs", i, e, window)
		}
	}
	for at, list := range spans {
		for i := range list {
			for j := range i {
				a, b := list[i], list[j]
				apart := a.to <= b.from+1e-3 || b.to <= a.from+1e-3
				inside := a.from >= b.from-1e-3 && a.to <= b.to+1e-3 || b.from >= a.from-1e-3 && b.to <= a.to+1e-3
				if !apart && !inside {
					t.Fatalf("on %v, %+v and %+v cross", at, a, b)
				}
			}
		}
	}
	return spans
}

// length sums a list of spans.
func length(list []spanOf) (us float64) {
	for _, s := range list {
		us += s.to - s.from
	}
	return us
}

// TestTrace records a mixed load, all of it and then a number of cycles, and checks the written trace against the format and the ledger.
func TestTrace(t *testing.T) {
	e := open(t, Options{Threads: 2, Context: 200, MaxRunning: 3, MaxWaiting: 16, Drafter: RandomDrafter, Spec: specs[3]})
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { _ = e.Run(ctx) })
	defer func() {
		cancel()
		loop.Wait()
	}()
	run := func() {
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { generate(t, e, Request{Prompt: prompt(20 + i), MaxTokens: 12, NoCache: true}) })
		}
		wg.Wait()
	}
	run()
	before := e.Ledger().Totals()
	tr, err := e.StartTrace(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.StartTrace(0, 0); !errors.Is(err, ErrTracing) {
		t.Errorf("a second trace: %v", err)
	}
	run()
	if e.StopTrace() != tr || e.StopTrace() != nil {
		t.Error("StopTrace does not return the trace, once")
	}
	spans := readTrace(t, written(t, tr, e))
	after := e.Ledger().Totals()
	cycles, phases := spans[track{"engine", "cycles"}], spans[track{"engine", "phases"}]
	if n := after.Cycles - before.Cycles; int64(len(cycles)) != n || tr.Cycles() != n {
		t.Errorf("%d cycles, the ledger has %d", len(cycles), n)
	}
	want := float64(after.Phase.Sum()-before.Phase.Sum()) / 1e3
	if a, b := length(cycles), length(phases); math.Abs(a-want) > 0.01*want || math.Abs(b-a) > 1e-3*float64(len(phases)) {
		t.Errorf("cycles of %.3f µs, phases of %.3f, the ledger has %.3f", a, b, want)
	}
	for _, at := range []track{{"engine", "draft steps"}, {"workers", "worker 0"}, {"workers", "worker 1"}, {"requests", "place 0"}} {
		if len(spans[at]) == 0 {
			t.Errorf("nothing on %v", at)
		}
	}
	verify := 0
	for _, s := range spans[track{"workers", "worker 1"}] {
		if s.name == "verify" && s.args["matmul_us"].(float64) > 0 && s.args["waited_us"].(float64) >= 0 {
			verify++
		}
	}
	if int64(verify) != after.VerifyCycles-before.VerifyCycles {
		t.Errorf("worker 1 has %d verify passes, the ledger %d", verify, after.VerifyCycles-before.VerifyCycles)
	}

	tr, err = e.StartTrace(e.Stats().Steps+3, 4)
	if err != nil {
		t.Fatal(err)
	}
	run()
	<-tr.Done()
	spans = readTrace(t, written(t, tr, e))
	if n := len(spans[track{"engine", "cycles"}]); n != 4 || e.StopTrace() != nil {
		t.Errorf("%d cycles of a trace of 4", n)
	}
}

func written(t *testing.T, tr *trace.Trace, e *Engine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tr.Write(&b, e.Device().Clock().Origin()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
