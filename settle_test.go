package belfry

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSettle(t *testing.T) {
	policy := Retry{Max: 2, Base: 10 * time.Second, Cap: time.Minute}
	fresh := Tally{}
	for _, tt := range []struct {
		name    string
		tally   Tally
		outcome Outcome
		want    Settlement
	}{
		{"success ends it", fresh, OutcomeSucceeded, Settlement{State: RunSucceeded}},
		{"success after failures ends it", Tally{2, 0}, OutcomeSucceeded, Settlement{State: RunSucceeded, Tally: Tally{2, 0}}},
		{"success after losses ends it", Tally{1, 2}, OutcomeSucceeded, Settlement{State: RunSucceeded, Tally: Tally{1, 2}}},

		{"a first failure is tried again", fresh, OutcomeFailed, Settlement{State: RunRetry, Delay: 10 * time.Second, Tally: Tally{1, 0}}},
		{"a second failure waits twice as long", Tally{1, 0}, OutcomeFailed, Settlement{State: RunRetry, Delay: 20 * time.Second, Tally: Tally{2, 0}}},
		{"a failure beyond the last retry is death", Tally{2, 0}, OutcomeFailed, Settlement{State: RunDead, Reason: ReasonRetries, Tally: Tally{3, 0}}},
		{"a failure far beyond it too", Tally{9, 0}, OutcomeFailed, Settlement{State: RunDead, Reason: ReasonRetries, Tally: Tally{10, 0}}},
		{"a failure ends a row of losses", Tally{0, 2}, OutcomeFailed, Settlement{State: RunRetry, Delay: 10 * time.Second, Tally: Tally{1, 0}}},
		{"a timeout is a failure", fresh, OutcomeTimedOut, Settlement{State: RunRetry, Delay: 10 * time.Second, Tally: Tally{1, 0}}},
		{"a last timeout is death", Tally{2, 1}, OutcomeTimedOut, Settlement{State: RunDead, Reason: ReasonRetries, Tally: Tally{3, 0}}},
		{"an outcome of a newer version is a failure", fresh, "melted", Settlement{State: RunRetry, Delay: 10 * time.Second, Tally: Tally{1, 0}}},

		{"a first loss is repeated at once", fresh, OutcomeLost, Settlement{State: RunReady, Tally: Tally{0, 1}}},
		{"a second loss too", Tally{0, 1}, OutcomeLost, Settlement{State: RunReady, Tally: Tally{0, 2}}},
		{"a third in a row is poison", Tally{0, 2}, OutcomeLost, Settlement{State: RunDead, Reason: ReasonPoison, Tally: Tally{0, 3}}},
		{"a loss costs no retry", Tally{2, 0}, OutcomeLost, Settlement{State: RunReady, Tally: Tally{2, 1}}},

		{"an interruption costs nothing", Tally{2, 2}, OutcomeInterrupted, Settlement{State: RunReady, Tally: Tally{2, 2}}},
		{"an interruption at first costs nothing", fresh, OutcomeInterrupted, Settlement{State: RunReady}},
		{"a claim nobody learned of costs nothing", Tally{2, 2}, OutcomeUnconfirmed, Settlement{State: RunReady, Tally: Tally{2, 2}}},
		{"a claim nobody learned of at first costs nothing", fresh, OutcomeUnconfirmed, Settlement{State: RunReady}},
	} {
		if got := Settle(jobA, tt.tally, policy, tt.outcome); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestWithoutRetriesTheFirstFailureIsDeath(t *testing.T) {
	got := Settle(jobA, Tally{}, Retry{Base: time.Second, Cap: time.Minute}, OutcomeFailed)
	if want := (Settlement{State: RunDead, Reason: ReasonRetries, Tally: Tally{1, 0}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Whatever happens to the attempts of a run, it follows the policy: the test
// counts for itself what the tally stands for.
func TestARunFollowsItsPolicy(t *testing.T) {
	outcomes := rapid.SampledFrom([]Outcome{
		OutcomeSucceeded, OutcomeFailed, OutcomeFailed, OutcomeTimedOut,
		OutcomeInterrupted, OutcomeLost, OutcomeLost, OutcomeUnconfirmed,
	})
	rapid.Check(t, func(t *rapid.T) {
		policy := Retry{Max: rapid.IntRange(0, 5).Draw(t, "max"), Base: time.Second, Cap: time.Hour, Jitter: 0.25}
		run := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		var tally Tally
		var failures, retries int
		var lost int // in a row, not counting what costs nothing
		for _, outcome := range rapid.SliceOfN(outcomes, 1, 40).Draw(t, "outcomes") {
			s := Settle(run, tally, policy, outcome)
			want := Settlement{State: RunReady}
			switch outcome {
			case OutcomeSucceeded:
				want.State = RunSucceeded
			case OutcomeFailed, OutcomeTimedOut:
				failures, lost = failures+1, 0
				if failures == policy.Max+1 {
					want.State, want.Reason = RunDead, ReasonRetries
				} else {
					want.State, want.Delay = RunRetry, policy.Delay(run, failures)
					retries++
				}
			case OutcomeLost:
				if lost++; lost == 3 {
					want.State, want.Reason = RunDead, ReasonPoison
				}
			}
			want.Tally = Tally{failures, lost}
			if s != want {
				t.Fatalf("%s gives %+v, want %+v", outcome, s, want)
			}
			if retries > policy.Max {
				t.Fatalf("%d retries, at most %d are allowed", retries, policy.Max)
			}
			if s.State == RunSucceeded || s.State == RunDead {
				return // Nothing is settled after the end.
			}
			tally = s.Tally
		}
	})
}
