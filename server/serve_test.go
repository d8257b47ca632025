package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"draftlab/engine"
	"draftlab/openai"
)

// TestMain checks S5 over all tests: no goroutine outlives them.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener and dialer of connections without buffers, in memory, so that time can be fake and a write blocks until it is
// read.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// running is a server that serves over pipes.
type running struct {
	*pipes
	client *http.Client
	stop   context.CancelFunc // as SIGTERM does
	ended  chan error
}

// serveOver starts to serve; finish must be called.
func serveOver(t *testing.T, s *Server) *running {
	p := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{pipes: p, stop: cancel, ended: make(chan error, 1)}
	r.client = &http.Client{Transport: &http.Transport{DialContext: p.dial}}
	go func() { r.ended <- s.Serve(ctx, p) }()
	return r
}

// finish drains the server and checks that it ends well.
func (r *running) finish(t *testing.T) {
	t.Helper()
	r.stop()
	r.client.CloseIdleConnections()
	if err := <-r.ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func (r *running) post(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://x/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return r.client.Do(req)
}

// status sends a request and returns the status of its answer.
func (r *running) status(t *testing.T, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestLoading(t *testing.T) {
	s := New(Config{Model: "fake"})
	for path, want := range map[string]int{"/health": 503, "/server_info": 503, "/model_info": 503, "/flush_cache": 503, "/v1/models": 200, "/metrics": 200} {
		w := call(s.Handler(), "GET", path, "")
		if w.Code != want || want == 503 && (!strings.Contains(w.Body.String(), "loading") || w.Header().Get("Retry-After") == "") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a"}`); w.Code != 503 {
		t.Errorf("completion: %d %s", w.Code, w.Body)
	}
	f := newFake(t)
	f.fail = errBroken
	f.script = func(engine.Request) []string { return nil }
	if err := s.Start(t.Context(), f); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("Start with a broken engine: %v", err)
	}
	if w := call(s.Handler(), "GET", "/health", ""); w.Code != 503 {
		t.Errorf("health without an engine: %d", w.Code)
	}
}

// TestHealth checks S4: fresh tokens are believed, an idle engine is asked, a stalled one is unhealthy, a busy one with a full queue
// is healthy as long as others get tokens.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s, _ := started(t, f, Config{HealthTimeout: 20 * time.Second, HealthFresh: 10 * time.Second})
		n := len(f.streams)
		health := func(path string, want int) {
			t.Helper()
			if w := call(s.Handler(), "GET", path, ""); w.Code != want {
				t.Errorf("%s after %d outputs: %d %s; want %d", path, len(f.streams), w.Code, w.Body, want)
			}
		}
		health("/health", 200)
		if len(f.streams) != n {
			t.Error("a fresh token is not believed")
		}
		health("/health_generate", 200)
		time.Sleep(11 * time.Second) // of fake time
		health("/health", 200)
		if len(f.streams) != n+2 || !f.last().req.NoCache || f.last().req.MaxTokens != 1 {
			t.Errorf("%d outputs; want one for /health_generate and one for the idle engine", len(f.streams)-n)
		}

		time.Sleep(11 * time.Second)
		f.gate = make(chan struct{}) // never opens
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { health("/health", 503) })
		}
		all.Wait()
		if d := time.Since(began); d != 20*time.Second || len(f.streams) != n+3 {
			t.Errorf("a stalled engine is found after %v, with %d probes; want 20 s, one probe for three clients", d, len(f.streams)-n-2)
		}
		select {
		case <-f.last().cancelled:
		default:
			t.Error("the probe was left in the engine")
		}

		f.set(func(*engine.Stats) {}, fullQueue(4))
		all.Go(func() { health("/health", 200) })
		time.Sleep(5 * time.Second)
		f.set(func(st *engine.Stats) { st.LastToken = time.Now() }, fullQueue(4)) // of somebody else
		all.Wait()
		f.set(func(*engine.Stats) {}, errBroken)
		time.Sleep(11 * time.Second)
		health("/health", 503)
	})
}

// TestClientGone checks S2: when a client leaves within its stream, or while it waits for a whole answer, its request is cancelled.
func TestClientGone(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint(stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				s, log := started(t, f, Config{})
				r := serveOver(t, s)
				defer r.finish(t)
				gate := make(chan struct{}, 1)
				f.gate = gate
				gate <- struct{}{}
				ctx, leave := context.WithCancel(t.Context())
				got := make(chan error, 1)
				go func() {
					resp, err := r.post(ctx, fmt.Sprintf(`{"prompt":"a","stream":%v}`, stream))
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					got <- err
				}()
				synctest.Wait() // the first token has been sent, the rest waits for the gate
				leave()
				if err := <-got; err == nil {
					t.Error("the client has an answer")
				}
				<-f.last().cancelled
				synctest.Wait()
				if s.busy() != 0 || !strings.Contains(log.String(), `HTTP/1.1" 499`) {
					t.Errorf("busy %d, log %s", s.busy(), log)
				}
			})
		})
	}
}

