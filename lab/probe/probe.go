// Package probe asks a server what it is and what it has counted: [Identify] tells draftlab, SGLang, vLLM and llama.cpp's server
// apart, and [Server.Drafts] reads the counters of speculation that each of them has. [Between] is what they say of a run.
//
// It only reads, but for [Server.Flush]. What a server does not tell is absent, never an error.
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"draftlab/lab/client"
	"draftlab/lab/scrape"
	"draftlab/openai"
)

// Kind is a program that serves models.
type Kind string

// The kinds.
const (
	Draftlab Kind = "draftlab"
	SGLang   Kind = "sglang"
	VLLM     Kind = "vllm"
	LlamaCPP Kind = "llama.cpp"
	OpenAI   Kind = "openai" // any other with that API
)

// Server is a server as it describes itself.
type Server struct {
	Base    string // such as http://127.0.0.1:30000
	Key     string // bearer token, "" for none
	Header  http.Header
	HTTP    *http.Client
	Kind    Kind
	Model   string         // as /v1/models has it, "" if it does not say
	Version string         // "" likewise
	Info    map[string]any // its own account of its settings, without secrets: /server_info or /props; nil likewise
}

// Identify asks a server what it is, with a bearer token if key is not empty, and with further headers. The error is that nothing answers
// at base.
func Identify(ctx context.Context, h *http.Client, base, key string, header http.Header) (*Server, error) {
	s := &Server{Base: base, Key: key, Header: header, HTTP: h, Kind: OpenAI}
	var models openai.ModelList
	status, err := s.get(ctx, "/v1/models", &models)
	if err != nil && status == 0 {
		return nil, fmt.Errorf("nothing answers at %s: %w", base, err)
	}
	if status == http.StatusUnauthorized {
		return nil, fmt.Errorf("%s wants an API key", base)
	}
	if len(models.Data) > 0 {
		s.Model = models.Data[0].ID
	}
	var info struct {
		Version string `json:"version"`
		Limit   string `json:"speculative_limit"` // draftlab's alone
		States  []any  `json:"internal_states"`
	}
	if _, err := s.get(ctx, "/server_info", &info); err == nil && info.States != nil {
		s.Kind, s.Version = SGLang, info.Version
		if info.Limit != "" {
			s.Kind = Draftlab
		}
		s.Info = s.settings(ctx, "/server_info")
		return s, nil
	}
	var props struct {
		Defaults any    `json:"default_generation_settings"`
		Build    string `json:"build_info"`
	}
	if _, err := s.get(ctx, "/props", &props); err == nil && props.Defaults != nil {
		s.Kind, s.Version = LlamaCPP, props.Build
		s.Info = s.settings(ctx, "/props")
		return s, nil
	}
	if m := s.metrics(ctx); m != nil && m.Has("vllm:") {
		s.Kind = VLLM
		if _, err := s.get(ctx, "/version", &info); err == nil {
			s.Version = info.Version
		}
	}
	return s, nil
}

// settings returns a document with what must stay secret hidden, nil if there is none.
func (s *Server) settings(ctx context.Context, path string) map[string]any {
	var doc map[string]any
	if _, err := s.get(ctx, path, &doc); err != nil {
		return nil
	}
	Hide(doc)
	return doc
}

// secret matches the names of settings that a result must not carry.
var secret = regexp.MustCompile(`(?i)(^|[_-])((api|access)?key|secret|password|passwd|credential|authorization|(api|auth|access|hf|bearer)[_-]?token)s?$|(^|[_-])token$`)

// vocabulary matches the names of a vocabulary's tokens, such as eos_token, which are none.
var vocabulary = regexp.MustCompile(`(?i)(bos|eos|eot|pad|unk|sep|cls|mask|image|audio|stop|think)[a-z_]*tokens?$`)

// Secret reports whether a setting or an environment variable of a name has a value that no result may carry. A number of tokens is none.
func Secret(name string) bool { return secret.MatchString(name) && !vocabulary.MatchString(name) }

