package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Redrive makes runs of dead letters again. The plans of their jobs are locked and
// move to their next version first: whoever has decided to fire one of them did not
// know of the run.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, err
	}
	defer cancel()
	var back []redrivenRun
	jobs := map[belfry.ID]bool{}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		clear(jobs)
		serial, err := s.lockRedrivePlans(ctx, tx, namespace, list, jobs)
		if err == nil && len(serial) > 0 {
			back, err = redriveRuns(ctx, tx, namespace, list, serial)
		}
		return err
	})
	if err != nil {
		return 0, wrapError("redrive", err)
	}
	changed := make([]belfry.ID, 0, len(jobs))
	for job := range jobs {
		changed = append(changed, job)
	}
	if len(changed) > 0 {
		s.notifier.notifyPlans(len(changed) > maxInsertJobs, changed...)
	}
	for _, r := range back {
		if r.state == belfry.RunReady {
			s.notifier.notifyReady()
			break
		}
	}
	return len(back), nil
}

// lockForRedrive locks the plans of the jobs whose dead letters are in the list, in
// the order in which everybody does, and notes the jobs. It says of each letter that
// is there whether its run follows others one after another: the revision that it
// was fired from tells.
func (s *Store) lockRedrivePlans(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, jobs map[belfry.ID]bool) (map[belfry.ID]bool, error) {
	ids := make([]pgtype.UUID, len(list))
	for i, r := range list {
		ids[i] = uuid(r.Run)
	}
	rows, err := tx.Query(ctx, `/* redrive */ SELECT r.id, r.job_id, coalesce(v.spec, j.spec) FROM belfry.dead r`+atRevision+` WHERE r.namespace = $1 AND r.id = ANY($2)`, namespace, ids)
	if err != nil {
		return nil, err
	}
	var (
		serial  = map[belfry.ID]bool{}
		locked  []pgtype.UUID
		id, job pgtype.UUID
		spec    string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &job, &spec}, func() error {
		serial[id.Bytes] = s.specs.OrZero(spec).Serial()
		if !jobs[job.Bytes] {
			jobs[job.Bytes], locked = true, append(locked, job)
		}
		return nil
	})
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	_, err = tx.Exec(ctx, `/* redrive */
WITH mine AS MATERIALIZED (SELECT job_id FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE)
UPDATE belfry.plans p SET version = p.version + 1 FROM mine WHERE p.job_id = mine.job_id`, locked)
	return serial, err
}

// redriven is what became of a dead letter.
type redrivenRun struct {
	id    pgtype.UUID
	state belfry.RunStatus
}

// redriveSQL moves dead letters back. Of several of one job the earliest goes first,
// and a serial one waits behind whatever is alive.
const redriveSQL = `/* redrive */
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::boolean[]) AS a (run_id, delay, new_payload, serial)
), held AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), gone AS (
  DELETE FROM belfry.dead d USING held JOIN asked ON asked.run_id = held.id WHERE d.id = held.id
  RETURNING d.*, asked.delay, asked.new_payload, asked.serial
), placed AS MATERIALIZED (
  SELECT *, clock_timestamp() + delay * interval '1 microsecond' AS again_at,
         serial AND (row_number() OVER (PARTITION BY job_id ORDER BY scheduled_at, id) > 1 OR EXISTS (SELECT 1 FROM belfry.runs x WHERE x.job_id = gone.job_id)) AS behind
    FROM gone
)
INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                         timeout_ms, attempt, failures, lost, payload, trace, key, weight, once, keep_days)
SELECT id, shard, namespace, job_id, revision, kind, lane, CASE WHEN behind THEN 'waiting' WHEN delay > 0 THEN 'retry' ELSE 'ready' END,
       (extract(epoch FROM again_at) * 1000000)::bigint + weight, scheduled_at, again_at, fired_at, fired_by, epoch,
       timeout_ms, attempt, 0, 0, coalesce(new_payload, payload), trace, key, weight, once, keep_days
  FROM placed
RETURNING id, state`

func redriveRuns(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, serial map[belfry.ID]bool) ([]redrivenRun, error) {
	var (
		ids      []pgtype.UUID
		delays   []int64
		payloads []pgtype.Text
		serials  []bool
	)
	for _, r := range list {
		one, there := serial[r.Run]
		if !there {
			continue
		}
		delete(serial, r.Run) // once is enough
		ids, delays = append(ids, uuid(r.Run)), append(delays, max(r.After.Microseconds(), 0))
		payloads, serials = append(payloads, text(string(r.Payload))), append(serials, one)
	}
	rows, err := tx.Query(ctx, redriveSQL, namespace, ids, delays, payloads, serials)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r redrivenRun, err error) {
		err = row.Scan(&r.id, &r.state)
		return r, err
	})
}

// Discard gives dead letters up. Their rows in history have the facts of the last
// attempt. A one-off that nothing is left of ends with them.
func (s *Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, err
	}
	defer cancel()
	discarded := 0
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `/* discard */
WITH held AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), gone AS (
  DELETE FROM belfry.dead d USING held WHERE d.id = held.id RETURNING d.*
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT x.id, x.shard, x.namespace, x.job_id, x.revision, x.kind, 'discarded', x.reason, x.scheduled_at, x.ready_at, x.fired_at, x.fired_by, x.epoch,
         x.attempt, a.worker, a.token, x.started_at, clock_timestamp(), coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, x.key,
         clock_timestamp() + x.keep_days * interval '24 hours'
    FROM gone x`+joinLastAttempt+`
)
SELECT job_id, once FROM gone`, namespace, uuids(runs))
		if err != nil {
			return err
		}
		var (
			job   pgtype.UUID
			once  bool
			maybe []belfry.ID // over
		)
		discarded = 0
		_, err = pgx.ForEachRow(rows, []any{&job, &once}, func() error {
			discarded++
			if once {
				maybe = append(maybe, job.Bytes)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.archive(ctx, tx, maybe)
	})
	if err != nil {
		return 0, wrapError("discard", err)
	}
	return discarded, nil
}
