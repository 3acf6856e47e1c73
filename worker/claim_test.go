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

func nothing(context.Context, *belfry.Run) error { return nil }

func TestNoMoreThanConcurrencyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := start(newFake(), with(Concurrency(7)), func(context.Context, *belfry.Run) error {
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
		after(15 * time.Second)
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

func TestSlotsThatGetFreeTogetherAreFilledTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(newFake(), with(Concurrency(100)), func(_ context.Context, run *belfry.Run) error {
			if run.Namespace == "short" {
				time.Sleep(time.Second)
			} else {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		b.add(10, func(r *belfry.Run) { r.Namespace = "short" })
		b.add(100, nil)
		after(900 * time.Millisecond) // the pool is full
		before := len(b.seenClaims())
		after(time.Second)
		claims := b.seenClaims()[before:]
		if len(claims) != 1 || claims[0].Limit != 10 {
			t.Errorf("ten slots were filled by %+v", claims)
		}
		b.end(t)
	})
}

func TestClaimAsksForAThousandAtMost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(newFake(), with(Concurrency(5000)), nothing)
		after(0)
		if c := b.seenClaims(); c[0].Limit != 1000 {
			t.Errorf("asked for %d runs", c[0].Limit)
		}
		b.end(t)
	})
}

func TestSourceThatDoesNotWaitIsPolled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(context.Context, belfry.Claim) ([]*belfry.Run, error) { return nil, nil }
		b := start(f, nil, nothing)
		after(time.Minute)
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

func TestSourceThatWaitsIsAskedAgainAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(ctx context.Context, _ belfry.Claim) ([]*belfry.Run, error) {
			sleep(ctx, 2*time.Second)
			return nil, nil
		}
		b := start(f, nil, nothing)
		after(19 * time.Second)
		if n := len(b.seenClaims()); n != 10 {
			t.Errorf("%d claims of 2s in 19s, want 10", n)
		}
		b.end(t)
	})
}

func TestClaimThatHangsIsCutAfterAMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(ctx context.Context, _ belfry.Claim) ([]*belfry.Run, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := start(f, nil, nothing)
		after(150 * time.Second)
		if n := len(b.seenClaims()); n != 3 {
			t.Errorf("%d claims in 150s, want 3", n)
		}
		b.end(t)
	})
}

func TestFailingClaimsBackOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(context.Context, belfry.Claim) ([]*belfry.Run, error) { return nil, errors.New("down") }
		b := start(f, nil, nothing)
		after(10 * time.Minute)
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

// A claim whose answer is lost leaves runs in the worker's name that it knows
// nothing of. It must list what it holds until the source can tell.
func TestClaimInDoubtIsListedUntilReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		eaten := false
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.ledger.claim(ctx, c)
			if len(runs) > 0 && !eaten {
				eaten = true
				return nil, errors.New("the reply was lost")
			}
			return runs, err
		}
		b := start(f, nil, nothing)
		id := b.add(1, nil)[0]
		after(20 * time.Second)
		r := b.results(id)
		if len(r) != 1 || r[0].Attempt != 2 {
			t.Errorf("after 20s the run has results %v, want one of attempt 2", r)
		}
		var listed []bool
		for _, beat := range b.seenBeats() {
			listed = append(listed, beat.Complete)
		}
		// Registration, then every beat lists until one is 12 seconds younger than the doubt.
		if want := []bool{false, true, true, true, false}; !slices.Equal(listed, want) {
			t.Errorf("beats list %v, want %v", listed, want)
		}
		b.end(t)
	})
}

func TestRunHandedOutTwiceIsStartedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.ledger.claim(ctx, c)
			return append(append(runs, runs...), nil), err
		}
		var calls atomic.Int32
		b := start(f, with(Concurrency(3)), func(context.Context, *belfry.Run) error {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil
		})
		b.add(1, nil)
		after(5 * time.Second)
		if calls.Load() != 1 || b.settled() != 1 {
			t.Errorf("%d calls, %d settled; want 1 and 1", calls.Load(), b.settled())
		}
		b.end(t)
	})
}

func TestNewerAttemptSupersedesTheOlder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []error
		b := start(newFake(), nil, func(ctx context.Context, run *belfry.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		})
		id := b.add(1, nil)[0]
		after(time.Second)
		b.note(func(l *ledger) { l.release(func(*entry) bool { return true }) })
		after(time.Second)
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

func TestSurplusIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			c.Limit += 3
			return f.ledger.claim(ctx, c)
		}
		b := start(f, with(Concurrency(2)), func(context.Context, *belfry.Run) error {
			time.Sleep(time.Second)
			return nil
		})
		b.add(5, nil)
		after(500 * time.Millisecond)
		var back int
		b.note(func(l *ledger) {
			for _, e := range l.order {
				if len(e.results) == 1 && e.results[0].Outcome == belfry.OutcomeInterrupted {
					back++
				}
			}
		})
		if s := b.pool.Stats(); back != 3 || s.Busy != 2 {
			t.Errorf("%d handed back, %d busy; want 3 and 2", back, s.Busy)
		}
		after(10 * time.Second)
		if b.settled() != 5 {
			t.Errorf("%d of 5 settled", b.settled())
		}
		b.end(t)
	})
}
