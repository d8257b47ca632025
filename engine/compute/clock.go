package compute

import "time"

// Clock takes the times of boundaries between the phases of a cycle, on the time line of a device. Mark is called by the
// goroutine that runs passes, right before the work that a boundary begins is handed to the device.
//
// The host's clock knows a time at once, since a CPU's Run returns when the pass is done. A device that runs behind the host records an
// event in its stream instead, returns a ticket, and turns tickets into times when asked; by then the cycle's tokens have reached the host, so
// that all its events have passed.
type Clock interface {
	// Mark takes the time of a boundary: nanoseconds since the clock's origin, or a ticket for them.
	Mark() int64
	// Resolve replaces tickets by times, in the order in which they were taken; the times do not fall. Each ticket comes once.
	Resolve(marks []int64)
	// Origin is the time on the wall from which the clock counts.
	Origin() time.Time
}

// HostClock is the Clock of a device whose passes are done when Run returns: the host's monotonic clock.
type HostClock struct{ origin time.Time }

// NewHostClock returns a clock that counts from now.
func NewHostClock() HostClock { return HostClock{time.Now()} }

// Mark implements [Clock]. It reads the clock once.
func (c HostClock) Mark() int64 { return int64(time.Since(c.origin)) }

// Resolve implements [Clock]: there is nothing to do.
func (HostClock) Resolve([]int64) {}

// Origin implements [Clock].
func (c HostClock) Origin() time.Time { return c.origin }
