// Package client sends one request to a server and notes when what of the answer came: [Client.Do] makes a [Sample] of a
// [Request], with OpenAI's chat and text completions or with SGLang's /generate, streaming.
//
// It decides neither when to send nor what a sample means: load generators do the one, campaigns the other. Answers are taken
// apart after they have ended, so that the client's own work does not delay what it times.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"draftlab/lab/clock"
)

// API is a way of asking for text.
type API string

// The ways.
const (
	Chat       API = "/v1/chat/completions"
	Completion API = "/v1/completions"
	Generate   API = "/generate" // SGLang's own
)

// Request is what one request asks for.
type Request struct {
	API       API
	Model     string
	Prompt    string // the user's turn of a chat, or the text to continue
	MaxTokens int

	// Extra are further fields of the body: the temperature, and what one server has and another has not. They go where
	// the API has its sampling parameters, but for those of SGLang's that stand outside: see Outer.
	Extra map[string]any
	// Outer are fields of the body of SGLang's /generate beside its sampling parameters; elsewhere they are like Extra.
	Outer map[string]any
}

// Chunk is a piece of the output as it arrived.
type Chunk struct {
	AtNS   int64 `json:"at_ns"`            // since the request was sent
	Tokens int   `json:"tokens,omitempty"` // 0 if the server does not say
	Bytes  int   `json:"bytes"`            // of text
}

// Speculation is what a server tells of the drafts of one output.
type Speculation struct {
	Cycles    int64   `json:"cycles"`
	Drafted   int64   `json:"drafted,omitempty"`
	Accepted  int64   `json:"accepted"`
	Histogram []int64 `json:"histogram,omitempty"` // [k] cycles that accepted exactly k drafts
}

// Sample is what became of a request. Times are nanoseconds on the client's clock.
type Sample struct {
	DueUnixNS    int64        `json:"due_unix_ns"`   // when it should have been sent
	StartUnixNS  int64        `json:"start_unix_ns"` // when it was handed to the kernel
	FirstNS      int64        `json:"first_ns"`      // from the start to the first text that is not empty
	LastNS       int64        `json:"last_ns"`       // to the last
	EndNS        int64        `json:"end_ns"`        // to the end of the answer
	Chunks       []Chunk      `json:"chunks"`
	Text         string       `json:"text"`
	TokenIDs     []int32      `json:"token_ids,omitempty"` // if the server tells
	PromptTokens int          `json:"prompt_tokens"`
	OutputTokens int          `json:"output_tokens"`
	CachedTokens int          `json:"cached_tokens"`
	Finish       string       `json:"finish"`
	DecodeSteps  int          `json:"decode_steps,omitempty"` // passes after the first token, if the server tells
	Spec         *Speculation `json:"spec,omitempty"`
	Resent       int          `json:"resent,omitempty"`  // times that it was lost on a connection which the server had closed
	Status       int          `json:"status"`            // of HTTP; 0 if there was no answer
	Error        string       `json:"error,omitempty"`   // "" for a complete answer
	Failure      Failure      `json:"failure,omitempty"` // what kind of error
}

// DecodeTokS returns the output tokens after the first chunk over the time from the first chunk to the last; 0 if there is no
// second one. Where the server does not say how many tokens the first chunk had, it counts as one.
func (s *Sample) DecodeTokS() float64 {
	if len(s.Chunks) == 0 || s.LastNS <= s.FirstNS {
		return 0
	}
	return float64(s.OutputTokens-max(1, s.Chunks[0].Tokens)) / time.Duration(s.LastNS-s.FirstNS).Seconds()
}

// EndToEndTokS returns all output tokens over the time from the start to the last chunk.
func (s *Sample) EndToEndTokS() float64 {
	if s.LastNS <= 0 {
		return 0
	}
	return float64(s.OutputTokens) / time.Duration(s.LastNS).Seconds()
}

// Client sends requests to one server.
type Client struct {
	Base string // such as http://127.0.0.1:30000
	HTTP *http.Client
	Key  string // sent as a bearer token unless it is empty

	Header http.Header // sent with each request
}

// SetHeader gives a request further headers in place of those that it had; Host, which Go keeps elsewhere, too.
func SetHeader(r *http.Request, h http.Header) {
	for k, v := range h {
		if r.Header[k] = v; k == "Host" && len(v) > 0 {
			r.Host = v[0]
		}
	}
}

// maxAnswer bounds an answer against a server that never ends, in bytes.
const maxAnswer = 256 << 20

// Do sends a request that was due at a time and returns what became of it, a failure included. A due time of zero is when it was sent.
func (c *Client) Do(ctx context.Context, due time.Time, r *Request) *Sample {
	body, err := r.body()
	if err != nil {
		return &Sample{DueUnixNS: due.UnixNano(), Error: err.Error(), Failure: Unreachable}
	}
	s := &Sample{}
	resp, w, err := c.post(ctx, r.API, body)
	if due.IsZero() {
		due = w.start
	}
	// The start is counted from the due time on the monotonic clock: a step of the wall clock is no latency.
	s.DueUnixNS, s.StartUnixNS, s.Resent = due.UnixNano(), due.Add(w.start.Sub(due)).UnixNano(), w.resent
	if err != nil {
		s.Error, s.Failure = err.Error(), failureOf(ctx, 0, err)
		return s
	}
	defer resp.Body.Close()
	s.Status = resp.StatusCode
	a := spare.Get().(*arrivals)
	defer a.release()
	err = a.record(resp.Body, w)
	s.EndNS = w.since()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = serverError(resp.Status, a.data)
	}
	if err == nil {
		err = s.read(r.API, a)
	}
	if err != nil {
		s.Error, s.Failure = err.Error(), failureOf(ctx, s.Status, err)
	}
	return s
}

