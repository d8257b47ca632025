package enginelog

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// milestones are the steps of a start-up, under names that hold across versions and engines. Capturing of graphs is named by
// captureGraph.
var milestones = []struct{ text, name string }{
	{"server_args=", "arguments read"},
	{"non-default args:", "arguments read"},
	{"Initializing a V1 LLM engine", "engine: begin"},
	{"Load weight begin", "weights: begin"},
	{"Load weight end", "weights: loaded"},
	{"Memory pool end", "key/value memory: allocated"},
	{"KV Cache is allocated", "key/value memory: allocated"},
	{"max_total_num_tokens=", "limits settled"},
	{"The server is fired up and ready to roll!", ReadyName},
	{"Application startup complete", "HTTP: up"},
	{"Starting to load model", "weights: begin"},
	{"Loading drafter model", "drafter: begin"},
	{"Loading weights took", "weights: loaded"},
	{"Model loading took", "model: loaded"},
	{"torch.compile took", "compiled"},
	{"torch.compile takes", "compiled"},
	{"Available KV cache memory", "key/value memory: measured"},
	{"Explicitly set (", "key/value memory: measured"}, // vLLM on a CPU, as the next
	{"GPU KV cache size", "key/value memory: allocated"},
	{"CPU KV cache size", "key/value memory: allocated"},
	{"Warming up model for the compilation", "warm-up: begin"},
	{"Warming up done", "warm-up: done"},
	{"Graph capturing finished", "graphs: captured"},
	{"init engine (", "engine: initialised"},
	{"Starting vLLM", "HTTP: starting"},
}

// ReadyName is the milestone after which SGLang answers.
const ReadyName = "ready"

var (
	captureGraph = regexp.MustCompile(`(?i)^Capture (?:(.{1,60}?) )?cuda graph\b.*?\b(begin|end)\b`)
	compiledPart = regexp.MustCompile(`^\[(\w{1,40})\] (saved AOT compiled function|Initial profiling/warmup run took)`)
	seconds      = regexp.MustCompile(`(\d+(?:\.\d+)?) ?s(?:ecs?|econds)?\b`)
)

// milestone finds a step of the start-up and the time that the line says it took.
func milestone(text string) (name string, took time.Duration, ok bool) {
	if m := captureGraph.FindStringSubmatch(text); m != nil {
		name = strings.Join(strings.Fields(strings.ToLower(m[1])+" graphs: "+map[string]string{"begin": "begin", "end": "captured"}[strings.ToLower(m[2])]), " ")
		return name, reported(text), true
	}
	if m := compiledPart.FindStringSubmatch(text); m != nil { // vLLM compiles the target ("backbone") and the drafter apart
		what := map[bool]string{true: "compiled", false: "first run"}[strings.HasPrefix(m[2], "saved")]
		return m[1] + ": " + what, reported(text), true
	}
	for _, m := range milestones {
		if strings.HasPrefix(text, m.text) || strings.HasPrefix(text, "INFO:     "+m.text) {
			return m.name, reported(text), true
		}
	}
	return "", 0, false
}

// reported is the first number of seconds in a text.
func reported(text string) time.Duration {
	m := seconds.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	s, err := strconv.ParseFloat(m[1], 64)
	if err != nil || s > 1e6 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// notices are what a server says when it does other than it was told.
var notices = []struct{ text, name string }{
	{"speculative_num_draft_tokens is adjusted to", "draft tokens changed"},
	{"Max running requests is reset to", "request limit changed"},
	{"Spec v1 is used", "older speculative worker used"},
	{"Overlap scheduler is disabled", "scheduling without overlap"},
	{"Mixed chunked prefill is disabled", "mixed chunks off"},
	{"Overriding the draft model's max_position_embeddings", "drafter stretched to longer texts"},
	{"is not supported with spec-decode for attention", "graphs reduced"}, // vLLM's, and so are the next
	{"Async scheduling not supported with", "scheduling without overlap"},
	{"Async scheduling is not compatible with", "scheduling without overlap"},
	{"Async scheduling will be disabled", "scheduling without overlap"},
	{"Retract requests", retracted},
	{"Decode out of memory happened", retracted},
	{"max_num_scheduled_tokens is set to", "tokens of a pass limited"},
	{"min_p and logit_bias parameters won't work with speculative decoding", "min_p and logit_bias without effect"},
	{"loading draft model '", draftLoaded}, // llama.cpp's, and so are the next
	{"no implementations specified for speculative decoding", "no speculation"},
	{"the target and draft vocabs are not compatible", "drafter of another vocabulary"},
	{"Reducing Torch threads from", "threads changed"},
	{"libtcmalloc is not found in LD_PRELOAD", "no tcmalloc"},
	{"No available shared memory broadcast block found", "workers silent for a minute"},
}

// retracted is the notice of requests that lost their place for want of key/value memory.
const retracted = "requests retracted"
