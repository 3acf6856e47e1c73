package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// callTimeout bounds every call to the store that the loop and the loader make. A
// connection may be silent for ever, and a slow statement must not hold up the others.
const callTimeout = 5 * time.Second

// duty is background work with a goroutine of its own, so that a slow one delays no
// other. What one round misses, the next one finds.
type duty struct {
	failure string          // logged with the first of several errors
	timeout time.Duration   // of a round; a duty that continues where it stopped may use all of it
	wakeups <-chan struct{} // run a round soon; nil: never
	round   func(ctx context.Context, terms map[int]store.Term) (wait time.Duration, err error)
}

// wakeDelay gathers wake-ups.
const wakeDelay = 100 * time.Millisecond

// runDuty runs rounds until ctx ends: after the wait that the last one returned, when
// the duty is woken, and when the owned shards change.
func (s *Scheduler) runDuty(ctx context.Context, d duty) {
	var next time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := func() {
		if time.Until(next) > wakeDelay {
			next = time.Now().Add(wakeDelay)
			timer.Reset(wakeDelay)
		}
	}
	failing := false
	var seen <-chan struct{} // identifies the terms of the last round
	for {
		terms, changed := s.owned()
		if changed != seen { // compared here, because another event may have come first
			seen = changed
			soon()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-d.wakeups:
			soon()
		case <-timer.C:
			call, cancel := context.WithTimeout(ctx, d.timeout)
			wait, err := d.round(call, terms)
			cancel()
			if err != nil && !failing {
				s.warn(ctx, d.failure, err)
			}
			failing = err != nil
			next = time.Now().Add(wait)
			timer.Reset(wait)
		}
	}
}
