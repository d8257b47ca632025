// Package clock is for programs that time others on a busy machine: a [Conn] knows when bytes really came and went, and an [Alarm] ends
// sleeps when they should.
//
// On Linux the kernel notes when bytes arrive, so that a reading does not depend on when the reader found a processor, and timers
// are exact to some tens of microseconds, where Go's own may fire a millisecond late on an idle machine (its poller waits in whole
// milliseconds). Elsewhere both fall back on Go's clock and timers.
//
// It knows nothing of what is sent.
package clock

import (
	"context"
	"time"
)

// Alarm ends one goroutine's sleeps. Set may be called by others, Until and Wait by that goroutine alone. The zero value is of no use.
type Alarm struct {
	timer
}

// timer is what a system has. set is for any goroutine and replaces what was set before; wait returns nil when the time last set has
// come, and an error once close was called.
type timer interface {
	set(d time.Duration)
	wait() error
	close() error
}

// NewAlarm returns an alarm, which Close gives back.
func NewAlarm() *Alarm { return &Alarm{newTimer()} }

// Close ends a Wait, and all later ones at once.
func (a *Alarm) Close() error { return a.close() }

// Set has Wait return at a time; in place of the time that was set before.
func (a *Alarm) Set(t time.Time) { a.set(max(time.Until(t), 1)) }

// Wait sleeps until the time that was set last. It returns false if the alarm was closed.
func (a *Alarm) Wait() bool { return a.wait() == nil }

// Until sleeps until a time and reports whether ctx lasted.
func (a *Alarm) Until(ctx context.Context, t time.Time) bool {
	for time.Until(t) > 0 {
		a.Set(t)
		stop := context.AfterFunc(ctx, func() { a.set(1) })
		ok := a.Wait()
		stop()
		if !ok || ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// goTimer is a timer of Go's own.
type goTimer struct {
	t    *time.Timer
	done chan struct{}
}

func newGoTimer() *goTimer {
	return &goTimer{time.NewTimer(time.Duration(1<<63 - 1)), make(chan struct{})}
}

func (g *goTimer) set(d time.Duration) { g.t.Reset(d) }

func (g *goTimer) wait() error {
	select {
	case <-g.t.C:
		return nil
	case <-g.done:
		return context.Canceled
	}
}

func (g *goTimer) close() error {
	g.t.Stop()
	close(g.done)
	return nil
}
