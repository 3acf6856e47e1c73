package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// shared is a store that other processes may use as well, so that it is polled
// often, and that can be out of reach.
type shared struct{ *faulty }

func (shared) PollEvery() time.Duration { return 500 * time.Millisecond }

func (s shared) reachable(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashed = !yes
}

func TestAResultThatWaitedForTheStoreIsAcceptedAfterItsDeadline(t *testing.T) {
	for heals := 24 * time.Second; heals < 32*time.Second; heals += 500 * time.Millisecond {
		inBubble(t, func(b *bubble) {
			s := shared{&faulty{Store: b.store}}
			b.takes = time.Second
			job := b.create("2000-01-01T00:00:05Z", func(spec *belfry.Spec) { spec.TimeoutSeconds, spec.MaxRetries = 2, 0 })
			b.start(s)
			b.sleep(5500 * time.Millisecond) // the callback runs
			s.reachable(false)
			b.sleep(heals) // it has ended, and its deadline has passed
			s.reachable(true)
			b.sleep(time.Minute)
			if runs := b.runs(job); len(runs) != 1 || runs[0].Status != belfry.RunSucceeded || runs[0].Attempt != 1 || len(b.handled()) != 1 {
				b.Errorf("after an outage of %v the run is %+v", heals, runs)
			}
		})
	}
}
