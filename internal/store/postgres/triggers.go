package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Trigger stores triggers of one job.
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

// PendingTriggers returns the triggers that are not fired yet, oldest first. No run is
// ready before its trigger was stored.
func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	pending, err := collect(ctx, s.pool, scanPendingTrigger, `
SELECT t.id, t.namespace, t.job_id, t.shard, t.kind, t.at, t.created_at, t.payload, `+dueColumns+`
  FROM belfry.triggers t
  JOIN belfry.plans p ON p.job_id = t.job_id
  JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.shard = ANY($1) AND t.fired_at IS NULL AND j.state <> 'deleted'
 ORDER BY t.created_at, t.id LIMIT $2`, int32s(shards), limit)
	return pending, wrapError("read triggers", err)
}

func scanPendingTrigger(row pgx.CollectableRow) (store.PendingTrigger, error) {
	var (
		scan    dueScan
		t       plan.Trigger
		id, job pgtype.UUID
		payload pgtype.Text
	)
	err := row.Scan(append([]any{&id, &t.Namespace, &job, &t.Shard, &t.Kind, &t.At, &t.ReadyAt, &payload}, scan.fields()...)...)
	t.ID, t.JobID, t.At, t.ReadyAt, t.Payload = id.Bytes, job.Bytes, t.At.UTC(), t.ReadyAt.UTC(), rawJSON(payload)
	return store.PendingTrigger{Trigger: t, Due: scan.result()}, err
}
