package client

import (
	"context"
	"net"
	"net/http"
	"time"
)

// NewHTTP returns an HTTP client that keeps up to conns connections to a server open, asks for no compression, which would
// hold events back, and goes through no proxy. A connection on which nothing has come for stall after the last byte in either
// direction fails; stall must be positive.
func NewHTTP(conns int, stall time.Duration) *http.Client {
	d := &net.Dialer{Timeout: min(stall, 10*time.Second)}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &watched{c, stall}, nil
		},
		MaxIdleConnsPerHost: conns,
		IdleConnTimeout:     stall / 2, // so that an idle connection is dropped before it counts as stalled
		DisableCompression:  true,
	}}
}

// watched is a connection whose reads fail when nothing comes for too long.
type watched struct {
	net.Conn
	stall time.Duration
}

// Read waits for at most the limit.
func (w *watched) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

// Write gives the answer the whole limit: the transport began to wait for it when the last one ended.
func (w *watched) Write(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}
