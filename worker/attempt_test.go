package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

type errorPanics struct{}

func (errorPanics) Error() string { panic("no text for you") }

func TestAttemptOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler HandlerFunc
		want    string
	}{
		{"nil is success", func(context.Context, *belfry.Run) error { return nil },
			`succeeded ""`},
		{"an error is a failure", func(context.Context, *belfry.Run) error { return errors.New("no luck") },
			`failed "no luck"`},
		{"bad text is made fit to keep", func(context.Context, *belfry.Run) error { return errors.New("a\xffb\x00") },
			`failed "a` + "\uFFFD" + `b` + "\uFFFD" + `"`},
		{"an error that panics has a type", func(context.Context, *belfry.Run) error { return errorPanics{} },
			`failed "an error of type worker.errorPanics that cannot be shown"`},
		{"a panic is a failure with its value", func(context.Context, *belfry.Run) error { panic("ouch") },
			`failed "panic: ouch"`},
		{"a nil dereference is a failure", func(context.Context, *belfry.Run) error { var run *belfry.Run; run.Attempt++; return nil },
			`failed "panic: runtime error: invalid memory address or nil pointer dereference"`},
		{"a goroutine that ends is a failure", func(context.Context, *belfry.Run) error { runtime.Goexit(); return nil },
			`failed "the handler ended its goroutine instead of returning"`},
		{"the end of the context is a timeout", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() },
			`timed_out "no answer within 60s"`},
		{"success at the last moment is success", func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return nil },
			`succeeded ""`},
		{"a deadline of its own is a failure", func(context.Context, *belfry.Run) error { return context.DeadlineExceeded },
			`failed "context deadline exceeded"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := startPool(newFakeSource(), nil, tt.handler)
				id := b.add(1, nil)[0]
				sleepAndWait(61 * time.Second)
				if got := describe(b.outcome(t, id)); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				b.end(t)
			})
		})
	}
}

func TestAttemptKnowsItsDeadlineAndCause(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var deadline time.Time
		var cause error
		var began time.Time
		b := startPool(newFakeSource(), nil, func(ctx context.Context, _ *belfry.Run) error {
			began = time.Now()
			deadline, _ = ctx.Deadline()
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 7 })
		sleepAndWait(10 * time.Second)
		if got := deadline.Sub(began); got != 7*time.Second || cause != ErrTimedOut {
			t.Errorf("the deadline was %s away and the cause %v, want 7s and %v", got, cause, ErrTimedOut)
		}
		b.end(t)
	})
}

func TestRunWithoutTimeoutGetsTheDefault(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), nil, func(ctx context.Context, _ *belfry.Run) error { <-ctx.Done(); return ctx.Err() })
		id := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 0 })[0]
		sleepAndWait(61 * time.Second)
		if got := b.outcome(t, id).Outcome; got != belfry.OutcomeTimedOut {
			t.Errorf("got %s, want timed_out", got)
		}
		b.end(t)
	})
}

func TestResultCarriesTheReport(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		big := []byte(strings.Repeat("x", belfry.MaxOutput+1))
		b := startPool(newFakeSource(), nil, func(_ context.Context, run *belfry.Run) error {
			run.Report = belfry.Report{HTTPStatus: 503, Output: big}
			run.Attempt, run.Token = 99, belfry.Token{} // a handler cannot change who it is
			return errors.New(strings.Repeat("e", maxError+1))
		})
		id := b.add(1, nil)[0]
		sleepAndWait(0)
		big[0] = 'y' // nor its output once it returned
		r := b.outcome(t, id)
		if r.HTTPStatus != 503 || len(r.Output) != belfry.MaxOutput || r.Output[0] != 'x' || len(r.Error) != maxError {
			t.Errorf("status %d, %d bytes of output, %d of error", r.HTTPStatus, len(r.Output), len(r.Error))
		}
		if r.Attempt != 1 || r.Namespace != "default" {
			t.Errorf("result of attempt %d in namespace %q", r.Attempt, r.Namespace)
		}
		b.end(t)
	})
}

func TestStuckHandlerIsReportedAndKeepsItsSlot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		b := startPool(newFakeSource(), with(Concurrency(1)), func(_ context.Context, run *belfry.Run) error {
			if calls.Add(1) == 1 {
				<-release
				run.Report.Output = []byte("too late")
			}
			return nil
		})
		ids := b.add(2, nil)
		sleepAndWait(60*time.Second + stuckAfter - time.Millisecond)
		if n := len(b.results(ids[0])); n != 0 {
			t.Errorf("it was abandoned too early: %d results", n)
		}
		sleepAndWait(time.Millisecond)
		if got := describe(b.outcome(t, ids[0])); got != `timed_out "no answer within 60s"` {
			t.Errorf("got %s", got)
		}
		sleepAndWait(time.Hour)
		if s := b.pool.Stats(); s.Stuck != 1 || s.Busy != 1 || calls.Load() != 1 {
			t.Errorf("stats %+v after %d calls: the slot was not kept", s, calls.Load())
		}
		close(release)
		sleepAndWait(time.Second)
		if s := b.pool.Stats(); s.Stuck != 0 || s.Busy != 0 {
			t.Errorf("stats %+v: the slot was not freed", s)
		}
		if got := b.outcome(t, ids[0]).Outcome; got != belfry.OutcomeTimedOut {
			t.Errorf("the late return changed the result to %s", got)
		}
		if got := b.outcome(t, ids[1]).Outcome; got != belfry.OutcomeSucceeded {
			t.Errorf("the next run ended %s", got)
		}
		b.end(t)
	})
}

type unwrapPanics struct{}

func (unwrapPanics) Error() string { return "sly" }
func (unwrapPanics) Unwrap() error { panic("nothing to see") }

func TestHandlerErrorSnoozePermanentRetryAfter(t *testing.T) {
	no := errors.New("no luck")
	for _, tt := range []struct {
		name      string
		err       error
		want      string
		after     float64
		permanent bool
	}{
		{"a failure", no, `failed "no luck"`, 0, false},
		{"a snooze", belfry.Snooze(90 * time.Second), `snoozed "snoozed for 1m30s"`, 90, false},
		{"a snooze of a moment", belfry.Snooze(250 * time.Millisecond), `snoozed "snoozed for 250ms"`, 0.25, false},
		{"a snooze that is wrapped", fmt.Errorf("not yet: %w", belfry.Snooze(time.Minute)), `snoozed "not yet: snoozed for 1m0s"`, 60, false},
		{"a snooze that is over", belfry.Snooze(-time.Second), `snoozed "snoozed for -1s"`, 0, false},
		{"a snooze without end", belfry.Snooze(30 * 24 * time.Hour), `snoozed "snoozed for 720h0m0s"`, 7 * 24 * 3600, false},
		{"a permanent failure", belfry.Permanent(no), `failed "no luck"`, 0, true},
		{"one that is wrapped", fmt.Errorf("send: %w", belfry.Permanent(no)), `failed "send: no luck"`, 0, true},
		{"a failure with a delay", belfry.RetryAfter(no, 5*time.Second), `failed "no luck"`, 5, false},
		{"one without end", belfry.RetryAfter(no, 8*24*time.Hour), `failed "no luck"`, 7 * 24 * 3600, false},
		{"no failure at all", belfry.Permanent(nil), `succeeded ""`, 0, false},
		{"an error that panics when it is unwrapped", unwrapPanics{}, `failed "sly"`, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var log bytes.Buffer
				b := startPool(newFakeSource(), with(Log(slog.New(slog.NewTextHandler(&log, nil)))), func(context.Context, *belfry.Run) error { return tt.err })
				id := b.add(1, nil)[0]
				sleepAndWait(time.Second)
				r := b.outcome(t, id)
				if describe(r) != tt.want || r.RetryAfterSeconds != tt.after || r.Permanent != tt.permanent {
					t.Errorf("got %s, after %gs, permanent: %v", describe(r), r.RetryAfterSeconds, r.Permanent)
				}
				b.end(t)
				if logged := strings.Contains(log.String(), "longer delay"); logged != (tt.after == belfry.MaxDelay.Seconds()) {
					t.Errorf("the log is %q", log.String())
				}
			})
		})
	}
}

// An error after the end of the context is ignored: the attempt timed out or was
// interrupted.
func TestHandlerErrorAfterTimeoutIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startPool(newFakeSource(), with(DrainTimeout(0)), func(ctx context.Context, _ *belfry.Run) error {
			<-ctx.Done()
			return belfry.Permanent(belfry.Snooze(time.Hour))
		})
		timed := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 5 })[0]
		interrupted := b.add(1, longTimeout)[0]
		sleepAndWait(6 * time.Second)
		b.end(t)
		for id, want := range map[belfry.ID]belfry.Outcome{timed: belfry.OutcomeTimedOut, interrupted: belfry.OutcomeInterrupted} {
			results := b.results(id) // one that was interrupted may be claimed again, and returned
			if len(results) == 0 {
				t.Errorf("there is no result, want %s", want)
			}
			for _, r := range results {
				if r.Outcome != want || r.Permanent || r.RetryAfterSeconds != 0 {
					t.Errorf("got %+v, want %s", r, want)
				}
			}
		}
	})
}
