package server

import (
	"net/http"
	"strconv"
	"time"

	"draftlab/engine"
	"draftlab/engine/compute"
	"draftlab/engine/ledger"
	"draftlab/internal/obs"
)

// blockSlots is the number of tokens in a key/value block.
const blockSlots = compute.BlockSlots

// metrics are what /metrics shows: SGLang's names where the meaning is the same, the names that vLLM and llama.cpp's server share for
// speculation behind our prefix, and our own.
type metrics struct {
	handler  http.Handler
	requests *obs.Counter
	first    *obs.Histogram
	between  *obs.Histogram
	total    *obs.Histogram
	queued   *obs.Histogram
	outputs  *obs.Counter
}

// The indexes of the sampled metrics.
const (
	mRunning = iota
	mQueued
	mTokens
	mUsage
	mThroughput
	mAcceptLength
	mPrompt
	mOutput
	mCached
	mVerify
	mEnded
	mSteps
	mPreempted
	mBlocks
	mPhase
	mDrafts
	mDraftTokens
	mAccepted
	mAcceptedAt
	mForward
	mCycle
)

func desc(k obs.Kind, name, help, label string) obs.Desc {
	return obs.Desc{Kind: k, Name: name, Help: help, Label: label}
}

var sampledMetrics = []obs.Desc{
	mRunning:      desc(obs.Gauge, "sglang:num_running_reqs", "Requests that run.", ""),
	mQueued:       desc(obs.Gauge, "sglang:num_queue_reqs", "Requests that wait for a place.", ""),
	mTokens:       desc(obs.Gauge, "sglang:num_used_tokens", "Key/value slots in use, in whole blocks.", ""),
	mUsage:        desc(obs.Gauge, "sglang:token_usage", "Share of the key/value blocks in use.", ""),
	mThroughput:   desc(obs.Gauge, "sglang:gen_throughput", "Output tokens a second over the last log interval.", ""),
	mAcceptLength: desc(obs.Gauge, "sglang:spec_accept_length", "Tokens a cycle emitted over the last log interval, the target's own included; 0 without drafts.", ""),
	mPrompt:       desc(obs.Total, "sglang:prompt_tokens_total", "Prompt tokens taken in, cached ones included.", ""),
	mOutput:       desc(obs.Total, "sglang:generation_tokens_total", "Output tokens.", ""),
	mCached:       desc(obs.Total, "sglang:cached_tokens_total", "Prompt tokens that the prefix cache gave.", ""),
	mVerify:       desc(obs.Total, "sglang:spec_verify_calls_total", "Cycles of requests that draft.", ""),
	mEnded:        desc(obs.Total, "draftlab:requests_ended_total", "Requests that the engine has let go, by how they ended.", "how"),
	mSteps:        desc(obs.Total, "draftlab:steps_total", "Steps of the engine's loop that ran something.", ""),
	mPreempted:    desc(obs.Total, "draftlab:preemptions_total", "Times that a request lost its place for want of blocks.", ""),
	mBlocks:       desc(obs.Gauge, "draftlab:kv_blocks", "Key/value blocks by state.", "state"),
	mPhase:        desc(obs.Total, "draftlab:phase_seconds_total", "Time of the engine's loop by phase; with idle time the phases add up to its lifetime.", "phase"),
	mDrafts:       desc(obs.Total, "draftlab:spec_decode_num_drafts_total", "Cycles of requests that draft.", ""),
	mDraftTokens:  desc(obs.Total, "draftlab:spec_decode_num_draft_tokens_total", "Drafted tokens.", ""),
	mAccepted:     desc(obs.Total, "draftlab:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted and emitted.", ""),
	mAcceptedAt:   desc(obs.Total, "draftlab:spec_decode_num_accepted_tokens_per_pos_total", "Cycles that accepted the draft at a position, from 0.", "position"),
	mForward:      desc(obs.Total, "sglang:forward_execution_seconds_total", "Time of passes by SGLang's category; draft includes the making of trees.", "category"),
	mCycle:        desc(obs.Distribution, "draftlab:cycle_seconds", "Time of a phase in the cycles that had it, and of whole cycles (wall).", "phase"),
}

