package worker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func noop(context.Context, *belfry.Run) error { return nil }

func TestClaimKeepsWithinConcurrency(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := startPool(newFakeSource(), with(Concurrency(7)), func(context.Context, *belfry.Run) error {
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})
		b.add(100, nil)
		sleepAndWait(15 * time.Second)
		if b.settled() != 100 || most.Load() != 7 {
			t.Errorf("%d runs ended, %d at once; want 100 and 7", b.settled(), most.Load())
		}
		for _, c := range b.seenClaims() {
			if c.Limit < 1 || c.Limit > 7 {
				t.Errorf("asked for %d runs", c.Limit)
			}
		}
		b.end(t)
	})
}

func TestClaimGathersFreeSlots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(Concurrency(100)), func(_ context.Context, run *belfry.Run) error {
			if run.Namespace == "short" {
				time.Sleep(time.Second)
			} else {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		b.add(10, func(r *belfry.Run) { r.Namespace = "short" })
		b.add(100, nil)
		sleepAndWait(900 * time.Millisecond) // the pool is full
		before := len(b.seenClaims())
		sleepAndWait(time.Second)
		claims := b.seenClaims()[before:]
		if len(claims) != 1 || claims[0].Limit != 10 {
			t.Errorf("ten slots were filled by %+v", claims)
		}
		b.end(t)
	})
}

// While a claim is answered, slots that become free one by one are not claimed for one by one.
func TestANearlyFullPoolClaimsOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			sleep(ctx, 50*time.Millisecond)
			return f.fakeStore.claim(ctx, c)
		}
		var handled atomic.Int64
		b := startPool(f, with(Concurrency(100)), func(context.Context, *belfry.Run) error {
			time.Sleep(time.Second + time.Duration(handled.Add(5))*time.Millisecond) // one ends after the other
			return nil
		})
		b.add(200, nil)
		sleepAndWait(time.Second) // the pool is full
		before := len(b.seenClaims())
		sleepAndWait(180 * time.Millisecond) // 25 slots become free
		claims := b.seenClaims()[before:]
		for i := range claims[1:] {
			if gap := claims[i+1].at.Sub(claims[i].at); gap < 50*time.Millisecond {
				t.Errorf("claims of %d and %d runs are %s apart", claims[i].Limit, claims[i+1].Limit, gap)
			}
		}
		if n := len(claims); n < 3 || claims[1].Limit < 8 {
			t.Errorf("%d claims: %+v", n, claims)
		}
		b.end(t)
	})
}

func TestALargePoolFillsItsSlotsByTwoClaims(t *testing.T) {
	for _, tt := range []struct {
		concurrency int
		want        []int
	}{
		{100, []int{100}},
		{1000, []int{1000}},
		{1200, []int{600, 600}},
		{3001, []int{1501, 1500}},
		{10_000, []int{4000, 4000}},
	} {
		inBubble(t, func(t *testing.T) {
			f := newFakeSource()
			f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
				<-ctx.Done()
				return nil, nil
			}
			b := startPool(f, with(Concurrency(tt.concurrency)), noop)
			sleepAndWait(time.Second)
			var got []int
			for _, c := range b.seenClaims() {
				got = append(got, c.Limit)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%d slots were filled by claims of %v, want %v", tt.concurrency, got, tt.want)
			}
			b.end(t)
		})
	}
}

// Two claims may wait at a time, and together they ask for no more than the free slots.
func TestTwoClaimsShareTheSlots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(Concurrency(5000)), noop)
		sleepAndWait(10 * time.Millisecond)
		if c := b.seenClaims(); len(c) != 2 || c[0].Limit+c[1].Limit != 5000 {
			t.Errorf("claimed %+v", c)
		}
		b.add(4500, nil)
		sleepAndWait(time.Second)
		for _, c := range b.seenClaims() {
			if c.Limit > 2500 {
				t.Errorf("asked for %d runs", c.Limit)
			}
		}
		if b.settled() != 4500 {
			t.Errorf("%d runs ended", b.settled())
		}
		b.end(t)
	})
}

func TestClaimPollsASourceThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(context.Context, belfry.Claim) ([]*belfry.Run, error) { return nil, nil }
		b := startPool(f, nil, noop)
		sleepAndWait(time.Minute)
		claims := b.seenClaims()
		for i := range claims[1:] {
			if gap := claims[i+1].at.Sub(claims[i].at); gap < 400*time.Millisecond || gap > 600*time.Millisecond {
				t.Errorf("claims are %s apart, want about 500ms", gap)
			}
		}
		if len(claims) < 100 {
			t.Errorf("only %d claims in a minute", len(claims))
		}
		b.end(t)
	})
}

