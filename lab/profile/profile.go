package profile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Report is what a server has shown. Figures that it does not tell are null, and named in Missing.
type Report struct {
	Engine       string   `json:"engine"` // draftlab, sglang, vllm, llama.cpp
	URL          string   `json:"url"`
	Seconds      float64  `json:"seconds"`         // that the server was watched, or since its start
	BusySeconds  *float64 `json:"busy_seconds"`    // of these, those in which requests ran
	Cycles       *int64   `json:"cycles"`          // of the engine's loop
	SeqCycles    *int64   `json:"sequence_cycles"` // of sequences that drafted, summed over cycles
	Shape        *Shape   `json:"shape"`           // the commonest
	Batch        *float64 `json:"batch"`           // mean number of running sequences
	AcceptLength *float64 `json:"accept_length"`   // tokens of a sequence in a cycle, the target's own included
	Accepted     []int64  `json:"accepted"`        // [n] sequence cycles that accepted n drafts
	TokS         *float64 `json:"tok_s"`           // output tokens a busy second, of all sequences
	Cycle        *Phase   `json:"cycle"`           // time of a cycle
	PlainStepMs  *float64 `json:"plain_step_ms"`   // of a step without drafts, at the commonest shape's batch size
	Phases       []Phase  `json:"phases"`
	Other        []Phase  `json:"other"` // what the phase "other" is made of
	WhatIf       []Line   `json:"what_if"`
	Basis        string   `json:"basis"`   // of the figures that WhatIf uses
	Missing      []string `json:"missing"` // what the server does not tell, and what would make it
	Warnings     []string `json:"warnings"`
}

// Shape is how drafts are made.
type Shape struct {
	Steps       int `json:"steps"`
	TopK        int `json:"topk"`
	DraftTokens int `json:"draft_tokens"`
}

// Phase is the time of one part of a cycle.
type Phase struct {
	Name    string   `json:"name"`
	P50Ms   *float64 `json:"p50_ms"` // over the cycles that had it
	P90Ms   *float64 `json:"p90_ms"`
	P99Ms   *float64 `json:"p99_ms"`
	MeanMs  *float64 `json:"mean_ms"` // over all cycles
	TotalMs float64  `json:"total_ms"`
	Share   float64  `json:"share"` // of the busy time
}

// Source is a server that is watched. Its methods are not safe for use by several goroutines at once.
type Source interface {
	// Poll asks the server. What the report covers begins with the first call, unless the source covers all since the
	// server's start.
	Poll(ctx context.Context, now time.Time) error
	// Progress is the number of cycles so far; of sequences' cycles where the server counts only those.
	Progress() int64
	// Report describes what was seen; nil before the first answer.
	Report() *Report
	// StartTrace has the server record a trace until StopTrace, which returns the file or directory on the server's machine, "" if
	// only the server knows. SGLang, which writes several files, puts them into dir.
	StartTrace(ctx context.Context, dir string) error
	StopTrace(ctx context.Context) (string, error)
}

// Options say what to attach to.
type Options struct {
	URL        string  // http://host:port
	Key        string  // for Authorization: Bearer, "" for none
	PlainTokS  float64 // output tokens a second of one sequence that decodes plainly, measured elsewhere; 0 if the server may show it
	SinceStart bool    // cover all that the server has counted since its start, not only what comes
	HTTP       *http.Client
}

// Attach recognises the server. An error says what answered instead.
func Attach(ctx context.Context, o Options) (Source, error) {
	c := &conn{base: strings.TrimRight(o.URL, "/"), key: o.Key, http: o.HTTP}
	if o.PlainTokS > 0 {
		c.plainMs = 1e3 / o.PlainTokS
	}
	doc, err := fetchCycles(ctx, c, -1, 0)
	if err == nil && len(doc.Phases) > 0 {
		return &ledgerSource{conn: c, whole: o.SinceStart}, nil
	}
	if e := (*statusError)(nil); err != nil && !errors.As(err, &e) {
		return nil, err // nobody is there
	} else if e != nil && (e.status == http.StatusUnauthorized || e.status == http.StatusForbidden || e.status == http.StatusServiceUnavailable) {
		return nil, err
	}
	m, err := fetchMetrics(ctx, c)
	if err != nil {
		return nil, c.unmeasured(ctx, err)
	}
	for _, e := range engines {
		if m.Has(e.prefix) {
			return &counterSource{conn: c, engine: e, whole: o.SinceStart}, nil
		}
	}
	if m.Has("draftlab:") {
		return nil, fmt.Errorf("%s is a draftlab of a version without /debug/cycles: start a newer one", c.base)
	}
	return nil, fmt.Errorf("%s/metrics has no metric of draftlab, SGLang, vLLM or llama.cpp", c.base)
}

// unmeasured finds out which server it is that gives no metrics, and returns what to do.
func (c *conn) unmeasured(ctx context.Context, cause error) error {
	for _, probe := range []struct{ path, engine, remedy string }{
		{"/server_info", "SGLang", "start it with --enable-metrics, and from 0.5.11 with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 for times by phase; its log says more now: draftlab profile --log"},
		{"/get_server_info", "SGLang", "start it with --enable-metrics; its log says more now: draftlab profile --log"},
		{"/props", "llama.cpp's server", "start it with --metrics"},
		{"/version", "vLLM", "its /metrics is on by default: look for what stands between"},
	} {
		if body, err := c.get(ctx, probe.path); err == nil {
			_ = body.Close() // only that it answers counts
			return &Unmeasured{fmt.Sprintf("%s looks like %s, and gives no metrics: %v", c.base, probe.engine, cause), probe.remedy}
		}
	}
	return fmt.Errorf("%s is no server that draftlab knows: %w", c.base, cause)
}

// Unmeasured is a server that could be profiled if it were started otherwise.
type Unmeasured struct{ msg, remedy string }

func (e *Unmeasured) Error() string { return e.msg }

// Remedy says how to start it.
func (e *Unmeasured) Remedy() string { return e.remedy }

func ptr[T any](v T) *T { return &v }
