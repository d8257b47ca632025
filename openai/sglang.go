package openai

import (
	"slices"
	"strings"
)

// GenerateRequest is the body of SGLang's own POST /generate.
type GenerateRequest struct {
	Text            *Prompt        `json:"text,omitempty"`      // one of Text and InputIDs; texts alone
	InputIDs        *Prompt        `json:"input_ids,omitempty"` // token ids alone
	SamplingParams  SamplingParams `json:"sampling_params"`
	RID             *Strings       `json:"rid,omitempty"` // names of the requests, one a prompt
	Stream          bool           `json:"stream,omitempty"`
	ReturnLogprob   bool           `json:"return_logprob,omitempty"`
	TopLogprobsNum  int            `json:"top_logprobs_num,omitempty"`
	TextInLogprobs  bool           `json:"return_text_in_logprobs,omitempty"`
	LogprobStartLen *int           `json:"logprob_start_len,omitempty"` // -1 alone: logprobs of the output
	Speculative     *Speculative   `json:"speculative,omitempty"`
}

func (*GenerateRequest) refuses() map[string][]string {
	return map[string][]string{
		"audio_data": nil, "custom_logit_processor": nil, "image_data": nil, "input_embeds": nil, "lora_path": nil, "log_metrics": {"true"},
		"return_hidden_states": {"false"}, "session_params": nil, "token_ids_logprob": nil, "video_data": nil,
	}
}

// SamplingParams are SGLang's names for what [Options] has.
type SamplingParams struct {
	MaxNewTokens      *int               `json:"max_new_tokens,omitempty"` // 128 if nil
	Temperature       *float64           `json:"temperature,omitempty"`
	TopP              *float64           `json:"top_p,omitempty"`
	TopK              *int               `json:"top_k,omitempty"`
	MinP              *float64           `json:"min_p,omitempty"`
	PresencePenalty   *float64           `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty,omitempty"`
	RepetitionPenalty *float64           `json:"repetition_penalty,omitempty"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"`
	Stop              Strings            `json:"stop,omitempty"`
	StopTokenIDs      []int32            `json:"stop_token_ids,omitempty"`
	IgnoreEOS         bool               `json:"ignore_eos,omitempty"`
	SkipSpecialTokens *bool              `json:"skip_special_tokens,omitempty"`
	N                 *int               `json:"n,omitempty"`
	SamplingSeed      *int64             `json:"sampling_seed,omitempty"`
}

// UnmarshalJSON reads it strictly.
func (p *SamplingParams) UnmarshalJSON(data []byte) error { return decodeObject(data, p) }

func (*SamplingParams) refuses() map[string][]string {
	return map[string][]string{
		"custom_params": {"{}"}, "ebnf": nil, "json_schema": nil, "min_new_tokens": {"0"}, "no_stop_trim": {"false"}, "regex": nil,
		"spaces_between_special_tokens": {"true"}, "stop_regex": {"[]"}, "stream_interval": {"1"}, "structural_tag": nil,
	}
}

// Options returns the same wishes as the OpenAI API would put them.
func (p *SamplingParams) Options() Options {
	return Options{
		N: p.N, Seed: p.SamplingSeed, Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, MinP: p.MinP,
		PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty, RepetitionPenalty: p.RepetitionPenalty,
		LogitBias: p.LogitBias, Stop: p.Stop, StopTokenIDs: p.StopTokenIDs, IgnoreEOS: p.IgnoreEOS,
		SkipSpecialTokens: p.SkipSpecialTokens, MaxTokens: p.MaxNewTokens,
	}
}

// Generated is the answer to a GenerateRequest for one output, and one event of its stream. A request with a list of prompts, be it of one, or with
// several outputs is answered by a list. A stream repeats the text and the ids from
// their beginning in each event.
type Generated struct {
	Index     *int     `json:"index,omitempty"` // in a stream of several outputs
	Text      string   `json:"text"`
	OutputIDs []int32  `json:"output_ids"`
	MetaInfo  MetaInfo `json:"meta_info"`
}

// MetaInfo is what SGLang tells about an output, and under names of our own what it does not. Times are in seconds.
type MetaInfo struct {
	ID               string          `json:"id"`
	FinishReason     *MetaFinish     `json:"finish_reason"` // null until the output is complete
	PromptTokens     int             `json:"prompt_tokens"`
	CompletionTokens int             `json:"completion_tokens"`
	CachedTokens     int             `json:"cached_tokens"`
	E2ELatency       float64         `json:"e2e_latency,omitempty"`
	OutputLogprobs   []MetaLogprob   `json:"output_token_logprobs,omitempty"`
	OutputTop        [][]MetaLogprob `json:"output_top_logprobs,omitempty"`
	*MetaSpec
	*MetaTimes
}

