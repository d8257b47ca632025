package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// hostile is a server that behaves as the prompt of a request says.
func hostile(t *testing.T) *httptest.Server {
	t.Helper()
	part := "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n"
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := func(text string) {
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
		body, _ := io.ReadAll(r.Body)
		var how string
		_, _ = fmt.Sscanf(string(body), `{"max_tokens":1,"model":"","prompt":%q`, &how)
		switch how {
		case "429":
			w.WriteHeader(429)
		case "400":
			w.WriteHeader(400)
		case "500":
			w.WriteHeader(500)
		case "stall at once":
			<-release
		case "stall":
			say(part)
			<-release
		case "cut":
			say(part)
			panic(http.ErrAbortHandler)
		case "reset":
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		case "no end":
			say(part)
		case "half":
			say(part + "data: {\"choi")
		case "not JSON":
			say(part + "data: hello\n\n")
		case "other types":
			say("data: {\"choices\":\"none\"}\n\n")
		case "error":
			say(part + "data: {\"error\":{\"message\":\"out of memory\"}}\n\n")
		case "well":
			say(part + "data: [DONE]\n\n")
		}
	}))
	t.Cleanup(func() { close(release); s.Close() })
	return s
}

func TestHostileServersAreNamed(t *testing.T) {
	s := hostile(t)
	h, hasty := NewHTTP(4, time.Minute), NewHTTP(4, 200*time.Millisecond)
	defer h.CloseIdleConnections()
	defer hasty.CloseIdleConnections()
	for how, want := range map[string]Failure{
		"429": Limited, "400": Refused, "500": ServerFault, "stall at once": Stalled, "stall": Stalled, "cut": Cut, "reset": Cut, "no end": Cut, "half": Cut,
		"not JSON": Broken, "other types": Broken, "error": ServerFault, "well": "",
	} {
		c := &Client{Base: s.URL, HTTP: h}
		if want == Stalled {
			c.HTTP = hasty
		}
		got := c.Do(t.Context(), time.Now(), &Request{API: Completion, Prompt: how, MaxTokens: 1})
		if got.Failure != want || (got.Error == "") != (want == "") {
			t.Errorf("%s: %q (%s), want %q", how, got.Failure, got.Error, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &Client{Base: s.URL, HTTP: h}
	if got := c.Do(ctx, time.Now(), &Request{API: Completion, Prompt: "well"}); got.Failure != Cancelled {
		t.Errorf("cancelled: %q (%s)", got.Failure, got.Error)
	}
	dead := &Client{Base: "http://127.0.0.1:1", HTTP: h}
	if got := dead.Do(t.Context(), time.Now(), &Request{API: Completion}); got.Failure != Unreachable {
		t.Errorf("not there: %q (%s)", got.Failure, got.Error)
	}
}

// TestASlowServerDoesNotStall: the limit is for silence, not for the whole answer.
func TestASlowServerDoesNotStall(t *testing.T) {
	for limit := 500 * time.Millisecond; ; limit *= 4 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 8 { // in all a quarter more than the longest silence
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(limit / 5)
			}
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}))
		h := NewHTTP(1, limit)
		got := (&Client{Base: s.URL, HTTP: h}).Do(t.Context(), time.Now(), &Request{API: Completion})
		h.CloseIdleConnections()
		s.Close()
		if got.Failure == "" && got.OutputTokens == 8 {
			return
		}
		if limit > 10*time.Second { // the server's machine itself may be silent for less
			t.Fatalf("%q (%s), %d tokens", got.Failure, got.Error, got.OutputTokens)
		}
	}
}

// TestManyRequestsAtOnce: the idle connections that are kept do not bound the requests that run.
func TestManyRequestsAtOnce(t *testing.T) {
	const n = 8
	var running sync.WaitGroup
	running.Add(n)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		running.Done()
		running.Wait() // for all of them
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	h := NewHTTP(1, 10*time.Second)
	defer h.CloseIdleConnections()
	c := &Client{Base: s.URL, HTTP: h}
	var asked sync.WaitGroup
	for range n {
		asked.Go(func() {
			if got := c.Do(t.Context(), time.Time{}, &Request{API: Completion}); got.Failure != "" {
				t.Errorf("%q (%s)", got.Failure, got.Error)
			}
		})
	}
	asked.Wait()
}

// TestAClosedConnectionIsNoFailure: a server that lets kept connections go without a word, as llama.cpp's does, loses no request.
func TestAClosedConnectionIsNoFailure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answer := "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n"
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// One answer, which says nothing of an end; the connection closes when the next request has come.
			r := bufio.NewReader(c)
			for i := range 2 {
				req, err := http.ReadRequest(r)
				if err != nil || i == 1 {
					break
				}
				_, _ = io.Copy(io.Discard, req.Body)
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			}
			_ = c.Close()
		}
	}()
	h := NewHTTP(1, time.Minute)
	defer h.CloseIdleConnections()
	c := &Client{Base: "http://" + l.Addr().String(), HTTP: h}
	resent := 0
	for range 4 {
		s := c.Do(t.Context(), time.Now(), &Request{API: Completion, Prompt: "x"})
		if s.Failure != "" || s.Text != "a" {
			t.Fatalf("%q (%s)", s.Failure, s.Error)
		}
		resent += s.Resent
	}
	if resent != 3 {
		t.Errorf("sent again %d times, want 3", resent)
	}
}

// BenchmarkDo is a request with an answer of eight events: what the client itself costs, the server's part included.
func BenchmarkDo(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 8 {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n")
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer s.Close()
	h := NewHTTP(1, time.Second)
	defer h.CloseIdleConnections()
	c := &Client{Base: s.URL, HTTP: h}
	b.ReportAllocs()
	for b.Loop() {
		if s := c.Do(b.Context(), time.Now(), &Request{API: Completion, Prompt: "x"}); s.Error != "" {
			b.Fatal(s.Error)
		}
	}
}
