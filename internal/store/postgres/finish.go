package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var settled []bool
	err := retryDeadlock(func() (err error) {
		settled, err = s.settle(ctx, results)
		return err
	})
	if err != nil {
		return nil, wrapError("finish", err)
	}
	verdicts := make([]belfry.Verdict, len(results))
	for i := range results {
		verdicts[i] = belfry.VerdictAccepted
		if settled[i] {
			continue
		}
		if verdicts[i], err = s.lateVerdict(ctx, results[i]); err != nil {
			return nil, wrapError("finish", err)
		}
	}
	return verdicts, nil
}

// settle applies results to the runs that are held by exactly their attempts, and
// reports which: first those that need nothing but the run itself, then those that
// depend on the retry policy. Then it promotes and archives what the runs leave behind.
func (s *Store) settle(ctx context.Context, results []belfry.Result) (settled []bool, err error) {
	settled = make([]bool, len(results))
	order := make([]int, len(results)) // by id, in which most plans lock the runs
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return results[i].RunID.Compare(results[j].RunID) })
	var succeeded, failed []int
	for _, i := range order {
		if results[i].Outcome == belfry.OutcomeSucceeded {
			succeeded = append(succeeded, i)
		} else {
			failed = append(failed, i)
		}
	}
	var next followUps
	if err = s.finishSucceeded(ctx, results, succeeded, settled, &next); err == nil {
		err = s.finishFailed(ctx, results, failed, settled, &next)
	}
	s.runFollowUps(ctx, next)
	return settled, err
}

// resultArgs is the columns that every result has.
func resultArgs(results []belfry.Result, which []int) []any {
	return []any{
		column(which, func(i *int) int64 { return int64(*i) }),
		column(which, func(i *int) pgtype.UUID { return uuid(results[*i].RunID) }),
		column(which, func(i *int) string { return storable(results[*i].Namespace) }),
		column(which, func(i *int) int32 { return int32(results[*i].Attempt) }),
		column(which, func(i *int) pgtype.UUID { return notNull(results[*i].Token) }),
		column(which, func(i *int) int32 { return int32(results[*i].HTTPStatus) }),
		column(which, func(i *int) string { return sanitize.Text(results[*i].Error, store.MaxError) }),
		column(which, func(i *int) string { return sanitize.Text(results[*i].Output, belfry.MaxOutput) }),
	}
}

// settledColumns are the columns of a row about a settled run r that followUps.settled
// reads: the job is null if nothing follows.
const settledColumns = `r.n, CASE WHEN r.one_off OR r.has_waiting THEN r.job_id END, r.one_off, r.has_waiting`

// hasWaitingRun is whether another run of the job of r waits. Mostly no job has one,
// which one lookup shows for all.
const hasWaitingRun = `CASE WHEN (SELECT 1 FROM belfry.runs WHERE state = 'waiting' LIMIT 1) IS NULL THEN false
         ELSE (SELECT 1 FROM belfry.runs w WHERE w.job_id = r.job_id AND w.state = 'waiting' LIMIT 1) IS NOT NULL END`

const succeedSQL = `/* finish */
WITH result AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output)
), deleted AS (
  DELETE FROM belfry.runs r USING result
   WHERE r.id = result.id AND r.namespace = result.namespace AND r.state = 'running' AND r.attempt = result.attempt AND r.token = result.token
  RETURNING r.*, result.n, result.http_status, result.error, result.output, clock_timestamp() AS now, ` + hasWaitingRun + ` AS has_waiting
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + retention_days * interval '24 hours'
    FROM deleted
), updated_keys AS (
  INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at, succeeded_at)
  SELECT DISTINCT ON (job_id, key) job_id, key, shard, id, now, now FROM deleted WHERE key IS NOT NULL AND kind = 'scheduled' ORDER BY job_id, key, id
  ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at
)
SELECT ` + settledColumns + ` FROM deleted r`

func (s *Store) finishSucceeded(ctx context.Context, results []belfry.Result, which []int, settled []bool, next *followUps) error {
	if len(which) == 0 {
		return nil
	}
	return next.settled(ctx, s.pool, settled, succeedSQL, resultArgs(results, which)...)
}