// MetaFinish is SGLang's reason for an end.
type MetaFinish struct {
	Type    string `json:"type"`              // stop, length or abort
	Matched any    `json:"matched,omitempty"` // the string or the token id that stopped
	Length  int    `json:"length,omitempty"`  // the limit that was reached
}

// MetaLogprob is a list on the wire: log-probability, token id, and the token's text or null.
type MetaLogprob [3]any

// MetaSpec tells how an output was speculated; only the last event of a stream has it.
//
// SGLang's spec_accept_length is completion_tokens over spec_verify_ct and so counts the token that the prompt's pass gave;
// accept_length is ours, 1 + accepted/cycles, which does not.
type MetaSpec struct {
	VerifyCount       int64   `json:"spec_verify_ct"`
	AcceptLength      float64 `json:"spec_accept_length"`
	AcceptRate        float64 `json:"spec_accept_rate"` // accepted/drafted
	CorrectDrafts     int64   `json:"spec_num_correct_drafts"`
	ProposedDrafts    int64   `json:"spec_num_proposed_drafts"`
	CorrectHistogram  []int64 `json:"spec_correct_drafts_histogram"` // [k] cycles that accepted exactly k drafts
	AcceptHistogram   []int64 `json:"spec_accept_histogram"`         // the same under its older name
	CycleAcceptLength float64 `json:"accept_length"`
	Simulated         float64 `json:"simulated_accept_length,omitempty"` // as in Usage
}

// MetaTimes tells where the time of a complete output went, as the engine saw it.
type MetaTimes struct {
	Queue       float64 `json:"queue_time"`
	Prefill     float64 `json:"prefill_time"`
	FirstToken  float64 `json:"first_token_time"` // from arrival
	Decode      float64 `json:"decode_time"`      // from the first token to the last
	DecodeSteps int     `json:"decode_steps"`     // target passes in that time
	Preempted   int     `json:"preempted,omitempty"`
	// Phases are sums over the passes that the request took part in, whole: what other requests ran in the same passes is in them.
	Phases map[string]float64 `json:"phase_time,omitempty"`
}

// ProfileRequest is the body of SGLang's /start_profile. What is about PyTorch's profiler is taken and has no effect; see
// [ProfileRequest.WithoutEffect].
type ProfileRequest struct {
	OutputDir      string   `json:"output_dir,omitempty"`
	StartStep      *int64   `json:"start_step,omitempty"` // of the engine's loop; one that has passed is the next
	NumSteps       *int     `json:"num_steps,omitempty"`  // the answer then comes when the trace is written
	ProfileID      string   `json:"profile_id,omitempty"` // both are parts of the file's name
	ProfilePrefix  string   `json:"profile_prefix,omitempty"`
	Activities     []string `json:"activities,omitempty"` // of CPU, GPU, MEM and RPD
	ProfileByStage bool     `json:"profile_by_stage,omitempty"`
	ProfileStages  []string `json:"profile_stages,omitempty"`
	WithStack      *bool    `json:"with_stack,omitempty"`
	RecordShapes   *bool    `json:"record_shapes,omitempty"`
	MergeProfiles  bool     `json:"merge_profiles,omitempty"`
}

// WithoutEffect names the parameters that were sent and change nothing: a trace always has all phases, of the one process that there is.
func (p *ProfileRequest) WithoutEffect() []string {
	names := []string{}
	for _, f := range []struct {
		sent bool
		name string
	}{
		{len(p.Activities) > 0, "activities"}, {p.ProfileByStage, "profile_by_stage"}, {len(p.ProfileStages) > 0, "profile_stages"},
		{p.WithStack != nil, "with_stack"}, {p.RecordShapes != nil, "record_shapes"}, {p.MergeProfiles, "merge_profiles"},
	} {
		if f.sent {
			names = append(names, f.name)
		}
	}
	return names
}

// Check refuses what a server must not follow.
func (p *ProfileRequest) Check() error {
	if p.NumSteps != nil && *p.NumSteps < 1 {
		return Invalid("num_steps", "num_steps = %d: want at least 1", *p.NumSteps)
	}
	if p.StartStep != nil && *p.StartStep < 0 {
		return Invalid("start_step", "start_step = %d: it cannot be negative", *p.StartStep)
	}
	for i, a := range p.Activities {
		if !slices.Contains([]string{"CPU", "GPU", "MEM", "RPD", "CUDA_PROFILER"}, a) {
			return Invalid("activities", "activities[%d]: there are CPU, GPU, MEM, RPD and CUDA_PROFILER", i)
		}
	}
	for name, v := range map[string]string{"profile_id": p.ProfileID, "profile_prefix": p.ProfilePrefix} {
		if len(v) > 100 || strings.HasPrefix(v, ".") || strings.ContainsFunc(v, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
		}) {
			return Invalid(name, "%s is a part of a file's name: at most 100 letters, digits, and the signs . _ -", name)
		}
	}
	return nil
}
