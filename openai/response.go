package openai

// Completion is the answer to a CompletionRequest, and one event of its stream.
type Completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"` // text_completion
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []CompletionChoice `json:"choices"`
	Usage   *Usage             `json:"usage,omitempty"`
}

// CompletionChoice is one text, or what is new of it.
type CompletionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *CompletionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
	TokenIDs     []int32             `json:"token_ids,omitempty"`
	MetaInfo     any                 `json:"meta_info,omitempty"`
}

// CompletionLogprobs has one entry a token in each list.
type CompletionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"` // in characters, from the start of the output
}

// ChatCompletion is the answer to a ChatRequest that does not stream.
type ChatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"` // chat.completion
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []ChatChoice `json:"choices"`
	Usage   *Usage       `json:"usage,omitempty"`
}

// ChatChoice is one answer.
type ChatChoice struct {
	Index        int           `json:"index"`
	Message      Answer        `json:"message"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
	MetaInfo     any           `json:"meta_info,omitempty"`
}

// Answer is a message from the model.
type Answer struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

// ChatChunk is one event of a chat completion's stream.
type ChatChunk struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"` // chat.completion.chunk
	Created int64       `json:"created"`
	Model   string      `json:"model"`
	Choices []ChatDelta `json:"choices"`
	Usage   *Usage      `json:"usage,omitempty"`
}

// ChatDelta is what is new of one answer.
type ChatDelta struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
	MetaInfo     any           `json:"meta_info,omitempty"`
}

// Delta is new text of an answer; the first one of a stream has the role, the last one nothing.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// ChatLogprobs has one entry a token.
type ChatLogprobs struct {
	Content []ChatLogprob `json:"content"`
}

// ChatLogprob is a token with its log-probability and the most probable tokens in its place.
type ChatLogprob struct {
	TokenLogprob
	TopLogprobs []TokenLogprob `json:"top_logprobs"`
}

// TokenLogprob is a token with its log-probability. A token can be a part of a character; then Bytes tells which.
type TokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens        int                 `json:"prompt_tokens"`
	CompletionTokens    int                 `json:"completion_tokens"`
	TotalTokens         int                 `json:"total_tokens"`
	PromptTokensDetails *PromptTokenDetails `json:"prompt_tokens_details,omitempty"`
	// Simulated is the accept length that a study of cost simulated: the text means nothing. It is left out where acceptance is real.
	Simulated float64 `json:"simulated_accept_length,omitempty"`
}

// PromptTokenDetails says how many of the prompt's tokens came from the prefix cache.
type PromptTokenDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// Model is an entry of GET /v1/models.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // model
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitempty"` // tokens of prompt and output together
}

// ModelList is the answer to GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // list
	Data   []Model `json:"data"`
}
