package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// forgetful is a store whose answers to the next fires are lost.
type forgetful struct {
	store.Store
	left atomic.Int64
}

func (f *forgetful) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	fired, err := f.Store.Fire(ctx, owner, steps, slots)
	if f.left.Add(-1) >= 0 {
		return store.FireResult{}, errInjected
	}
	return fired, err
}

func TestAJobIsFiredOnTimeAgainSoonAfterAnswersWereLost(t *testing.T) {
	for _, lost := range []int64{1, 2} {
		inBubble(t, func(b *bubble) {
			f := &forgetful{Store: b.store}
			f.left.Store(lost)
			job := b.create("*/30 * * * * *", func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel })
			b.start(f)
			b.sleep(5*time.Minute + time.Second)
			var worst time.Duration
			for _, run := range b.runs(job)[1:] { // the run whose answers were lost is offered again later
				if run.Status != belfry.RunSucceeded {
					b.Fatalf("after %d lost answers there is %+v", lost, run)
				}
				worst = max(worst, b.of(run.ID)[0].at.Sub(run.ScheduledAt))
			}
			if len(b.runs(job)) != 10 || worst > 10*time.Millisecond {
				b.Errorf("after %d lost answers there are %d runs of 10, the latest %v late", lost, len(b.runs(job)), worst)
			}
		})
	}
}
