package belfry

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAHandlersErrorSaysWhatToDo(t *testing.T) {
	broken := errors.New("the disk is full")
	failed := Result{Outcome: OutcomeFailed}
	for _, tt := range []struct {
		name string
		err  error
		want Result
	}{
		{"a plain failure", broken, failed},
		{"a snooze", Snooze(90 * time.Second), Result{Outcome: OutcomeSnoozed, RetryAfterSeconds: 90}},
		{"a snooze for a part of a second", Snooze(250 * time.Millisecond), Result{Outcome: OutcomeSnoozed, RetryAfterSeconds: 0.25}},
		{"a snooze for no time", Snooze(0), Result{Outcome: OutcomeSnoozed}},
		{"a snooze until before", Snooze(-time.Second), Result{Outcome: OutcomeSnoozed}},
		{"a permanent failure", Permanent(broken), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"a delay", RetryAfter(broken, time.Minute), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 60}},
		{"a delay before now", RetryAfter(broken, -time.Minute), failed},
		{"advice with a word around it", fmt.Errorf("upload: %w", RetryAfter(broken, time.Minute)), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 60}},
		{"advice among other errors", errors.Join(broken, Permanent(broken)), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"the outer advice counts", Permanent(RetryAfter(broken, time.Minute)), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"nothing", nil, failed},
		{"nothing permanent", Permanent(nil), failed},
		{"nothing to try again", RetryAfter(nil, time.Minute), failed},
	} {
		got := failed
		got.ApplyError(tt.err)
		if got.Outcome != tt.want.Outcome || got.RetryAfterSeconds != tt.want.RetryAfterSeconds || got.Permanent != tt.want.Permanent {
			t.Errorf("%s: got %s, after %v s, permanent: %v; want %+v", tt.name, got.Outcome, got.RetryAfterSeconds, got.Permanent, tt.want)
		}
	}
}

func TestAdviceKeepsTheFailureItself(t *testing.T) {
	broken := errors.New("the disk is full")
	for _, err := range []error{Permanent(broken), RetryAfter(broken, time.Minute)} {
		if err.Error() != broken.Error() || !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	}
	if got := Snooze(90 * time.Second).Error(); got != "snoozed for 1m30s" {
		t.Errorf("got %q", got)
	}
}

func TestAdviceIsFollowedWhenTheAttemptIsSettled(t *testing.T) {
	policy := Retry{Max: 3, Base: 10 * time.Second, Cap: time.Minute}
	broken := errors.New("the disk is full")
	for _, tt := range []struct {
		err  error
		want Settlement
	}{
		{broken, Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: AttemptCounts{Failures: 1}}},
		{Snooze(time.Hour), Settlement{State: RunRetry, Delay: time.Hour}},
		{Snooze(1000 * time.Hour), Settlement{State: RunRetry, Delay: MaxDelay}},
		{RetryAfter(broken, time.Hour), Settlement{State: RunRetry, Delay: time.Hour, Counts: AttemptCounts{Failures: 1}}},
		{Permanent(broken), Settlement{State: RunDead, Reason: ReasonPermanent, Counts: AttemptCounts{Failures: 1}}},
	} {
		r := Result{Outcome: OutcomeFailed}
		r.ApplyError(tt.err)
		if got := Settle(jobA, AttemptCounts{}, policy, r); got != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.err, got, tt.want)
		}
	}
}
