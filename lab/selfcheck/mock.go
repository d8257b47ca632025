package selfcheck

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"draftlab/openai"
)

// Timing is what a mock's answers take.
type Timing struct {
	First  time.Duration // from a request's arrival to its first token
	Gap    time.Duration // between tokens
	Tokens int           // of each answer
}

// sent is when a mock really wrote, which its timers make a little later than it was meant: nanoseconds since the request came.
type sent struct{ first, last int64 }

// Mock is a server on the loopback that streams text completions on a schedule and remembers, by prompt, when it wrote.
type Mock struct {
	URL    string
	timing Timing
	http   *http.Server
	done   chan struct{}
	times  sync.Map // prompt → sent
}

// NewMock starts a mock, which Close stops.
func NewMock(t Timing) (*Mock, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the mock server cannot listen on the loopback: %w", err)
	}
	m := &Mock{URL: "http://" + l.Addr().String(), timing: t, done: make(chan struct{})}
	m.http = &http.Server{Handler: http.HandlerFunc(m.serve)}
	go func() {
		defer close(m.done)
		_ = m.http.Serve(l) // ends with ErrServerClosed
	}()
	return m, nil
}

// Close ends the server with its connections.
func (m *Mock) Close() {
	_ = m.http.Close()
	<-m.done
}

// tokenEvent is the event of one token.
var tokenEvent = openai.AppendEvent(nil, []byte(`{"choices":[{"index":0,"text":" a","token_ids":[7],"finish_reason":null}]}`))

func (m *Mock) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var body struct {
		Prompt string `json:"prompt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	var t sent
	for i := range m.timing.Tokens {
		time.Sleep(time.Until(begin.Add(m.timing.First + time.Duration(i)*m.timing.Gap)))
		now := time.Since(begin).Nanoseconds()
		if _, err := w.Write(tokenEvent); err != nil {
			return // the client has gone
		}
		_ = flush.Flush() // likewise
		if t.last = now; i == 0 {
			t.first = now
		}
	}
	m.times.Store(body.Prompt, t)
	end := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, m.timing.Tokens)
	_, _ = w.Write(openai.AppendEvent(openai.AppendEvent(nil, []byte(end)), []byte(openai.Done)))
}

// take returns when the answer to a prompt was written, and forgets it.
func (m *Mock) take(prompt string) (sent, bool) {
	v, ok := m.times.LoadAndDelete(prompt)
	if !ok {
		return sent{}, false
	}
	return v.(sent), true
}
