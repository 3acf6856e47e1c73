package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// retireLook is how many jobs one call of Retire looks at.
const archiveScanLimit = 5000

// over is a condition on the plan p of a one-off that has nothing planned.
const oneOffFinished = `p.once AND p.next_at IS NULL AND p.nominal_at IS NULL`

// alone is a condition on a job j: no run of it is alive, dead or wished for. Each is
// looked up, whatever the planner believes of how many there are.
const noLiveRuns = `(SELECT 1 FROM belfry.runs WHERE job_id = j.id LIMIT 1) IS NULL AND (SELECT 1 FROM belfry.dead WHERE job_id = j.id LIMIT 1) IS NULL
   AND (SELECT 1 FROM belfry.triggers WHERE job_id = j.id AND fired_at IS NULL LIMIT 1) IS NULL`

// these are jobs j and their plans p by their ids.
const jobsByID = `unnest($1::uuid[]) AS one (id) JOIN belfry.jobs j ON j.id = one.id JOIN belfry.plans p ON p.job_id = one.id`

// retire has those of the jobs leave the live tables that are one-offs and over.
// What somebody else is changing just now is left for Retire.
func (s *Store) archive(ctx context.Context, q querier, jobs []belfry.ID) error {
	each := slices.Clone(jobs) // several runs of a job may be over at once
	slices.SortFunc(each, belfry.ID.Compare)
	_, err := s.archiveJobs(ctx, q, uuids(slices.Compact(each)))
	return err
}

// retireSome locks jobs and plans first, so that nobody makes a run or records a
// wish any more, and then looks whether there is one.
func (s *Store) archiveJobs(ctx context.Context, q querier, jobs []pgtype.UUID) (retired int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		// In this form the planner does not walk over all plans that are over for it.
		rows, err := tx.Query(ctx, `/* retire */ SELECT j.id FROM `+jobsByID+`
			WHERE j.state = 'active' AND coalesce(`+oneOffFinished+`, false) FOR UPDATE OF j, p SKIP LOCKED`, jobs)
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
		if err != nil || len(locked) == 0 {
			return err
		}
		sights, err := s.readFinished(ctx, tx, locked)
		if err != nil || len(sights) == 0 {
			return err
		}
		retired = len(sights)
		return moveToEnded(ctx, tx, sights)
	})
	return retired, err
}

// lastSights reads those of the jobs that have nothing left, with how they ended.
// A spec that cannot be read has no retention of its own.
func (s *Store) readFinished(ctx context.Context, tx pgx.Tx, jobs []pgtype.UUID) ([]*jobStatusRow, error) {
	rows, err := tx.Query(ctx, `/* retire */ SELECT j.id, j.spec, j.created_at, j.updated_at, p.fired_for, p.runs_made + p.runs_asked
		FROM `+jobsByID+` WHERE `+noLiveRuns, jobs)
	if err != nil {
		return nil, err
	}
	sights, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*jobStatusRow, error) {
		v := &jobStatusRow{job: belfry.Job{State: belfry.JobActive}}
		var id pgtype.UUID
		var spec string
		var mark pgtype.Timestamptz
		err := row.Scan(&id, &spec, &v.job.CreatedAt, &v.job.UpdatedAt, &mark, &v.runCount)
		v.job.ID, v.job.Spec, v.firedFor = id.Bytes, s.specs.OrZero(spec), timeOrZero(mark)
		return v, err
	})
	if err != nil {
		return nil, err
	}
	return sights, loadLastSettled(ctx, tx, sights)
}

// bow moves jobs out of the live tables.
func moveToEnded(ctx context.Context, tx pgx.Tx, sights []*jobStatusRow) error {
	var (
		ids      []pgtype.UUID
		statuses []string
		lasts    []pgtype.Timestamptz
		days     []pgtype.Int4
	)
	for _, v := range sights {
		job := v.result()
		ids, statuses, days = append(ids, uuid(job.ID)), append(statuses, string(job.Status)), append(days, keepDays(job.Spec))
		var last pgtype.Timestamptz
		if job.LastRunAt != nil {
			last = timestamptz(*job.LastRunAt)
		}
		lasts = append(lasts, last)
	}
	_, err := tx.Exec(ctx, `/* retire */
WITH one AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::integer[]) AS o (job_id, status, last_run_at, keep_days)
), gone AS (
  DELETE FROM belfry.jobs j USING one WHERE j.id = one.job_id RETURNING j.*, one.status, one.last_run_at, one.keep_days
), unplanned AS (
  DELETE FROM belfry.plans p USING one WHERE p.job_id = one.job_id
)
INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at,
                          ended_at, keep_until)
SELECT id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, last_run_at,
       c.now, c.now + keep_days * interval '24 hours'
  FROM gone CROSS JOIN (SELECT clock_timestamp() AS now) c`, ids, statuses, lasts, days)
	return err
}