// wire is a request on its way.
type wire struct {
	start  time.Time   // when it was handed to the kernel, the first time if it was sent again; without a clock, when it was to be
	clock  *clock.Conn // of the connection; nil if that has none
	resent int
}

// since returns when the last bytes came, or what the time is without a clock: nanoseconds since the start.
func (w *wire) since() int64 {
	if w.clock != nil {
		if d := w.clock.Came().Sub(w.start); d > 0 {
			return d.Nanoseconds()
		}
	}
	return time.Since(w.start).Nanoseconds()
}

// maxResent is the number of connections on which a request may be lost: more than one can be stale when a server was idle.
const maxResent = 3

// post sends a body, and sends it again on another connection if the one that was kept open turns out to be closed before a byte of
// the answer has come: a server may close it while the request is on its way, which is no failure of either (RFC 9112, 9.3.1).
func (c *Client) post(ctx context.Context, api API, body []byte) (resp *http.Response, w *wire, err error) {
	kept := false
	w = &wire{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		kept = i.Reused
		if w.clock = watchOf(i.Conn); w.clock != nil {
			w.clock.Mark()
		}
	}})
	for begin := time.Now(); ; w.resent++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+string(api), bytes.NewReader(body))
		if err != nil {
			return nil, w, err
		}
		req.Header.Set("Content-Type", "application/json")
		SetHeader(req, c.Header)
		if c.Key != "" {
			req.Header.Set("Authorization", "Bearer "+c.Key)
		}
		resp, err := c.HTTP.Do(req)
		if w.start.IsZero() {
			if w.start = begin; w.clock != nil && !w.clock.Sent().IsZero() {
				w.start = w.clock.Sent()
			}
		}
		if err == nil || !kept || !closedEarly(err) || w.resent == maxResent {
			return resp, w, err
		}
	}
}

// body returns the JSON of a request.
func (r *Request) body() ([]byte, error) {
	doc := map[string]any{"stream": true}
	params := doc
	switch r.API {
	case Chat:
		doc["messages"] = []any{map[string]string{"role": "user", "content": r.Prompt}}
	case Completion:
		doc["prompt"] = r.Prompt
	case Generate:
		params = map[string]any{}
		doc["text"], doc["sampling_params"] = r.Prompt, params
	default:
		return nil, fmt.Errorf("client: no API %q", r.API)
	}
	if r.API == Generate {
		params["max_new_tokens"] = r.MaxTokens
	} else {
		doc["model"], doc["max_tokens"], doc["stream_options"] = r.Model, r.MaxTokens, map[string]bool{"include_usage": true}
	}
	for k, v := range r.Extra {
		params[k] = v
	}
	for k, v := range r.Outer {
		doc[k] = v
	}
	return json.Marshal(doc)
}

// serverError makes an error of an answer that is none, with the server's own words where it has some.
func serverError(status string, data []byte) error {
	var doc struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	words := strings.TrimSpace(string(data[:min(len(data), 300)]))
	if json.Unmarshal(data, &doc) == nil && doc.Error.Message != "" {
		words = doc.Error.Message
	}
	return errors.New(strings.TrimSpace(status + ": " + words))
}

// arrivals is an answer with the time at which each part of it came.
type arrivals struct {
	data []byte
	ends []int   // offset behind each read
	at   []int64 // its time, nanoseconds since the start
}

// spare holds arrivals for other requests: allocating and clearing their buffers was most of what a request cost.
var spare = sync.Pool{New: func() any { return &arrivals{data: make([]byte, 0, 64<<10)} }}

// release gives a back, with nothing of it in use any more, unless a huge answer has made it large.
func (a *arrivals) release() {
	if cap(a.data) > 1<<20 {
		return
	}
	a.data, a.ends, a.at = a.data[:0], a.ends[:0], a.at[:0]
	spare.Put(a)
}

// record reads an answer to its end.
func (a *arrivals) record(r io.Reader, w *wire) error {
	for len(a.data) < maxAnswer {
		if cap(a.data)-len(a.data) < 16<<10 {
			a.data = append(make([]byte, 0, 2*cap(a.data)), a.data...)
		}
		n, err := r.Read(a.data[len(a.data):cap(a.data)])
		if n > 0 {
			a.data = a.data[:len(a.data)+n]
			at := w.since()
			if k := len(a.at); k > 0 {
				at = max(at, a.at[k-1]) // two clocks are compared, and may be a microsecond apart
			}
			a.ends, a.at = append(a.ends, len(a.data)), append(a.at, at)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
}

// replay hands an answer out read by read, so that whoever takes it apart knows when each part was there.
type replay struct {
	*arrivals
	pos  int // offset of what comes next
	next int // the read in which it lies
}

// Read returns what is left of one read.
func (p *replay) Read(b []byte) (int, error) {
	if p.next == len(p.ends) {
		return 0, io.EOF
	}
	n := copy(b, p.data[p.pos:p.ends[p.next]])
	if p.pos += n; p.pos == p.ends[p.next] {
		p.next++
	}
	return n, nil
}

// when returns the time of the read that Read handed out last.
func (p *replay) when() int64 {
	if p.next > 0 && p.pos == p.ends[p.next-1] {
		return p.at[p.next-1]
	}
	return p.at[p.next]
}
