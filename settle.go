package belfry

import "time"

// PoisonLimit is how many workers in a row a run may lose before it is parked.
const PoisonLimit = 3

// AttemptCounts is what a run remembers of its earlier attempts.
type AttemptCounts struct {
	Failures  int  // attempts that failed or timed out
	Lost      int  // workers lost in a row
	Cancelled bool // somebody cancelled the run while it was running
}

// Settlement is what an attempt's outcome makes of its run: it succeeded, is
// ready again at once, waits for a retry, is cancelled, or is dead.
type Settlement struct {
	State  RunStatus
	Delay  time.Duration // until a retry is ready
	Reason Reason        // why it is dead
	Counts AttemptCounts
}

// Settle decides what becomes of a run after an attempt. An interrupted, snoozed
// or unconfirmed attempt costs no retry; a lost one costs none either but counts
// towards poison. A cancelled run that did not succeed is not tried again,
// whatever came of its attempt. A delay that the handler asks for takes the place
// of the policy's.
func Settle(run ID, tally AttemptCounts, policy Retry, r Result) Settlement {
	asked := time.Duration(min(max(r.RetryAfterSeconds, 0), MaxDelay.Seconds()) * float64(time.Second)).Round(time.Millisecond)
	switch {
	case r.Outcome == OutcomeSucceeded:
		return Settlement{State: RunSucceeded, Counts: tally}
	case tally.Cancelled || r.Outcome == OutcomeCancelled:
		return Settlement{State: RunCancelled, Counts: tally}
	case r.Outcome == OutcomeInterrupted || r.Outcome == OutcomeUnconfirmed:
		return Settlement{State: RunReady, Counts: tally}
	case r.Outcome == OutcomeSnoozed:
		return Settlement{State: RunRetry, Delay: max(asked, time.Second), Counts: AttemptCounts{Failures: tally.Failures}} // never in a tight loop
	case r.Outcome == OutcomeLost:
		tally.Lost++
		if tally.Lost >= PoisonLimit {
			return Settlement{State: RunDead, Reason: ReasonPoison, Counts: tally}
		}
		return Settlement{State: RunReady, Counts: tally}
	}
	tally = AttemptCounts{Failures: tally.Failures + 1}
	switch {
	case r.Permanent || policy.permanent(r.HTTPStatus):
		return Settlement{State: RunDead, Reason: ReasonPermanent, Counts: tally}
	case tally.Failures > policy.Max:
		return Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: tally}
	case asked > 0:
		return Settlement{State: RunRetry, Delay: asked, Counts: tally}
	}
	return Settlement{State: RunRetry, Delay: policy.Delay(run, tally.Failures), Counts: tally}
}
