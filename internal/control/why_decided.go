package control

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

// noticeable is how late a run may be fired without a word about it.
const noticeable = time.Minute

// tell says what became of the instant, by its record and what else happened then.
func (q *inquiry) tell(ctx context.Context, row belfry.Run, others []belfry.Run) error {
	q.Run = &row
	if row.Status != belfry.RunSkipped {
		run, err := q.c.Run(ctx, q.job.Namespace, row.ID)
		if err != nil {
			return err
		}
		q.Run = &run
	}
	q.Reason = q.Run.Reason
	what, err := q.became(ctx, *q.Run)
	if err != nil {
		return err
	}
	q.Sentence = q.subject(*q.Run) + " " + what
	for _, other := range others {
		if other.Kind == belfry.KindBackfill {
			q.Sentence += " Somebody asked for it again: that run " + stateVerb(other.Status) + "."
			break
		}
	}
	return nil
}

// subject is what the sentence is about.
func (q *inquiry) subject(run belfry.Run) string {
	switch run.Kind {
	case belfry.KindManual:
		return "The manual run of " + q.words.full(q.At)
	case belfry.KindBackfill:
		return "The backfill of " + q.words.full(q.At)
	}
	return q.words.full(q.At)
}

// became says what became of a run or skip, and in which word.
func (q *inquiry) became(ctx context.Context, run belfry.Run) (what string, err error) {
	switch run.Status {
	case belfry.RunSucceeded:
		q.Decision = belfry.DecisionRan
		return q.ran(run), nil
	case belfry.RunDead:
		q.Decision = belfry.DecisionDead
		return q.died(run) + " It is a dead letter until somebody redrives or discards it.", nil
	case belfry.RunDiscarded:
		q.Decision = belfry.DecisionDiscarded
		return q.died(run) + " Somebody discarded the dead letter.", nil
	case belfry.RunCancelled:
		q.Decision = belfry.DecisionCancelled
		return q.cancelled(run), nil
	case belfry.RunSkipped:
		q.Decision = belfry.DecisionSkipped
		return q.skipped(ctx, run)
	}
	return q.alive(ctx, run)
}

// ran tells of a success.
func (q *inquiry) ran(run belfry.Run) string {
	what := "ran: it succeeded"
	if run.FinishedAt != nil {
		what += " at " + q.words.moment(*run.FinishedAt)
	}
	if run.Attempt > 1 {
		what += fmt.Sprintf(", at attempt %d", run.Attempt)
	}
	what += "."
	if late := run.FiredAt.Sub(run.ReadyAt); late >= noticeable && run.Kind == belfry.KindScheduled && run.Attempt <= 1 {
		what += fmt.Sprintf(" It was fired at %s, which was %s late.", q.words.moment(run.FiredAt), duration(late))
	}
	return what
}

// died tells of a run that is out of attempts, or was.
func (q *inquiry) died(run belfry.Run) string {
	what := "ran and failed for good"
	if run.FinishedAt != nil && run.Status == belfry.RunDead {
		what += " at " + q.words.moment(*run.FinishedAt)
	}
	switch run.Reason {
	case belfry.ReasonPoison:
		what += fmt.Sprintf(": %d workers in a row were lost while they ran it, so that it was taken out of the way", belfry.PoisonLimit)
	case belfry.ReasonPermanent:
		what += ": a failure that no retry would change, after " + number(run.Attempt, "attempt")
	default:
		what += ": it is out of retries after " + number(run.Attempt, "attempt")
	}
	if said := lastError(run); said != "" {
		what += "; the last error was: " + said
	}
	return what + "."
}

// lastError is what the last attempt of a run said.
func lastError(run belfry.Run) string {
	text, status := run.Error, run.HTTPStatus
	if n := len(run.Attempts); text == "" && status == 0 && n > 0 {
		text, status = run.Attempts[n-1].Error, run.Attempts[n-1].HTTPStatus
	}
	if text == "" && status != 0 {
		return fmt.Sprintf("HTTP status %d", status)
	}
	return quoted(text)
}

// cancelled tells of a run that somebody cancelled.
func (q *inquiry) cancelled(run belfry.Run) string {
	what := "was cancelled"
	if run.FinishedAt != nil {
		what += " at " + q.words.moment(*run.FinishedAt)
	}
	if run.Attempt == 0 {
		return what + ", before it started."
	}
	return what + ", during or after " + number(run.Attempt, "attempt") + "."
}

// alive tells of a run that is not over.
func (q *inquiry) alive(ctx context.Context, run belfry.Run) (what string, err error) {
	w, err := q.wait(ctx, run.ID)
	switch {
	case err != nil:
		return "", err
	case w.State != run.Status:
		return "", errMoved
	}
	switch run.Status {
	case belfry.RunRunning:
		q.Decision = belfry.DecisionRunning
		what = "is running"
		if run.StartedAt != nil {
			what += " since " + q.words.moment(*run.StartedAt)
		}
		what += fmt.Sprintf(" (attempt %d).", run.Attempt)
	case belfry.RunRetry:
		q.Decision = belfry.DecisionRetrying
		what = q.retries(run)
	case belfry.RunWaiting:
		q.Decision = belfry.DecisionWaiting
		if what, err = q.queues(ctx, w); err != nil {
			return "", err
		}
	default:
		q.Decision = belfry.DecisionQueued
		if what, err = q.ready(ctx, run, w); err != nil {
			return "", err
		}
	}
	if w.Cancel {
		what += " Somebody cancelled it: it ends when its worker lets go of it."
	}
	return what, nil
}
