package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// sly panics when it is asked what it wraps.
type sly struct{}

func (sly) Error() string { return "sly" }
func (sly) Unwrap() error { panic("nothing to see") }

func TestHandlersSayWhatToDoAboutAnError(t *testing.T) {
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
		{"an error that panics when it is looked into", sly{}, `failed "sly"`, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log bytes.Buffer
				b := start(newFake(), with(Log(slog.New(slog.NewTextHandler(&log, nil)))), func(context.Context, *belfry.Run) error { return tt.err })
				id := b.add(1, nil)[0]
				after(time.Second)
				r := b.outcome(t, id)
				if short(r) != tt.want || r.RetryAfterSeconds != tt.after || r.Permanent != tt.permanent {
					t.Errorf("got %s, after %gs, permanent: %v", short(r), r.RetryAfterSeconds, r.Permanent)
				}
				b.end(t)
				if told := strings.Contains(log.String(), "longer wait"); told != (tt.after == belfry.MaxDelay.Seconds()) {
					t.Errorf("the log is %q", log.String())
				}
			})
		})
	}
}

// What a handler asks for when its time is over does not count: the attempt timed
// out, or was interrupted.
func TestAdviceDoesNotOutliveTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(newFake(), with(DrainTimeout(0)), func(ctx context.Context, _ *belfry.Run) error {
			<-ctx.Done()
			return belfry.Permanent(belfry.Snooze(time.Hour))
		})
		timed := b.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 5 })[0]
		interrupted := b.add(1, long)[0]
		after(6 * time.Second)
		b.end(t)
		for id, want := range map[belfry.ID]belfry.Outcome{timed: belfry.OutcomeTimedOut, interrupted: belfry.OutcomeInterrupted} {
			if r := b.outcome(t, id); r.Outcome != want || r.Permanent || r.RetryAfterSeconds != 0 {
				t.Errorf("got %+v, want %s", r, want)
			}
		}
	})
}
