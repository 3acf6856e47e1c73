package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The places where a run may be, in the same columns: one that was asked for and
// is about to be made is as good as ready.
const (
	liveRuns = `SELECT id, job_id, namespace, revision, kind, state, scheduled_at, ready_at, fired_at, attempt, started_at, NULL::timestamptz AS finished_at,
		worker, 0 AS http_status, '' AS error, '' AS output, '' AS reason, NULL::timestamptz AS skipped_to, 0::bigint AS skipped_count FROM belfry.runs`
	deadRuns = `SELECT d.id, d.job_id, d.namespace, d.revision, d.kind, 'dead', d.scheduled_at, d.ready_at, d.fired_at, d.attempt, d.started_at, d.died_at,
		a.worker, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), d.reason, NULL::timestamptz, 0::bigint
		FROM belfry.dead d LEFT JOIN belfry.attempts a ON a.run_id = d.id AND a.attempt = d.attempt`
	wishedRuns = `SELECT t.run_id, t.job_id, t.namespace, j.revision, t.kind, 'ready', t.at, t.at, NULL::timestamptz, 0, NULL::timestamptz, NULL::timestamptz,
		NULL::uuid, 0, '', '', '', NULL::timestamptz, 0::bigint FROM belfry.triggers t JOIN belfry.jobs j ON j.id = t.job_id AND j.state <> 'deleted'`
	settledRuns = `SELECT id, job_id, namespace, revision, kind, state, scheduled_at, ready_at, fired_at, attempt, started_at, settled_at,
		worker, http_status, error, output, reason, skipped_to, skipped_count FROM belfry.history`
)

func scanRun(row pgx.CollectableRow) (belfry.Run, error) {
	var (
		run                        belfry.Run
		id, job, worker            pgtype.UUID
		fired                      pgtype.Timestamptz
		started, finished, skipped pgtype.Timestamptz
	)
	err := row.Scan(&id, &job, &run.Namespace, &run.Revision, &run.Kind, &run.State, &run.ScheduledAt, &run.ReadyAt, &fired, &run.Attempt,
		&started, &finished, &worker, &run.HTTPStatus, &run.Error, &run.Output, &run.Reason, &skipped, &run.SkippedCount)
	run.ID, run.JobID, run.Worker = id.Bytes, job.Bytes, worker.Bytes
	run.ScheduledAt, run.ReadyAt, run.FiredAt = run.ScheduledAt.UTC(), run.ReadyAt.UTC(), moment(fired)
	run.StartedAt, run.FinishedAt, run.SkippedTo = momentOrNil(started), momentOrNil(finished), momentOrNil(skipped)
	return run, err
}

// Run finds a run wherever it is, with the attempts that failed.
func (s *Store) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	rows, err := s.work.Query(ctx, liveRuns+` WHERE namespace = $1 AND id = $2
		UNION ALL `+deadRuns+` WHERE d.namespace = $1 AND d.id = $2
		UNION ALL (`+settledRuns+` WHERE namespace = $1 AND id = $2 ORDER BY settled_at DESC)
		UNION ALL `+wishedRuns+` WHERE t.namespace = $1 AND t.run_id = $2 AND t.fired_at IS NULL
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
		a.Worker, a.LateAt = worker.Bytes, momentOrNil(late)
		a.StartedAt, a.FinishedAt = a.StartedAt.UTC(), a.FinishedAt.UTC()
		return a, err
	})
}

// JobRuns gives the runs and skips of a job, latest occurrence first. Each place
// is cut to a page before they are merged.
func (s *Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, page store.RunPage) ([]belfry.Run, error) {
	const (
		mine  = ` WHERE namespace = $1 AND job_id = $2 AND ($3::timestamptz IS NULL OR (scheduled_at, id) < ($3, $4)) ORDER BY scheduled_at DESC, id DESC LIMIT $5`
		mineD = ` WHERE d.namespace = $1 AND d.job_id = $2 AND ($3::timestamptz IS NULL OR (d.scheduled_at, d.id) < ($3, $4)) ORDER BY d.scheduled_at DESC, d.id DESC LIMIT $5`
	)
	rows, err := s.work.Query(ctx, `(`+liveRuns+mine+`) UNION ALL (`+deadRuns+mineD+`) UNION ALL (`+settledRuns+mine+`) ORDER BY scheduled_at DESC, id DESC LIMIT $5`,
		namespace, uuid(job), stamp(page.BeforeAt), uuid(page.BeforeID), page.Limit)
	if err != nil {
		return nil, failed("list runs", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	return runs, failed("list runs", err)
}

// Bounds of pruning.
const (
	pruneAtATime   = 5000
	shortKeep      = 48 * time.Hour
	keepTriggers   = 24 * time.Hour // fired ones, so that repeating a wish does nothing
	keepTombstones = time.Hour      // deleted jobs
)

// Prune forgets what is older than keep, whole days at a time by dropping their
// partition. Only a short keep is worth looking at single rows.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (int, error) {
	cutoff := s.Now().Add(-keep)
	if err := makePartitions(ctx, s.work, s.Now()); err != nil {
		return 0, failed("prune", err)
	}
	pruned, err := dropPartitions(ctx, s.work, cutoff)
	if err != nil {
		return pruned, failed("prune", err)
	}
	table := "belfry.history_default"
	if keep < shortKeep {
		table = "belfry.history"
	}
	rows, err := s.deleteInBatches(ctx, `DELETE FROM `+table+` WHERE (tableoid, ctid) IN (SELECT tableoid, ctid FROM `+table+` WHERE settled_at < $1 LIMIT $2)`, cutoff)
	pruned += rows
	if err != nil {
		return pruned, failed("prune", err)
	}
	for _, sweep := range []struct {
		sql    string
		cutoff time.Time
	}{
		{`DELETE FROM belfry.attempts WHERE ctid IN (SELECT a.ctid FROM belfry.attempts a WHERE a.finished_at < $1
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE id = a.run_id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE id = a.run_id) LIMIT $2)`, cutoff},
		{`DELETE FROM belfry.triggers WHERE ctid IN (SELECT ctid FROM belfry.triggers WHERE fired_at < $1 LIMIT $2)`, s.Now().Add(-keepTriggers)},
		{`WITH gone AS (DELETE FROM belfry.jobs WHERE ctid IN (SELECT j.ctid FROM belfry.jobs j WHERE j.state = 'deleted' AND j.updated_at < $1
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2) RETURNING id),
			old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id),
			wishes AS (DELETE FROM belfry.triggers t USING gone WHERE t.job_id = gone.id)
			DELETE FROM belfry.plans p USING gone WHERE p.job_id = gone.id`, s.Now().Add(-keepTombstones)},
	} {
		if _, err := s.deleteInBatches(ctx, sweep.sql, sweep.cutoff); err != nil {
			return pruned, failed("prune", err)
		}
	}
	return pruned, nil
}

// deleteInBatches repeats a DELETE until it finds less than a batch.
func (s *Store) deleteInBatches(ctx context.Context, sql string, cutoff time.Time) (int, error) {
	total := 0
	for {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return total, err
		}
		tag, err := s.work.Exec(call, sql, cutoff, pruneAtATime)
		cancel()
		if err != nil {
			return total, err
		}
		n := int(tag.RowsAffected())
		total += n
		if n < pruneAtATime {
			return total, nil
		}
	}
}
