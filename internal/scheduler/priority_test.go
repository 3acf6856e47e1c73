package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// Behind an endless stream of runs of high priority that keeps all slots busy,
// however they came about, one of low priority waits ten minutes at most.
func TestLowPriorityIsNotStarved(t *testing.T) {
	for _, lowFirst := range []bool{true, false} {
		for _, manual := range []bool{true, false} {
			inBubble(t, func(b *bubble) {
				b.slots, b.handlerTime = 2, 10*time.Second // 12 runs a minute
				high := func(s *belfry.Spec) { s.Priority, s.Overlap = belfry.PriorityHigh, belfry.OverlapParallel }
				low := func(s *belfry.Spec) { s.Priority = belfry.PriorityLow }
				var job belfry.ID
				if lowFirst {
					job = b.create("2000-01-01T00:05:00Z", low)
				}
				var crowd []belfry.ID
				for range 12 {
					schedule := "* * * * *"
					if manual {
						schedule = "0 0 1 1 *"
					}
					crowd = append(crowd, b.create(schedule, high))
				}
				for range 6 { // from then on there is always something left
					b.create("2000-01-01T00:01:00Z", high)
				}
				if !lowFirst {
					job = b.create("2000-01-01T00:05:00Z", low)
				}
				b.start(b.store)
				for minute := 0; minute < 25; minute++ {
					if manual {
						for _, id := range crowd {
							b.trigger(id)
						}
					}
					b.sleep(time.Minute)
				}
				b.wantWithin(job, 10*time.Minute)
			})
		}
	}
}

func (b *bubble) wantWithin(job belfry.ID, most time.Duration) {
	b.Helper()
	due := time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)
	for _, call := range b.handled() {
		if call.run.JobID == job {
			if wait := call.at.Sub(due); wait > most || wait < 5*time.Minute {
				b.Errorf("the run of low priority waited %v, want at most %v, and behind most that came before", wait, most)
			}
			return
		}
	}
	b.Errorf("the run of low priority did not start")
}

// Of what waits for a slot, the higher priority comes first.
func TestHighPriorityOvertakes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots, b.handlerTime = 1, 10*time.Second
		for range 12 {
			b.create("2000-01-01T00:00:05Z", nil)
		}
		high := b.create("2000-01-01T00:00:30Z", func(s *belfry.Spec) { s.Priority = "9" })
		b.start(b.store)
		b.sleep(2 * time.Minute)
		for _, call := range b.handled() {
			if call.run.JobID == high {
				if wait := call.at.Sub(call.run.ScheduledAt); wait > b.handlerTime+time.Second {
					b.Errorf("the run of high priority waited %v behind runs that take %v", wait, b.handlerTime)
				}
				return
			}
		}
		b.Error("the run of high priority did not start")
	})
}
