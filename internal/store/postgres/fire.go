package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// fireSQL applies steps. The walls around an occurrence are all here: the
// version, the high-water mark, the database's clock and the run's key.
//
//   - step: what was decided, one row a plan
//   - mine: the plans that nobody else is changing, locked in order of id
//   - adv: those that are still as they were seen, moved on
//   - wish: the triggers consumed
//   - run: the runs to make, with whether the job's overlap limit has room; a run
//     made by somebody else since our snapshot would have moved the version
//   - slot: the tokens of the runs that the local worker takes at once
//   - made, skipped: what is written
const fireSQL = `/* fire */
WITH step AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[],
                       $9::text[], $10::text[], $11::integer[], $12::integer[], $13::bigint[], $14::text[], $15::bigint[])
    WITH ORDINALITY AS s (job_id, version, due, first_at, next_at, nominal_at, fired_for, runs_made,
                          zone_version, namespace, revision, shard, epoch, lane, timeout_ms, n)
), mine AS MATERIALIZED (
  SELECT p.job_id FROM belfry.plans p WHERE p.job_id = ANY($1) ORDER BY p.job_id FOR UPDATE SKIP LOCKED
), adv AS (
  UPDATE belfry.plans p
     SET version = p.version + 1, next_at = s.next_at, nominal_at = s.nominal_at, fired_for = s.fired_for,
         runs_made = s.runs_made, zone_version = s.zone_version
    FROM step s JOIN mine USING (job_id)
   WHERE p.job_id = s.job_id AND p.version = s.version
     AND (s.first_at IS NULL OR p.fired_for IS NULL OR p.fired_for < s.first_at)
     AND (NOT s.due OR p.next_at <= clock_timestamp())
  RETURNING s.n
), wish AS (
  UPDATE belfry.triggers t SET fired_at = clock_timestamp()
    FROM unnest($16::bigint[], $19::uuid[]) AS r (n, trigger_id) JOIN adv USING (n)
   WHERE t.id = r.trigger_id AND t.fired_at IS NULL
  RETURNING t.id
), run AS MATERIALIZED (
  SELECT r.*, s.job_id, s.namespace, s.revision, s.shard, s.epoch, s.lane, s.timeout_ms, clock_timestamp() AS now,
         r.most = 0 OR coalesce(live.runs, 0) + row_number() OVER (PARTITION BY s.job_id ORDER BY r.i) <= r.most AS fits
    FROM unnest($16::bigint[], $17::uuid[], $18::text[], $19::uuid[], $20::timestamptz[], $21::timestamptz[], $22::bigint[], $23::integer[], $24::text[])
      WITH ORDINALITY AS r (n, id, kind, trigger_id, scheduled_at, ready_at, rank, most, payload, i)
    JOIN adv USING (n)
    JOIN step s USING (n)
    LEFT JOIN LATERAL (SELECT count(*) AS runs FROM belfry.runs x WHERE x.job_id = s.job_id) live ON r.most > 0
   WHERE r.trigger_id IS NULL OR r.trigger_id IN (SELECT id FROM wish)
), slot AS (
  SELECT id, ($25::uuid[])[row_number() OVER (ORDER BY i)] AS token FROM run WHERE fits AND lane = ANY($35)
), made AS (
  INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, worker, token, started_at, deadline_at, payload)
  SELECT run.id, shard, namespace, job_id, revision, kind, lane, CASE WHEN token IS NULL THEN 'ready' ELSE 'running' END, rank, scheduled_at, ready_at, now, $32, epoch,
         timeout_ms, CASE WHEN token IS NULL THEN 0 ELSE 1 END, 0, 0, CASE WHEN token IS NULL THEN NULL ELSE $33::uuid END, token,
         CASE WHEN token IS NULL THEN NULL ELSE now END, CASE WHEN token IS NULL THEN NULL ELSE now + (timeout_ms + $34) * interval '1 millisecond' END, payload
    FROM run LEFT JOIN slot ON slot.id = run.id WHERE fits
  ON CONFLICT (id) DO NOTHING
  RETURNING id, state, token, fired_at, deadline_at
), skipped AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_to, skipped_count)
  SELECT id, shard, namespace, job_id, revision, kind, 'skipped', 'overlap', scheduled_at, ready_at, now, $32, epoch,
         0, now, 0, '', '', scheduled_at, 1
    FROM run WHERE NOT fits
   UNION ALL
  SELECT k.id, s.shard, s.namespace, s.job_id, s.revision, 'scheduled', 'skipped', k.reason, k.from_at, k.from_at, clock_timestamp(), $32, s.epoch,
         0, clock_timestamp(), 0, '', '', k.to_at, k.count
    FROM unnest($26::bigint[], $27::uuid[], $28::timestamptz[], $29::timestamptz[], $30::bigint[], $31::text[]) AS k (n, id, from_at, to_at, count, reason)
    JOIN adv USING (n)
    JOIN step s USING (n)
)
SELECT adv.n, coalesce(run.i, 0), coalesce(made.state, ''), made.token, made.fired_at, made.deadline_at, CASE WHEN made.state = 'running' THEN coalesce(run.payload, j.payload) END
  FROM adv
  LEFT JOIN run ON run.n = adv.n AND run.fits
  LEFT JOIN made ON made.id = run.id
  LEFT JOIN belfry.jobs j ON made.state = 'running' AND j.id = run.job_id`

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
	rows, err := q.Query(ctx, fireSQL, a.list(owner, slots)...)
	if err != nil {
		return fired, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			step, run    int64
			state        string
			token        pgtype.UUID
			at, deadline pgtype.Timestamptz
			payload      pgtype.Text
		)
		if err := rows.Scan(&step, &run, &state, &token, &at, &deadline, &payload); err != nil {
			return fired, err
		}
		if step < 1 || int(step) > len(steps) || int(run) > len(a.runs) {
			return fired, fmt.Errorf("step %d, run %d is out of range", step, run)
		}
		fired.Applied[step-1] = true
		switch belfry.RunState(state) {
		case belfry.RunReady:
			fired.Ready++
		case belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, a.claimed(int(run-1), slots.Worker, token.Bytes, moment(at), moment(deadline), payload))
		}
	}
	return fired, rows.Err()
}

// claimed is the run that a local slot was given.
func (a *fireArgs) claimed(i int, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload pgtype.Text) *belfry.Run {
	step, r := a.steps[a.stepOf[i]-1], a.runs[i]
	run := &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		State: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, Worker: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline,
	}
	if payload.Valid {
		run.Payload = json.RawMessage(payload.String)
	}
	return run
}
