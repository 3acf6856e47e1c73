package belfry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// PoisonLimit is how many workers in a row a run may lose before it is dead.
const PoisonLimit = 3

// AttemptCounts counts the earlier attempts of a run.
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
func Settle(run ID, counts AttemptCounts, policy Retry, r Result) Settlement {
	asked := time.Duration(min(max(r.RetryAfterSeconds, 0), MaxDelay.Seconds()) * float64(time.Second)).Round(time.Millisecond)
	switch {
	case r.Outcome == OutcomeSucceeded:
		return Settlement{State: RunSucceeded, Counts: counts}
	case counts.Cancelled || r.Outcome == OutcomeCancelled:
		return Settlement{State: RunCancelled, Counts: counts}
	case r.Outcome == OutcomeInterrupted || r.Outcome == OutcomeUnconfirmed:
		return Settlement{State: RunReady, Counts: counts}
	case r.Outcome == OutcomeSnoozed:
		return Settlement{State: RunRetry, Delay: max(asked, time.Second), Counts: AttemptCounts{Failures: counts.Failures}} // never in a tight loop
	case r.Outcome == OutcomeLost:
		counts.Lost++
		if counts.Lost >= PoisonLimit {
			return Settlement{State: RunDead, Reason: ReasonPoison, Counts: counts}
		}
		return Settlement{State: RunReady, Counts: counts}
	}
	counts = AttemptCounts{Failures: counts.Failures + 1}
	switch {
	case r.Permanent || policy.permanent(r.HTTPStatus):
		return Settlement{State: RunDead, Reason: ReasonPermanent, Counts: counts}
	case counts.Failures > policy.Max:
		return Settlement{State: RunDead, Reason: ReasonOutOfRetries, Counts: counts}
	case asked == atOnce:
		return Settlement{State: RunReady, Counts: counts}
	case asked > 0:
		return Settlement{State: RunRetry, Delay: asked, Counts: counts}
	}
	return Settlement{State: RunRetry, Delay: policy.Delay(run, counts.Failures), Counts: counts}
}

var varying = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9]+`)

// Fingerprint is the same for failures that differ only in numbers and ids, so that dead
// letters can be grouped by cause.
func Fingerprint(r Result) string {
	what := fmt.Sprintf("%s %d %s", r.Outcome, r.HTTPStatus, varying.ReplaceAllString(r.Error, "#"))
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:8])
}
