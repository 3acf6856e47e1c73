package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
)

const (
	archiveScanLimit = 5000 // jobs that one call of Archive reads

	// oneOffFinished is a condition on the plan p of a one-off that has nothing planned.
	oneOffFinished = `p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL`

	// noLiveRuns is a condition on a job j without live runs, dead letters and pending
	// triggers. Each is looked up, whatever the planner estimates.
	noLiveRuns = `(SELECT 1 FROM belfry.runs WHERE job_id = j.id LIMIT 1) IS NULL AND (SELECT 1 FROM belfry.dead WHERE job_id = j.id LIMIT 1) IS NULL
   AND (SELECT 1 FROM belfry.triggers WHERE job_id = j.id AND fired_at IS NULL LIMIT 1) IS NULL`

	// jobsByID are jobs j and their plans p.
	jobsByID = `unnest($1::uuid[]) AS one (id) JOIN belfry.jobs j ON j.id = one.id JOIN belfry.plans p ON p.job_id = one.id`
)

// archive archives those of the jobs that are finished one-offs. Jobs that somebody
// else has locked are left to Archive.
func (s *Store) archive(ctx context.Context, q querier, jobs []belfry.ID) error {
	distinct := slices.Clone(jobs) // several runs of a job may be settled at once
	slices.SortFunc(distinct, belfry.ID.Compare)
	_, err := s.archiveJobs(ctx, q, uuids(slices.Compact(distinct)))
	return err
}

// archiveJobs locks jobs and plans before it looks for runs and triggers, so that none
// is added in between.
func (s *Store) archiveJobs(ctx context.Context, q querier, jobs []pgtype.UUID) (archived int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		// In this form the planner does not scan all plans of finished one-offs.
		locked, err := collectIDs(ctx, tx, `/* archive */ SELECT j.id FROM `+jobsByID+`
			WHERE j.state = 'active' AND coalesce(`+oneOffFinished+`, false) FOR UPDATE OF j, p SKIP LOCKED`, jobs)
		if err != nil || len(locked) == 0 {
			return err
		}
		finished, err := s.readFinished(ctx, tx, locked)
		if err != nil || len(finished) == 0 {
			return err
		}
		archived = len(finished)
		return moveToEnded(ctx, tx, finished)
	})
	return archived, err
}

// readFinished reads those of the jobs that have no live runs, with how they ended. A
// spec that cannot be read has no retention of its own.
func (s *Store) readFinished(ctx context.Context, tx pgx.Tx, jobs []pgtype.UUID) ([]*jobStatusRow, error) {
	rows, err := collect(ctx, tx, func(row pgx.CollectableRow) (*jobStatusRow, error) {
		r := &jobStatusRow{job: belfry.Job{State: belfry.JobActive}}
		var spec string
		err := row.Scan(idColumn(&r.job.ID), &spec, timeColumn{&r.job.CreatedAt}, timeColumn{&r.job.UpdatedAt}, timeColumn{&r.firedFor}, &r.runCount)
		r.job.Spec = s.specs.OrZero(spec)
		return r, err
	}, `/* archive */ SELECT j.id, j.spec, j.created_at, j.updated_at, p.fired_for, p.runs_made + p.runs_triggered
		FROM `+jobsByID+` WHERE `+noLiveRuns, jobs)
	if err != nil {
		return nil, err
	}
	return rows, loadLastSettled(ctx, tx, rows)
}

func moveToEnded(ctx context.Context, tx pgx.Tx, rows []*jobStatusRow) error {
	jobs := column(rows, func(r **jobStatusRow) belfry.Job { return (*r).result(time.Time{}) }) // nothing is planned
	_, err := tx.Exec(ctx, `/* archive */
WITH finished AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::integer[]) AS f (job_id, status, last_run_at, retention_days)
), deleted AS (
  DELETE FROM belfry.jobs j USING finished f WHERE j.id = f.job_id RETURNING j.*, f.status, f.last_run_at, f.retention_days
), deleted_plans AS (
  DELETE FROM belfry.plans p USING finished f WHERE p.job_id = f.job_id
)
INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at,
                          ended_at, retain_until)
SELECT id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at,
       c.now, c.now + retention_days * interval '24 hours'
  FROM deleted CROSS JOIN (SELECT clock_timestamp() AS now) c`,
		column(jobs, func(j *belfry.Job) pgtype.UUID { return uuid(j.ID) }),
		column(jobs, func(j *belfry.Job) string { return string(j.Status) }),
		column(jobs, func(j *belfry.Job) *time.Time { return j.LastRunAt }),
		column(jobs, func(j *belfry.Job) pgtype.Int4 { return retentionDays(j.RetentionDays) }))
	return err
}

