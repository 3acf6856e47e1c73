package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// dueColumns are a plan with what is needed to decide it: the name only where a
// template of keys asks for it.
const dueColumns = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.once, j.namespace, j.revision, j.spec,
	CASE WHEN strpos(j.spec, '{{') > 0 AND j.spec ~ '\{\{ *name *\}\}' THEN coalesce(j.name, '') ELSE '' END`

// dueScan reads dueColumns.
type dueScan struct {
	planScan
	due store.Due
}

func (s *dueScan) fields() []any {
	return append(s.planScan.fields(), &s.due.Namespace, &s.due.Revision, &s.due.Spec, &s.due.Name)
}

func (s *dueScan) result() store.Due {
	s.due.Plan = s.plan()
	return s.due
}

func scanDue(row pgx.CollectableRow) (store.Due, error) {
	var scan dueScan
	err := row.Scan(scan.fields()...)
	return scan.result(), err
}

// Upcoming gives the plans that are due in the window, soonest first. The plans
// are picked from their narrow table before the jobs are looked up.
func (s *Store) Upcoming(ctx context.Context, w store.Window) ([]store.Due, error) {
	return s.dues(ctx, `(SELECT * FROM belfry.plans
         WHERE shard = ANY($1) AND next_at <= $2 AND ($3::timestamptz IS NULL OR next_at > $3)
         ORDER BY next_at FETCH FIRST $4 ROWS WITH TIES)`, int32s(w.Shards), w.Until, stamp(w.After), int64(w.Limit))
}

// Overdue gives plans that were due before the instant, the earliest first.
func (s *Store) Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]store.Due, error) {
	return s.dues(ctx, `(SELECT * FROM belfry.plans WHERE shard = ANY($1) AND next_at < $2 ORDER BY next_at LIMIT $3)`, int32s(shards), before, limit)
}

// Find gives the plans of the jobs.
func (s *Store) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return s.dues(ctx, `(SELECT * FROM belfry.plans WHERE job_id = ANY($1))`, uuids(jobs))
}

// dues reads the plans that a subquery picks.
func (s *Store) dues(ctx context.Context, picked string, args ...any) ([]store.Due, error) {
	rows, err := s.work.Query(ctx, `SELECT `+dueColumns+` FROM `+picked+` p JOIN belfry.jobs j ON j.id = p.job_id ORDER BY p.next_at, p.job_id`, args...)
	if err != nil {
		return nil, failed("read plans", err)
	}
	dues, err := pgx.CollectRows(rows, scanDue)
	return dues, failed("read plans", err)
}

// Triggers gives the triggers that are not fired yet, oldest first. No run is ready
// before it was asked for.
func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	rows, err := s.work.Query(ctx, `
SELECT t.id, t.namespace, t.job_id, t.shard, t.kind, t.at, t.created_at, t.payload, `+dueColumns+`
  FROM belfry.triggers t
  JOIN belfry.plans p ON p.job_id = t.job_id
  JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.shard = ANY($1) AND t.fired_at IS NULL AND j.state <> 'deleted'
 ORDER BY t.created_at, t.id LIMIT $2`, int32s(shards), limit)
	if err != nil {
		return nil, failed("read triggers", err)
	}
	wishes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.PendingTrigger, error) {
		var (
			scan    dueScan
			t       plan.Trigger
			id, job pgtype.UUID
			payload pgtype.Text
		)
		err := row.Scan(append([]any{&id, &t.Namespace, &job, &t.Shard, &t.Kind, &t.At, &t.ReadyAt, &payload}, scan.fields()...)...)
		t.ID, t.JobID, t.At, t.ReadyAt = id.Bytes, job.Bytes, t.At.UTC(), t.ReadyAt.UTC()
		if payload.Valid {
			t.Payload = json.RawMessage(payload.String)
		}
		return store.PendingTrigger{Trigger: t, Due: scan.result()}, err
	})
	return wishes, failed("read triggers", err)
}

// Promote makes runs whose retry is due ready, and runs that wait for nothing.
func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer cancel()
	tag, err := s.work.Exec(ctx, `/* promote */
UPDATE belfry.runs SET state = 'ready'
 WHERE id IN (SELECT id FROM belfry.runs WHERE state = 'retry' AND ready_at <= clock_timestamp() AND shard = ANY($1)
               ORDER BY ready_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, int32s(shards), limit)
	if err != nil {
		return 0, time.Time{}, failed("promote", err)
	}
	promoted = int(tag.RowsAffected())
	if promoted > 0 {
		s.hints.tellReady()
	}
	freed, err := s.unstick(ctx, shards)
	if err != nil {
		return promoted, time.Time{}, failed("let waiting runs go ahead", err)
	}
	promoted += freed
	var at pgtype.Timestamptz
	err = s.work.QueryRow(ctx, `SELECT min(ready_at) FROM belfry.runs WHERE state = 'retry' AND shard = ANY($1)`, int32s(shards)).Scan(&at)
	return promoted, moment(at), failed("promote", err)
}

// Ready counts the ready runs of each lane, up to the limit a lane. It walks the
// index from lane to lane, so that its cost does not grow with the queue.
func (s *Store) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	rows, err := s.work.Query(ctx, `
WITH RECURSIVE lane (name) AS (
  (SELECT lane FROM belfry.runs WHERE state = 'ready' ORDER BY lane LIMIT 1)
   UNION ALL
  SELECT (SELECT r.lane FROM belfry.runs r WHERE r.state = 'ready' AND r.lane > lane.name ORDER BY r.lane LIMIT 1) FROM lane WHERE lane.name IS NOT NULL)
SELECT lane.name, n.ready FROM lane
 CROSS JOIN LATERAL (SELECT count(*) AS ready FROM (SELECT 1 FROM belfry.runs r WHERE r.state = 'ready' AND r.lane = lane.name LIMIT $1) x) n
 WHERE lane.name IS NOT NULL`, limit)
	if err != nil {
		return nil, failed("count ready runs", err)
	}
	ready := map[string]int{}
	var lane string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&lane, &n}, func() error {
		ready[lane] = n
		return nil
	})
	return ready, failed("count ready runs", err)
}

// Park notes beside the plan of a job why it cannot be fired.
func (s *Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.work.Exec(ctx, `/* park */ UPDATE belfry.plans SET parked = $2 WHERE job_id = $1 AND parked IS DISTINCT FROM $2`, uuid(job), storable(why))
	return failed("park", err)
}
