package scheduler

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// max_runs counts runs: an occurrence that is skipped because the run before it is not over
// costs none.
func TestMaxRunsCountsRunsAndNotSkips(t *testing.T) {
	for _, overlap := range []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel} {
		for runs := 1; runs <= 3; runs++ {
			inBubble(t, func(b *bubble) {
				b.handlerTime = 1500 * time.Millisecond
				b.start(b.store)
				b.sleep(500 * time.Millisecond)
				job := b.create("* * * * * *", func(s *belfry.Spec) { s.MaxRuns, s.Overlap, s.MaxQueued = runs, overlap, 1 })
				b.sleep(30 * time.Second)
				ran, skipped := b.decided(job)
				if ran != runs || overlap != belfry.OverlapSkip && skipped > 0 {
					b.Errorf("overlap %s, max_runs %d: %d runs and %d skips", overlap, runs, ran, skipped)
				}
				if got, err := b.store.Job(b.Context(), "default", job); err != nil || got.Status != belfry.StatusCompleted {
					b.Errorf("overlap %s, max_runs %d: the job is %s (%v)", overlap, runs, got.Status, err)
				}
			})
		}
	}
}

// A backfill never takes the place of a scheduled run: under skip and in a bounded queue
// the scheduled run waits for the backfill run that is running, and comes before the others.
func TestBackfillTakesNoPlaceOfAScheduledRun(t *testing.T) {
	for _, overlap := range []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue} {
		inBubble(t, func(b *bubble) {
			b.handlerTime = 20 * time.Second
			b.start(b.store)
			job := b.create("* * * * *", func(s *belfry.Spec) { s.Overlap, s.MaxQueued = overlap, 1 })
			var backfill []time.Time
			for i := range 40 {
				backfill = append(backfill, time.Date(1999, 12, 1, 0, i, 0, 0, time.UTC))
			}
			b.backfill(job, backfill)
			b.sleep(25 * time.Minute)
			scheduled, last := 0, time.Time{}
			for _, call := range b.handled() {
				if call.at.Sub(last) < b.handlerTime {
					b.Errorf("overlap %s: two runs at %s", overlap, call.at)
				}
				last = call.at
				if call.run.Kind == belfry.KindScheduled {
					scheduled++
					if late := call.at.Sub(call.run.ScheduledAt); late > b.handlerTime+time.Second {
						b.Errorf("overlap %s: the run of %s started %s late", overlap, call.run.ScheduledAt, late)
					}
				}
			}
			if _, skipped := b.decided(job); skipped > 0 || scheduled < 24 {
				b.Errorf("overlap %s: %d scheduled runs, %d skips", overlap, scheduled, skipped)
			}
		})
	}
}

// backfill requests runs for past instants.
func (b *bubble) backfill(job belfry.ID, at []time.Time) {
	b.Helper()
	var triggers []plan.Trigger
	for i, at := range at {
		triggers = append(triggers, plan.Trigger{ID: belfry.NewID(time.Now().Add(time.Duration(i) * time.Millisecond)), Namespace: "default", JobID: job, Kind: belfry.KindBackfill, At: at})
	}
	if err := b.store.Trigger(b.Context(), triggers, nil); err != nil {
		b.Fatal(err)
	}
}
