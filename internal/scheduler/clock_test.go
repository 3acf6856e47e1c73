package scheduler

import (
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// steppedStore has a clock that can be set. What the store judges itself, such as whether
// a plan is due, follows the true clock.
type steppedStore struct {
	polledStore
	mu     sync.Mutex
	offset time.Duration
}

func (s *steppedStore) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += by
}

func (s *steppedStore) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Now().Add(s.offset)
}

// A scheduler whose clock was ahead, and is set back, fires what becomes due by the new
// time: it does not wait until the clock shows the old time again, and does not spin.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := &steppedStore{polledStore: polledStore{Store: b.store}}
		s.step(time.Hour)
		b.start(s)
		b.sleep(30 * time.Second)
		s.step(-time.Hour)
		b.sleep(5 * time.Second)
		created := b.store.Now().Add(10 * time.Second)
		once := b.create(created.Format(time.RFC3339), nil)
		every := b.create("* * * * * *", func(s *belfry.Spec) { s.Overlap, s.MissedWindow = belfry.OverlapParallel, belfry.MissedSkip })
		b.sleep(40 * time.Second)
		runs := b.runs(once)
		if len(runs) != 1 || runs[0].FiredAt.Sub(created) > time.Second {
			b.Errorf("the one-off after the step has the runs %+v", runs)
		}
		if ran, skipped := b.decided(every); ran < 38 || skipped > 0 {
			b.Errorf("a job of every second has %d runs and %d skips after 40 seconds", ran, skipped)
		}
	})
}

// A step forward is time in which no scheduler was in charge: what fell into it was
// missed.
func TestClockSetForward(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := &steppedStore{polledStore: polledStore{Store: b.store}}
		b.start(s)
		b.sleep(30 * time.Second)
		loop := newLoop(b.scheduler)
		loop.terms = map[int]store.Term{0: {Since: s.Now().Add(-20 * time.Second), DownSince: s.Now().Add(-21 * time.Second)}}
		loop.watchClock(b.Context(), s.Now())
		before := s.Now()
		s.step(time.Hour)
		loop.watchClock(b.Context(), s.Now())
		if o := loop.missedIn(0, before.Add(30*time.Minute), s.Now()); o.To.IsZero() {
			b.Error("what was due in the middle of the step was not missed")
		}
	})
}