func (s *Store) Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (archived int, next belfry.ID, err error) {
	if limit < 1 {
		return 0, after, nil
	}
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var found []pgtype.UUID
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		const scan = ` FROM belfry.plans p WHERE ` + oneOffFinished + ` AND job_id > $1 ORDER BY job_id`
		found, err = collectIDs(ctx, tx, `SELECT j.id FROM (SELECT job_id, shard`+scan+` LIMIT $2) p JOIN belfry.jobs j ON j.id = p.job_id
		WHERE p.shard = ANY($3) AND j.state = 'active' AND `+noLiveRuns+` ORDER BY p.job_id LIMIT $4`, notNull(after), archiveScanLimit, int32s(shards), limit)
		if err != nil {
			return err
		}
		if len(found) == limit {
			next = found[limit-1].Bytes
			return nil
		}
		last, err := collectIDs(ctx, tx, `SELECT job_id`+scan+` OFFSET $2 - 1 LIMIT 1`, notNull(after), archiveScanLimit)
		if len(last) > 0 {
			next = last[0].Bytes
		}
		return err
	})
	if err == nil {
		archived, err = s.archiveJobs(ctx, s.pool, found)
	}
	if err != nil {
		return archived, belfry.ID{}, wrapError("archive jobs", err)
	}
	return archived, next, nil
}

const (
	selectDeletedSQL = `SELECT j.id, j.spec FROM belfry.jobs j WHERE j.state = 'deleted' AND NOT j.purge AND j.updated_at < $1
   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2`

	archiveDeletedSQL = `/* archive */
WITH old AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::integer[]) AS o (job_id, retention_days)
), deleted AS (
  DELETE FROM belfry.jobs j USING old WHERE j.id = old.job_id AND j.state = 'deleted' RETURNING j.*, old.retention_days
), deleted_plans AS (
  DELETE FROM belfry.plans p USING deleted d WHERE p.job_id = d.id
), deleted_triggers AS (
  DELETE FROM belfry.triggers t USING deleted d WHERE t.job_id = d.id
), deleted_keys AS (
  DELETE FROM belfry.keys k USING deleted d WHERE k.job_id = d.id
), archived AS (
  INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at, ended_at, retain_until)
  SELECT id, shard, namespace, name, tags, revision, 'deleted', spec, payload, queue, type, handler, created_at, updated_at,
         (SELECT scheduled_at FROM belfry.history WHERE job_id = d.id AND state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1),
         c.now, c.now + retention_days * interval '24 hours'
    FROM deleted d CROSS JOIN (SELECT clock_timestamp() AS now) c
   WHERE EXISTS (SELECT 1 FROM belfry.history WHERE job_id = d.id)
  RETURNING id
), deleted_revisions AS (
  DELETE FROM belfry.revisions v USING deleted d WHERE v.job_id = d.id AND v.job_id NOT IN (SELECT id FROM archived)
)
SELECT count(*) FROM deleted`
)

