package clock

import (
	"net"
	"sync/atomic"
	"time"
)

// base is what the times of connections count from, so that they fit into one word.
var base = time.Now()

// Conn is a connection that knows when bytes came and went. Reads must not run at the same time as each other, nor writes; [net/http]
// keeps to that.
type Conn struct {
	net.Conn
	arrival
	came, sent atomic.Int64 // nanoseconds since base; 0 is never
}

// Watch returns c with its times noted from now on.
func Watch(c net.Conn) *Conn {
	w := &Conn{Conn: c}
	w.arrival.begin(c)
	return w
}

// Read reads, and notes when the last byte that it returns came.
func (c *Conn) Read(b []byte) (int, error) {
	n, late, err := c.arrival.read(c.Conn, b)
	if n > 0 {
		c.came.Store(int64(time.Since(base) - late))
	}
	return n, err
}

// Write writes, and notes when it began if it is the first write after Mark.
func (c *Conn) Write(b []byte) (int, error) {
	c.sent.CompareAndSwap(0, int64(time.Since(base)))
	return c.Conn.Write(b)
}

// Mark has the next write count as the first.
func (c *Conn) Mark() { c.sent.Store(0) }

// Sent returns when the first write after Mark began; the zero time if there was none.
func (c *Conn) Sent() time.Time { return at(c.sent.Load()) }

// Came returns when the last byte of the last read came, by the kernel's account where there is one; the zero time if nothing was read.
// It has a reading of the monotonic clock.
func (c *Conn) Came() time.Time { return at(c.came.Load()) }

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return base.Add(time.Duration(ns))
}
