package server

import (
	"math"
	"sync"
	"time"
)

// retryEstimate guesses when a full queue will have room again.
type retryEstimate struct {
	mu   sync.Mutex
	mean float64 // seconds of a request in the engine, smoothed; 0 before the first
}

// smoothing is the weight of the newest request in the mean: the last dozen or so decide.
const smoothing = 0.1

// done adds a request that was in the engine for d.
func (r *retryEstimate) done(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mean == 0 {
		r.mean = d.Seconds()
	}
	r.mean += smoothing * (d.Seconds() - r.mean)
}

// seconds returns whole seconds from 1 to 60, the range in which openai-python heeds Retry-After: the time in which the
// running requests end and one of those that wait gets a place.
func (r *retryEstimate) seconds(e Engine) int {
	r.mu.Lock()
	mean := r.mean
	r.mu.Unlock()
	return int(min(60, max(1, math.Ceil(mean/float64(max(1, e.Info().MaxRunning))))))
}
