package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// failSQL settles attempts as it is told, but a run that was cancelled meanwhile is
// not tried again.
const failSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[],
                       $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::text[], $15::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output,
          outcome, next_state, delay_ms, failures_now, lost_now, reason, fingerprint)
), held AS MATERIALIZED (
  SELECT r.*, done.n, done.http_status, done.error, done.output, done.outcome, done.failures_now, done.lost_now, done.reason,
         done.fingerprint, clock_timestamp() AS now, clock_timestamp() + done.delay_ms * interval '1 millisecond' AS again_at,
         CASE WHEN r.cancel_at IS NULL THEN done.next_state ELSE 'cancelled' END AS next_state
    FROM belfry.runs r JOIN done USING (id)
   WHERE r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
   ORDER BY r.id FOR UPDATE OF r
), noted AS (
  INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
  SELECT id, attempt, shard, namespace, outcome, worker, token, started_at, now, http_status, error, output FROM held
  ON CONFLICT DO NOTHING
), again AS (
  UPDATE belfry.runs r
     SET state = held.next_state, ready_at = held.again_at, rank = (extract(epoch FROM held.again_at) * 1000000)::bigint + r.weight,
         failures = held.failures_now, lost = held.lost_now, worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL
    FROM held WHERE r.id = held.id AND held.next_state NOT IN ('dead', 'cancelled')
), gone AS (
  DELETE FROM belfry.runs r USING held WHERE r.id = held.id AND held.next_state IN ('dead', 'cancelled')
), buried AS (
  INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, started_at, died_at, payload, trace, fingerprint, key, weight, once, keep_days)
  SELECT id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
         timeout_ms, attempt, failures_now, lost_now, started_at, now, payload, trace, fingerprint, key, weight, once, keep_days
    FROM held WHERE next_state = 'dead'
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + keep_days * interval '24 hours'
    FROM held WHERE next_state = 'cancelled'
)
SELECT r.n, ` + aftermathSQL + `
  FROM (SELECT n, job_id, once AND next_state = 'cancelled' AS once, next_state IN ('dead', 'cancelled') AND ` + waitsSQL + ` AS waits FROM held r) r`

// fail settles attempts that did not succeed, as the job's policy says.
func (s *Store) fail(ctx context.Context, results []belfry.Result, which []int, settled []bool, rest *aftermath) error {
	if len(which) == 0 {
		return nil
	}
	ids := make([]belfry.ID, len(which))
	for k, i := range which {
		ids[k] = results[i].RunID
	}
	policies, err := s.policies(ctx, ids)
	if err != nil {
		return err
	}
	var known []int
	var outcomes, states, reasons, prints []string
	var delays []int64
	var failures, lost []int32
	again, retry := false, false
	for _, i := range which {
		r := results[i]
		p, ok := policies[r.RunID]
		if !ok || p.attempt != r.Attempt || p.token != r.Token {
			continue
		}
		delete(policies, r.RunID) // another result of this attempt in the batch is a repetition
		next := belfry.Settle(r.RunID, p.tally, p.retry, r)
		known = append(known, i)
		outcomes, states = append(outcomes, string(r.Outcome)), append(states, string(next.State))
		delays = append(delays, next.Delay.Milliseconds())
		failures, lost = append(failures, int32(next.Counts.Failures)), append(lost, int32(next.Counts.Lost))
		reasons, prints = append(reasons, string(next.Reason)), append(prints, belfry.Fingerprint(r))
		again = again || next.State == belfry.RunReady
		retry = retry || next.State == belfry.RunRetry
	}
	if len(known) == 0 {
		return nil
	}
	a := newFenceArgs(results, known)
	rows, err := s.work.Query(ctx, failSQL, a.n, a.ids, a.namespaces, a.attempts, a.tokens, a.statuses, a.errors, a.outputs,
		outcomes, states, delays, failures, lost, reasons, prints)
	if err := rest.mark(rows, err, settled); err != nil {
		return err
	}
	if again {
		s.hints.tellReady()
	}
	if retry {
		s.hints.tellChanged(false)
	}
	return nil
}

type policy struct {
	attempt int
	token   belfry.Token
	tally   belfry.AttemptCounts
	retry   belfry.Retry
}

// policies reads what settling a run that failed depends on.
func (s *Store) policies(ctx context.Context, ids []belfry.ID) (map[belfry.ID]policy, error) {
	rows, err := s.work.Query(ctx, `SELECT r.id, r.attempt, r.token, r.failures, r.lost, r.cancel_at IS NOT NULL, coalesce(v.spec, j.spec)
		FROM belfry.runs r`+atRevision+` WHERE r.id = ANY($1) AND r.state = 'running'`, uuids(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[belfry.ID]policy, len(ids))
	var (
		id, token pgtype.UUID
		p         policy
		text      string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &p.attempt, &token, &p.tally.Failures, &p.tally.Lost, &p.tally.Cancelled, &text}, func() error {
		p.retry, p.token = s.specs.OrZero(text).Retry(), token.Bytes
		out[id.Bytes] = p
		return nil
	})
	return out, err
}