func TestClaimRepeatsAtOnceIfTheSourceWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, _ belfry.Claim) ([]*belfry.Run, error) {
			sleep(ctx, 2*time.Second)
			return nil, nil
		}
		b := startPool(f, nil, noop)
		sleepAndWait(19 * time.Second)
		if n := len(b.seenClaims()); n != 10 {
			t.Errorf("%d claims of 2s in 19s, want 10", n)
		}
		b.end(t)
	})
}

func TestClaimTimesOutAfterAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, _ belfry.Claim) ([]*belfry.Run, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := startPool(f, nil, noop)
		sleepAndWait(150 * time.Second)
		if n := len(b.seenClaims()); n != 3 {
			t.Errorf("%d claims in 150s, want 3", n)
		}
		b.end(t)
	})
}

func TestFailingClaimsBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(context.Context, belfry.Claim) ([]*belfry.Run, error) { return nil, errors.New("down") }
		b := startPool(f, nil, noop)
		sleepAndWait(10 * time.Minute)
		claims := b.seenClaims()
		want := 100 * time.Millisecond
		for i := range claims[1:] {
			gap := claims[i+1].at.Sub(claims[i].at)
			if gap < want*8/10 || gap > want*12/10 {
				t.Fatalf("pause %d was %s, want about %s", i, gap, want)
			}
			want = min(2*want, 5*time.Second)
		}
		b.end(t)
	})
}

// A claim whose reply is lost leaves runs that the worker holds without knowing. Its
// heartbeats must be complete until the source can release them.
func TestUnknownClaimMakesHeartbeatsComplete(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		eaten := false
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.fakeStore.claim(ctx, c)
			if len(runs) > 0 && !eaten {
				eaten = true
				return nil, errors.New("the reply was lost")
			}
			return runs, err
		}
		b := startPool(f, nil, noop)
		id := b.add(1, nil)[0]
		sleepAndWait(20 * time.Second)
		r := b.results(id)
		if len(r) != 1 || r[0].Attempt != 2 {
			t.Errorf("after 20s the run has results %v, want one of attempt 2", r)
		}
		var complete []bool
		for _, heartbeat := range b.seenHeartbeats() {
			complete = append(complete, heartbeat.Complete)
		}
		// Registration, then every heartbeat is complete until one is 12 seconds younger than the claim.
		if want := []bool{false, true, true, true, false}; !slices.Equal(complete, want) {
			t.Errorf("heartbeats are complete: %v, want %v", complete, want)
		}
		b.end(t)
	})
}

func TestRunClaimedTwiceIsStartedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.fakeStore.claim(ctx, c)
			return append(append(runs, runs...), nil), err
		}
		var calls atomic.Int32
		b := startPool(f, with(Concurrency(3)), func(context.Context, *belfry.Run) error {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil
		})
		b.add(1, nil)
		sleepAndWait(5 * time.Second)
		if calls.Load() != 1 || b.settled() != 1 {
			t.Errorf("%d calls, %d settled; want 1 and 1", calls.Load(), b.settled())
		}
		b.end(t)
	})
}

func TestNewerAttemptSupersedesTheOlder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var causes []error
		b := startPool(newFakeSource(), nil, func(ctx context.Context, run *belfry.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		})
		id := b.add(1, nil)[0]
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { l.release(func(*entry) bool { return true }) })
		sleepAndWait(time.Second)
		if r := b.outcome(t, id); r.Attempt != 2 || r.Outcome != belfry.OutcomeSucceeded {
			t.Errorf("attempt %d %s was accepted", r.Attempt, r.Outcome)
		}
		if len(causes) != 1 || causes[0] != ErrLeaseLost {
			t.Errorf("the first attempt ended by %v", causes)
		}
		if s := b.pool.Stats(); s.Busy != 0 || s.Unsent != 0 {
			t.Errorf("stats %+v", s)
		}
		b.end(t)
	})
}

func TestSurplusRunsAreReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			c.Limit += 3
			return f.fakeStore.claim(ctx, c)
		}
		b := startPool(f, with(Concurrency(2)), func(context.Context, *belfry.Run) error {
			time.Sleep(time.Second)
			return nil
		})
		b.add(5, nil)
		sleepAndWait(500 * time.Millisecond)
		var back int
		b.record(func(l *fakeStore) {
			for _, e := range l.order {
				if len(e.results) == 1 && e.results[0].Outcome == belfry.OutcomeInterrupted {
					back++
				}
			}
		})
		if s := b.pool.Stats(); back != 3 || s.Busy != 2 {
			t.Errorf("%d returned, %d busy; want 3 and 2", back, s.Busy)
		}
		sleepAndWait(10 * time.Second)
		if b.settled() != 5 {
			t.Errorf("%d of 5 settled", b.settled())
		}
		b.end(t)
	})
}
