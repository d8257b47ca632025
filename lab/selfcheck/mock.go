package selfcheck

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"draftlab/lab/clock"
	"draftlab/openai"
)

// Timing is what a mock's answers take.
type Timing struct {
	First  time.Duration // from a request's arrival to its first token
	Gap    time.Duration // between tokens
	Tokens int           // of an answer whose request does not say how many it wants
}

// Answer is one answer of a mock, as it really was. It is written a little later than meant, since timers and processors are.
type Answer struct {
	Prompt  string        // of the request: a text, or a chat's last turn
	Arrived time.Time     // when the last byte of the request came, by the kernel's account where there is one
	First   time.Duration // from then until the first token was handed to the kernel
	Last    time.Duration // … the last token
	Tokens  int
}

// Mock is a server that streams text and chat completions on a schedule and tells when it wrote. A request that wants no stream gets
// its answer when the last token is due.
//
// One goroutine writes all answers: beside a client on the same processors a mock must be cheap, and a goroutine for each answer
// would have to find a processor for every token.
type Mock struct {
	URL    string
	timing Timing
	ended  func(Answer)
	l      net.Listener
	alarm  *clock.Alarm
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	queue  answers
	conns  map[net.Conn]bool
	closed bool
}

// NewMock starts a mock at an address of the loopback, such as 127.0.0.1:0, which Close stops. ended is told of each answer just before its
// last part is written, by one goroutine; nil is nobody.
func NewMock(addr string, t Timing, ended func(Answer)) (*Mock, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the mock server cannot listen: %w", err)
	}
	m := &Mock{URL: "http://" + l.Addr().String(), timing: t, ended: ended, l: l, alarm: clock.NewAlarm(), conns: map[net.Conn]bool{}}
	m.wg.Go(m.accept)
	m.wg.Go(m.write)
	return m, nil
}

// Close ends the server with its connections.
func (m *Mock) Close() {
	m.mu.Lock()
	m.closed = true
	for c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	_ = m.l.Close()
	_ = m.alarm.Close()
	m.wg.Wait()
}

// accept takes connections, each of which gets a goroutine that reads its requests.
func (m *Mock) accept() {
	for {
		c, err := m.l.Accept()
		if err != nil {
			m.mu.Lock()
			closed := m.closed
			m.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(time.Millisecond) // out of descriptors, until a connection ends
			continue
		}
		m.mu.Lock()
		if m.closed {
			_ = c.Close()
		} else {
			m.conns[c] = true
			m.wg.Go(func() { m.read(c) })
		}
		m.mu.Unlock()
	}
}

// What a request may have and ask for: more is nobody's schedule, and would take the memory of the machine that is measured.
const (
	maxRequest = 16 << 20 // bytes
	maxTokens  = 1 << 20
)

// read takes in the requests of a connection, one after the other. It does not wait for the answers: a client sends nothing before it has
// the last one.
func (m *Mock) read(c net.Conn) {
	defer func() {
		_ = c.Close()
		m.mu.Lock()
		delete(m.conns, c)
		m.mu.Unlock()
	}()
	watched := clock.Watch(c)
	in := bufio.NewReader(watched)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return // the client has gone, or speaks another protocol
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
		if err != nil || len(body) == maxRequest {
			return
		}
		if a := m.request(c, watched.Came(), r, body); a != nil {
			m.push(a)
		} else if _, err := io.WriteString(c, other(r)); err != nil || r.Close {
			return
		}
	}
}

// other answers what asks for no tokens.
func other(r *http.Request) string {
	status, body := "404 Not Found", "{}"
	switch r.URL.Path {
	case "/v1/models":
		status, body = "200 OK", `{"object":"list","data":[{"id":"mock","object":"model","created":0,"owned_by":"draftlab"}]}`
	case "/health":
		status = "200 OK"
	case completions, chats:
		status, body = "400 Bad Request", `{"error":{"message":"want a POST of a JSON object with a prompt or messages, and at most 1048576 tokens"}}` // maxTokens
	}
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// The paths that tokens come from.
const (
	completions = "/v1/completions"
	chats       = "/v1/chat/completions"
)

// request is the answer that a request wants, nil if it wants none.
func (m *Mock) request(c net.Conn, arrived time.Time, r *http.Request, body []byte) *answer {
	var want struct {
		Prompt   any `json:"prompt"`
		Messages []struct {
			Content any `json:"content"`
		} `json:"messages"`
		Stream bool `json:"stream"`
		Max    int  `json:"max_tokens"`
		MaxNew int  `json:"max_completion_tokens"`
	}
	path := r.URL.Path
	if path != completions && path != chats || json.Unmarshal(body, &want) != nil {
		return nil
	}
	a := &answer{conn: c, close: r.Close, kind: &texts, Answer: Answer{Arrived: arrived, Tokens: max(want.Max, want.MaxNew)}}
	if path == chats {
		if a.kind = &turns; len(want.Messages) == 0 {
			return nil
		}
		want.Prompt = want.Messages[len(want.Messages)-1].Content
	}
	if a.Tokens > maxTokens {
		return nil
	}
	if a.Tokens <= 0 {
		a.Tokens = m.timing.Tokens
	}
	a.due = arrived.Add(m.timing.First)
	if !want.Stream {
		a.whole, a.due = true, a.due.Add(time.Duration(a.Tokens-1)*m.timing.Gap)
	}
	a.Prompt = fmt.Sprint(want.Prompt)
	return a
}

// answer is an answer that is being written.
type answer struct {
	Answer
	conn  net.Conn
	due   time.Time     // of the next part
	done  int           // tokens written
	whole bool          // not streamed
	close bool          // the connection, behind it
	limit time.Duration // the deadline of writing, from the arrival
	kind  *pieces
}

// answers is a heap, the next one due on top.
type answers []*answer

func (h answers) Len() int           { return len(h) }
func (h answers) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h answers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *answers) Push(x any)        { *h = append(*h, x.(*answer)) }
func (h *answers) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}

