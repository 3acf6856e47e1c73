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
	bubble(t, func(t *testing.T) {
		b := start(newFake(), with(Concurrency(5)), func(ctx context.Context, _ *belfry.Run) error {
			time.Sleep(20 * time.Second)
			return ctx.Err()
		})
		ids := b.add(9, nil)
		after(time.Second)
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

func TestDrainInterruptsWhatTakesTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cause error
		b := start(newFake(), with(DrainTimeout(3*time.Second)), func(ctx context.Context, _ *belfry.Run) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		id := b.add(1, nil)[0]
		after(time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took != 3*time.Second || cause != ErrInterrupted {
			t.Errorf("the drain took %s and ended by %v", took, cause)
		}
		if got := short(b.outcome(t, id)); got != `interrupted "interrupted: the worker is shutting down"` {
			t.Errorf("got %s", got)
		}
	})
}

func TestDrainHandsBackWhatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		b := start(newFake(), with(DrainTimeout(0)), func(context.Context, *belfry.Run) error { <-release; return nil })
		plain := b.add(1, nil)[0]
		timed := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 1 })[0]
		after(2 * time.Second)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took != interruptGrace {
			t.Errorf("the drain took %s, want %s", took, interruptGrace)
		}
		if got := b.outcome(t, plain).Outcome; got != belfry.OutcomeInterrupted {
			t.Errorf("the stubborn attempt ended %s", got)
		}
		if got := b.outcome(t, timed).Outcome; got != belfry.OutcomeTimedOut {
			t.Errorf("the one past its timeout ended %s", got)
		}
		close(release)
		after(time.Hour)
		if len(b.results(plain)) != 1 || b.pool.Stats().Busy != 0 {
			t.Errorf("the late return counted: %v, %+v", b.results(plain), b.pool.Stats())
		}
	})
}

// The answer of a Claim may arrive just when the pool is told to stop.
func TestDrainHandsBackWhatAClaimBringsAtThatMoment(t *testing.T) {
	for name, claimErr := range map[string]error{"with no error": nil, "with an error": errors.New("cut")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFake()
				f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
					<-ctx.Done()
					f.mu.Lock()
					defer f.mu.Unlock()
					return f.take(c), claimErr
				}
				var started atomic.Int32
				b := start(f, nil, func(context.Context, *belfry.Run) error { started.Add(1); return nil })
				ids := b.add(3, nil)
				after(time.Second)
				b.end(t)
				for _, id := range ids {
					if got := b.outcome(t, id).Outcome; got != belfry.OutcomeInterrupted || started.Load() != 0 {
						t.Errorf("it ended %s after %d starts, want it handed back", got, started.Load())
					}
				}
			})
		})
	}
}

func TestHeartbeatIsTheLastToStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		var up atomic.Bool
		up.Store(true)
		var lastFinish time.Time
		f.finish = func(ctx context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
			if !up.Load() {
				return nil, errors.New("down")
			}
			lastFinish = time.Now()
			return f.ledger.finish(ctx, rs)
		}
		b := start(f, nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() })
		b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 })
		after(time.Second)
		b.stop()
		up.Store(false)
		after(35 * time.Second)
		up.Store(true)
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		beats := b.seenBeats()
		for i := range beats[1:] {
			if gap := beats[i+1].at.Sub(beats[i].at); gap > heartbeatInterval {
				t.Errorf("no heartbeat for %s while draining", gap)
			}
		}
		last := beats[len(beats)-1]
		if !last.Leave || last.at.Before(lastFinish) {
			t.Errorf("the last beat is %+v", last.Heartbeat)
		}
		for _, beat := range beats[:len(beats)-1] {
			if beat.Leave {
				t.Error("it left before the last beat")
			}
		}
	})
}

func TestDrainWithoutItsResultsSentIsAnErrorAndNoLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.finish = func(ctx context.Context, _ []belfry.Result) ([]belfry.Verdict, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := start(f, nil, nothing)
		b.add(2, nil)
		after(time.Second)
		b.stop()
		began := time.Now()
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "2 results") {
			t.Errorf("Run returned %v, want the 2 results named", err)
		}
		if took := time.Since(began); took != flushGrace {
			t.Errorf("the drain took %s, want %s", took, flushGrace)
		}
		beats := b.seenBeats()
		if beats[len(beats)-1].Leave {
			t.Error("it took leave although it holds results")
		}
	})
}

func TestWorkerGivenUpWhileDrainingDoesNotComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(newFake(), nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() })
		b.add(1, nil)
		after(time.Second)
		b.stop()
		after(time.Second)
		b.note(func(l *ledger) { clear(l.workers) })
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		for _, beat := range b.seenBeats()[1:] {
			if beat.Register || beat.Leave {
				t.Errorf("it sent %+v", beat.Heartbeat)
			}
		}
		if len(b.sent) != 0 {
			t.Errorf("it sent %v", b.sent)
		}
	})
}

func TestPoolRunsOnceAndNeedsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		if err := New(newFake(), NewMux()).Run(t.Context()); err == nil {
			t.Error("a pool without handlers ran")
		}
		b := start(newFake(), nil, nothing)
		after(0)
		if err := b.pool.Run(t.Context()); err == nil {
			t.Error("a pool ran twice")
		}
		b.end(t)
	})
}
