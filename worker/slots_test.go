package worker

import (
	"context"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// TestSlotsAreFreeWhenHandlersHaveReturned has a source that counts what it gives, and gives
// some runs twice.
func TestSlotsAreFreeWhenHandlersHaveReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		claim := f.claim
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := claim(ctx, c)
			if len(runs) > 1 {
				runs = append(runs[:len(runs):len(runs)], runs[0])
			}
			c.Slots.TakeRuns(runs)
			return runs, err
		}
		b := startPool(f, with(Concurrency(5)), func(context.Context, *belfry.Run) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		b.add(5, nil)
		sleepAndWait(5 * time.Second)
		held := func() (n int) {
			for _, of := range b.pool.slots.Held() {
				n += of
			}
			return n
		}
		if held() != 5 {
			t.Errorf("%v slots are held by 5 runs", b.pool.slots.Held())
		}
		b.pool.slots.Watch()
		sleepAndWait(10 * time.Second)
		if held() != 0 {
			t.Errorf("%v slots are held by nobody", b.pool.slots.Held())
		}
		if len(b.pool.slots.Freed) != 1 {
			t.Error("nobody is told of the free slots")
		}
		b.end(t)
	})
}
