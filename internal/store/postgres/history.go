package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The places where a run may be, read as the same columns: one that was asked for
// and is about to be made is as good as ready. Each is followed by its table, or
// a part of it, under the name x.
const (
	liveRuns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		NULL::timestamptz AS finished_at, x.worker, 0 AS http_status, '' AS error, '' AS output, '' AS reason, NULL::timestamptz AS skipped_to,
		0::bigint AS skipped_count, x.cancel_at, coalesce(x.key, '') AS key FROM `
	deadRuns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, 'dead' AS state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		x.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), x.reason, NULL::timestamptz,
		0::bigint, NULL::timestamptz, coalesce(x.key, '') FROM `
	wishedRuns = `SELECT x.run_id AS id, x.job_id, x.namespace, j.revision, x.kind, 'ready' AS state, x.at AS scheduled_at, greatest(x.at, x.created_at) AS ready_at, NULL::timestamptz, 0, NULL::timestamptz,
		NULL::timestamptz, NULL::uuid, 0, '', '', '', NULL::timestamptz,
		0::bigint, NULL::timestamptz, '' FROM `
	settledRuns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		x.settled_at, x.worker, x.http_status, x.error, x.output, x.reason, x.skipped_to,
		x.skipped_count, NULL::timestamptz, coalesce(x.key, '') FROM `

	// What follows a dead letter, and a wish.
	withAttempt = ` LEFT JOIN belfry.attempts a ON a.run_id = x.id AND a.attempt = x.attempt`
	withJob     = ` JOIN belfry.jobs j ON j.id = x.job_id AND j.state <> 'deleted'`
)

// runScan reads a run in these columns.
type runScan struct {
	run                               belfry.Run
	id, job, worker                   pgtype.UUID
	fired, started, finished, skipped pgtype.Timestamptz
	cancel                            pgtype.Timestamptz
}

func (s *runScan) fields() []any {
	r := &s.run
	return []any{&s.id, &s.job, &r.Namespace, &r.Revision, &r.Kind, &r.Status, &r.ScheduledAt, &r.ReadyAt, &s.fired, &r.Attempt,
		&s.started, &s.finished, &s.worker, &r.HTTPStatus, &r.Error, &r.Output, &r.Reason, &s.skipped, &r.SkippedCount, &s.cancel, &r.TemplateKey}
}

func (s *runScan) result() belfry.Run {
	run := s.run
	run.ID, run.JobID, run.WorkerID = s.id.Bytes, s.job.Bytes, s.worker.Bytes
	run.ScheduledAt, run.ReadyAt, run.FiredAt = run.ScheduledAt.UTC(), run.ReadyAt.UTC(), moment(s.fired)
	run.StartedAt, run.FinishedAt, run.SkippedTo = momentOrNil(s.started), momentOrNil(s.finished), momentOrNil(s.skipped)
	run.CancelRequestedAt = momentOrNil(s.cancel)
	return run
}

func scanRun(row pgx.CollectableRow) (belfry.Run, error) {
	var scan runScan
	err := row.Scan(scan.fields()...)
	return scan.result(), err
}

// Run finds a run wherever it is, with the attempts that failed.
func (s *Store) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	const here = ` WHERE x.namespace = $1 AND x.id = $2`
	rows, err := s.work.Query(ctx, liveRuns+`belfry.runs x`+here+`
		UNION ALL `+deadRuns+`belfry.dead x`+withAttempt+here+`
		UNION ALL (`+settledRuns+`belfry.history x`+here+` ORDER BY x.settled_at DESC)
		UNION ALL `+wishedRuns+`belfry.triggers x`+withJob+` WHERE x.namespace = $1 AND x.run_id = $2 AND x.fired_at IS NULL
		LIMIT 1`, namespace, uuid(id))
	if err != nil {
		return belfry.Run{}, failed("look up a run", err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, scanRun)
	if errors.Is(err, pgx.ErrNoRows) {
		return run, belfry.Errorf(belfry.NotFound, "there is no run %s", id)
	}
	if err == nil {
		run.Attempts, err = s.attempts(ctx, id)
	}
	return run, failed("look up a run", err)
}

func (s *Store) attempts(ctx context.Context, run belfry.ID) ([]belfry.Attempt, error) {
	rows, err := s.work.Query(ctx, `SELECT attempt, outcome, worker, started_at, finished_at, http_status, error, output, coalesce(late_outcome, ''), late_at
		FROM belfry.attempts WHERE run_id = $1 ORDER BY attempt`, uuid(run))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (belfry.Attempt, error) {
		var a belfry.Attempt
		var worker pgtype.UUID
		var late pgtype.Timestamptz
		err := row.Scan(&a.Number, &a.Outcome, &worker, &a.StartedAt, &a.FinishedAt, &a.HTTPStatus, &a.Error, &a.Output, &a.LateOutcome, &late)
		a.WorkerID, a.LateAt = worker.Bytes, momentOrNil(late)
		a.StartedAt, a.FinishedAt = a.StartedAt.UTC(), a.FinishedAt.UTC()
		return a, err
	})
}

// JobRuns gives the runs and skips of a job, latest occurrence first. Each place
// is cut to a page before they are merged.
func (s *Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, page store.Page) ([]belfry.Run, error) {
	const mine = ` WHERE x.namespace = $1 AND x.job_id = $2 AND ($3::timestamptz IS NULL OR (x.scheduled_at, x.id) < ($3, $4)) ORDER BY x.scheduled_at DESC, x.id DESC LIMIT $5`
	rows, err := s.work.Query(ctx, `(`+liveRuns+`belfry.runs x`+mine+`) UNION ALL (`+deadRuns+`belfry.dead x`+withAttempt+mine+`)
		UNION ALL (`+settledRuns+`belfry.history x`+mine+`) ORDER BY scheduled_at DESC, id DESC LIMIT $5`,
		namespace, uuid(job), stamp(page.After.At), uuid(page.After.ID), page.Limit)
	if err != nil {
		return nil, failed("list runs", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	return runs, failed("list runs", err)
}
