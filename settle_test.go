package belfry

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ended is the result of an attempt with nothing to say but its outcome.
func ended(outcome Outcome) Result { return Result{Outcome: outcome} }

func TestSettle(t *testing.T) {
	policy := Retry{Max: 2, Base: 10 * time.Second, Cap: time.Minute}
	fresh := AttemptCounts{}
	counts := func(failures, lost int) AttemptCounts { return AttemptCounts{Failures: failures, Lost: lost} }
	for _, tt := range []struct {
		name   string
		counts AttemptCounts
		result Result
		want   Settlement
	}{
		{"success ends it", fresh, ended(OutcomeSucceeded), Settlement{State: RunSucceeded}},
		{"success after failures ends it", counts(2, 0), ended(OutcomeSucceeded), Settlement{State: RunSucceeded, Counts: counts(2, 0)}},
		{"success after losses ends it", counts(1, 2), ended(OutcomeSucceeded), Settlement{State: RunSucceeded, Counts: counts(1, 2)}},

		{"a first failure is tried again", fresh, ended(OutcomeFailed), Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: counts(1, 0)}},
		{"a second failure waits twice as long", counts(1, 0), ended(OutcomeFailed), Settlement{State: RunRetry, Delay: 20 * time.Second, Counts: counts(2, 0)}},
		{"a failure beyond the last retry is death", counts(2, 0), ended(OutcomeFailed), Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts(3, 0)}},
		{"a failure far beyond it too", counts(9, 0), ended(OutcomeFailed), Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts(10, 0)}},
		{"a failure ends a row of losses", counts(0, 2), ended(OutcomeFailed), Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: counts(1, 0)}},
		{"a timeout is a failure", fresh, ended(OutcomeTimedOut), Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: counts(1, 0)}},
		{"a last timeout is death", counts(2, 1), ended(OutcomeTimedOut), Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts(3, 0)}},
		{"an outcome of a newer version is a failure", fresh, ended("melted"), Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: counts(1, 0)}},

		{"a first loss is repeated at once", fresh, ended(OutcomeLost), Settlement{State: RunReady, Counts: counts(0, 1)}},
		{"a second loss too", counts(0, 1), ended(OutcomeLost), Settlement{State: RunReady, Counts: counts(0, 2)}},
		{"a third in a row is poison", counts(0, 2), ended(OutcomeLost), Settlement{State: RunDead, Reason: ReasonPoison, Counts: counts(0, 3)}},
		{"a loss costs no retry", counts(2, 0), ended(OutcomeLost), Settlement{State: RunReady, Counts: counts(2, 1)}},

		{"an interruption costs nothing", counts(2, 2), ended(OutcomeInterrupted), Settlement{State: RunReady, Counts: counts(2, 2)}},
		{"an interruption at first costs nothing", fresh, ended(OutcomeInterrupted), Settlement{State: RunReady}},
		{"an unconfirmed claim costs nothing", counts(2, 2), ended(OutcomeUnconfirmed), Settlement{State: RunReady, Counts: counts(2, 2)}},
		{"an unconfirmed claim at first costs nothing", fresh, ended(OutcomeUnconfirmed), Settlement{State: RunReady}},
	} {
		if got := Settle(jobA, tt.counts, policy, tt.result); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestSettleWithDelayOrPermanentError(t *testing.T) {
	policy := Retry{Max: 2, Base: 10 * time.Second, Cap: time.Minute}
	counts := func(failures, lost int) AttemptCounts { return AttemptCounts{Failures: failures, Lost: lost} }
	after := func(outcome Outcome, seconds float64) Result {
		return Result{Outcome: outcome, RetryAfterSeconds: seconds}
	}
	permanent := func(outcome Outcome) Result { return Result{Outcome: outcome, Permanent: true} }
	for _, tt := range []struct {
		name   string
		counts AttemptCounts
		result Result
		want   Settlement
	}{
		{"a delay asked for replaces the policy's", counts(1, 0), after(OutcomeFailed, 90), Settlement{State: RunRetry, Delay: 90 * time.Second, Counts: counts(2, 0)}},
		{"it may be shorter", counts(1, 0), after(OutcomeFailed, 0.25), Settlement{State: RunRetry, Delay: 250 * time.Millisecond, Counts: counts(2, 0)}},
		{"it is at most a week", counts(1, 0), after(OutcomeFailed, 1e12), Settlement{State: RunRetry, Delay: MaxDelay, Counts: counts(2, 0)}},
		{"one before now is none", counts(0, 0), after(OutcomeFailed, -5), Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: counts(1, 0)}},
		{"it gives no further retry", counts(2, 0), after(OutcomeFailed, 5), Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts(3, 0)}},
		{"after a timeout too", counts(0, 1), after(OutcomeTimedOut, 5), Settlement{State: RunRetry, Delay: 5 * time.Second, Counts: counts(1, 0)}},
		{"success needs no other attempt", counts(1, 1), after(OutcomeSucceeded, 5), Settlement{State: RunSucceeded, Counts: counts(1, 1)}},
		{"an interrupted attempt is repeated at once", counts(1, 1), after(OutcomeInterrupted, 5), Settlement{State: RunReady, Counts: counts(1, 1)}},

		{"a snooze costs no retry", counts(2, 0), after(OutcomeSnoozed, 30), Settlement{State: RunRetry, Delay: 30 * time.Second, Counts: counts(2, 0)}},
		{"a snooze ends a row of losses", counts(2, 2), after(OutcomeSnoozed, 30), Settlement{State: RunRetry, Delay: 30 * time.Second, Counts: counts(2, 0)}},
		{"a snooze is at most a week", counts(0, 0), after(OutcomeSnoozed, 1e12), Settlement{State: RunRetry, Delay: MaxDelay}},
		{"a snooze is a second at least", counts(0, 0), after(OutcomeSnoozed, 0), Settlement{State: RunRetry, Delay: time.Second}},
		{"a snooze of less is a second", counts(0, 0), after(OutcomeSnoozed, 0.25), Settlement{State: RunRetry, Delay: time.Second}},
		{"a snooze until before is a second", counts(0, 0), after(OutcomeSnoozed, -9), Settlement{State: RunRetry, Delay: time.Second}},

		{"a permanent failure is death", counts(0, 0), permanent(OutcomeFailed), Settlement{State: RunDead, Reason: ReasonPermanent, Counts: counts(1, 0)}},
		{"a permanent timeout too", counts(1, 2), permanent(OutcomeTimedOut), Settlement{State: RunDead, Reason: ReasonPermanent, Counts: counts(2, 0)}},
		{"it is permanent rather than the last", counts(2, 0), permanent(OutcomeFailed), Settlement{State: RunDead, Reason: ReasonPermanent, Counts: counts(3, 0)}},
		{"a permanent success is a success", counts(1, 0), permanent(OutcomeSucceeded), Settlement{State: RunSucceeded, Counts: counts(1, 0)}},
		{"what was interrupted did not fail", counts(1, 0), permanent(OutcomeInterrupted), Settlement{State: RunReady, Counts: counts(1, 0)}},
	} {
		if got := Settle(jobA, tt.counts, policy, tt.result); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestSettleOfACancelledRun(t *testing.T) {
	policy := Retry{Max: 9, Base: time.Second, Cap: time.Minute}
	for _, before := range []AttemptCounts{{}, {Failures: 3}, {Lost: 2}} {
		marked := before
		marked.Cancelled = true
		for _, outcome := range []Outcome{OutcomeFailed, OutcomeTimedOut, OutcomeInterrupted, OutcomeLost, OutcomeUnconfirmed, OutcomeSnoozed, OutcomeCancelled, "melted"} {
			r := Result{Outcome: outcome, RetryAfterSeconds: 5}
			if got, want := Settle(jobA, marked, policy, r), (Settlement{State: RunCancelled, Counts: marked}); got != want {
				t.Errorf("%s of a cancelled run: got %+v, want %+v", outcome, got, want)
			}
		}
		if got, want := Settle(jobA, marked, policy, ended(OutcomeSucceeded)), (Settlement{State: RunSucceeded, Counts: marked}); got != want {
			t.Errorf("success of a cancelled run: got %+v, want %+v", got, want)
		}
		if got, want := Settle(jobA, before, policy, ended(OutcomeCancelled)), (Settlement{State: RunCancelled, Counts: before}); got != want {
			t.Errorf("an attempt that was cancelled: got %+v, want %+v", got, want)
		}
	}
}

func TestSettleByHTTPStatus(t *testing.T) {
	again := map[int]bool{0: true, 200: true, 302: true, 399: true, 408: true, 425: true, 429: true, 500: true, 502: true, 503: true, 599: true}
	for _, status := range []int{0, 200, 302, 399, 400, 401, 403, 404, 407, 408, 409, 410, 424, 425, 426, 428, 429, 430, 451, 499, 500, 502, 503, 599} {
		for _, on := range []RetryOn{RetryOnAll, RetryOnServerErrors} {
			policy := Retry{Max: 1, On: on, Base: 10 * time.Second, Cap: time.Minute}
			want := Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: AttemptCounts{Failures: 1}}
			if on == RetryOnServerErrors && !again[status] {
				want = Settlement{State: RunDead, Reason: ReasonPermanent, Counts: AttemptCounts{Failures: 1}}
			}
			if got := Settle(jobA, AttemptCounts{}, policy, Result{Outcome: OutcomeFailed, HTTPStatus: status}); got != want {
				t.Errorf("status %d, retry on %q: got %+v, want %+v", status, on, got, want)
			}
		}
	}
	policy := Retry{Max: 1, On: RetryOnServerErrors, Base: 10 * time.Second, Cap: time.Minute}
	if s := Settle(jobA, AttemptCounts{}, policy, Result{Outcome: OutcomeFailed, HTTPStatus: 429, RetryAfterSeconds: 0.001}); s.State != RunReady || s.Counts.Failures != 1 {
		t.Errorf("a retry at once is %+v", s)
	}
	asked := Settle(jobA, AttemptCounts{}, policy, Result{Outcome: OutcomeFailed, HTTPStatus: 429, RetryAfterSeconds: 3})
	if want := (Settlement{State: RunRetry, Delay: 3 * time.Second, Counts: AttemptCounts{Failures: 1}}); asked != want {
		t.Errorf("429 with a delay: got %+v, want %+v", asked, want)
	}
}