// lateVerdict reports whether a result without a live attempt was accepted before. If
// not it is late, and stored with the attempt that it is a result of.
func (s *Store) lateVerdict(ctx context.Context, r belfry.Result) (belfry.Verdict, error) {
	var known bool
	err := s.pool.QueryRow(ctx, `/* late */
SELECT EXISTS (SELECT 1 FROM belfry.history WHERE id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND state = 'succeeded' AND $5 = 'succeeded')
    OR EXISTS (SELECT 1 FROM belfry.attempts WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND outcome = $5)`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome)).Scan(&known)
	if err != nil {
		return "", err
	}
	if known {
		return belfry.VerdictAccepted, nil
	}
	_, err = s.pool.Exec(ctx, `/* late */ UPDATE belfry.attempts SET late_outcome = $5, late_at = clock_timestamp()
		WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND late_outcome IS NULL`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome))
	return belfry.VerdictLate, err
}

// failSQL settles attempts as decided, except that a run that was cancelled meanwhile
// is not retried.
const failSQL = `/* finish */
WITH result AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[],
                       $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::text[], $15::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output,
          outcome, next_state, delay_ms, new_failures, new_lost, reason, fingerprint)
), locked AS MATERIALIZED (
  SELECT r.*, result.n, result.http_status, result.error, result.output, result.outcome, result.new_failures, result.new_lost, result.reason,
         result.fingerprint, clock_timestamp() AS now, clock_timestamp() + result.delay_ms * interval '1 millisecond' AS retry_at,
         CASE WHEN r.cancel_requested_at IS NULL THEN result.next_state ELSE 'cancelled' END AS next_state
    FROM belfry.runs r JOIN result USING (id)
   WHERE r.namespace = result.namespace AND r.state = 'running' AND r.attempt = result.attempt AND r.token = result.token
   ORDER BY r.id FOR UPDATE OF r
), inserted_attempts AS (
  INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
  SELECT id, attempt, shard, namespace, outcome, worker, token, started_at, now, http_status, error, output FROM locked
  ON CONFLICT DO NOTHING
), retried AS (
  UPDATE belfry.runs r
     SET state = locked.next_state, ready_at = locked.retry_at, rank = (extract(epoch FROM locked.retry_at) * 1000000)::bigint + r.weight,
         failures = locked.new_failures, lost = locked.new_lost, worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL
    FROM locked WHERE r.id = locked.id AND locked.next_state NOT IN ('dead', 'cancelled')
), deleted AS (
  DELETE FROM belfry.runs r USING locked WHERE r.id = locked.id AND locked.next_state IN ('dead', 'cancelled')
), inserted_dead AS (
  INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, started_at, died_at, payload, fingerprint, key, weight, one_off, retention_days)
  SELECT id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
         timeout_ms, attempt, new_failures, new_lost, started_at, now, payload, fingerprint, key, weight, one_off, retention_days
    FROM locked WHERE next_state = 'dead'
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + retention_days * interval '24 hours'
    FROM locked WHERE next_state = 'cancelled'
)
SELECT ` + settledColumns + `
  FROM (SELECT n, job_id, one_off AND next_state = 'cancelled' AS one_off, next_state IN ('dead', 'cancelled') AND ` + hasWaitingRun + ` AS has_waiting FROM locked r) r`

