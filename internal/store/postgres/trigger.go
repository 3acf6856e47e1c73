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

// Trigger records wishes for runs of one job.
func (s *Store) Trigger(ctx context.Context, wishes []plan.Trigger, r *store.Request) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	if r == nil {
		err = wish(ctx, s.work, wishes)
	} else {
		err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
			return keyed(ctx, tx, r, func() error { return wish(ctx, tx, wishes) })
		})
	}
	if err != nil {
		return failed("record triggers", err)
	}
	if len(wishes) > 0 {
		s.hints.tellChanged(false, wishes[0].JobID)
	}
	return nil
}

// wish writes triggers down. The lock on the job is for whoever has it leave the
// live tables: one of the two sees what the other did.
func wish(ctx context.Context, q querier, wishes []plan.Trigger) error {
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
		return endedOrNone(ctx, q, namespace, job)
	}
	return err
}

// endedOrNone says why there is no live job of this id.
func endedOrNone(ctx context.Context, q querier, namespace string, id belfry.ID) error {
	var ended bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE namespace = $1 AND id = $2)`, namespace, uuid(id)).Scan(&ended)
	switch {
	case err != nil:
		return err
	case ended:
		return belfry.Errorf(belfry.Conflict, "the job has ended; create it again")
	}
	return noSuchJob(id)
}
