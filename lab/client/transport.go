package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"draftlab/lab/clock"
)

// maxConns bounds the connections to a server: a fifth of the descriptors that systems allow, and more requests than servers of language
// models run. Without a bound the requests of an overload take the last descriptor from whoever would answer them, where that is
// on the same machine, and all wait for each other.
const maxConns = 4096

// NewHTTP returns an HTTP client that keeps up to idle connections to a server open, and never has more than 4096, or than idle if that is more. A
// request beyond waits for a connection, and its [Sample] says so, since it starts when it is written. The client asks for no
// compression, which would hold events back, and goes through no proxy. A connection on which nothing has come for stall (five
// quarters of it at most) after the last byte in either direction fails; stall must be positive.
func NewHTTP(idle int, stall time.Duration) *http.Client {
	d := &net.Dialer{Timeout: min(stall, 10*time.Second)}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &watched{Conn: clock.Watch(c), stall: stall}, nil
		},
		MaxConnsPerHost:     max(idle, maxConns),
		MaxIdleConnsPerHost: idle,
		IdleConnTimeout:     stall / 2, // so that an idle connection is dropped before it counts as stalled
		DisableCompression:  true,
	}}
}

// watched is a connection whose reads fail when nothing comes for too long.
type watched struct {
	*clock.Conn
	stall time.Duration
	until atomic.Int64 // the deadline that is set, Unix nanoseconds
}

// arm gives the next bytes the whole limit, and a quarter more, so that the deadline need not be set again for every read.
func (w *watched) arm() error {
	now := time.Now()
	if time.Duration(w.until.Load()-now.UnixNano()) >= w.stall {
		return nil
	}
	t := now.Add(w.stall + w.stall/4)
	w.until.Store(t.UnixNano())
	return w.SetReadDeadline(t)
}

// Read waits for at most the limit.
func (w *watched) Read(b []byte) (int, error) {
	if err := w.arm(); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

// Write gives the answer the whole limit: the transport began to wait for it when the last one ended.
func (w *watched) Write(b []byte) (int, error) {
	if err := w.arm(); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// watchOf returns the clock of a connection of NewHTTP's, nil for another's.
func watchOf(c net.Conn) *clock.Conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if w, ok := c.(*watched); ok {
		return w.Conn
	}
	return nil
}
