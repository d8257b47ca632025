package profile

// engine is where a server's metrics are. An empty name is a metric that it does not have.
type engine struct {
	name, prefix string
	running      string   // gauge: sequences that run
	output       []string // counters of output tokens, the liveliest first
	drafts       string   // counter: cycles of sequences that draft
	accepted     string   // counter: drafted tokens that were accepted
	perPosition  string   // counter by label "position": cycles that accepted the draft there
	generating   string   // counter: seconds that sequences spent generating, summed over them
	gaps         string   // histogram: seconds from one output of a sequence, which is a cycle's, to its next
	phases       string   // counter by label "category": seconds
	acceptLength string   // gauge
	throughput   string   // gauge: tokens a second
	missing      []string // what no setting makes it tell
}

var engines = []*engine{
	{
		name: "sglang", prefix: "sglang:", running: "sglang:num_running_reqs",
		output: []string{"sglang:realtime_tokens_total", "sglang:generation_tokens_total"}, drafts: "sglang:spec_verify_calls_total",
		phases: "sglang:forward_execution_seconds_total", acceptLength: "sglang:spec_accept_length", throughput: "sglang:gen_throughput",
		missing: []string{"percentiles of phases: SGLang keeps sums only",
			"host gaps, sampling and tree building: SGLang's timers leave them out, so they are in \"other\"; steps that run without a CUDA graph count as \"decode\" and \"prefill\""},
	},
	{
		name: "vllm", prefix: "vllm:", running: "vllm:num_requests_running", output: []string{"vllm:generation_tokens_total"},
		drafts: "vllm:spec_decode_num_drafts_total", accepted: "vllm:spec_decode_num_accepted_tokens_total",
		perPosition: "vllm:spec_decode_num_accepted_tokens_per_pos_total", gaps: "vllm:inter_token_latency_seconds",
		missing: []string{"times by phase: vLLM's metrics have none; its own profiler does (--profiler-config)"},
	},
	{
		name: "llama.cpp", prefix: "llamacpp:", running: "llamacpp:requests_processing", output: []string{"llamacpp:tokens_predicted_total"},
		drafts: "llamacpp:spec_decode_num_drafts_total", accepted: "llamacpp:spec_decode_num_accepted_tokens_total",
		perPosition: "llamacpp:spec_decode_num_accepted_tokens_per_pos_total", generating: "llamacpp:tokens_predicted_seconds_total",
		missing: []string{"times by phase: llama.cpp's metrics have none; its log has the drafter's at the trace level (-lv)"},
	},
}

// categories are SGLang's names of phases, by ours.
var categories = []struct{ theirs, ours string }{
	{"extend", "prefill"}, {"split_prefill", "prefill.split"}, {"decode", "decode"}, {"eagle_draft", "draft"}, {"frozen_kv_draft", "draft.frozen_kv"},
	{"target_verify", "verify"}, {"eagle_draft_extend", "draft_extend"}, {"idle", "idle"},
}

// noDeviceTimer says what must be set for times by phase.
const noDeviceTimer = "times by phase: start SGLang 0.5.11 or later with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 beside --enable-metrics"
