package belfry

import "time"

// PoisonLimit is how many workers in a row a run may lose before it is parked.
const PoisonLimit = 3

// Tally is what a run remembers of its earlier attempts.
type Tally struct {
	Failures int // attempts that failed or timed out
	Lost     int // workers lost in a row
}

// Settlement is what an attempt's outcome makes of its run: it succeeded, is
// ready again at once, waits for a retry, or is dead.
type Settlement struct {
	State  RunState
	Delay  time.Duration // until a retry is ready
	Reason Reason        // why it is dead
	Tally  Tally
}

// Settle decides what becomes of a run after an attempt. An interrupted or
// unconfirmed attempt costs no retry; a lost one costs none either but counts
// towards poison.
func Settle(run ID, tally Tally, policy Retry, outcome Outcome) Settlement {
	switch outcome {
	case OutcomeSucceeded:
		return Settlement{State: RunSucceeded, Tally: tally}
	case OutcomeInterrupted, OutcomeUnconfirmed:
		return Settlement{State: RunReady, Tally: tally}
	case OutcomeLost:
		tally.Lost++
		if tally.Lost >= PoisonLimit {
			return Settlement{State: RunDead, Reason: ReasonPoison, Tally: tally}
		}
		return Settlement{State: RunReady, Tally: tally}
	default:
		tally = Tally{Failures: tally.Failures + 1}
		if tally.Failures > policy.Max {
			return Settlement{State: RunDead, Reason: ReasonRetries, Tally: tally}
		}
		return Settlement{State: RunRetry, Delay: policy.Delay(run, tally.Failures), Tally: tally}
	}
}
