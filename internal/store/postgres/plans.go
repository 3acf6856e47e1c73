package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	zoneUpdateScanLimit = 8000 // plans that one call of PlansForZoneUpdate reads

	planColumnsSQL = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.one_off`

	// The name is read only where a template of keys has it.
	dueColumns = planColumnsSQL + `, j.namespace, j.revision, j.spec,
	CASE WHEN strpos(j.spec, '{{') > 0 AND j.spec ~ '\{\{ *name *\}\}' THEN coalesce(j.name, '') ELSE '' END`
)

func planFields(p *plan.Plan) []any {
	return []any{idColumn(&p.JobID), &p.Shard, &p.Version, timeColumn{&p.NextAt}, timeColumn{&p.NominalAt}, timeColumn{&p.FiredFor},
		&p.RunsMade, &p.ZoneVersion, &p.Once}
}

func dueFields(d *store.Due) []any {
	return append(planFields(&d.Plan), &d.Namespace, &d.Revision, &d.Spec, &d.Name)
}

var scanDue = scanInto(dueFields)

// Upcoming selects plans from their narrow table before the jobs are looked up.
func (s *Store) Upcoming(ctx context.Context, w store.Window) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans
         WHERE shard = ANY($1) AND next_at <= $2 AND ($3::timestamptz IS NULL OR next_at > $3)
         ORDER BY next_at FETCH FIRST $4 ROWS WITH TIES)`, int32s(w.Shards), w.Until, timestamptz(w.After), int64(w.Limit))
}

func (s *Store) Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE shard = ANY($1) AND next_at < $2 ORDER BY next_at LIMIT $3)`, int32s(shards), before, limit)
}

func (s *Store) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE job_id = ANY($1))`, uuids(jobs))
}

// queryDue reads the plans of a subquery.
func (s *Store) queryDue(ctx context.Context, plans string, args ...any) ([]store.Due, error) {
	due, err := collect(ctx, s.pool, scanDue, `SELECT `+dueColumns+` FROM `+plans+` p JOIN belfry.jobs j ON j.id = p.job_id ORDER BY p.next_at, p.job_id`, args...)
	return due, wrapError("read plans", err)
}

// PlansForZoneUpdate has no index: it would cost every firing something, for a search
// that happens a few times a year.
func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, nil
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		const scan = ` FROM belfry.plans WHERE job_id > $1 ORDER BY job_id`
		due, err = collect(ctx, tx, scanDue, `SELECT `+dueColumns+`
  FROM (SELECT *`+scan+` LIMIT $2) p JOIN belfry.jobs j ON j.id = p.job_id
 WHERE p.zone_version COLLATE "C" < $3 AND p.nominal_at IS NOT NULL AND p.shard = ANY($4) AND j.state <> 'deleted'
 ORDER BY p.job_id LIMIT $5`, notNull(after), zoneUpdateScanLimit, release, int32s(shards), limit)
		if err != nil {
			return err
		}
		if len(due) == limit {
			next = due[limit-1].Plan.JobID
			return nil
		}
		end, err := scanEnd(ctx, tx, "job_id", scan, notNull(after), zoneUpdateScanLimit)
		next = end.Bytes
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, wrapError("read plans for a time-zone data update", err)
	}
	return due, next, nil
}

func (s *Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, `/* quarantine */ UPDATE belfry.plans SET quarantined = $2 WHERE job_id = $1 AND quarantined IS DISTINCT FROM $2`, uuid(job), storable(why))
	return wrapError("quarantine a job", err)
}

func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var err error
	if r == nil {
		err = insertTriggers(ctx, s.pool, triggers)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error { return insertTriggers(ctx, tx, triggers) })
		})
	}
	if err != nil {
		return wrapError("store triggers", err)
	}
	if len(triggers) > 0 {
		s.notifier.notifyPlans(false, triggers[0].JobID)
	}
	return nil
}

// insertTriggers locks the job, so that either the triggers see that it was archived or
// the archiver sees the triggers.
func insertTriggers(ctx context.Context, q querier, triggers []plan.Trigger) error {
	if len(triggers) == 0 {
		return nil
	}
	job, namespace := triggers[0].JobID, triggers[0].Namespace
	var found, known bool
	err := q.QueryRow(ctx, `/* trigger */
WITH job AS MATERIALIZED (SELECT id, shard, namespace FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted' FOR KEY SHARE),
inserted AS (
  INSERT INTO belfry.triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
  SELECT t.id, job.shard, job.namespace, job.id, t.run_id, t.kind, t.at, t.payload, clock_timestamp()
    FROM job CROSS JOIN unnest($3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::text[]) AS t (id, run_id, kind, at, payload)
  ON CONFLICT (id) DO NOTHING)
SELECT EXISTS (SELECT 1 FROM job), EXISTS (SELECT 1 FROM belfry.triggers WHERE id = ($3::uuid[])[1])`, namespace, uuid(job),
		column(triggers, func(t *plan.Trigger) pgtype.UUID { return uuid(t.ID) }),
		column(triggers, func(t *plan.Trigger) pgtype.UUID { return uuid(t.RunID()) }),
		column(triggers, func(t *plan.Trigger) string { return string(t.Kind) }),
		column(triggers, func(t *plan.Trigger) time.Time { return t.At }),
		column(triggers, func(t *plan.Trigger) pgtype.Text { return text(string(t.Payload)) })).Scan(&found, &known)
	if err == nil && !found && !known { // the run of a known trigger may have been the last one of the job
		return noLiveJobError(ctx, q, namespace, job)
	}
	return err
}

// PendingTriggers: no run is ready before its trigger was stored.
func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	pending, err := collect(ctx, s.pool, scanInto(pendingTriggerFields), `
SELECT `+dueColumns+`, t.id, t.namespace, t.job_id, t.shard, t.kind, t.at, t.created_at, t.payload
  FROM belfry.triggers t
  JOIN belfry.plans p ON p.job_id = t.job_id
  JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.shard = ANY($1) AND t.fired_at IS NULL AND j.state <> 'deleted'
 ORDER BY t.created_at, t.id LIMIT $2`, int32s(shards), limit)
	return pending, wrapError("read triggers", err)
}

func pendingTriggerFields(p *store.PendingTrigger) []any {
	t := &p.Trigger
	return append(dueFields(&p.Due), idColumn(&t.ID), &t.Namespace, idColumn(&t.JobID), &t.Shard, &t.Kind, timeColumn{&t.At}, timeColumn{&t.ReadyAt}, jsonColumn{&t.Payload})
}
