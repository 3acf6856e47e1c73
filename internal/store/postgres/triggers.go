package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Trigger records wishes for runs of one job.
func (s *Store) Trigger(ctx context.Context, wishes []plan.Trigger, r *store.Request) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	if r == nil {
		err = insertTriggers(ctx, s.pool, wishes)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error { return insertTriggers(ctx, tx, wishes) })
		})
	}
	if err != nil {
		return wrapError("record triggers", err)
	}
	if len(wishes) > 0 {
		s.notifier.notifyPlans(false, wishes[0].JobID)
	}
	return nil
}

// wish writes triggers down. The lock on the job is for whoever has it leave the
// live tables: one of the two sees what the other did.
func insertTriggers(ctx context.Context, q querier, wishes []plan.Trigger) error {
	if len(wishes) == 0 {
		return nil
	}
	job, namespace := wishes[0].JobID, wishes[0].Namespace
	n := len(wishes)
	ids, runs, kinds := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]string, n)
	times, payloads := make([]time.Time, n), make([]pgtype.Text, n)
	for i, t := range wishes {
		ids[i], runs[i], kinds[i] = uuid(t.ID), uuid(t.RunID()), string(t.Kind)
		times[i], payloads[i] = t.At, text(string(t.Payload))
	}
	var found, known bool
	err := q.QueryRow(ctx, `/* trigger */
WITH job AS MATERIALIZED (SELECT id, shard, namespace FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted' FOR KEY SHARE),
wish AS (
  INSERT INTO belfry.triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
  SELECT w.id, job.shard, job.namespace, job.id, w.run_id, w.kind, w.at, w.payload, clock_timestamp()
    FROM job CROSS JOIN unnest($3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::text[]) AS w (id, run_id, kind, at, payload)
  ON CONFLICT (id) DO NOTHING)
SELECT EXISTS (SELECT 1 FROM job), EXISTS (SELECT 1 FROM belfry.triggers WHERE id = ($3::uuid[])[1])`, namespace, uuid(job), ids, runs, kinds, times, payloads).Scan(&found, &known)
	if err == nil && !found && !known { // A wish that is known may have been the last that the job had to fulfil.
		return noLiveJobError(ctx, q, namespace, job)
	}
	return err
}

// Triggers gives the triggers that are not fired yet, oldest first. No run is ready
// before it was asked for.
func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) ([]store.PendingTrigger, error) {
	rows, err := s.pool.Query(ctx, `
SELECT t.id, t.namespace, t.job_id, t.shard, t.kind, t.at, t.created_at, t.payload, `+dueColumns+`
  FROM belfry.triggers t
  JOIN belfry.plans p ON p.job_id = t.job_id
  JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.shard = ANY($1) AND t.fired_at IS NULL AND j.state <> 'deleted'
 ORDER BY t.created_at, t.id LIMIT $2`, int32s(shards), limit)
	if err != nil {
		return nil, wrapError("read triggers", err)
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
	return wishes, wrapError("read triggers", err)
}