// finishFailed settles attempts that did not succeed, by the policies of their jobs.
func (s *Store) finishFailed(ctx context.Context, results []belfry.Result, which []int, settled []bool, next *followUps) error {
	if len(which) == 0 {
		return nil
	}
	held, err := s.heldAttempts(ctx, results, which)
	if err != nil {
		return err
	}
	var known []int
	var settlements []belfry.Settlement
	for _, i := range which {
		r := results[i]
		h, ok := held[r.RunID]
		if !ok || h.attempt != r.Attempt || h.token != r.Token {
			continue
		}
		delete(held, r.RunID) // another result of this attempt in the batch is a repetition
		known, settlements = append(known, i), append(settlements, belfry.Settle(r.RunID, h.counts, h.retry, r))
	}
	if len(known) == 0 {
		return nil
	}
	states := column(settlements, func(s *belfry.Settlement) string { return string(s.State) })
	err = next.settled(ctx, s.pool, settled, failSQL, append(resultArgs(results, known),
		column(known, func(i *int) string { return string(results[*i].Outcome) }), states,
		column(settlements, func(s *belfry.Settlement) int64 { return s.Delay.Milliseconds() }),
		column(settlements, func(s *belfry.Settlement) int32 { return int32(s.Counts.Failures) }),
		column(settlements, func(s *belfry.Settlement) int32 { return int32(s.Counts.Lost) }),
		column(settlements, func(s *belfry.Settlement) string { return string(s.Reason) }),
		column(known, func(i *int) string { return belfry.Fingerprint(results[*i]) }))...)
	if err != nil {
		return err
	}
	if slices.Contains(states, string(belfry.RunReady)) {
		s.notifier.notifyReady()
	}
	if slices.Contains(states, string(belfry.RunRetry)) {
		s.notifier.notifyPlans(false)
	}
	return nil
}

// heldAttempt is what settling a failed attempt depends on.
type heldAttempt struct {
	attempt int
	token   belfry.Token
	counts  belfry.AttemptCounts
	retry   belfry.Retry
}

func (s *Store) heldAttempts(ctx context.Context, results []belfry.Result, which []int) (map[belfry.ID]heldAttempt, error) {
	ids := column(which, func(i *int) pgtype.UUID { return notNull(results[*i].RunID) })
	held := make(map[belfry.ID]heldAttempt, len(ids))
	var (
		id   belfry.ID
		h    heldAttempt
		spec string
	)
	err := forEach(ctx, s.pool, []any{idColumn(&id), &h.attempt, idColumn(&h.token), &h.counts.Failures, &h.counts.Lost, &h.counts.Cancelled, &spec}, func() error {
		h.retry = s.specs.OrZero(spec).Retry()
		held[id] = h
		return nil
	}, `SELECT r.id, r.attempt, r.token, r.failures, r.lost, r.cancel_requested_at IS NOT NULL, coalesce(v.spec, j.spec)
		FROM belfry.runs r`+joinRevision+` WHERE r.id = ANY($1) AND r.state = 'running'`, ids)
	return held, err
}

// followUps is what is to be done after runs were settled.
type followUps struct {
	waiting []belfry.ID // jobs with a waiting run
	oneOffs []belfry.ID // jobs whose last run this may have been
}

// settled runs a statement that returns settledColumns, and marks its results.
func (f *followUps) settled(ctx context.Context, q querier, settled []bool, sql string, args ...any) error {
	var (
		n                  int64
		job                belfry.ID
		oneOff, hasWaiting bool
	)
	return forEach(ctx, q, []any{&n, idColumn(&job), &oneOff, &hasWaiting}, func() error {
		settled[n] = true
		f.add(job, oneOff, hasWaiting)
		return nil
	}, sql, args...)
}

func (f *followUps) add(job belfry.ID, oneOff, hasWaiting bool) {
	if hasWaiting {
		f.waiting = append(f.waiting, job)
	}
	if oneOff {
		f.oneOffs = append(f.oneOffs, job)
	}
}

// runFollowUps promotes waiting runs and archives one-offs. The runs are settled in any
// case: after an error, Promote and Archive do it.
func (s *Store) runFollowUps(ctx context.Context, f followUps) {
	if _, err := s.advance(ctx, f.waiting); err != nil {
		s.log.Warn("waiting runs will be promoted a little later", "jobs", len(f.waiting), "error", err)
	}
	if len(f.oneOffs) == 0 {
		return
	}
	if err := s.archive(ctx, s.pool, f.oneOffs); err != nil {
		s.log.Warn("finished one-offs will be archived a little later", "jobs", len(f.oneOffs), "error", err)
	}
}
