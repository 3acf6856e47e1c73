package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Redrive makes runs of dead letters again. It locks the plans of their jobs and raises
// their versions first, so that a step that was decided before is not applied: it did
// not count the run.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var states []belfry.RunStatus
	jobs := map[belfry.ID]bool{}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		clear(jobs)
		serial, err := s.lockRedrivePlans(ctx, tx, namespace, list, jobs)
		if err == nil && len(serial) > 0 {
			states, err = redriveRuns(ctx, tx, namespace, list, serial)
		}
		return err
	})
	if err != nil {
		return 0, wrapError("redrive", err)
	}
	if len(jobs) > 0 {
		s.notifier.notifyPlans(len(jobs) > maxInsertJobs, slices.Collect(maps.Keys(jobs))...)
	}
	if slices.Contains(states, belfry.RunReady) {
		s.notifier.notifyReady()
	}
	return len(states), nil
}

// lockRedrivePlans locks the plans of the jobs whose dead letters are in the list, in
// the order of their ids, and collects the jobs. It reports for each existing dead
// letter whether its run is serial, by the revision that it was fired from.
func (s *Store) lockRedrivePlans(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, jobs map[belfry.ID]bool) (map[belfry.ID]bool, error) {
	ids := column(list, func(r *store.Redrive) pgtype.UUID { return uuid(r.Run) })
	var (
		serial  = map[belfry.ID]bool{}
		locked  []pgtype.UUID
		id, job pgtype.UUID
		spec    string
	)
	err := forEach(ctx, tx, []any{&id, &job, &spec}, func() error {
		serial[id.Bytes] = s.specs.OrZero(spec).Serial()
		if !jobs[job.Bytes] {
			jobs[job.Bytes], locked = true, append(locked, job)
		}
		return nil
	}, `/* redrive */ SELECT r.id, r.job_id, coalesce(v.spec, j.spec) FROM belfry.dead r`+joinRevision+` WHERE r.namespace = $1 AND r.id = ANY($2)`, namespace, ids)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	_, err = tx.Exec(ctx, `/* redrive */
WITH locked AS MATERIALIZED (SELECT job_id FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE)
UPDATE belfry.plans p SET version = p.version + 1 FROM locked WHERE p.job_id = locked.job_id`, locked)
	return serial, err
}

// redriveSQL moves dead letters to the live runs. Of several of one job the earliest
// comes first, and a serial run waits for all that are live.
const redriveSQL = `/* redrive */
WITH request AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::boolean[]) AS q (run_id, delay, new_payload, serial)
), locked AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), deleted AS (
  DELETE FROM belfry.dead d USING locked JOIN request ON request.run_id = locked.id WHERE d.id = locked.id
  RETURNING d.*, request.delay, request.new_payload, request.serial
), queued AS MATERIALIZED (
  SELECT *, clock_timestamp() + delay * interval '1 microsecond' AS retry_at,
         serial AND (row_number() OVER (PARTITION BY job_id ORDER BY scheduled_at, id) > 1 OR EXISTS (SELECT 1 FROM belfry.runs x WHERE x.job_id = deleted.job_id)) AS waits
    FROM deleted
)
INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                         timeout_ms, attempt, failures, lost, payload, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, revision, kind, lane, CASE WHEN waits THEN 'waiting' WHEN delay > 0 THEN 'retry' ELSE 'ready' END,
       (extract(epoch FROM retry_at) * 1000000)::bigint + weight, scheduled_at, retry_at, fired_at, fired_by, epoch,
       timeout_ms, attempt, 0, 0, coalesce(new_payload, payload), key, weight, one_off, retention_days
  FROM queued
RETURNING state`

// redriveRuns returns the states of the new runs.
func redriveRuns(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, serial map[belfry.ID]bool) ([]belfry.RunStatus, error) {
	var found []store.Redrive
	var serials []bool
	for _, r := range list {
		if isSerial, ok := serial[r.Run]; ok {
			delete(serial, r.Run) // a repetition in the list does nothing
			found, serials = append(found, r), append(serials, isSerial)
		}
	}
	return collect(ctx, tx, pgx.RowTo[belfry.RunStatus], redriveSQL, namespace,
		column(found, func(r *store.Redrive) pgtype.UUID { return uuid(r.Run) }),
		column(found, func(r *store.Redrive) int64 { return max(r.After.Microseconds(), 0) }),
		column(found, func(r *store.Redrive) pgtype.Text { return text(string(r.Payload)) }), serials)
}

// Discard moves dead letters to history, with the facts of their last attempt, and
// archives one-offs that have nothing else.
func (s *Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	discarded := 0
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var (
			job     pgtype.UUID
			oneOff  bool
			oneOffs []belfry.ID
		)
		discarded = 0
		err := forEach(ctx, tx, []any{&job, &oneOff}, func() error {
			discarded++
			if oneOff {
				oneOffs = append(oneOffs, job.Bytes)
			}
			return nil
		}, `/* discard */
WITH locked AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), deleted AS (
  DELETE FROM belfry.dead d USING locked WHERE d.id = locked.id RETURNING d.*
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT x.id, x.shard, x.namespace, x.job_id, x.revision, x.kind, 'discarded', x.reason, x.scheduled_at, x.ready_at, x.fired_at, x.fired_by, x.epoch,
         x.attempt, a.worker, a.token, x.started_at, clock_timestamp(), coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, x.key,
         clock_timestamp() + x.retention_days * interval '24 hours'
    FROM deleted x`+joinLastAttempt+`
)
SELECT job_id, one_off FROM deleted`, namespace, uuids(runs))
		if err != nil {
			return err
		}
		return s.archive(ctx, tx, oneOffs)
	})
	if err != nil {
		return 0, wrapError("discard", err)
	}
	return discarded, nil
}