func TestSettleWithoutRetries(t *testing.T) {
	got := Settle(jobA, AttemptCounts{}, Retry{Base: time.Second, Cap: time.Minute}, ended(OutcomeFailed))
	if want := (Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: AttemptCounts{Failures: 1}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// anyResult draws how an attempt may end.
func anyResult(t *rapid.T) Result {
	r := Result{Outcome: rapid.SampledFrom([]Outcome{
		OutcomeSucceeded, OutcomeFailed, OutcomeFailed, OutcomeFailed, OutcomeTimedOut, OutcomeInterrupted,
		OutcomeLost, OutcomeLost, OutcomeUnconfirmed, OutcomeSnoozed, OutcomeCancelled,
	}).Draw(t, "outcome")}
	if r.Outcome == OutcomeFailed {
		r.HTTPStatus = rapid.SampledFrom([]int{0, 0, 404, 408, 429, 500, 503}).Draw(t, "status")
		r.Permanent = rapid.IntRange(0, 9).Draw(t, "permanent") == 0
	}
	if r.Outcome == OutcomeSnoozed || rapid.Bool().Draw(t, "asks for a delay") {
		r.RetryAfterSeconds = float64(rapid.OneOf(rapid.IntRange(0, 2), rapid.IntRange(0, 900_000)).Draw(t, "delay"))
	}
	return r
}

// count is what a test counts for itself of the attempts of a run.
type count struct {
	failures, retries int
	lost              int // in a row, not counting what costs nothing
	cancelled         bool
}

// after is what the count says of an attempt that ended so.
func (c *count) after(run ID, policy Retry, r Result) Settlement {
	want := Settlement{State: RunReady}
	asked := min(time.Duration(r.RetryAfterSeconds)*time.Second, 7*24*time.Hour)
	failed := r.Outcome == OutcomeFailed || r.Outcome == OutcomeTimedOut
	switch {
	case r.Outcome == OutcomeSucceeded:
		want.State = RunSucceeded
	case c.cancelled || r.Outcome == OutcomeCancelled:
		want.State = RunCancelled
	case failed:
		c.failures, c.lost = c.failures+1, 0
		switch {
		case r.Permanent || policy.On == RetryOnServerErrors && r.HTTPStatus == 404:
			want.State, want.Reason = RunDead, ReasonPermanent
		case c.failures == policy.Max+1:
			want.State, want.Reason = RunDead, ReasonOutOfRetries
		default:
			want.State, want.Delay = RunRetry, policy.Delay(run, c.failures)
			if asked > 0 {
				want.Delay = asked
			}
			c.retries++
		}
	case r.Outcome == OutcomeSnoozed:
		want.State, want.Delay = RunRetry, max(asked, time.Second)
		c.lost = 0
	case r.Outcome == OutcomeLost:
		if c.lost++; c.lost == 3 {
			want.State, want.Reason = RunDead, ReasonPoison
		}
	}
	want.Counts = AttemptCounts{Failures: c.failures, Lost: c.lost, Cancelled: c.cancelled}
	return want
}

// Whatever happens to the attempts of a run, it follows the policy: the test
// counts for itself what the counts stands for.
func TestSettleFollowsThePolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Retry{
			Max: rapid.IntRange(0, 5).Draw(t, "max"), On: rapid.SampledFrom([]RetryOn{RetryOnAll, RetryOnServerErrors}).Draw(t, "retry on"),
			Backoff: rapid.SampledFrom(backoffs).Draw(t, "backoff"), Base: time.Second, Cap: time.Hour, Jitter: 0.25, Delays: "1,0,30",
		}
		run := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		var counts AttemptCounts
		var own count
		for range 40 {
			if !own.cancelled && rapid.IntRange(0, 19).Draw(t, "cancel") == 0 {
				own.cancelled, counts.Cancelled = true, true
			}
			r := anyResult(t)
			s, want := Settle(run, counts, policy, r), own.after(run, policy, r)
			if s != want {
				t.Fatalf("%+v gives %+v, want %+v", r, s, want)
			}
			if own.retries > policy.Max {
				t.Fatalf("%d retries, at most %d are allowed", own.retries, policy.Max)
			}
			if s.State != RunReady && s.State != RunRetry {
				return // Nothing is settled after the end.
			}
			counts = s.Counts
		}
	})
}

func TestFingerprint(t *testing.T) {
	a := Result{Outcome: OutcomeFailed, Error: "dial 10.0.0.1:80: timeout after 31ms for 0190b0f2-0000-7000-8000-000000000001"}
	b := a
	b.Error = "dial 10.0.0.2:80: timeout after 5ms for 0190b0f2-0000-7000-8000-000000000002"
	if Fingerprint(a) != Fingerprint(b) {
		t.Error("failures that differ only in numbers have different fingerprints")
	}
	b.HTTPStatus = 500
	if Fingerprint(a) == Fingerprint(b) {
		t.Error("failures with different statuses share a fingerprint")
	}
}
