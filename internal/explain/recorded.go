package explain

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// noticeable is how late a run may be fired without being called late.
const noticeable = time.Minute

// recorded explains an instant by its record and the others of the same instant.
func (e *explainer) recorded(ctx context.Context, t *instant, record belfry.Run, others []belfry.Run) (belfry.Explanation, error) {
	run := record
	if record.Status != belfry.RunSkipped {
		var err error
		if run, err = e.store.Run(ctx, t.job.Namespace, record.ID); err != nil {
			return belfry.Explanation{}, err
		}
	}
	t.out.Run, t.out.Reason = &run, run.Reason
	verdict, err := e.verdict(ctx, t, run)
	if err != nil {
		return belfry.Explanation{}, err
	}
	t.out.Sentence = t.subject(run) + " " + verdict
	for _, other := range others {
		if other.Kind == belfry.KindBackfill {
			t.out.Sentence += " It was backfilled too: that run " + statusVerb(other.Status) + "."
			break
		}
	}
	return t.out, nil
}

// subject is what the sentence is about.
func (t *instant) subject(run belfry.Run) string {
	switch run.Kind {
	case belfry.KindManual:
		return "The manual run of " + t.format.full(t.at)
	case belfry.KindBackfill:
		return "The backfill of " + t.format.full(t.at)
	}
	return t.format.full(t.at)
}

// verdict says what became of a run or skip, and sets the decision.
func (e *explainer) verdict(ctx context.Context, t *instant, run belfry.Run) (string, error) {
	switch run.Status {
	case belfry.RunSucceeded:
		t.out.Decision = belfry.DecisionRan
		return t.succeeded(run), nil
	case belfry.RunDead:
		t.out.Decision = belfry.DecisionDead
		return t.died(run) + " It is a dead letter until it is redriven or discarded.", nil
	case belfry.RunDiscarded:
		t.out.Decision = belfry.DecisionDiscarded
		return t.died(run) + " The dead letter was discarded.", nil
	case belfry.RunCancelled:
		t.out.Decision = belfry.DecisionCancelled
		return t.cancelled(run), nil
	case belfry.RunSkipped:
		t.out.Decision = belfry.DecisionSkipped
		return e.skipped(ctx, t, run)
	}
	return e.live(ctx, t, run)
}