// push has an answer's next part written when it is due.
func (m *Mock) push(a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heap.Push(&m.queue, a)
	if m.queue[0] == a {
		m.alarm.Set(a.due)
	}
}

// pop returns the next answer if it is due; else it has the alarm ring when it will be, and returns nil.
func (m *Mock) pop() *answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		m.alarm.Set(time.Now().Add(time.Hour)) // push sets it earlier
		return nil
	}
	if due := m.queue[0].due; time.Until(due) > 0 {
		m.alarm.Set(due)
		return nil
	}
	return heap.Pop(&m.queue).(*answer)
}

// write writes what is due until the mock is closed.
func (m *Mock) write() {
	for {
		a := m.pop()
		switch {
		case a == nil:
			if !m.alarm.Wait() {
				return
			}
		case !m.part(a):
			_ = a.conn.Close() // its reader notices
		case a.done < a.Tokens:
			a.due = a.due.Add(m.timing.Gap)
			m.push(a)
		case a.close:
			_ = a.conn.Close()
		}
	}
}

// patience is how long a client may leave its answer unread, and up to twice that: all others wait meanwhile.
const patience = time.Second

// part writes the next part of an answer and reports whether the connection took it.
func (m *Mock) part(a *answer) bool {
	now := time.Since(a.Arrived)
	a.Last = now
	if a.done == 0 {
		a.First = now
	}
	if a.limit-now < patience {
		a.limit = now + 2*patience
		if err := a.conn.SetWriteDeadline(a.Arrived.Add(a.limit)); err != nil {
			return false
		}
	}
	a.done++
	if a.whole {
		a.done = a.Tokens
	}
	if a.done == a.Tokens && m.ended != nil {
		m.ended(a.Answer)
	}
	_, err := a.conn.Write(a.bytes())
	return err == nil
}

// pieces are the parts that the answers of a path consist of, as they go over the wire.
type pieces struct {
	first, token []byte
	end          string // the last event of a choice
	object       string // of a stream's events
	whole        string // an answer in one piece, with places for its text, and for usage
}

// head begins every stream.
const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// word is a token's text, and one token in the vocabularies of today's models.
const word = " a"

var (
	texts = newPieces("text_completion", "text_completion", `"text":"`+word+`","token_ids":[7]`, `"text":""`, `"text":%q`)
	turns = newPieces("chat.completion.chunk", "chat.completion", `"delta":{"content":"`+word+`"},"token_ids":[7]`, `"delta":{}`, `"message":{"role":"assistant","content":%q}`)
)

func newPieces(event, object, token, end, whole string) pieces {
	p := pieces{object: event, end: document(event, end, `"length"`, "")}
	p.token = chunk(document(event, token, "null", ""))
	p.first = append([]byte(head), p.token...)
	p.whole = document(object, whole, `"length"`, ",%s")
	return p
}

// document is an event or an answer with one choice.
func document(object, choice, finish, more string) string {
	return `{"id":"mock","object":"` + object + `","created":0,"model":"mock","choices":[{"index":0,` + choice + `,"finish_reason":` + finish + `}]` + more + `}`
}

// chunk frames an event as HTTP/1.1 does the parts of a body of unknown length (RFC 9112, 7.1).
func chunk(data string) []byte {
	event := openai.AppendEvent(nil, []byte(data))
	return fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
}

// bytes returns the part of an answer that a.done has counted last.
func (a *answer) bytes() []byte {
	part := a.kind.token
	if a.done == 1 {
		part = a.kind.first
	}
	if a.done < a.Tokens {
		return part
	}
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}`, a.Tokens, a.Tokens+1)
	if a.whole {
		body := fmt.Sprintf(a.kind.whole, strings.Repeat(word, a.Tokens), usage)
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	counts := chunk(`{"id":"mock","object":"` + a.kind.object + `","created":0,"model":"mock","choices":[],` + usage + `}`)
	return slices.Concat(part, chunk(a.kind.end), counts, chunk(openai.Done), []byte("0\r\n\r\n"))
}
