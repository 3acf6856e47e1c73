package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The tables that a run may be in, read as the same columns. One that was asked
// for and is about to be made is as good as ready.
const (
	fromRuns = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.state, r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, NULL, r.worker, 0, '', '', '', NULL, 0, r.cancel_requested_at, coalesce(r.key, '') FROM runs r `

	fromDead = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, 'dead', r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, r.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.output, ''), coalesce(a.error, ''), r.reason, NULL, 0,
  NULL, coalesce(r.key, '')
FROM dead r LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt `

	fromHistory = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.state, r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, r.settled_at, r.worker, r.http_status, r.output, r.error, r.reason, r.skipped_to, r.skipped_count, NULL, coalesce(r.key, '')
FROM history r `

	fromTriggers = `SELECT r.run_id, r.job_id, r.namespace, j.revision, r.kind, 'ready', r.at, max(r.at, r.created_at), NULL, 0,
  NULL, NULL, NULL, 0, '', '', '', NULL, 0, NULL, '' FROM triggers r CROSS JOIN jobs j ON j.id = r.job_id AND j.state <> 'deleted' `

	whereRun  = `WHERE r.id = ? AND r.namespace = ? `
	whereWish = `WHERE r.run_id = ? AND r.namespace = ? AND r.fired_at IS NULL`

	ofJob = `WHERE r.job_id = ? AND r.namespace = ? AND (r.scheduled_at, r.id) < (?, ?) ORDER BY r.scheduled_at DESC, r.id DESC LIMIT ?`

	selectJobRuns = `SELECT * FROM (` + fromRuns + ofJob + `) UNION ALL SELECT * FROM (` + fromDead + ofJob + `) UNION ALL SELECT * FROM (` +
		fromHistory + ofJob + `) ORDER BY 7 DESC, 1 DESC LIMIT ?`

	selectAttempts = `SELECT attempt, outcome, worker, started_at, finished_at, http_status, error, output, coalesce(late_outcome, ''), late_at
FROM attempts WHERE run_id = ? ORDER BY attempt`
)

func runFields(r *belfry.Run) []any {
	return []any{key{r.ID[:]}, key{r.JobID[:]}, &r.Namespace, &r.Revision, &r.Kind, &r.Status, moment{&r.ScheduledAt}, moment{&r.ReadyAt}, moment{&r.FiredAt},
		&r.Attempt, maybe{&r.StartedAt}, maybe{&r.FinishedAt}, key{r.WorkerID[:]}, &r.HTTPStatus, &r.Output, &r.Error, &r.Reason,
		maybe{&r.SkippedTo}, &r.SkippedCount, maybe{&r.CancelRequestedAt}, &r.TemplateKey}
}

func scanRun(rows *sql.Rows, r *belfry.Run) error { return rows.Scan(runFields(r)...) }

// Run finds a run wherever it is, with the attempts that failed.
func (s *Store) Run(ctx context.Context, namespace string, id belfry.ID) (run belfry.Run, err error) {
	err = s.read(ctx, "look up a run", func(t *tx) error {
		if err := t.findRun(&run, namespace, id); err != nil {
			return err
		}
		run.Attempts, err = t.attempts(id)
		return err
	})
	if err != nil {
		return belfry.Run{}, err
	}
	return run, nil
}

// attempts are those of a run that did not succeed, in order.
func (t *tx) attempts(run belfry.ID) ([]belfry.Attempt, error) {
	return all(t, func(rows *sql.Rows, a *belfry.Attempt) error {
		return rows.Scan(&a.Number, &a.Outcome, key{a.WorkerID[:]}, moment{&a.StartedAt}, moment{&a.FinishedAt}, &a.HTTPStatus, &a.Error, &a.Output,
			&a.LateOutcome, maybe{&a.LateAt})
	}, selectAttempts, run[:])
}

func (t *tx) findRun(run *belfry.Run, namespace string, id belfry.ID) error {
	for _, query := range []string{fromRuns + whereRun, fromDead + whereRun, fromHistory + whereRun + `ORDER BY r.settled_at DESC LIMIT 1`, fromTriggers + whereWish} {
		if err := t.get(runFields(run), query, id[:], namespace); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return noSuchRun(id)
}

// JobRuns gives the runs and skips of a job, latest occurrence first.
func (s *Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, page store.Page) (runs []belfry.Run, err error) {
	before, limit := int64(math.MaxInt64), atMost(page.Limit)
	if !page.After.At.IsZero() {
		before = micro(page.After.At)
	}
	var args []any
	for range 3 {
		args = append(args, job[:], namespace, before, page.After.ID[:], limit)
	}
	err = s.read(ctx, "list the runs of a job", func(t *tx) error {
		runs, err = all(t, scanRun, selectJobRuns, append(args, limit)...)
		return err
	})
	return runs, err
}
