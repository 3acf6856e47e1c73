package scheduler

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
)

// A retry is on time although the shard came to this process only after it had
// looked for retries, and nobody hints at those of before.
func TestARetryDoesNotWaitForAHintAfterItsShardHasMoved(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.fail = func(run *belfry.Run) error {
			if run.Attempt == 1 {
				return errRefused
			}
			return nil
		}
		b.create("2000-01-01T00:00:01Z", func(s *belfry.Spec) {
			s.MaxRetries, s.RetryBackoff, s.RetryBaseSeconds, s.RetryJitter = 1, belfry.BackoffFixed, 20, 0
		})
		b.start(b.store)
		b.sleep(5 * time.Second)
		b.crash()

		ctx, cancel := context.WithCancel(context.Background())
		local := NewLocal(ctx, b.store)
		sched := New(b.store, Options{Owner: belfry.NewID(time.Now()), Local: local})
		mux := worker.NewMux()
		mux.HandleFunc(belfry.TypeHTTP, b.handle)
		var parts sync.WaitGroup
		parts.Go(func() { worker.New(local, mux).Run(ctx) })
		parts.Go(func() { sched.Run(ctx) })
		b.sleep(time.Second)
		for shard := range b.store.Shards() {
			parts.Go(func() { sched.Lead(ctx, store.Term{Shard: shard, Since: b.store.Now()}) })
		}
		b.sleep(20 * time.Second)
		if calls := b.handled(); len(calls) != 2 {
			t.Errorf("a few seconds after its retry was due a run has %d attempts", len(calls))
		}
		cancel()
		parts.Wait()
	})
}
