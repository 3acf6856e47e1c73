package control

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

// skipped tells why an occurrence was not run.
func (q *inquiry) skipped(ctx context.Context, skip belfry.Run) (string, error) {
	if skip.Reason == belfry.ReasonDSTGap {
		return q.gap(skip), nil
	}
	because, err := q.because(ctx, skip)
	if err != nil {
		return "", err
	}
	what := "was skipped: " + because + "."
	if skip.SkippedCount > 1 && skip.SkippedTo != nil {
		count := fmt.Sprint(skip.SkippedCount)
		if skip.SkippedCount >= uncounted {
			count = "At least " + count
		}
		what += fmt.Sprintf(" %s occurrences from %s to %s are one record.", count, q.words.short(skip.ScheduledAt), q.words.short(*skip.SkippedTo))
	}
	return what, nil
}

// uncounted is the count of a record that stands for at least so many.
const uncounted = 100_000

// because is the reason of a skip in words.
func (q *inquiry) because(ctx context.Context, skip belfry.Run) (string, error) {
	spec := q.spec()
	switch skip.Reason {
	case belfry.ReasonOverlap:
		return q.overlap(ctx, skip)
	case belfry.ReasonQueueFull:
		return fmt.Sprintf("%s waited for an earlier one already, and no more may (overlap: queue, max_queued: %d)",
			number(spec.QueueLimit(), "run"), spec.QueueLimit()), nil
	case belfry.ReasonMissed:
		return q.missed(ctx, skip)
	case belfry.ReasonMaxMissed:
		return fmt.Sprintf("nobody was in charge, and more occurrences were missed than are made up for (missed_window: run_all makes up for the newest %d, as max_missed says)",
			spec.MissedLimit()), nil
	case belfry.ReasonPaused:
		return "the job was paused", nil
	case belfry.ReasonEdited:
		return "the schedule was edited before it could start, and the new one does not name it", nil
	case belfry.ReasonCancelled:
		return "the job was cancelled before it was due", nil
	case belfry.ReasonDeleted:
		return "the job was deleted first", nil
	case belfry.ReasonDuplicateKey:
		return fmt.Sprintf("its idempotency key is that of another run of the job, which was not over or had succeeded lately (idempotency_key_template: %s)",
			spec.IdempotencyKeyTemplate), nil
	case belfry.ReasonZoneChange:
		return "a newer zone database moved what was planned for it to another instant", nil
	}
	return "the reason is " + string(skip.Reason), nil
}

// spec is that of the revision that decided.
func (q *inquiry) spec() belfry.Spec {
	if q.policy == nil {
		return q.job.Spec
	}
	return q.policy.Spec
}

// overlap tells which run was in the way.
func (q *inquiry) overlap(ctx context.Context, skip belfry.Run) (string, error) {
	const enough = 50 // runs and skips that may lie between
	runs, err := q.c.Runs(ctx, q.job.Namespace, q.job.ID, RunPage{BeforeAt: skip.FiredAt.Add(time.Microsecond), Limit: enough})
	if err != nil {
		return "", err
	}
	how := " (overlap: " + string(q.spec().Overlap) + ")"
	for _, r := range runs {
		over := r.FinishedAt != nil && r.FinishedAt.Before(skip.FiredAt)
		if r.ID == skip.ID || r.Status == belfry.RunSkipped || over || r.FiredAt.IsZero() || r.FiredAt.After(skip.FiredAt) {
			continue
		}
		if r.StartedAt == nil || r.StartedAt.After(skip.FiredAt) {
			return q.words.runOf(r) + " was not over yet" + how, nil
		}
		return q.words.runOf(r) + " was still running" + how, nil
	}
	return "an earlier run of the job was not over yet" + how, nil
}

// missed tells why an occurrence was not made up for.
func (q *inquiry) missed(ctx context.Context, skip belfry.Run) (string, error) {
	const nobody = "nobody was in charge"
	spec := q.spec()
	switch {
	case q.policy == nil:
		return nobody, nil
	case spec.MissedWindow == belfry.MissedSkip:
		return nobody + " (missed_window: skip makes up for nothing)", nil
	case spec.MissedWindow == belfry.MissedRunOnce:
		latest, err := q.madeUp(ctx, skip)
		if err != nil {
			return "", err
		}
		if !latest.IsZero() {
			return fmt.Sprintf("%s (missed_window: run_once makes up for the latest only, which was %s)", nobody, q.words.short(latest)), nil
		}
	}
	window := q.policy.CatchUpWindow()
	if window == 0 {
		return nobody + ", and it was too old to be made up for (catch_up_window_seconds)", nil
	}
	return fmt.Sprintf("%s, and it was older than %s, which is how far back occurrences are made up for (catch_up_window_seconds)", nobody, duration(window)), nil
}

// madeUp is the occurrence after those of a skip, if the same decision ran it.
func (q *inquiry) madeUp(ctx context.Context, skip belfry.Run) (time.Time, error) {
	last := skip.ScheduledAt
	if skip.SkippedTo != nil {
		last = *skip.SkippedTo
	}
	next := q.policy.Rule.Next(last)
	if next.IsZero() {
		return time.Time{}, nil
	}
	var rows []belfry.Run
	err := insist(ctx, "look up what was decided", func() (err error) {
		rows, err = q.c.store.Decided(ctx, q.job.Namespace, q.job.ID, next)
		return err
	})
	for _, r := range rows {
		if r.Kind == belfry.KindScheduled && r.ScheduledAt.Equal(next) && r.FiredAt.Equal(skip.FiredAt) {
			return next, err
		}
	}
	return time.Time{}, err
}
