package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestDrainLetsAttemptsFinish(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(Concurrency(5)), func(ctx context.Context, _ *belfry.Run) error {
			time.Sleep(20 * time.Second)
			return ctx.Err()
		})
		ids := b.add(9, nil)
		sleepAndWait(time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took != 19*time.Second {
			t.Errorf("the drain took %s, want 19s", took)
		}
		for i, id := range ids {
			if rs := b.results(id); i < 5 && (len(rs) != 1 || rs[0].Outcome != belfry.OutcomeSucceeded) || i >= 5 && len(rs) != 0 {
				t.Errorf("run %d has results %v", i, rs)
			}
		}
	})
}

func TestDrainInterruptsLongAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var cause error
		b := startPool(newFakeSource(), with(DrainTimeout(3*time.Second)), func(ctx context.Context, _ *belfry.Run) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		id := b.add(1, nil)[0]
		sleepAndWait(time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took != 3*time.Second || cause != ErrInterrupted {
			t.Errorf("the drain took %s and ended by %v", took, cause)
		}
		if got := describe(b.outcome(t, id)); got != `interrupted "interrupted: the worker is shutting down"` {
			t.Errorf("got %s", got)
		}
	})
}

func TestDrainReturnsStuckAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		b := startPool(newFakeSource(), with(DrainTimeout(0)), func(context.Context, *belfry.Run) error { <-release; return nil })
		plain := b.add(1, nil)[0]
		timed := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 1 })[0]
		sleepAndWait(2 * time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took != minDrain+interruptGrace {
			t.Errorf("the drain took %s, want %s", took, minDrain+interruptGrace)
		}
		if got := b.outcome(t, plain).Outcome; got != belfry.OutcomeInterrupted {
			t.Errorf("the stubborn attempt ended %s", got)
		}
		if got := b.outcome(t, timed).Outcome; got != belfry.OutcomeTimedOut {
			t.Errorf("the one past its timeout ended %s", got)
		}
		close(release)
		sleepAndWait(time.Hour)
		if len(b.results(plain)) != 1 || b.pool.Stats().Busy != 0 {
			t.Errorf("the late return counted: %v, %+v", b.results(plain), b.pool.Stats())
		}
	})
}

// The answer of a Claim may arrive just when the pool is told to stop.
func TestDrainReturnsRunsOfALateClaim(t *testing.T) {
	for name, claimErr := range map[string]error{"with no error": nil, "with an error": errors.New("cut")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFakeSource()
				f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
					<-ctx.Done()
					f.mu.Lock()
					defer f.mu.Unlock()
					return f.take(c), claimErr
				}
				var started atomic.Int32
				b := startPool(f, nil, func(context.Context, *belfry.Run) error { started.Add(1); return nil })
				ids := b.add(3, nil)
				sleepAndWait(time.Second)
				b.end(t)
				for _, id := range ids {
					if got := b.outcome(t, id).Outcome; got != belfry.OutcomeInterrupted || started.Load() != 0 {
						t.Errorf("it ended %s after %d starts, want it returned", got, started.Load())
					}
				}
			})
		})
	}
}

func TestDrainStopsHeartbeatsLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		var up atomic.Bool
		up.Store(true)
		var lastFinish time.Time
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			lastFinish = time.Now()
			return f.fakeStore.finish(ctx, rs)
		}
		b := startPool(f, nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() })
		b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		sleepAndWait(time.Second)
		b.stop()
		up.Store(false)
		sleepAndWait(35 * time.Second)
		up.Store(true)
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
		sleepAndWait(time.Hour)
		heartbeats := b.seenHeartbeats()
		for i := range heartbeats[1:] {
			if gap := heartbeats[i+1].at.Sub(heartbeats[i].at); gap > heartbeatInterval {
				t.Errorf("no heartbeat for %s while draining", gap)
			}
		}
		last := heartbeats[len(heartbeats)-1]
		if !last.Leave || last.at.Before(lastFinish) {
			t.Errorf("the last heartbeat is %+v", last.Heartbeat)
		}
		for _, heartbeat := range heartbeats[:len(heartbeats)-1] {
			if heartbeat.Leave {
				t.Error("it left before the last heartbeat")
			}
		}
	})
}

func TestDrainWithUnsentResultsFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.finish = func(ctx context.Context, _ []belfry.Result) ([]belfry.Verdict, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := startPool(f, nil, noop)
		b.add(2, nil)
		sleepAndWait(time.Second)
		b.stop()
		began := time.Now()
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "2 results") {
			t.Errorf("Run returned %v, want the 2 results named", err)
		}
		if took := time.Since(began); took != flushGrace {
			t.Errorf("the drain took %s, want %s", took, flushGrace)
		}
		heartbeats := b.seenHeartbeats()
		if heartbeats[len(heartbeats)-1].Leave {
			t.Error("it unregistered although it holds results")
		}
	})
}

func TestDrainOfAnUnknownWorkerEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() })
		b.add(1, nil)
		sleepAndWait(time.Second)
		b.stop()
		sleepAndWait(time.Second)
		b.record(func(l *fakeStore) { clear(l.workers) })
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		for _, heartbeat := range b.seenHeartbeats()[1:] {
			if heartbeat.Register || heartbeat.Leave {
				t.Errorf("it sent %+v", heartbeat.Heartbeat)
			}
		}
		if len(b.sent) != 0 {
			t.Errorf("it sent %v", b.sent)
		}
	})
}

func TestPoolRunsOnceAndNeedsHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		if err := New(newFakeSource(), NewMux()).Run(t.Context()); err == nil {
			t.Error("a pool without handlers ran")
		}
		b := startPool(newFakeSource(), nil, noop)
		sleepAndWait(0)
		if err := b.pool.Run(t.Context()); err == nil {
			t.Error("a pool ran twice")
		}
		b.end(t)
	})
}