// keepDays is the retention of a spec's own; null if it has none.
func keepDays(spec belfry.Spec) pgtype.Int4 {
	return pgtype.Int4{Int32: int32(spec.RetentionDays), Valid: spec.RetentionDays > 0}
}

// Retire has one-offs of the shards that are over leave the live tables.
func (s *Store) Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (retired int, next belfry.ID, err error) {
	if limit < 1 {
		return 0, after, nil
	}
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, next, err
	}
	defer cancel()
	var found []pgtype.UUID
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restrictPlanner); err != nil {
			return err
		}
		found, next, err = findFinished(ctx, tx, int32s(shards), pgtype.UUID{Bytes: after, Valid: true}, limit)
		return err
	})
	if err == nil {
		retired, err = s.archiveJobs(ctx, s.pool, found)
	}
	if err != nil {
		return retired, belfry.ID{}, wrapError("retire jobs", err)
	}
	return retired, next, nil
}

// overOnes finds one-offs that seem to be over, in the order of their ids, and says
// after which one the walk goes on; zero: that was the end.
func findFinished(ctx context.Context, tx pgx.Tx, shards []int32, after pgtype.UUID, limit int) (found []pgtype.UUID, next belfry.ID, err error) {
	const walk = ` FROM belfry.plans p WHERE ` + oneOffFinished + ` AND job_id > $1 ORDER BY job_id`
	rows, err := tx.Query(ctx, `SELECT j.id FROM (SELECT job_id, shard`+walk+` LIMIT $2) w JOIN belfry.jobs j ON j.id = w.job_id
		WHERE w.shard = ANY($3) AND j.state = 'active' AND `+noLiveRuns+` ORDER BY w.job_id LIMIT $4`, after, archiveScanLimit, shards, limit)
	if err != nil {
		return nil, next, err
	}
	if found, err = pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID]); err != nil {
		return nil, next, err
	}
	if len(found) == limit {
		return found, found[limit-1].Bytes, nil
	}
	if rows, err = tx.Query(ctx, `SELECT job_id`+walk+` OFFSET $2 - 1 LIMIT 1`, after, archiveScanLimit); err != nil {
		return nil, next, err
	}
	last, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if len(last) > 0 {
		next = last[0].Bytes
	}
	return found, next, err
}

// readEnded reads the jobs that have ended and that a WHERE picks, in no order.
func (s *Store) readEnded(ctx context.Context, q querier, where string, args ...any) ([]belfry.Job, error) {
	rows, err := q.Query(ctx, `SELECT id, namespace, name, tags, revision, status, spec, payload, created_at, updated_at, last_run_at, ended_at FROM belfry.ended `+where, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, s.scanEnded)
}

func (s *Store) scanEnded(row pgx.CollectableRow) (belfry.Job, error) {
	var (
		job           = belfry.Job{State: belfry.JobEnded}
		id            pgtype.UUID
		name, payload pgtype.Text
		spec          string
		last, ended   pgtype.Timestamptz
	)
	err := row.Scan(&id, &job.Namespace, &name, &job.Tags, &job.Revision, &job.Status, &spec, &payload, &job.CreatedAt, &job.UpdatedAt, &last, &ended)
	if err != nil {
		return job, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return job, fmt.Errorf("job %s: read its spec: %w", belfry.ID(id.Bytes), err)
	}
	job.ID, job.Name = id.Bytes, name.String
	if payload.Valid {
		job.Payload = json.RawMessage(payload.String)
	}
	job.CreatedAt, job.UpdatedAt, job.LastRunAt = job.CreatedAt.UTC(), job.UpdatedAt.UTC(), timeOrNil(last)
	job.EndedAt = timeOrNil(ended)
	return job, nil
}