// TestHalfClosed checks that a client which has closed its sending half, and so counts as gone, reads no answer rather than an empty one.
func TestHalfClosed(t *testing.T) {
	for _, stream := range []bool{true, false} {
		f := newFake(t)
		s, _ := started(t, f, Config{})
		gate := make(chan struct{}, 1)
		f.gate = gate
		web := httptest.NewServer(s.Handler())
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"prompt":"a","stream":%v}`, stream)
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if stream {
			gate <- struct{}{}
			if _, err := c.Read(make([]byte, 12)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(c) // an error is as good: the connection is cut
		if !stream && len(rest) > 0 || strings.HasSuffix(string(rest), "0\r\n\r\n") {
			t.Errorf("stream %v: the client read %q", stream, rest)
		}
		c.Close()
		web.Close()
		if s.busy() != 0 {
			t.Errorf("stream %v: %d requests are still counted", stream, s.busy())
		}
	}
}

// TestSlowReader checks S2: a client that does not read loses its connection after the write timeout, and another one is
// served meanwhile.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.script = func(engine.Request) []string { return strings.SplitAfter(strings.Repeat("word ", 30), " ") }
		s, _ := started(t, f, Config{WriteTimeout: 5 * time.Second})
		r := serveOver(t, s)
		defer r.finish(t)
		conn, err := r.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body := `{"prompt":"a","stream":true,"max_tokens":150}`
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		began := time.Now()
		synctest.Wait() // it writes, and nobody reads
		slow := f.last()
		if code := r.status(t, "POST", "/v1/completions", `{"prompt":"a"}`); code != 200 {
			t.Errorf("another client gets %d", code)
		}
		<-slow.cancelled
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("the slow reader was dropped after %v", d)
		}
	})
}

// TestSlowBody checks that a body which does not come ends the request, and one that comes slowly does not end the
// wait for the output.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s, _ := started(t, f, Config{ReadTimeout: 5 * time.Second})
		r := serveOver(t, s)
		defer r.finish(t)
		for _, complete := range []bool{false, true} {
			gate := make(chan struct{})
			f.gate = gate
			conn, err := r.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n%s", `{"prompt"`)
			time.Sleep(4 * time.Second)
			if complete {
				fmt.Fprint(conn, `:"a"}`)
				time.Sleep(time.Minute)
				close(gate)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{false: 400, true: 200}[complete]; resp.StatusCode != want {
				t.Errorf("complete %v: status %d; want %d", complete, resp.StatusCode, want)
			}
			conn.Close()
		}
	})
}

func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s, _ := started(t, f, Config{RequestTimeout: 3 * time.Second})
		f.gate = make(chan struct{})
		for _, n := range []string{"1", "3"} {
			w := call(s.Handler(), "POST", "/v1/completions", `{"prompt":"a","n":`+n+`}`)
			if e := unmarshal[openai.ErrorBody](t, w, 504).Error; e.Code != "request_timeout" {
				t.Errorf("%+v", e)
			}
			<-f.last().cancelled
		}
	})
}

// TestDrain checks the end of a server: what runs is finished, what comes is refused, what outlives the limit is cancelled.
func TestDrain(t *testing.T) {
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprint(long), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				s, _ := started(t, f, Config{DrainTimeout: 30 * time.Second})
				r := serveOver(t, s)
				gate := make(chan struct{})
				f.gate = gate
				body := make(chan string, 1)
				go func() {
					resp, err := r.post(t.Context(), `{"prompt":"a","stream":true}`)
					if err != nil {
						body <- err.Error()
						return
					}
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					body <- fmt.Sprint(string(b), err)
				}()
				gate <- struct{}{}
				synctest.Wait()
				r.stop()
				synctest.Wait()
				if code := r.status(t, "POST", "/v1/completions", `{"prompt":"a"}`); code != 503 {
					t.Errorf("a new request gets %d", code)
				}
				if code := r.status(t, "GET", "/health", ""); code != 503 {
					t.Errorf("/health says %d", code)
				}
				if long {
					time.Sleep(31 * time.Second)
				} else {
					close(gate)
				}
				want := map[bool]string{false: openai.Done, true: `"code":"shutting_down"`}[long]
				if got := <-body; !strings.Contains(got, want) {
					t.Errorf("the running stream is %s; want %s", got, want)
				}
				r.finish(t)
			})
		})
	}
}

// TestManyClients has a thousand connections at once, over real sockets: some read their streams, some leave in the middle, and the
// next request is served.
func TestManyClients(t *testing.T) {
	const clients = 1000
	f := newFake(t)
	f.info.MaxWaiting = clients
	s, _ := started(t, f, Config{DrainTimeout: time.Minute})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	f.gate, f.free = gate, 1
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	url := "http://" + l.Addr().String() + "/v1/completions"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var open, all sync.WaitGroup
	open.Add(clients)
	failed := make(chan error, clients)
	for i := range clients {
		all.Go(func() { failed <- oneOfMany(client, url, i%3 == 0, open.Done) })
	}
	open.Wait()
	close(gate)
	all.Wait()
	for range clients {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"prompt":"a"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("the next request: %v, %v", resp, err)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil || s.busy() != 0 {
		t.Errorf("Serve: %v, busy %d", err, s.busy())
	}
}

// oneOfMany opens a stream, tells so when its first event is there, and reads the rest or leaves.
func oneOfMany(client *http.Client, url string, leave bool, opened func()) error {
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"prompt":"a","stream":true}`))
	if err != nil {
		opened()
		return err
	}
	defer resp.Body.Close()
	events := openai.NewReader(resp.Body)
	_, err = events.Next()
	opened()
	if err != nil || leave {
		return err
	}
	for {
		data, err := events.Next()
		if err != nil {
			return fmt.Errorf("a stream ends without [DONE]: %w", err)
		}
		if string(data) == openai.Done {
			return nil
		}
	}
}
