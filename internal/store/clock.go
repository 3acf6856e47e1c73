package store

import (
	"sync"
	"time"
)

const (
	// maxClockDrift is by how much a clock may differ from what the monotonic clock of
	// the process predicts. More is a step: the clock was set, or the machine slept.
	maxClockDrift = 2 * time.Second

	// ClockGrace is for how long after a step no worker counts as silent and no attempt as
	// overdue. By then every worker that is alive has sent a heartbeat.
	ClockGrace = 20 * time.Second
)

// ClockWatch notices steps of a clock. The zero value is ready for use.
type ClockWatch struct {
	mu        sync.Mutex
	clock     time.Time // as last observed
	local     time.Time // when that was
	steppedAt time.Time // by the local clock; zero: never
}

// Observe compares what the clock shows at a local time with what was expected, and
// returns the step, zero if there was none.
func (w *ClockWatch) Observe(clock, local time.Time) (step time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.local.IsZero() {
		step = clock.Round(0).Sub(w.clock.Round(0)) - local.Sub(w.local)
	}
	w.clock, w.local = clock, local
	if step.Abs() <= maxClockDrift {
		return 0
	}
	w.steppedAt = local
	return step
}

// Settled reports whether the last step was long enough ago.
func (w *ClockWatch) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steppedAt.IsZero() || time.Since(w.steppedAt) >= ClockGrace
}
