package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func longTimeout(r *belfry.Run) { r.Spec.TimeoutSeconds = 600 }

func TestCancelledAttemptOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler HandlerFunc
		want    string
	}{
		{"the handler returns when its context ends", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() },
			`cancelled "the run was cancelled"`},
		{"any error will do", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return errors.New("no luck") },
			`cancelled "the run was cancelled"`},
		{"what it asks for no longer counts", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return belfry.Snooze(time.Hour) },
			`cancelled "the run was cancelled"`},
		{"a panic will do", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); panic("ouch") },
			`cancelled "the run was cancelled"`},
		{"success is success", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return nil },
			`succeeded ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var cause error
				b := startPool(newFakeSource(), nil, func(ctx context.Context, run *belfry.Run) error {
					defer func() { cause = context.Cause(ctx) }()
					return tt.handler(ctx, run)
				})
				id := b.add(1, longTimeout)[0]
				sleepAndWait(time.Second)
				b.cancel(id)
				sleepAndWait(heartbeatInterval)
				r := b.outcome(t, id)
				if describe(r) != tt.want || r.RetryAfterSeconds != 0 || cause != ErrCancelled {
					t.Errorf("got %s after %gs, ended by %v, want %s", describe(r), r.RetryAfterSeconds, cause, tt.want)
				}
				b.end(t)
			})
		})
	}
}

// However slow the link is, as long as heartbeats are answered in half the time, the
// worker hears of a cancellation within it, whenever that comes.
func TestCancellationArrivesInTime(t *testing.T) {
	for _, tt := range []struct{ there, back time.Duration }{
		{0, 0}, {0, time.Second}, {time.Second, time.Second}, {0, 2 * time.Second}, {2 * time.Second, 0},
		{0, 3 * time.Second}, {0, 3500 * time.Millisecond}, {1500 * time.Millisecond, 2 * time.Second},
	} {
		for wait := 10 * time.Second; wait < 18*time.Second; wait += 125 * time.Millisecond {
			inBubble(t, func(t *testing.T) {
				f := newFakeSource()
				f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
					time.Sleep(tt.there)
					reply, err := f.fakeStore.heartbeat(ctx, b)
					time.Sleep(tt.back)
					return reply, err
				}
				var noticed time.Time
				b := startPool(f, nil, func(ctx context.Context, _ *belfry.Run) error {
					<-ctx.Done()
					noticed = time.Now()
					return ctx.Err()
				})
				id := b.add(1, longTimeout)[0]
				sleepAndWait(wait + time.Millisecond)
				asked := time.Now()
				b.cancel(id)
				sleepAndWait(20 * time.Second)
				if took := noticed.Sub(asked); noticed.IsZero() || took > maxCancelDelay {
					t.Errorf("over a link of %s and %s, cancelled after %s: noticed after %s", tt.there, tt.back, wait, took)
				}
				b.end(t)
			})
		}
	}
}

func TestStuckHandlerOfACancelledRunIsAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		b := startPool(newFakeSource(), with(Concurrency(1)), func(context.Context, *belfry.Run) error { <-release; return nil })
		id := b.add(1, longTimeout)[0]
		sleepAndWait(time.Second)
		b.cancel(id)
		sleepAndWait(heartbeatInterval - time.Second + stuckAfter - time.Millisecond)
		if n := len(b.results(id)); n != 0 {
			t.Errorf("it was abandoned too early: %d results", n)
		}
		sleepAndWait(time.Millisecond)
		if got := describe(b.outcome(t, id)); got != `cancelled "the run was cancelled"` {
			t.Errorf("got %s", got)
		}
		sleepAndWait(time.Hour)
		if s := b.pool.Stats(); s.Stuck != 1 || s.Busy != 1 {
			t.Errorf("stats %+v: the slot was not kept", s)
		}
		close(release)
		sleepAndWait(time.Second)
		if s := b.pool.Stats(); s.Stuck != 0 || s.Busy != 0 || len(b.results(id)) != 1 {
			t.Errorf("stats %+v and results %v after the handler returned", s, b.results(id))
		}
		b.end(t)
	})
}

// Every reply repeats the cancellation until the result is accepted.
func TestRepeatedCancellationsCountOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		cancellations := 0
		f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
			o, err := f.fakeStore.heartbeat(ctx, b)
			cancellations += len(o.Cancel)
			time.Sleep(3 * time.Second)
			return o, err
		}
		var log bytes.Buffer
		b := startPool(f, with(Log(slog.New(slog.NewTextHandler(&log, nil)))), func(ctx context.Context, _ *belfry.Run) error {
			<-ctx.Done()
			time.Sleep(stuckAfter - time.Millisecond)
			return ctx.Err()
		})
		id := b.add(1, longTimeout)[0]
		sleepAndWait(5 * time.Second)
		b.cancel(id)
		sleepAndWait(20 * time.Second)
		if got := describe(b.outcome(t, id)); got != `cancelled "the run was cancelled"` {
			t.Errorf("got %s", got)
		}
		b.end(t)
		if logged := strings.Count(log.String(), "a run was cancelled"); cancellations < 2 || logged != 1 || strings.Contains(log.String(), "stuck") {
			t.Errorf("%d cancellations were logged %d times: %s", cancellations, logged, log.String())
		}
	})
}

// The order may be there before the run: the answer to the claim was slower than
// that to the heartbeat.
func TestRunCancelledBeforeItArrivesIsNotStarted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.claim = func(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
			runs, err := f.fakeStore.claim(ctx, c)
			if len(runs) > 0 {
				time.Sleep(2 * time.Second)
			}
			return runs, err
		}
		var started atomic.Int32
		b := startPool(f, nil, func(context.Context, *belfry.Run) error { started.Add(1); return nil })
		sleepAndWait(4 * time.Second)
		ids := b.add(2, nil)
		b.cancel(ids[0])
		sleepAndWait(2 * time.Second)
		if got := describe(b.outcome(t, ids[0])); got != `cancelled "the run was cancelled before it was started"` || started.Load() != 1 {
			t.Errorf("got %s, and %d handlers were started", got, started.Load())
		}
		if got := b.outcome(t, ids[1]).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("the other run ended %s", got)
		}
		b.end(t)
	})
}

func TestCancelledRunEndsWhileDraining(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		b := startPool(newFakeSource(), with(DrainTimeout(10*time.Second)), func(ctx context.Context, run *belfry.Run) error {
			<-release
			return ctx.Err()
		})
		id := b.add(1, longTimeout)[0]
		sleepAndWait(time.Second)
		b.cancel(id)
		began := time.Now()
		b.end(t)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the drain took %s", took)
		}
		if got := b.outcome(t, id).Outcome; got != belfry.OutcomeCancelled {
			t.Errorf("it ended %s", got)
		}
		close(release)
	})
}