func (t *instant) succeeded(run belfry.Run) string {
	verdict := "ran: it succeeded"
	if run.FinishedAt != nil {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	if run.Attempt > 1 {
		verdict += fmt.Sprintf(" in attempt %d", run.Attempt)
	}
	verdict += "."
	if late := run.FiredAt.Sub(run.ReadyAt); late >= noticeable && run.Kind == belfry.KindScheduled && run.Attempt <= 1 {
		verdict += fmt.Sprintf(" It was fired at %s, %s late.", t.format.seconds(run.FiredAt), duration(late))
	}
	return verdict
}

// died is about a dead letter, or one that was discarded.
func (t *instant) died(run belfry.Run) string {
	verdict := "ran and failed"
	if run.FinishedAt != nil && run.Status == belfry.RunDead {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	switch run.Reason {
	case belfry.ReasonPoison:
		verdict += fmt.Sprintf(": %d workers in a row were lost while they ran it", belfry.PoisonLimit)
	case belfry.ReasonPermanent:
		verdict += ": retries cannot fix the failure, after " + count(run.Attempt, "attempt")
	default:
		verdict += ": it is out of retries after " + count(run.Attempt, "attempt")
	}
	if said := lastError(run); said != "" {
		verdict += "; the last error was: " + said
	}
	return verdict + "."
}

// lastError is the error of the last attempt of a run.
func lastError(run belfry.Run) string {
	text, status := run.Error, run.HTTPStatus
	if n := len(run.Attempts); text == "" && status == 0 && n > 0 {
		text, status = run.Attempts[n-1].Error, run.Attempts[n-1].HTTPStatus
	}
	if text == "" && status != 0 {
		return fmt.Sprintf("HTTP status %d", status)
	}
	return quote(text)
}

func (t *instant) cancelled(run belfry.Run) string {
	verdict := "was cancelled"
	if run.FinishedAt != nil {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	if run.Attempt == 0 {
		return verdict + ", before it started."
	}
	return verdict + fmt.Sprintf(", after it started (attempt %d).", run.Attempt)
}

// skipped says why an occurrence did not run.
func (e *explainer) skipped(ctx context.Context, t *instant, skip belfry.Run) (string, error) {
	if skip.Reason == belfry.ReasonDSTGap {
		return t.gap(skip), nil
	}
	reason, err := e.skipReason(ctx, t, skip)
	if err != nil {
		return "", err
	}
	verdict := "was skipped: " + reason + "."
	if skip.SkippedCount > 1 && skip.SkippedTo != nil {
		number := fmt.Sprint(skip.SkippedCount)
		if skip.SkippedCount >= maxCounted {
			number = "At least " + number
		}
		verdict += fmt.Sprintf(" %s occurrences from %s to %s share this record.", number, t.format.short(skip.ScheduledAt), t.format.short(*skip.SkippedTo))
	}
	return verdict, nil
}

// maxCounted is the count of a record that stands for at least so many.
const maxCounted = 100_000

func (e *explainer) skipReason(ctx context.Context, t *instant, skip belfry.Run) (string, error) {
	switch skip.Reason {
	case belfry.ReasonOverlap:
		return e.overlap(ctx, t, skip)
	case belfry.ReasonQueueFull:
		limit := t.spec.QueueLimit()
		return fmt.Sprintf("%s waited for an earlier one already, which is the limit (overlap: queue, max_queued: %d)", count(limit, "run"), limit), nil
	case belfry.ReasonMissed:
		return e.missed(ctx, t, skip)
	case belfry.ReasonMaxMissed:
		return fmt.Sprintf("no scheduler was running, and more occurrences were missed than max_missed allows (missed_window: run_all catches up on the newest %d)",
			t.spec.MissedLimit()), nil
	case belfry.ReasonPaused:
		return "the job was paused", nil
	case belfry.ReasonEdited:
		return "the schedule was edited before it started, and the new one does not include it", nil
	case belfry.ReasonCancelled:
		return "the job was cancelled before it was due", nil
	case belfry.ReasonDeleted:
		return "the job was deleted first", nil
	case belfry.ReasonDuplicateKey:
		return fmt.Sprintf("another run of the job with the same idempotency key was alive or had succeeded in the last 7 days (idempotency_key_template: %s)",
			t.spec.IdempotencyKeyTemplate), nil
	case belfry.ReasonZoneChange:
		return "newer time-zone data moved it to another instant", nil
	}
	return "the reason is " + string(skip.Reason), nil
}

// overlap names the run that was alive.
func (e *explainer) overlap(ctx context.Context, t *instant, skip belfry.Run) (string, error) {
	const enough = 50 // runs and skips that may lie between
	runs, err := e.store.JobRuns(ctx, t.job.Namespace, t.job.ID, store.Page{After: store.Position{At: skip.FiredAt.Add(time.Microsecond)}, Limit: enough})
	if err != nil {
		return "", err
	}
	policy := " (overlap: " + string(t.spec.Overlap) + ")"
	for _, r := range runs {
		finished := r.FinishedAt != nil && r.FinishedAt.Before(skip.FiredAt)
		if r.ID == skip.ID || r.Status == belfry.RunSkipped || finished || r.FiredAt.IsZero() || r.FiredAt.After(skip.FiredAt) {
			continue
		}
		if r.StartedAt == nil || r.StartedAt.After(skip.FiredAt) {
			return t.format.run(r) + " had not finished" + policy, nil
		}
		return t.format.run(r) + " was still running" + policy, nil
	}
	return "an earlier run of the job had not finished" + policy, nil
}

// missed says why a missed occurrence did not run later.
func (e *explainer) missed(ctx context.Context, t *instant, skip belfry.Run) (string, error) {
	const cause = "no scheduler was running"
	switch {
	case t.policy == nil:
		return cause, nil
	case t.spec.MissedWindow == belfry.MissedSkip:
		return cause + " (missed_window: skip does not catch up)", nil
	case t.spec.MissedWindow == belfry.MissedRunOnce:
		latest, err := e.caughtUp(ctx, t, skip)
		if err != nil {
			return "", err
		}
		if !latest.IsZero() {
			return fmt.Sprintf("%s (missed_window: run_once catches up on the latest only, which was %s)", cause, t.format.short(latest)), nil
		}
	}
	window := t.policy.CatchUpWindow()
	if window == 0 {
		return cause + ", and it was too old to catch up (catch_up_window_seconds)", nil
	}
	return fmt.Sprintf("%s, and it was older than %s, the limit for catching up (catch_up_window_seconds)", cause, duration(window)), nil
}

// caughtUp is the occurrence after those of a skip, if the same decision ran it.
func (e *explainer) caughtUp(ctx context.Context, t *instant, skip belfry.Run) (time.Time, error) {
	last := skip.ScheduledAt
	if skip.SkippedTo != nil {
		last = *skip.SkippedTo
	}
	next := t.policy.Rule.Next(last)
	if next.IsZero() {
		return time.Time{}, nil
	}
	records, err := e.store.RunsAt(ctx, t.job.Namespace, t.job.ID, next)
	for _, r := range records {
		if r.Kind == belfry.KindScheduled && r.ScheduledAt.Equal(next) && r.FiredAt.Equal(skip.FiredAt) {
			return next, err
		}
	}
	return time.Time{}, err
}
