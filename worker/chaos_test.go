package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// unreliable makes calls fail before they do anything, after they did it, or slowly.
type unreliable struct {
	mu  sync.Mutex
	rng *rand.Rand
	off atomic.Bool
}

var errTrouble = errors.New("trouble")

func (tr *unreliable) roll() float64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.rng.Float64()
}

// unreliably makes one call that may fail.
func unreliably[T any](ctx context.Context, tr *unreliable, call func() (T, error)) (T, error) {
	var none T
	if tr.off.Load() {
		return call()
	}
	switch x := tr.roll(); {
	case x < 0.1:
		return none, errTrouble
	case x < 0.2:
		_, _ = call()
		return none, errTrouble
	case x < 0.25:
		<-ctx.Done()
		return none, ctx.Err()
	case x < 0.4:
		sleep(ctx, time.Duration(tr.roll()*float64(8*time.Second)))
	}
	return call()
}

// Whatever fails, every run ends, no worker holds more than its slots, and a
// worker that rests owes nothing.
func TestRandomFaultsSettleEveryRun(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testRandomFaults(t, seed) })
		})
	}
}

func testRandomFaults(t *testing.T, seed uint64) {
	const runs, slots = 120, 8
	f := newFakeSource()
	tr := &unreliable{rng: rand.New(rand.NewPCG(seed, 1))}
	f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
		return unreliably(ctx, tr, func() ([]*belfry.Run, error) { return f.fakeStore.claim(ctx, c) })
	}
	f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
		return unreliably(ctx, tr, func() (belfry.HeartbeatReply, error) { return f.fakeStore.heartbeat(ctx, b) })
	}
	f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
		return unreliably(ctx, tr, func() ([]belfry.Verdict, error) { return f.fakeStore.finish(ctx, rs) })
	}
	var pools [2]*testPool
	launch := func(i int) {
		var busy atomic.Int32
		pools[i] = startPool(f, with(Concurrency(slots), Log(slog.New(slog.DiscardHandler))), func(ctx context.Context, _ *belfry.Run) error {
			if n := busy.Add(1); n > slots {
				t.Errorf("%d attempts at once in %d slots", n, slots)
			}
			defer busy.Add(-1)
			switch x := tr.roll(); {
			case x < 0.05:
				panic("trouble")
			case x < 0.1:
				<-ctx.Done()
			default:
				sleep(ctx, time.Duration(x*float64(10*time.Second)))
			}
			return ctx.Err()
		})
	}
	launch(0)
	launch(1)
	f.add(runs, nil)
	for i := range 60 { // five minutes of trouble, with a rolling restart now and then
		sleepAndWait(5 * time.Second)
		f.reap()
		if i%12 == 11 {
			old := pools[i%2]
			old.stop()
			<-old.done // it may not get rid of its results now; the others will repeat the work
			launch(i % 2)
		}
	}
	tr.off.Store(true)
	for range 30 {
		sleepAndWait(5 * time.Second)
		f.reap()
	}
	if n := f.settled(); n != runs {
		t.Errorf("%d of %d runs ended", n, runs)
	}
	for _, b := range pools {
		b.end(t)
		if s := b.pool.Stats(); s.Busy != 0 || s.Unsent != 0 {
			t.Errorf("at rest: %+v", s)
		}
	}
}