// Hide replaces the texts of secrets in a document, at any depth.
func Hide(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if text, ok := x.(string); ok && text != "" && Secret(k) {
				v[k] = "(hidden)"
			} else {
				Hide(x)
			}
		}
	case []any:
		for _, x := range v {
			Hide(x)
		}
	}
}

// maxBody bounds what is read of an answer.
const maxBody = 16 << 20

// get asks for a JSON document. The status is 0 if there was no answer.
func (s *Server) get(ctx context.Context, path string, into any) (status int, err error) {
	status, body, err := s.ask(ctx, http.MethodGet, path)
	if err != nil {
		return status, err
	}
	return status, json.Unmarshal(body, into)
}

func (s *Server) ask(ctx context.Context, method, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.Base+path, nil)
	if err != nil {
		return 0, nil, err
	}
	client.SetHeader(req, s.Header)
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.StatusCode, body, err
}

// metrics returns the server's Prometheus metrics, nil if it has none.
func (s *Server) metrics(ctx context.Context) *scrape.Metrics {
	_, body, err := s.ask(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil
	}
	m, err := scrape.Parse(strings.NewReader(string(body)))
	if err != nil {
		return nil
	}
	return m
}

// Flush empties the prefix cache and reports whether the server said that it did.
func (s *Server) Flush(ctx context.Context) bool {
	path := ""
	switch s.Kind {
	case Draftlab, SGLang:
		path = "/flush_cache"
	case VLLM:
		path = "/reset_prefix_cache" // only in its development mode
	default:
		return false
	}
	_, _, err := s.ask(ctx, http.MethodPost, path)
	return err == nil
}

// Cached reads how many prompt tokens the server has taken from its prefix cache since its start; false if it does not say. vLLM tells
// it with each answer only when it was started with --enable-prompt-tokens-details, and counts it always.
func (s *Server) Cached(ctx context.Context) (tokens int64, ok bool) {
	if s.Kind != VLLM {
		return 0, false
	}
	m := s.metrics(ctx)
	if m == nil {
		return 0, false
	}
	n, ok := m.Sum("vllm:prefix_cache_hits_total")
	return int64(n), ok
}

// Drafts are counters of speculation since the server's start.
type Drafts struct {
	Cycles, Drafted, Accepted int64
	PerPosition               []int64 // [k] cycles that accepted the draft at position k
}

// prefixes of the counters' names: each kind puts its own before the names that vLLM made.
var prefixes = map[Kind]string{Draftlab: "draftlab:", VLLM: "vllm:", LlamaCPP: "llamacpp:"}

// Drafts reads the counters; false if the server has none. SGLang's are cycles and tokens alone: what it emits beyond one
// token a cycle was accepted, but for the token that each prompt's pass gives, which [Between] takes off.
func (s *Server) Drafts(ctx context.Context) (d Drafts, ok bool) {
	m := s.metrics(ctx)
	if m == nil {
		return d, false
	}
	if s.Kind == SGLang {
		cycles, have := m.Sum("sglang:spec_verify_calls_total")
		tokens, _ := m.Sum("sglang:generation_tokens_total")
		requests, _ := m.Sum("sglang:num_requests_total")
		return Drafts{Cycles: int64(cycles), Accepted: int64(tokens - requests - cycles)}, have
	}
	name := prefixes[s.Kind] + "spec_decode_num_"
	cycles, have := m.Sum(name + "drafts_total")
	if !have || prefixes[s.Kind] == "" {
		return d, false
	}
	drafted, _ := m.Sum(name + "draft_tokens_total")
	accepted, _ := m.Sum(name + "accepted_tokens_total")
	d = Drafts{Cycles: int64(cycles), Drafted: int64(drafted), Accepted: int64(accepted)}
	for _, one := range m.Samples(name + "accepted_tokens_per_pos_total") {
		k, err := strconv.Atoi(one.Labels["position"])
		if err != nil || k < 0 || k > 255 {
			continue // not a position
		}
		for len(d.PerPosition) <= k {
			d.PerPosition = append(d.PerPosition, 0)
		}
		d.PerPosition[k] += int64(one.Value)
	}
	return d, true
}