// Upper bounds of the buckets, in seconds: from what a small model on two cores takes to what a long context on a slow one does.
var (
	firstBuckets   = []float64{.002, .005, .01, .02, .04, .08, .15, .3, .6, 1, 2, 4, 8, 15, 30, 60, 120}
	betweenBuckets = []float64{.0005, .001, .002, .003, .004, .006, .008, .01, .015, .02, .03, .05, .08, .15, .3, .6, 1, 2, 5}
	totalBuckets   = []float64{.01, .03, .1, .2, .4, .8, 1.5, 3, 6, 12, 25, 50, 100, 200, 400, 800}
)

func newMetrics(reg *obs.Registry, s *Server) *metrics {
	m := &metrics{
		handler:  reg.Handler(),
		requests: reg.NewCounter("draftlab:http_requests_total", "Answered HTTP requests; 499 are those whose client left.", "path", "method", "status"),
		outputs:  reg.NewCounter("sglang:num_requests_total", "Complete outputs."),
		first:    reg.NewHistogram("sglang:time_to_first_token_seconds", "From a request's arrival in the engine to its first token.", firstBuckets),
		between:  reg.NewHistogram("sglang:inter_token_latency_seconds", "Time between tokens; tokens that come at once share it.", betweenBuckets),
		total:    reg.NewHistogram("sglang:e2e_request_latency_seconds", "From a request's arrival to the end of an output.", totalBuckets),
		queued:   reg.NewHistogram("sglang:queue_time_seconds", "From a request's arrival in the engine to its first prompt row.", firstBuckets),
	}
	reg.AddSampled(sampledMetrics, func() []obs.Sample {
		e := s.engine.Load()
		if e == nil {
			return nil
		}
		st := (*e).Stats()
		return appendCycleSamples(samples(&st, s.report), (*e).Ledger().Snapshot())
	})
	return m
}

// samples are the values of the sampled metrics.
func samples(st *engine.Stats, r *reporter) []obs.Sample {
	var out []obs.Sample
	add := func(metric int, label string, v float64) {
		out = append(out, obs.Sample{Metric: metric, Label: label, Value: v})
	}
	add(mRunning, "", float64(st.Running))
	add(mQueued, "", float64(st.Waiting))
	add(mTokens, "", float64(st.BlocksUsed*blockSlots))
	add(mUsage, "", usageOf(st))
	add(mThroughput, "", r.throughput())
	add(mAcceptLength, "", r.acceptLength())
	add(mPrompt, "", float64(st.PromptTokens))
	add(mOutput, "", float64(st.OutputTokens))
	add(mCached, "", float64(st.CachedTokens))
	add(mVerify, "", float64(st.Draft.Cycles))
	add(mEnded, "finished", float64(st.Finished))
	add(mEnded, "cancelled", float64(st.Cancelled))
	add(mEnded, "failed", float64(st.Failed))
	add(mSteps, "", float64(st.Steps))
	add(mPreempted, "", float64(st.Preemptions))
	add(mBlocks, "used", float64(st.BlocksUsed))
	add(mBlocks, "cached", float64(st.BlocksCached))
	add(mBlocks, "free", float64(st.Blocks-st.BlocksUsed-st.BlocksCached))
	add(mDrafts, "", float64(st.Draft.Cycles))
	add(mDraftTokens, "", float64(st.Draft.Drafted))
	add(mAccepted, "", float64(st.Draft.Accepted))
	add(mPhase, "idle", st.Idle.Seconds())
	for p, d := range st.Time {
		add(mPhase, ledger.Phase(p).String(), float64(d)/1e9)
	}
	hist := st.Draft.AppendHistogram(nil)
	for i := range max(0, len(hist)-1) {
		var more int64 // cycles that accepted the draft at position i
		for _, n := range hist[i+1:] {
			more += n
		}
		add(mAcceptedAt, strconv.Itoa(i), float64(more))
	}
	return out
}

// arrived counts n tokens of an output that had some before; gap is the time since the last ones.
func (m *metrics) arrived(before, n int, gap time.Duration) {
	if before == 0 {
		return // the time to the first token is another metric
	}
	for range n {
		m.between.Observe(gap.Seconds() / float64(n))
	}
}

// completed counts a complete output.
func (m *metrics) completed(end *ending) {
	m.outputs.Add(1)
	m.total.Observe(end.elapsed.Seconds())
	m.queued.Observe(end.result.Queued.Seconds())
	if end.tokens > 0 {
		m.first.Observe(end.result.First.Seconds())
	}
}
