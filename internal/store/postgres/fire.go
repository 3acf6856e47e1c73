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

// fireSQL applies steps. The walls around an occurrence are all here: the
// version, the high-water mark, the database's clock and the run's key.
//
//   - step: what was decided, one row a plan
//   - mine: the steps whose plan is as it was seen and that nobody else is
//     changing, locked
//   - adv: the same, their plans moved on
//   - wish: the triggers consumed
//   - wanted: the runs to make
//   - run: with whether the job's overlap limit has room; a run made by somebody
//     else since our snapshot would have moved the version
//   - placed: with the token, if the local worker takes it at once
//   - made, skipped: what is written
//
// Each part carries along what the next one needs. The planner guesses badly how
// many rows such parts have, and a join of two of them may become a loop over
// the square of the batch.
const fireSQL = `/* fire */
WITH step AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[],
                       $9::text[], $10::text[], $11::integer[], $12::integer[], $13::bigint[], $14::text[], $15::bigint[],
                       $39::bigint[])
    WITH ORDINALITY AS s (job_id, version, due, first_at, next_at, nominal_at, fired_for, runs_made,
                          zone_version, namespace, revision, shard, epoch, lane, timeout_ms, asked, n)
), mine AS MATERIALIZED (
  SELECT s.* FROM step s JOIN belfry.plans p ON p.job_id = s.job_id
   WHERE p.version = s.version
     AND (s.first_at IS NULL OR p.fired_for IS NULL OR p.fired_for < s.first_at)
     AND (NOT s.due OR p.next_at <= clock_timestamp())
     FOR UPDATE OF p SKIP LOCKED
), adv AS (
  UPDATE belfry.plans p
     SET version = p.version + 1, next_at = s.next_at, nominal_at = s.nominal_at, fired_for = s.fired_for,
         runs_made = s.runs_made, runs_asked = p.runs_asked + coalesce(s.asked, 0), zone_version = s.zone_version
    FROM mine s
   WHERE p.job_id = s.job_id AND p.version = s.version
  RETURNING s.n, s.job_id, s.namespace, s.revision, s.shard, s.epoch, s.lane, s.timeout_ms
), wish AS (
  UPDATE belfry.triggers t SET fired_at = clock_timestamp()
    FROM unnest($25::bigint[], $26::uuid[]) AS w (n, trigger_id) JOIN adv USING (n)
   WHERE t.id = w.trigger_id AND t.fired_at IS NULL
  RETURNING t.id
), wanted AS MATERIALIZED (
  SELECT r.*, adv.job_id, adv.namespace, adv.revision, adv.shard, adv.epoch, adv.lane, adv.timeout_ms
    FROM unnest($16::bigint[], $17::uuid[], $18::text[], $19::uuid[], $20::timestamptz[], $21::timestamptz[], $22::bigint[], $23::integer[], $24::text[],
                $38::text[])
      WITH ORDINALITY AS r (n, id, kind, trigger_id, scheduled_at, ready_at, rank, most, payload, key, i)
    JOIN adv USING (n)
   WHERE r.trigger_id IS NULL OR r.trigger_id IN (SELECT id FROM wish)
), run AS MATERIALIZED (
  SELECT *, clock_timestamp() AS now,
         most = 0 OR (SELECT count(*) FROM belfry.runs x WHERE x.job_id = w.job_id) + row_number() OVER (PARTITION BY job_id ORDER BY i) <= most AS fits
    FROM wanted w
), placed AS MATERIALIZED (
  SELECT *, CASE WHEN fits AND lane = ANY($36) THEN ($33::uuid[])[row_number() OVER (PARTITION BY fits AND lane = ANY($36) ORDER BY i)] END AS token
    FROM run
), made AS (
  INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, worker, token, started_at, deadline_at, payload, key)
  SELECT id, shard, namespace, job_id, revision, kind, lane, CASE WHEN token IS NULL THEN 'ready' ELSE 'running' END, rank, scheduled_at, ready_at, now, $34, epoch,
         timeout_ms, CASE WHEN token IS NULL THEN 0 ELSE 1 END, 0, 0, CASE WHEN token IS NULL THEN NULL ELSE $35::uuid END, token,
         CASE WHEN token IS NULL THEN NULL ELSE now END, CASE WHEN token IS NULL THEN NULL ELSE now + (timeout_ms + $37) * interval '1 millisecond' END, payload, key
    FROM placed WHERE fits
  ON CONFLICT (id) DO NOTHING
  RETURNING id, job_id, state, token, fired_at, deadline_at, payload
), skipped AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_to, skipped_count)
  SELECT id, shard, namespace, job_id, revision, kind, 'skipped', 'overlap', scheduled_at, ready_at, now, $34, epoch,
         0, now, 0, '', '', scheduled_at, 1
    FROM run WHERE NOT fits
   UNION ALL
  SELECT k.id, adv.shard, adv.namespace, adv.job_id, adv.revision, 'scheduled', 'skipped', k.reason, k.from_at, k.from_at, clock_timestamp(), $34, adv.epoch,
         0, clock_timestamp(), 0, '', '', k.to_at, k.count
    FROM unnest($27::bigint[], $28::uuid[], $29::timestamptz[], $30::timestamptz[], $31::bigint[], $32::text[]) AS k (n, id, from_at, to_at, count, reason)
    JOIN adv USING (n)
)
SELECT n, NULL, '', NULL, NULL, NULL, NULL FROM adv
 UNION ALL
SELECT 0, id, state, token, fired_at, deadline_at,
       CASE WHEN state = 'running' THEN coalesce(payload, (SELECT j.payload FROM belfry.jobs j WHERE j.id = made.job_id)) END
  FROM made`

// manySteps is the size from which a batch is worth a plan of its own. A prepared
// statement's plan soon becomes one for any size, which suits small batches.
const manySteps = 100

// Fire applies the steps whose plan is still as it was seen.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.Slots) (store.Fired, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return store.Fired{}, err
	}
	defer cancel()
	fired, err := s.fire(ctx, s.work, owner, steps, slots)
	if err != nil {
		return fired, failed("fire", err)
	}
	if fired.Ready > 0 {
		s.hints.tellReady()
	}
	return fired, nil
}

func (s *Store) fire(ctx context.Context, q querier, owner belfry.ID, steps []plan.Step, slots store.Slots) (store.Fired, error) {
	fired := store.Fired{Applied: make([]bool, len(steps))}
	if len(steps) == 0 {
		return fired, nil
	}
	a := newFireArgs(steps)
	args := a.list(owner, slots)
	if len(steps) > manySteps && !s.pooled {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	rows, err := q.Query(ctx, fireSQL, args...)
	if err != nil {
		return fired, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			step         int64
			state        string
			run, token   pgtype.UUID
			at, deadline pgtype.Timestamptz
			payload      pgtype.Text
		)
		if err := rows.Scan(&step, &run, &state, &token, &at, &deadline, &payload); err != nil {
			return fired, err
		}
		switch {
		case step > 0:
			fired.Applied[step-1] = true
		case belfry.RunState(state) == belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, a.claimed(run.Bytes, slots.Worker, token.Bytes, moment(at), moment(deadline), payload))
		default:
			fired.Ready++
		}
	}
	return fired, rows.Err()
}

// claimed is the run that a local slot was given.
func (a *fireArgs) claimed(id, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload pgtype.Text) *belfry.Run {
	i := a.index[id]
	step, r := a.steps[a.stepOf[i]-1], a.runs[i]
	run := &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		State: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, Worker: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, Key: r.Key,
	}
	if payload.Valid {
		run.Payload = json.RawMessage(payload.String)
	}
	return run
}
