package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"draftlab/openai"
)

// event is what the streams of all APIs have, as far as a sample needs it. Other servers' fields are passed over.
type event struct {
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Choices []struct {
		Text     string  `json:"text"`
		Delta    delta   `json:"delta"`
		TokenIDs []int32 `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
		Meta     *meta   `json:"meta_info"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Timings *timings `json:"timings"`
	Metrics struct {
		Spec *vllmStats `json:"speculative_decoding"`
	} `json:"metrics"`
	Extension struct {
		Spec *meta `json:"spec_tokens_details"`
	} `json:"sglext"` // SGLang's, of chats
	// Of SGLang's /generate, where each event repeats all from the beginning.
	Text      string  `json:"text"`
	OutputIDs []int32 `json:"output_ids"`
	Meta      *meta   `json:"meta_info"`
}

// delta is what a chat's event adds. Servers name reasoning in two ways (vLLM has changed from one to the other), and may use both at once.
type delta struct {
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
	Tools            []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// text is all that the model wrote, in whatever field it comes.
func (d *delta) text() string {
	text := cmp.Or(d.ReasoningContent, d.Reasoning) + d.Content
	for i := range d.Tools {
		text += d.Tools[i].Function.Name + d.Tools[i].Function.Arguments
	}
	return text
}

// vllmStats are what vLLM tells of a request's drafts, from 0.29 if it was started with --per-request-spec-decode-metrics.
type vllmStats struct {
	Steps     int64   `json:"num_spec_steps"`
	Drafted   int64   `json:"num_draft_tokens"`
	Accepted  int64   `json:"num_accepted_draft_tokens"`
	Histogram []int64 `json:"acceptance_histogram"`
}

// timings are what llama.cpp's server tells behind an answer.
type timings struct {
	Predicted int64 `json:"predicted_n"`
	Drafted   int64 `json:"draft_n"`
	Accepted  int64 `json:"draft_n_accepted"`
}

// speculation returns what they say of drafts, nil if there were none. A cycle gives one token of the target's own beside those that were
// accepted, and the prompt's pass gives one: so cycles follow from the counts. A draft that reaches beyond the last token may put them one off.
func (t *timings) speculation() *Speculation {
	if t == nil || t.Drafted == 0 {
		return nil
	}
	return &Speculation{Cycles: max(1, t.Predicted-1-t.Accepted), Drafted: t.Drafted, Accepted: t.Accepted}
}

// meta is SGLang's meta_info, with draftlab's additions.
type meta struct {
	Finish *struct {
		Type string `json:"type"`
	} `json:"finish_reason"`
	Prompt      int     `json:"prompt_tokens"`
	Completion  int     `json:"completion_tokens"`
	Cached      int     `json:"cached_tokens"`
	Verify      int64   `json:"spec_verify_ct"`
	Correct     *int64  `json:"spec_num_correct_drafts"`
	Proposed    int64   `json:"spec_num_proposed_drafts"`
	Histogram   []int64 `json:"spec_correct_drafts_histogram"`
	OldHist     []int64 `json:"spec_accept_histogram"`
	DecodeSteps int     `json:"decode_steps"`
}

// errUnfinished is an answer that broke off.
var errUnfinished = errors.New("the stream ended before its end mark")

// read takes an answer apart.
func (s *Sample) read(api API, a *arrivals) error {
	src := &replay{arrivals: a}
	events := openai.NewReader(src)
	for {
		data, err := events.Next()
		if err == io.EOF {
			return errUnfinished
		}
		if err != nil {
			return err
		}
		if string(data) == openai.Done {
			return s.complete()
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event of the stream is no JSON object as expected: %w", err)
		}
		if e.Error != nil {
			return &inStream{e.Error.Message}
		}
		if api == Generate {
			err = s.grown(src.when(), &e)
		} else {
			err = s.appended(src.when(), &e)
		}
		if err != nil {
			return err
		}
	}
}

// complete checks what must be known of a whole answer.
func (s *Sample) complete() error {
	if s.OutputTokens == 0 {
		s.OutputTokens = len(s.TokenIDs)
	}
	if s.OutputTokens == 0 && s.Text != "" {
		return errors.New("the server does not say how many tokens the output has (it sent neither usage nor token ids)")
	}
	return nil
}

// appended takes in an event of OpenAI's APIs.
func (s *Sample) appended(at int64, e *event) error {
	if u := e.Usage; u != nil {
		s.PromptTokens, s.OutputTokens, s.CachedTokens = u.Prompt, u.Completion, u.Details.Cached
	}
	if spec := e.Timings.speculation(); spec != nil {
		s.Spec = spec
	}
	if v := e.Metrics.Spec; v != nil && v.Steps > 0 {
		s.Spec = &Speculation{Cycles: v.Steps, Drafted: v.Drafted, Accepted: v.Accepted, Histogram: v.Histogram}
	}
	s.meta(e.Extension.Spec)
	for i := range e.Choices {
		c := &e.Choices[i]
		s.chunk(at, c.Text+c.Delta.text(), c.TokenIDs)
		if c.Finish != "" {
			s.Finish = c.Finish
		}
		s.meta(c.Meta)
	}
	return nil
}

// grown takes in an event of SGLang's API, which repeats what there was.
func (s *Sample) grown(at int64, e *event) error {
	text, ok := strings.CutPrefix(e.Text, s.Text)
	if !ok || len(e.OutputIDs) < len(s.TokenIDs) {
		return errors.New("an event of the stream does not continue the last one")
	}
	s.chunk(at, text, e.OutputIDs[len(s.TokenIDs):])
	if m := e.Meta; m != nil {
		s.PromptTokens, s.OutputTokens, s.CachedTokens = m.Prompt, m.Completion, m.Cached
		if m.Finish != nil {
			s.Finish = m.Finish.Type
		}
		s.meta(m)
	}
	return nil
}

// chunk notes text and tokens that have come.
func (s *Sample) chunk(at int64, text string, ids []int32) {
	if text == "" && len(ids) == 0 {
		return
	}
	if len(s.Chunks) == 0 {
		s.FirstNS = at
	}
	s.LastNS = at
	s.Chunks = append(s.Chunks, Chunk{at, len(ids), len(text)})
	s.Text += text
	s.TokenIDs = append(s.TokenIDs, ids...)
}

// meta notes what a server tells beside the output.
func (s *Sample) meta(m *meta) {
	if m == nil {
		return
	}
	s.DecodeSteps = max(s.DecodeSteps, m.DecodeSteps)
	if m.Verify == 0 {
		return
	}
	hist := m.Histogram
	if hist == nil {
		hist = m.OldHist
	}
	s.Spec = &Speculation{Cycles: m.Verify, Drafted: m.Proposed, Histogram: hist}
	if m.Correct != nil {
		s.Spec.Accepted = *m.Correct
		return
	}
	if hist == nil { // before 0.5.9: all that cycles and the prompt's pass did not give was accepted
		s.Spec.Accepted = max(0, int64(m.Completion)-1-m.Verify)
	}
	for k, n := range hist {
		s.Spec.Accepted += int64(k) * n
	}
}
