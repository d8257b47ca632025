package field

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"draftlab/lab/clock"
)

// proxy stands before a server and hands its answers on as a slower server would have sent them: what arrived a time t after the first
// piece of an answer is handed on at t and its share. Nothing of the answer is changed, nothing is handed on before its time, and the server
// is not held up, so that it has its own pace and noise; the delays grow along the answer, as those of slower cycles do.
type proxy struct {
	url    string
	server *http.Server
	ended  chan struct{}
}

// newProxy starts one on a free port of this machine.
func newProxy(base string, share float64) (*proxy, error) {
	to, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{url: "http://" + l.Addr().String(), ended: make(chan struct{})}
	p.server = &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1, // at once
		Transport:     slowTransport{&http.Transport{MaxIdleConnsPerHost: 2, DisableCompression: true}, share},
	}}
	go func() {
		_ = p.server.Serve(l) // ends with close
		close(p.ended)
	}()
	return p, nil
}

// close ends it.
func (p *proxy) close() {
	_ = p.server.Close()
	<-p.ended
}

// slowTransport slows answers down by a share.
type slowTransport struct {
	http.RoundTripper
	share float64
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil && s.share > 0 {
		resp.Body = newSlowBody(resp.Body, s.share)
	}
	return resp, err
}

// piece is a part of an answer, and when it came.
type piece struct {
	data []byte
	at   time.Time
	err  error
}

// slowBody is an answer that is slowed down. One goroutine reads it as it comes, until it ends or is closed.
type slowBody struct {
	io.Closer
	share  float64
	pieces chan piece
	closed chan struct{}
	alarm  *clock.Alarm // exact without spinning, which would take the server's processor
	first  time.Time    // zero until the first piece
	left   piece        // the rest of what was handed on
}

func newSlowBody(body io.ReadCloser, share float64) *slowBody {
	b := &slowBody{Closer: body, share: share, pieces: make(chan piece, 1024), closed: make(chan struct{}), alarm: clock.NewAlarm()}
	go func() {
		defer close(b.pieces)
		for buffer := make([]byte, 32<<10); ; {
			n, err := body.Read(buffer)
			p := piece{append([]byte(nil), buffer[:n]...), time.Now(), err}
			select {
			case b.pieces <- p:
			case <-b.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return b
}

// Read waits until the next piece is due.
func (b *slowBody) Read(to []byte) (int, error) {
	for len(b.left.data) == 0 {
		if b.left.err != nil {
			return 0, b.left.err
		}
		p, ok := <-b.pieces
		if !ok {
			return 0, errors.New("the answer was closed")
		}
		if b.first.IsZero() {
			b.first = p.at
		}
		due := p.at.Add(time.Duration(b.share * float64(p.at.Sub(b.first))))
		b.alarm.Until(context.Background(), due) // false if Close ended it: there is nobody to read on
		b.left = p
	}
	n := copy(to, b.left.data)
	b.left.data = b.left.data[n:]
	return n, nil
}

// Close ends the reading goroutine as well.
func (b *slowBody) Close() error {
	close(b.closed)
	return errors.Join(b.alarm.Close(), b.Closer.Close())
}
