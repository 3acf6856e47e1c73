package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// maxError bounds the text kept of an error.
const maxError = 8 << 10

// deadlock is what the server answers to one of two transactions that wait for
// each other: here, two that settle the same attempts. Nothing was done.
const deadlock = "40P01"

// Finish settles attempts. A result that fits no live attempt was accepted
// before or is late.
func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	settled, err := s.settle(ctx, results)
	for tries := 0; sqlState(err) == deadlock && tries < 3; tries++ {
		settled, err = s.settle(ctx, results)
	}
	if err != nil {
		return nil, failed("finish", err)
	}
	verdicts := make([]belfry.Verdict, len(results))
	for i := range results {
		verdicts[i] = belfry.VerdictAccepted
		if settled[i] {
			continue
		}
		if verdicts[i], err = s.lateOrKnown(ctx, results[i]); err != nil {
			return nil, failed("finish", err)
		}
	}
	return verdicts, nil
}

// settle applies results to the runs that are held by exactly their attempts,
// and says which: first those that need nothing but the run itself, then those
// whose retry policy has to be asked.
func (s *Store) settle(ctx context.Context, results []belfry.Result) (settled []bool, err error) {
	settled = make([]bool, len(results))
	order := make([]int, len(results)) // by id, in which most plans lock the runs
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return results[i].RunID.Compare(results[j].RunID) })
	var good, bad []int
	for _, i := range order {
		if results[i].Outcome == belfry.OutcomeSucceeded {
			good = append(good, i)
		} else {
			bad = append(bad, i)
		}
	}
	if err := s.succeed(ctx, results, good, settled); err != nil {
		return nil, err
	}
	return settled, s.fail(ctx, results, bad, settled)
}

// fenceArgs is the columns that every result has.
type fenceArgs struct {
	n          []int64
	ids        []pgtype.UUID
	namespaces []string
	attempts   []int32
	tokens     []pgtype.UUID
	statuses   []int32
	errors     []string
	outputs    []string
}

func newFenceArgs(results []belfry.Result, which []int) *fenceArgs {
	a := &fenceArgs{}
	for _, i := range which {
		r := &results[i]
		a.n = append(a.n, int64(i))
		a.ids = append(a.ids, uuid(r.RunID))
		a.namespaces = append(a.namespaces, storable(r.Namespace))
		a.attempts = append(a.attempts, int32(r.Attempt))
		a.tokens = append(a.tokens, pgtype.UUID{Bytes: r.Token, Valid: true})
		a.statuses = append(a.statuses, int32(r.HTTPStatus))
		a.errors = append(a.errors, belfry.Clean(r.Error, maxError))
		a.outputs = append(a.outputs, belfry.Clean(string(r.Output), belfry.MaxOutput))
	}
	return a
}

const succeedSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output)
), gone AS (
  DELETE FROM belfry.runs r USING done
   WHERE r.id = done.id AND r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
  RETURNING r.*, done.n, done.http_status, done.error, done.output
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key)
  SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, clock_timestamp(), http_status, error, output, 0, key
    FROM gone
)
SELECT n FROM gone`

func (s *Store) succeed(ctx context.Context, results []belfry.Result, which []int, settled []bool) error {
	if len(which) == 0 {
		return nil
	}
	a := newFenceArgs(results, which)
	rows, err := s.work.Query(ctx, succeedSQL, a.n, a.ids, a.namespaces, a.attempts, a.tokens, a.statuses, a.errors, a.outputs)
	return mark(rows, err, settled)
}

// mark notes the results whose index was returned.
func mark(rows pgx.Rows, err error, settled []bool) error {
	if err != nil {
		return err
	}
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&n}, func() error {
		settled[n] = true
		return nil
	})
	return err
}

const failSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[],
                       $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::text[], $15::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output,
          outcome, next_state, delay_ms, failures_now, lost_now, reason, fingerprint)
), held AS MATERIALIZED (
  SELECT r.*, done.n, done.http_status, done.error, done.output, done.outcome, done.next_state, done.failures_now, done.lost_now, done.reason,
         done.fingerprint, clock_timestamp() AS now, clock_timestamp() + done.delay_ms * interval '1 millisecond' AS again_at
    FROM belfry.runs r JOIN done USING (id)
   WHERE r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
   ORDER BY r.id FOR UPDATE OF r
), noted AS (
  INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
  SELECT id, attempt, shard, namespace, outcome, worker, token, started_at, now, http_status, error, output FROM held
  ON CONFLICT DO NOTHING
), again AS (
  UPDATE belfry.runs r
     SET state = held.next_state, ready_at = held.again_at, rank = (extract(epoch FROM held.again_at) * 1000000)::bigint,
         failures = held.failures_now, lost = held.lost_now, worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL
    FROM held WHERE r.id = held.id AND held.next_state <> 'dead'
), gone AS (
  DELETE FROM belfry.runs r USING held WHERE r.id = held.id AND held.next_state = 'dead'
), buried AS (
  INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, started_at, died_at, payload, trace, fingerprint, key)
  SELECT id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
         timeout_ms, attempt, failures_now, lost_now, started_at, now, payload, trace, fingerprint, key
    FROM held WHERE next_state = 'dead'
)
SELECT n FROM held`

// fail settles attempts that did not succeed, as the job's policy says.
func (s *Store) fail(ctx context.Context, results []belfry.Result, which []int, settled []bool) error {
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
		next := belfry.Settle(r.RunID, p.tally, p.retry, r.Outcome)
		known = append(known, i)
		outcomes, states = append(outcomes, string(r.Outcome)), append(states, string(next.State))
		delays = append(delays, next.Delay.Milliseconds())
		failures, lost = append(failures, int32(next.Tally.Failures)), append(lost, int32(next.Tally.Lost))
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
	if err := mark(rows, err, settled); err != nil {
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
	tally   belfry.Tally
	retry   belfry.Retry
}

// policies reads what settling a run that failed depends on.
func (s *Store) policies(ctx context.Context, ids []belfry.ID) (map[belfry.ID]policy, error) {
	rows, err := s.work.Query(ctx, `SELECT r.id, r.attempt, r.token, r.failures, r.lost, coalesce(v.spec, j.spec) FROM belfry.runs r`+atRevision+` WHERE r.id = ANY($1) AND r.state = 'running'`, uuids(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[belfry.ID]policy, len(ids))
	var (
		id, token pgtype.UUID
		p         policy
		text      string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &p.attempt, &token, &p.tally.Failures, &p.tally.Lost, &text}, func() error {
		p.retry, p.token = s.specs.OrNone(text).Retry(), token.Bytes
		out[id.Bytes] = p
		return nil
	})
	return out, err
}

// lateOrKnown says whether a result that fits no live attempt was accepted
// before. If not it is late, and noted beside the attempt that was given up.
func (s *Store) lateOrKnown(ctx context.Context, r belfry.Result) (belfry.Verdict, error) {
	var known bool
	err := s.work.QueryRow(ctx, `/* late */
SELECT EXISTS (SELECT 1 FROM belfry.history WHERE id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND state = $5)
    OR EXISTS (SELECT 1 FROM belfry.attempts WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND outcome = $5)`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome)).Scan(&known)
	if err != nil {
		return "", err
	}
	if known {
		return belfry.VerdictAccepted, nil
	}
	_, err = s.work.Exec(ctx, `/* late */ UPDATE belfry.attempts SET late_outcome = $5, late_at = clock_timestamp()
		WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND late_outcome IS NULL`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome))
	return belfry.VerdictLate, err
}
