package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// A run whose cancellation is requested while its result arrives is settled by the result.
func TestResultWhileCancellationIsRequested(t *testing.T) {
	s := openEmpty(t)
	for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
		job := createDue(t, s, withSchedule("0 0 1 1 *"))
		fireTrigger(t, s, job)
		run := claimOne(t, s)
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), `UPDATE belfry.runs SET cancel_requested_at = clock_timestamp() WHERE id = $1`, uuid(run.ID)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		var verdicts []belfry.Verdict
		go func() {
			var err error
			verdicts, err = s.Finish(context.Background(), []belfry.Result{resultOf(run, outcome)})
			done <- err
		}()
		awaitLock(t, s, "/* finish */")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || verdicts[0] != belfry.VerdictAccepted {
			t.Errorf("%s: the verdict is %v: %v", outcome, verdicts, err)
		}
		if n := countRows(t, s, `runs`); n != 0 {
			t.Errorf("%s: %d runs are left", outcome, n)
		}
	}
}

// Cancelling a job may lock its runs in another order than a transaction that settles
// them. One of the two starts again.
func TestCancelJobRetriesDeadlock(t *testing.T) {
	s := openWithLockTimeout(t)
	job := createDue(t, s, withSchedule("0 0 1 1 *"), withParallelRuns)
	fireTrigger(t, s, job)
	fireTrigger(t, s, job)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	lock := func(order string) error {
		_, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.runs ORDER BY id `+order+` LIMIT 1 FOR UPDATE`)
		return err
	}
	if err := lock("DESC"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.EditJob(context.Background(), "default", job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			return &store.Change{Job: job, Step: plan.Cancel(subjectOf(t, job), p, now), Cancel: true}, nil
		})
		done <- err
	}()
	awaitLock(t, s, "/* cancel */")
	if err := lock("ASC"); err != nil && sqlState(err) != deadlockDetected { // on a slow machine the server may choose us
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, s, `runs`); n != 0 {
		t.Errorf("%d runs are left", n)
	}
}