// archiveDeleted archives the jobs that were deleted before an instant and have no live
// runs and dead letters; without history they leave nothing.
func (s *Store) archiveDeleted(ctx context.Context, before time.Time) error {
	for n := pruneBatch; n == pruneBatch; {
		err := s.pruneStep(ctx, func(call context.Context) error {
			old, err := collect(call, s.pool, func(row pgx.CollectableRow) (job belfry.Job, err error) {
				var spec string
				err = row.Scan(idColumn(&job.ID), &spec)
				job.Spec = s.specs.OrZero(spec)
				return job, err
			}, selectDeletedSQL, before, pruneBatch)
			if n = len(old); err != nil || n == 0 {
				return err
			}
			_, err = s.pool.Exec(call, archiveDeletedSQL, column(old, func(j *belfry.Job) pgtype.UUID { return uuid(j.ID) }),
				column(old, func(j *belfry.Job) pgtype.Int4 { return retentionDays(j.RetentionDays) }))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readEnded reads the ended jobs that a WHERE selects, in no order. Their last result is
// in history, near their last run.
func (s *Store) readEnded(ctx context.Context, q querier, where string, args ...any) ([]belfry.Job, error) {
	jobs, err := collect(ctx, q, s.scanEnded,
		`SELECT id, namespace, name, tags, revision, status, spec, payload, created_at, updated_at, last_run_at, ended_at FROM belfry.ended `+where, args...)
	if err != nil {
		return nil, err
	}
	var rows []*jobStatusRow
	for i := range jobs {
		r := &jobStatusRow{job: belfry.Job{ID: jobs[i].ID}}
		if at := jobs[i].LastRunAt; at != nil {
			r.firedFor, r.runCount = *at, 1
		}
		rows = append(rows, r)
	}
	err = loadLastSettled(ctx, q, rows)
	for i, r := range rows {
		jobs[i].LastResult = r.Last()
	}
	return jobs, err
}

func (s *Store) scanEnded(row pgx.CollectableRow) (belfry.Job, error) {
	var spec string
	job := belfry.Job{State: belfry.JobEnded}
	err := row.Scan(idColumn(&job.ID), &job.Namespace, textColumn{&job.Name}, &job.Tags, &job.Revision, &job.Status, &spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, nullTimeColumn{&job.LastRunAt}, nullTimeColumn{&job.EndedAt})
	if err != nil {
		return job, err
	}
	if job.Status == belfry.StatusDeleted {
		job.State = belfry.JobDeleted
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return job, fmt.Errorf("job %s: read its spec: %w", job.ID, err)
	}
	return job, nil
}

// followUps is what is to be done after runs were settled.
type followUps struct {
	waiting   []belfry.ID    // jobs with a waiting run
	oneOffs   []belfry.ID    // jobs whose last run this may have been
	succeeded []succeededRun // of such jobs
	attempts  []metrics.Attempt
}

// succeededRun is a run that succeeded and may have been the only one of a one-off.
type succeededRun struct {
	job           belfry.ID
	scheduledAt   pgtype.Timestamptz
	retentionDays pgtype.Int4
}

// settled runs a statement that returns settledColumns, and marks its results.
func (f *followUps) settled(ctx context.Context, q querier, settled []bool, sql string, args ...any) error {
	var (
		n                  int64
		job                belfry.ID
		oneOff, hasWaiting bool
	)
	return forEach(ctx, q, []any{&n, idColumn(&job), &oneOff, &hasWaiting}, func() error {
		settled[n] = true
		f.add(job, oneOff, hasWaiting)
		return nil
	}, sql, args...)
}

// succeed settles those of the results that are successes, sorted by run, and marks them.
func (f *followUps) succeed(ctx context.Context, q querier, results []belfry.Result, settled []bool, which []int) error {
	var (
		n                  int32
		oneOff, hasWaiting bool
		run                succeededRun
		lane               laneColumn
		micros             int64
	)
	fields := []any{&n, idColumn(&run.job), &oneOff, &hasWaiting, &run.scheduledAt, &run.retentionDays, &lane, &micros}
	return forEach(ctx, q, fields, func() error {
		i := which[n-1]
		settled[i] = true
		f.attempts = append(f.attempts, metrics.Attempt{Namespace: results[i].Namespace, Lane: lane.text, Outcome: belfry.OutcomeSucceeded, Duration: time.Duration(micros) * time.Microsecond})
		if oneOff && !hasWaiting {
			f.succeeded = append(f.succeeded, run)
		} else {
			f.add(run.job, oneOff, hasWaiting)
		}
		return nil
	}, succeedSQL, succeedArgs(results, which)...)
}

const (
	// archiveSettings are for the transaction of archiveSucceededSQL. It fails if a lock takes
	// long. The commit does not wait for the disk: what a crash of the server undoes, Archive
	// does again. On a new database, the planner would make a bitmap of the jobs first.
	archiveSettings = `/* archive */ SELECT set_config('lock_timeout', '10ms', true), set_config('synchronous_commit', 'off', true), set_config('enable_bitmapscan', 'off', true)`

	// archiveSucceededSQL archives one-offs whose only run has succeeded, without looking at
	// their runs: their plans have made no other run. It returns the others, and fails if a
	// job changes meanwhile.
	//
	// The jobs are sorted, so that what belongs to one of them is found in an argument by a
	// binary search. There is no join: whatever the planner believes of the number of jobs
	// and plans, it can only look them up.
	archiveSucceededSQL = `/* archive */
WITH deleted_plans AS (
  DELETE FROM belfry.plans p
   WHERE p.job_id = ANY($1::uuid[]) AND ` + oneOffFinished + ` AND p.runs_made + p.runs_triggered = 1
     AND p.fired_for = ($2::timestamptz[])[width_bucket(p.job_id, $1)] AND ` + isActive + ` AND NOT ` + hasPendingTrigger + `
  RETURNING p.job_id
), deleted AS (
  DELETE FROM belfry.jobs j WHERE j.id = ANY(ARRAY(SELECT job_id FROM deleted_plans)) AND coalesce(j.state = 'active', false)
  RETURNING id, shard, namespace, name, tags, revision, spec, payload, queue, type, handler, created_at, updated_at
), archived AS (
  INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at,
                            ended_at, retain_until)
  SELECT id, shard, namespace, name, tags, revision, 'completed', spec, payload, queue, type, handler, created_at, updated_at, ($2)[width_bucket(id, $1)],
         c.now, c.now + nullif(($3::integer[])[width_bucket(id, $1)], 0) * interval '24 hours'
    FROM (SELECT clock_timestamp() AS now) c CROSS JOIN deleted
), rest AS (
  SELECT cardinality($1) - count(*) / CASE WHEN count(*) = (SELECT count(*) FROM deleted_plans) THEN 1 ELSE 0 END AS n FROM deleted
)
SELECT job_id FROM unnest($1) AS f (job_id) WHERE (SELECT n FROM rest) > 0 AND job_id NOT IN (SELECT id FROM deleted)`

	// isActive is a condition on a plan p whose job is neither paused nor deleted. Mostly no
	// job is.
	isActive = `((SELECT 1 FROM belfry.jobs WHERE state = 'paused' LIMIT 1) IS NULL AND (SELECT 1 FROM belfry.jobs WHERE state = 'deleted' LIMIT 1) IS NULL
         OR (SELECT state FROM belfry.jobs WHERE id = p.job_id) = 'active')`

	// hasPendingTrigger is a condition on a plan p. Mostly there is no trigger at all.
	hasPendingTrigger = `((SELECT 1 FROM belfry.triggers WHERE fired_at IS NULL LIMIT 1) IS NOT NULL
         AND (SELECT 1 FROM belfry.triggers WHERE job_id = p.job_id AND fired_at IS NULL LIMIT 1) IS NOT NULL)`

	// checkArchivedSQL fails if one of the jobs was archived and has a trigger that was
	// stored since archiveSucceededSQL began. It sees those that had locked their job before.
	checkArchivedSQL = `/* archive */ SELECT 1 / CASE WHEN EXISTS (
  SELECT 1 FROM unnest($1::uuid[]) AS p (job_id) WHERE ` + hasPendingTrigger + ` AND (SELECT 1 FROM belfry.jobs WHERE id = p.job_id) IS NULL) THEN 0 ELSE 1 END`
)

// archiveSucceeded archives one-offs whose only run has succeeded, as most do. It returns
// those that it did not archive, for whatever reason.
func (s *Store) archiveSucceeded(ctx context.Context, runs []succeededRun) (rest []belfry.ID) {
	if len(runs) == 0 {
		return nil
	}
	slices.SortFunc(runs, func(a, b succeededRun) int { return a.job.Compare(b.job) })
	jobs := column(runs, func(r *succeededRun) pgtype.UUID { return uuid(r.job) })
	batch := &pgx.Batch{} // a transaction
	batch.Queue(archiveSettings)
	batch.Queue(archiveSucceededSQL, jobs,
		column(runs, func(r *succeededRun) pgtype.Timestamptz { return r.scheduledAt }),
		column(runs, func(r *succeededRun) int32 { return r.retentionDays.Int32 })).Query(func(rows pgx.Rows) error {
		var job belfry.ID
		_, err := pgx.ForEachRow(rows, []any{idColumn(&job)}, func() error {
			rest = append(rest, job)
			return nil
		})
		return err
	})
	batch.Queue(checkArchivedSQL, jobs)
	if err := s.orMain(s.finishPool).SendBatch(ctx, batch).Close(); err != nil {
		rest = column(runs, func(r *succeededRun) belfry.ID { return r.job })
	}
	return rest
}

func (f *followUps) add(job belfry.ID, oneOff, hasWaiting bool) {
	if hasWaiting {
		f.waiting = append(f.waiting, job)
	}
	if oneOff {
		f.oneOffs = append(f.oneOffs, job)
	}
}

// runFollowUps promotes waiting runs and archives one-offs. The runs are settled in any
// case: after an error, Promote and Archive do it.
func (s *Store) runFollowUps(ctx context.Context, f followUps) {
	if _, err := s.advance(ctx, f.waiting); err != nil {
		s.log.Warn("waiting runs will be promoted a little later", "jobs", len(f.waiting), "error", err)
	}
	f.oneOffs = append(f.oneOffs, s.archiveSucceeded(ctx, f.succeeded)...)
	if len(f.oneOffs) == 0 {
		return
	}
	if err := s.archive(ctx, s.orMain(s.finishPool), f.oneOffs); err != nil {
		s.log.Warn("finished one-offs will be archived a little later", "jobs", len(f.oneOffs), "error", err)
	}
}
