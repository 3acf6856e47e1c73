package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
)

// A retry is on time although this process gets the shard only after it has called
// Promote, and nothing wakes it for earlier retries.
func TestPromoteRetriesWhenATermBegins(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.handlerResult = func(run *belfry.Run) error {
			if run.Attempt == 1 {
				return errRefused
			}
			return nil
		}
		b.create("2000-01-01T00:00:01Z", func(s *belfry.Spec) {
			s.MaxRetries, s.RetryBackoff, s.RetryBaseSeconds, s.RetryJitter = belfry.Some(1), belfry.BackoffFixed, belfry.Some(20.0), belfry.Some(0.0)
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

// archiveStore has a number of ended one-offs that are not archived.
type archiveStore struct {
	store.Store
	mu    sync.Mutex
	left  int
	calls []time.Time
}

func (l *archiveStore) Archive(_ context.Context, _ []int, _ belfry.ID, limit int) (int, belfry.ID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, time.Now())
	n := min(limit, l.left)
	if l.left -= n; l.left > 0 {
		return n, belfry.NewID(time.Now()), nil
	}
	return n, belfry.ID{}, nil
}

func (l *archiveStore) state() (left int, calls []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, slices.Clone(l.calls)
}

// A process that died may have left many, and the next one may not live longer: it
// begins soon, and continues while there are more.
func TestArchiveEndedOneOffsSoonAfterStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		// Six rounds, of which the first waits for the previous owner. They begin with the
		// terms, at most wakeDelay after the start.
		l := &archiveStore{Store: b.store, left: 4*archiveLimit + 1}
		b.start(l)
		b.sleep(30 * time.Second)
		if left, _ := l.state(); left > 0 {
			t.Errorf("after half a minute %d are left", left)
		}
		_, before := l.state()
		b.sleep(10 * time.Minute)
		_, calls := l.state()
		if n := len(calls) - len(before); n < 9 || n > 11 {
			t.Errorf("with nothing left Archive was called %d times in ten minutes", n)
		}
	})
}

// outageStore is a store that is polled often, as one that other processes use too, and
// that can be unreachable.
type outageStore struct{ *faultyStore }

func (outageStore) PollInterval() time.Duration { return 500 * time.Millisecond }

func (s outageStore) reachable(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashed = !yes
}

func TestReapAfterAnOutageAcceptsWaitingResults(t *testing.T) {
	for outage := 24 * time.Second; outage < 32*time.Second; outage += 500 * time.Millisecond {
		inBubble(t, func(b *bubble) {
			s := outageStore{&faultyStore{Store: b.store}}
			b.handlerTime = time.Second
			job := b.create("2000-01-01T00:00:05Z", func(spec *belfry.Spec) { spec.TimeoutSeconds, spec.MaxRetries = 2, belfry.Some(0) })
			b.start(s)
			b.sleep(5500 * time.Millisecond) // the callback runs
			s.reachable(false)
			b.sleep(outage) // it has ended, and its deadline has passed
			s.reachable(true)
			b.sleep(time.Minute)
			if runs := b.runs(job); len(runs) != 1 || runs[0].Status != belfry.RunSucceeded || runs[0].Attempt != 1 || len(b.handled()) != 1 {
				b.Errorf("after an outage of %v the run is %+v", outage, runs)
			}
		})
	}
}

// Reaping reads the running runs of all shards, so one node does it in each interval,
// whoever owns the shards.
func TestOneNodeReapsForAll(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := &reapStore{polledStore: polledStore{Store: b.store}}
		shards := s.Shards()
		nodes := []*sweeper{newSweeper(New(s, Options{})), newSweeper(New(s, Options{})), newSweeper(New(s, Options{}))}
		owner := func(shard int) int { return shard % 3 }
		for interval := range 3 * shards {
			if interval == 2*shards {
				owner = func(shard int) int { return 1 + shard%2 } // the first node has died
			}
			before := len(s.calls)
			var next time.Duration
			for node, w := range nodes {
				terms := map[int]store.Term{}
				for shard := range shards {
					if owner(shard) == node {
						terms[shard] = store.Term{Shard: shard}
					}
				}
				for range 2 { // The second is for a change of terms.
					var err error
					if next, err = w.reap(b.Context(), terms); err != nil || next <= 0 || next > reapInterval {
						t.Fatalf("the next round is in %v: %v", next, err)
					}
				}
			}
			if n := len(s.calls) - before; n != 1 && time.Duration(interval)*reapInterval > store.DeadlineGrace {
				t.Errorf("in interval %d all nodes reaped %d times", interval, n)
			}
			time.Sleep(next)
		}
	})
}
