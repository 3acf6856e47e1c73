package belfry

import (
	"errors"
	"fmt"
	"time"
)

// advice is an error of a handler that says what to do about it.
type retryError struct {
	err       error
	after     time.Duration
	snooze    bool
	permanent bool
}

func (a *retryError) Error() string { return a.err.Error() }

// Unwrap gives the failure itself.
func (a *retryError) Unwrap() error { return a.err }

// Snooze is what a handler returns to be called again after d, a second at least
// and 7 days at most, without that counting as a failure.
func Snooze(d time.Duration) error {
	return &retryError{err: fmt.Errorf("snoozed for %s", d), after: d, snooze: true}
}

// Permanent is what a handler returns when trying again would be useless: the run
// becomes a dead letter at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err, permanent: true}
}

// RetryAfter is what a handler returns to have a failure tried again after d, at
// most 7 days, instead of the delay of the job's own policy. It counts as a
// failure.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err: err, after: d}
}

// Advise puts what an error of a handler asks for into the result of its attempt.
func (r *Result) ApplyError(err error) {
	var a *retryError
	if !errors.As(err, &a) {
		return
	}
	r.Permanent = a.permanent
	r.RetryAfterSeconds = max(a.after, 0).Seconds()
	if a.snooze {
		r.Outcome = OutcomeSnoozed
	}
}
